"""The terminal event is asked for by itself, and so is the response that it carries; who records a stream is told of both."""

from __future__ import annotations

import json
from itertools import count
from typing import Any

import pytest

from responses_gateway.conformance.checker import check_stream
from responses_gateway.stream.lifecycle.machine import Lifecycle
from responses_gateway.stream.lifecycle.needs import Verdict
from responses_gateway.stream.translator import Translator
from responses_gateway.wire.errors import server_error
from responses_gateway.wire.tools import Grammar
from tests.stream.stream_player import DONE, ECHO, call, chunk, events_of, finish, new_translator, options, text, think

LOST = server_error("The connection broke.")


def ended(**fields: Any) -> Translator:
    playing = new_translator(**fields)
    playing.start()
    playing.feed(think("hm") + text("Hi \ud83d".encode("utf-8", "replace").decode()) + finish() + DONE)
    return playing


def test_there_is_no_terminal_event_before_the_end() -> None:
    playing = new_translator()
    assert playing.terminal() == b""
    sent = playing.start() + playing.feed(text("Hi"))
    assert playing.terminal() == b""
    sent += playing.feed(finish() + DONE)
    assert playing.ended
    assert [event["type"] for event in events_of(sent)][-1] == "response.output_item.done"
    assert check_stream(sent + playing.terminal()) == []


def test_it_is_the_same_however_often_it_is_asked_for() -> None:
    playing = ended()
    (event,) = events_of(playing.terminal())
    assert playing.terminal() == playing.terminal()
    assert event["sequence_number"] == playing.writer.next_number - 1
    assert event["response"] == json.loads(playing.response.json())


def test_no_response_ends_before_it_was_created_though_the_clock_was_set_back() -> None:
    playing = Translator(options(), count(1_800_000_000, -3600).__next__)
    playing.start()
    playing.feed(text("Hi") + finish() + DONE)
    response = json.loads(playing.response.json())
    assert response["completed_at"] == response["created_at"] == 1_800_000_000


@pytest.mark.parametrize("given", [True, False])
def test_what_could_not_be_stored_does_not_say_so(given: bool) -> None:
    playing = ended(echo={**ECHO, "store": given})
    for stored, said in ((None, given), (True, True), (False, False)):
        (event,) = events_of(playing.terminal(stored=stored))
        assert event["response"] == json.loads(playing.response.json(stored=stored))
        assert event["response"] == json.loads(playing.response.json()) | {"store": said}


def test_a_response_that_repeats_no_store_gets_none() -> None:
    assert "store" not in json.loads(ended(echo={}).response.json(stored=False))


def test_a_cancelled_response_has_no_error() -> None:
    playing = new_translator()
    playing.start()
    playing.feed(text("Hi"))
    playing.fail(LOST)
    failed = json.loads(playing.response.json())
    assert failed["error"] is not None
    assert json.loads(playing.response.json(status="cancelled")) == failed | {"status": "cancelled", "error": None}
    assert "".join([*around(playing, status="cancelled")]) == playing.response.json(status="cancelled")


def around(playing: Translator, **fields: Any) -> tuple[str, str, str]:
    before, behind = playing.response.text_around_output(**fields)
    return before, ",".join(playing.response.output), behind.decode()


def test_the_text_around_the_items_is_that_of_the_response() -> None:
    playing = ended()
    assert "".join(around(playing)) == playing.response.json()
    assert len(playing.response.output) == 2


@pytest.mark.parametrize("queued", [True, False])
def test_the_first_snapshot_can_be_had_at_any_time(queued: bool) -> None:
    playing = new_translator()
    first = playing.queue() if queued else playing.start()
    shown = events_of(first)[0]["response"]
    assert json.loads(playing.response.json()) == shown
    assert first_snapshot(playing) == shown
    playing.start()
    playing.feed(text("Hi") + finish() + DONE)
    assert first_snapshot(playing) == shown


def first_snapshot(playing: Translator) -> Any:
    before, behind = playing.response.first_text_around_output()
    return json.loads(before + behind.decode())


def test_a_response_that_runs_shows_how_it_stands() -> None:
    playing = new_translator()
    playing.start()
    playing.feed(think("hm") + text("Hi"))
    shown = json.loads(playing.response.json())
    assert (shown["status"], [item["type"] for item in shown["output"]]) == ("in_progress", ["reasoning"])


# ---- the client's name of a message ------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["a", 'é"}\n\n%d%', "}"])
def test_every_event_carries_the_stream_id_as_its_last_member(name: str) -> None:
    fields: dict[str, Any] = {"summary": True, "logprobs": True}
    pieces = [think("hm"), text("Hi"), text(" you"), call(0, "a", "weather", "{}"), call(1, "b", "patch", '{"input":"x"}')]
    seen = []
    for playing in (new_translator(stream_id=name, **fields), new_translator(**fields)):
        data = playing.start() + b"".join([playing.feed(piece) for piece in pieces]) + playing.keep_alive()
        seen.append(events_of(data + playing.feed(finish() + DONE) + playing.terminal()))
    assert [list(event)[-1] for event in seen[0]] == ["stream_id"] * len(seen[0])
    assert seen[0] == [{**event, "stream_id": name} for event in seen[1]]


# ---- what a recording is told ------------------------------------------------------------------------------------------

Noted = tuple[str, object, bytes]


def noting(**fields: Any) -> tuple[Translator, list[Noted]]:
    noted: list[Noted] = []
    translator = new_translator(**fields)
    translator.tape = lambda *call: noted.append(call)
    return translator, noted


def test_each_call_is_noted_with_what_came_of_it() -> None:
    playing, noted = noting()
    pieces = [text("Hi"), text(" you"), text(" all"), finish(), DONE, b""]
    sent = [playing.queue(), playing.start(), *map(playing.feed, pieces), playing.finish(), playing.keep_alive()]
    assert [(name, data) for name, data, _ in noted] == [
        ("queue", None), ("start", None), *[("feed", piece) for piece in pieces], ("finish", None), ("keep_alive", None),
    ]  # fmt: skip
    assert [events for _, _, events in noted] == [*sent[:6], sent[6] + playing.terminal(), *sent[7:]]


def test_an_inserted_item_and_a_failure_are_noted() -> None:
    playing, noted = noting()
    playing.start()
    item = '{"type":"compaction","id":"cmp_1","encrypted_content":"x"}'
    inserted = playing.insert("compaction", item)
    failed = playing.fail(LOST)
    assert noted[1:] == [("insert", item, inserted), ("fail", LOST, failed + playing.terminal())]
    playing.fail(LOST)
    assert noted[3:] == [("fail", LOST, b"")]


@pytest.mark.parametrize("body", [b'{"choices":[{"message":{"content":"Hi"},"finish_reason":"stop"}]}', text("Hi") + finish()])
def test_a_whole_completion_is_one_call(body: bytes) -> None:
    playing, noted = noting()
    playing.start()
    events = playing.feed_completion(body)
    assert noted[1:] == [("feed_completion", body, events + playing.terminal())]
    assert playing.status == "completed"


@pytest.mark.parametrize("replacement", ["Y", None])
def test_a_verdict_is_noted(replacement: str | None) -> None:
    playing, noted = noting(judged=True, grammars={"patch": Grammar("regex", "[A-Z]")})
    playing.start()
    playing.feed(call(0, "a", "patch", '{"input":"x"}') + finish() + DONE)
    events = playing.judge(replacement)
    assert noted[2:] == [("judge", replacement, events + playing.terminal())]


def test_while_a_verdict_is_awaited_nothing_behind_the_answer_is_read_and_a_failure_ends_the_wait() -> None:
    playing = new_translator(judged=True, grammars={"patch": Grammar("regex", "[A-Z]")})
    playing.start()
    playing.feed(call(0, "a", "patch", '{"input":"x"}') + finish() + DONE)
    assert isinstance(playing.needs, Verdict)
    assert playing.feed(b'data: {"error":{"message":"gone"}}\n\n') == b""
    assert isinstance(playing.needs, Verdict)
    playing.fail(server_error("gone"))
    assert (playing.ended, playing.status, playing.response.output[0].count('"input":"x"')) == (True, "completed", 1)


# ---- beside the stream -------------------------------------------------------------------------------------------------


def test_nothing_is_inserted_behind_the_end() -> None:
    assert ended().insert("compaction", "{}") == b""


def test_a_chunk_that_only_names_the_role_is_not_heard() -> None:
    playing = new_translator()
    playing.feed(chunk({"role": "assistant", "content": ""}))
    assert playing.nothing_received
    assert not playing.feed(text("Hi")[:5])
    assert not playing.nothing_received


def test_a_defect_behind_a_malformed_chunk_ends_the_stream(monkeypatch: pytest.MonkeyPatch) -> None:
    playing = new_translator()
    sent = playing.start() + playing.feed(text("Hi") + finish())
    monkeypatch.setattr(Lifecycle, "close_next", None)
    sent += playing.feed(b"data: {\n\n") + playing.terminal()
    assert (playing.status, playing.malformed, type(playing.defect)) == ("failed", 1, TypeError)
    assert check_stream(sent) == []
