"""The tape of a translator: its calls as plain data, for any number of listeners; made again, they give the same bytes."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator
from itertools import count
from pathlib import Path
from typing import Any

import msgspec
import pytest

from responses_gateway.stream import translator as translator_file
from responses_gateway.stream.continuation.join import JoinPoint
from responses_gateway.stream.items.hosted import CallOutcome, HostedOptions
from responses_gateway.stream.tape import METHODS, Call, MarkupOf, Tape, Unplayable
from responses_gateway.stream.translator import ApprovedCall, ToolListing, Translator
from responses_gateway.wire.errors import ApiError, server_error
from responses_gateway.wire.hosted import CitedSource
from responses_gateway.wire.tools import Grammar
from tests.stream.stream_player import DONE, call, event, events_of, finish, options, text, think
from tests.stream.test_broken_off_streams import new_markup
from tests.stream.test_hosted_calls import TOOLS

LOST = server_error("The connection broke.")
COMPACTED = '{"type":"compaction","id":"cmp_1","encrypted_content":"x"}'
COMPLETION = b'{"choices":[{"message":{"content":"Hi"},"finish_reason":"stop"}]}'
JUDGED: dict[str, Any] = {"judged": True, "grammars": {"patch": Grammar("regex", "[A-Z]")}}
PATCH = call(0, "a", "patch", '{"input":"x"}') + finish() + DONE
SEARCH = call(0, "a", "web_search", '{"query":"x"}') + finish("tool_calls") + DONE
FOUND = CallOutcome({"action": {"type": "search", "query": "x"}}, sources=(CitedSource(1, "Rivers", url="https://x.org"),))
LISTING = ToolListing("docs", [{"name": "ask", "description": None, "input_schema": {}}])
APPROVED = ApprovedCall("mcpr_1", "docs", "ask", '{"a":1}', CallOutcome({"output": "yes"}))


def seals() -> Callable[[str], str]:
    """Return a function that seals no text alike."""
    numbers = count()
    return lambda text: f"sealed {next(numbers)} of {len(text)} characters"


class Taped:
    """A translator with its tape, and what a listener has got."""

    def __init__(self, sealed: tuple[str, ...] = (), **fields: Any) -> None:
        self._sealed = sealed
        self._fields = fields
        self.tape = Tape(count(1_800_000_000, 0.7).__next__)
        self.translator = self._translator(self.tape)
        self.calls: list[Call] = []
        self.sent: list[bytes] = []
        self.tape.attach(self.translator, self.note)

    def _translator(self, tape: Tape) -> Translator:
        fields = self._fields | {name: tape.sealing(seals()) for name in self._sealed}
        return Translator(options(**fields), tape.clock)

    def note(self, call: Call, events: bytes) -> None:
        self.calls.append(call)
        self.sent.append(events)

    def again(self, calls: list[Call], markup_of: MarkupOf = lambda start: None) -> Iterator[bytes]:
        """Have another translator make calls; yield the events of each, the terminal event among them."""
        tape = Tape(lambda: 0.0, self.translator.created)
        other = self._translator(tape)
        ended = False
        for events in tape.play(other, calls, markup_of):
            yield events + other.terminal() if other.ended and not ended else events
            ended = other.ended


def plain(playing: Translator) -> None:
    playing.queue()
    playing.start()
    for piece in (think("hm"), text("H\u00e9")[:-9], text("H\u00e9")[-9:], text(" you"), finish(), DONE):
        playing.feed(piece)
    playing.keep_alive()
    playing.finish()


def in_one_piece(playing: Translator) -> None:
    playing.start()
    playing.feed_completion(COMPLETION)


def inserted_and_failed(playing: Translator) -> None:
    playing.start()
    playing.begin_summary("cmp_1")
    playing.insert("compaction", COMPACTED)
    playing.feed(text("Hi"))
    playing.fail(ApiError(429, "Slow \u201cdown\u201d.", type="x", code="rate_limit_exceeded", retry_after=1.5))


def passed(playing: Translator) -> None:
    playing.start()
    playing.feed(PATCH)
    playing.judge(None)


def replaced(playing: Translator) -> None:
    playing.start()
    playing.feed(PATCH)
    playing.judge("Y")


def emptied(playing: Translator) -> None:
    playing.start()
    playing.feed(PATCH)
    playing.judge("")


def refused(playing: Translator) -> None:
    playing.start()
    playing.feed(PATCH)
    playing.refuse()


def with_tools(playing: Translator) -> None:
    playing.start()
    playing.list_tools(LISTING)
    playing.approved_call(APPROVED)
    playing.feed(SEARCH)
    playing.finish_call(FOUND)
    playing.next_turn(None, may_call=False)
    playing.restart(None)
    playing.feed(text("So\u30101\u3011.") + finish() + DONE)


def stopped(playing: Translator) -> None:
    playing.start()
    playing.feed(think("Hm"))
    playing.take_number()
    playing.stop_after_item("steered")
    playing.feed(text("Never read"))


def in_a_loop(playing: Translator) -> None:
    playing.start()
    playing.feed(text("again "))
    playing.cut_short()
    playing.feed(text("Never read"))


def asked_again(playing: Translator) -> None:
    playing.start()
    playing.feed(event({"error": {"message": "unknown field", "code": 400}}))
    playing.ask_again()
    playing.feed(text("So.") + finish() + DONE)


PLAYS: dict[str, tuple[Callable[[Translator], None], dict[str, Any]]] = {
    "plain": (plain, {"sealed": ("seal",)}),
    "in one piece": (in_one_piece, {}),
    "a summary": (plain, {"sealed": ("compaction",)}),
    "inserted and failed": (inserted_and_failed, {}),
    "passed": (passed, JUDGED),
    "replaced": (replaced, JUDGED),
    "emptied": (emptied, JUDGED),
    "refused": (refused, JUDGED),
    "stopped": (stopped, {}),
    "in a loop": (in_a_loop, {}),
    "asked again": (asked_again, {}),
    "with tools": (with_tools, {"tools": TOOLS, "hosted": HostedOptions()}),
}


@pytest.mark.parametrize("name", PLAYS)
def test_the_same_calls_give_the_same_bytes(name: str) -> None:
    play, fields = PLAYS[name]
    taped = Taped(**fields)
    play(taped.translator)
    assert taped.translator.ended
    assert list(taped.again(taped.calls)) == taped.sent
    kept = msgspec.msgpack.decode(msgspec.msgpack.encode(taped.calls), type=list[Call])
    assert list(taped.again(kept)) == taped.sent


def test_all_calls_are_played_somewhere() -> None:
    """Continuations are in `test_broken_off_streams.py`."""
    played = {"resume"}
    for play, fields in PLAYS.values():
        taped = Taped(**fields)
        play(taped.translator)
        played |= {made.method for made in taped.calls}
    assert played == set(METHODS)


def test_there_is_no_call_that_the_table_does_not_have() -> None:
    source = Path(translator_file.__file__).read_text(encoding="utf-8")
    assert set(re.findall(r'_noted\("(\w+)"', source)) == set(METHODS)


def test_time_stands_still_during_a_call() -> None:
    taped = Taped()
    plain(taped.translator)
    times = [made.at for made in taped.calls]
    assert times == sorted(set(times))
    last = events_of(taped.sent[-3])[-1]["response"]
    assert (last["created_at"], last["completed_at"]) == (int(taped.translator.created), int(times[-3]))


# ---- listeners ---------------------------------------------------------------------------------------------------------


def test_several_listen_and_each_may_leave() -> None:
    taped = Taped()
    second: list[str] = []

    def listener(made: Call, _events: bytes) -> None:
        second.append(made.method)

    playing = taped.translator
    playing.start()
    taped.tape.attach(playing, listener)
    playing.feed(text("Hi"))
    taped.tape.detach(playing, taped.note)
    playing.feed(finish())
    assert [made.method for made in taped.calls] == ["start", "feed"]
    assert second == ["feed", "feed"]
    taped.tape.detach(playing, listener)
    assert playing.tape is None


def test_without_a_listener_nothing_is_noted_and_time_goes_by() -> None:
    clock = count(5.0)
    tape = Tape(clock.__next__)
    playing = Translator(options(), tape.clock)
    assert playing.tape is None
    assert [tape.clock(), tape.clock()] == [6.0, 7.0]


def test_what_was_noted_does_not_change_with_the_argument() -> None:
    taped = Taped()
    error = server_error("The connection broke.")
    taped.translator.start()
    taped.translator.fail(error)
    error.message = "secret"
    assert json.loads(taped.calls[-1].argument or b"")["message"] == "The connection broke."


# ---- what cannot be played ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("method", "argument"),
    [("fly", b""), ("resume", msgspec.json.encode(JoinPoint(3)))],
)
def test_a_call_that_cannot_be_made(method: str, argument: bytes) -> None:
    taped = Taped()
    with pytest.raises(Unplayable):
        list(taped.again([Call("start", None, 1.0), Call(method, argument, 1.0)]))


@pytest.mark.parametrize("point", [JoinPoint(1), JoinPoint(1, text="Ho")])
def test_an_answer_that_is_read_otherwise(point: JoinPoint) -> None:
    taped = Taped(continuable=True)
    playing = taped.translator
    playing.start()
    ids = {"prompt_token_ids": [1, 2]}
    playing.feed(b"data: " + json.dumps({"choices": [{"index": 0, "delta": {}}], **ids}).encode() + b"\n\n")
    playing.feed(text("Hi", token_ids=[3]))
    assert playing.continuable
    with pytest.raises(Unplayable):
        list(taped.again([*taped.calls, Call("resume", msgspec.json.encode(point), 1.0)], lambda start: new_markup()))
