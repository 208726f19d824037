"""A stream whose writer died is closed as the writer itself would have done it."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from responses_gateway.conformance.checker import check_stream
from responses_gateway.stream.options import SUMMARY_READER
from responses_gateway.stream.stored import FailedStream, fail_stream, with_status
from responses_gateway.stream.translator import Translator
from responses_gateway.wire.errors import server_error
from tests.judges import judge_stream
from tests.stream.stream_player import DONE, arguments, call, chunk, events_of, new_translator, refuse, text, think
from tests.stream.test_stream_properties import Delta, chunks, quick, scripts


def sent_by(playing: Translator, pieces: list[bytes]) -> bytes:
    return b"".join([playing.start(), *map(playing.feed, pieces)])


def around(response: dict[str, Any]) -> tuple[str, str]:
    """Return the JSON of a response before and after its items."""
    names = list(response)
    place = names.index("output")
    before, after = (
        ",".join(f"{json.dumps(name)}:{json.dumps(response[name])}" for name in some)
        for some in (names[:place], names[place + 1 :])
    )
    return f'{{{before},"output":[', f"],{after}}}"


def failed(sent: bytes) -> FailedStream:
    error = {"code": "server_error", "message": "gone"}
    return fail_stream(sent, sent.count(b"\n\n"), *around(events_of(sent)[0]["response"]), error)


def ending(sent: bytes) -> tuple[list[dict[str, Any]], list[dict[str, Any]]]:
    """Return the events that close what is open, and its item."""
    number = sent.count(b"\n\n")
    end = failed(sent)
    *events, terminal = events_of(end.events)
    assert terminal["type"] == "response.failed"
    assert [event["sequence_number"] for event in (*events, terminal)] == list(range(number, end.next_number))
    done = [event for event in events_of(sent) if event["type"] == "response.output_item.done"]
    return events, [json.loads(item) for item in end.output[len(done) :]]


def whole(sent: bytes) -> bytes:
    """Return the stream with its end."""
    return b"".join([sent, failed(sent).events, DONE])


@pytest.mark.parametrize(
    "pieces",
    [
        [think("hm"), think(" so")],
        [think("hm"), text("It "), text("is")],
        [text("It"), chunk({"content": "x"}, logprobs={"content": [{"token": "x", "logprob": -1.0, "bytes": [120]}]})],
        [refuse("I can"), refuse("not")],
        [text("Look: "), call(0, "c1", "weather", '{"city": "O'), arguments(0, "sl")],
        [call(0, "c1", "crm__find", "")],
        [call(0, "c1", "patch", '{"input": "*** Be'), arguments(0, "gin")],
        [],
    ],
)
@pytest.mark.parametrize("form", [{"summary": True}, {"summary": False}, {"client": SUMMARY_READER}])
@pytest.mark.parametrize("name", ["response.reasoning_text", "response.reasoning"])
def test_it_ends_as_its_writer_would_have_ended_it(pieces: list[bytes], form: dict[str, Any], name: str) -> None:
    playing = new_translator(logprobs=True, reasoning_event=name, **form)
    sent = sent_by(playing, pieces)
    events = events_of(playing.fail(server_error("gone")))
    (failed,) = events_of(playing.terminal())
    closing, items = ending(sent)
    assert closing == events
    assert [*json.loads(f"[{','.join(playing.response.output)}]")][len(playing.response.output) - len(items) :] == items
    assert failed["response"]["output"] == events_of(whole(sent))[-1]["response"]["output"]
    assert judge_stream(whole(sent)) == []


@quick
@given(scripts(), st.integers(0, 60))
def test_wherever_it_breaks_off_the_laws_hold(deltas: list[Delta], after: int) -> None:
    sent = sent_by(new_translator(), chunks(deltas)[:after])
    assert check_stream(whole(sent)) == []


def test_half_a_summary_is_no_item() -> None:
    """It would stand for all that came before."""
    playing = new_translator()
    sent = playing.start() + playing.begin_summary("cmp_1")
    assert ending(sent) == ([], [])
    assert playing.fail(server_error("gone")) == b""
    assert events_of(playing.terminal())[-1]["response"]["output"] == []
    assert check_stream(whole(sent), unfinished_allowed=True) == []


def test_what_is_closed_stays_closed() -> None:
    playing = new_translator()
    sent = sent_by(playing, [think("hm"), text("It is")]) + playing.fail(server_error("gone"))
    assert ending(sent) == ([], [])


def test_the_response_around_its_items_is_built_anew() -> None:
    """Its error may hold anything; what comes after the items stays as it was."""
    error = {"code": "server_error", "message": 'says "output":[ and "status":"queued"'}
    head, tail = '{"id":"resp_1","status":"queued","error":null,"output":[', '],"instructions":"\\"output\\":["}'
    response = json.loads(with_status(head, tail, "failed", error) + tail)
    assert response == {"id": "resp_1", "status": "failed", "error": error, "output": [], "instructions": '"output":['}
