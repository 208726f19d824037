"""Chat streams that others recorded from many servers: what was sent comes out, and no rule is broken."""

from __future__ import annotations

import json

import pytest

from tests.foreign_streams import ABSENT, ChatStream, chat_streams, received, sent
from tests.stream.stream_player import DONE, complaints, event, substance, translate

pytestmark = pytest.mark.skipif(not chat_streams(), reason=ABSENT)


def every_stream() -> pytest.MarkDecorator:
    return pytest.mark.parametrize("stream", chat_streams(), ids=lambda stream: stream.name)


def pieces(stream: ChatStream) -> list[bytes]:
    return [*map(event, stream.chunks), DONE]


@every_stream()
def test_what_was_sent_comes_out_and_no_rule_is_broken(stream: ChatStream) -> None:
    body = translate(pieces(stream), tools={})
    assert complaints(body) == []
    assert received(body) == sent(stream)


@every_stream()
def test_the_response_ends_as_the_answer_did(stream: ChatStream) -> None:
    choices = [choice for chunk in stream.chunks for choice in chunk.get("choices") or ()]
    reasons = {choice.get("finish_reason") for choice in choices} - {None}
    ending = {frozenset(): "failed", frozenset({"length"}): "incomplete"}.get(frozenset(reasons), "completed")
    failed = any("error" in chunk for chunk in stream.chunks)
    status = json.loads(translate(pieces(stream), tools={}).split(b"data: ")[-2])["response"]["status"]
    assert status == ending or (failed and status == "failed")


@every_stream()
def test_the_cut_of_the_body_changes_nothing(stream: ChatStream) -> None:
    body = b"".join(pieces(stream))
    parts = [body[at : at + 997] for at in range(0, len(body), 997)]
    assert substance(translate(parts, tools={})) == substance(translate([body], tools={}))
