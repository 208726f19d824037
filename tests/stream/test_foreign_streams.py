"""Chat streams that others recorded from many servers: what was sent comes out, and no rule is broken."""

from __future__ import annotations

import json

import pytest

from tests.foreign_streams import ChatStream, chat_streams, needs_them, received, sent
from tests.stream.stream_player import DONE, complaints, event, substance, translate

pytestmark = [needs_them, pytest.mark.untraced]  # because other tests run the same lines


def pieces(stream: ChatStream) -> list[bytes]:
    return [*map(event, stream.chunks), DONE]


@pytest.mark.slow
def test_what_was_sent_comes_out_and_no_rule_is_broken(subtests: pytest.Subtests) -> None:
    for stream in chat_streams():
        with subtests.test(stream.name):
            body = translate(pieces(stream), tools={})
            assert complaints(body) == []
            assert received(body) == sent(stream)


def test_the_response_ends_as_the_answer_did(subtests: pytest.Subtests) -> None:
    endings = {frozenset(): "failed", frozenset({"length"}): "incomplete"}
    for stream in chat_streams():
        with subtests.test(stream.name):
            choices = [choice for chunk in stream.chunks for choice in chunk.get("choices") or ()]
            reasons = {choice.get("finish_reason") for choice in choices} - {None}
            failed = any("error" in chunk for chunk in stream.chunks)
            status = json.loads(translate(pieces(stream), tools={}).split(b"data: ")[-2])["response"]["status"]
            assert status == endings.get(frozenset(reasons), "completed") or (failed and status == "failed")


def test_the_cut_of_the_body_changes_nothing(subtests: pytest.Subtests) -> None:
    for stream in chat_streams():
        with subtests.test(stream.name):
            body = b"".join(pieces(stream))
            parts = [body[at : at + 997] for at in range(0, len(body), 997)]
            assert substance(translate(parts, tools={})) == substance(translate([body], tools={}))
