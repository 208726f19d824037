"""The calls of a translator as plain data: noted while they are made, and made again.

A translator does no I/O, so the same calls at the same times, with the same sealed texts, give the same bytes:

    tape = Tape(time.time)
    translator = Translator(options, tape.clock)  # options.seal: tape.sealing(seal)
    tape.attach(translator, listener)  # any number of them, which may come and go: each takes a call and its events

    tape = Tape(time.time, translator.created)
    other = Translator(options, tape.clock)
    events = b"".join(tape.play(other, calls, markup_of))

Without a listener nothing is noted: `translator.tape` is None then, which is all that a chunk meets."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator
from typing import TypeAlias

import msgspec

from responses_gateway.stream.continuation.join import Diverged, JoinPoint, join_at
from responses_gateway.stream.items.hosted import ApprovedCall, CallOutcome, ToolListing
from responses_gateway.stream.options import Clock, SealText
from responses_gateway.stream.reading.leading_thought import LeadingThoughtDetector, MarkupOf
from responses_gateway.stream.translator import Translator
from responses_gateway.wire.errors import ApiError

_ERROR_FIELDS = ("status", "message", "type", "code", "param", "retry_after", "quoted")


class Call(msgspec.Struct, frozen=True, array_like=True):
    """One call of a translator: the method, its argument in bytes (texts in UTF-8, other values in JSON), the Unix time in
    seconds at which it was made, and the texts that were sealed meanwhile, in order."""

    method: str
    argument: bytes | None
    at: float
    sealed: tuple[str, ...] = ()


class Unplayable(Exception):
    """A call cannot be made: this version has no such method, or its translator is not in the state of the first one."""


# Takes a call, and the events that it returned. The terminal event is among those of the call that ended the response.
Listener: TypeAlias = Callable[[Call, bytes], None]


class Tape:
    """The tape of one translator, which takes clock and seals from it."""

    __slots__ = ("_clock", "_given", "_listeners", "_now", "_sealed")

    def __init__(self, clock: Clock, created: float | None = None) -> None:
        """`created`: for a translator that will make the calls of another one again, the time at which that one was created."""
        self._clock = clock
        self._now = created  # the time that the present call has read
        self._sealed: list[str] = []  # during the present call
        self._given: list[str] = []  # the sealed texts of the call that is played, the last one first
        self._listeners: list[Listener] = []

    # ---- noting ----------------------------------------------------------------------------------------------------------

    def attach(self, translator: Translator, listener: Listener) -> None:
        """Have a listener take each further call of the translator."""
        self._listeners.append(listener)
        translator.tape = self._note

    def detach(self, translator: Translator, listener: Listener) -> None:
        """Have a listener take no further calls."""
        self._listeners.remove(listener)
        if not self._listeners:
            translator.tape = None
            self._now = None

    def clock(self) -> float:
        """Return the Unix time in seconds. It stands still during a call that is noted, so that a repetition reads the same."""
        if self._now is not None:
            return self._now
        now = round(self._clock(), 6)
        if self._listeners:
            self._now = now
        return now

    def sealing(self, seal: SealText) -> SealText:
        """Return what seals like `seal`. While a call is played, the texts that were sealed the first time take precedence: no
        two seals of a text are alike."""

        def sealed(text: str) -> str:
            ciphertext = self._given.pop() if self._given else seal(text)
            if self._listeners:
                self._sealed.append(ciphertext)
            return ciphertext

        return sealed

    def _note(self, method: str, argument: object, events: bytes) -> None:
        call = Call(method, _encoded(argument), self.clock(), tuple(self._sealed))
        self._now = None
        self._sealed.clear()
        for listener in self._listeners:
            listener(call, events)

    # ---- playing ---------------------------------------------------------------------------------------------------------

    def play(self, translator: Translator, calls: Iterable[Call], markup_of: MarkupOf) -> Iterator[bytes]:
        """Make calls again; yield the events of each, without the terminal event. Raise `Unplayable`."""
        for call in calls:
            method = METHODS.get(call.method)
            if method is None:
                raise Unplayable(f"a call that this version does not know: {call.method}")
            self._now = call.at
            self._given = list(reversed(call.sealed))
            try:
                events = method(translator, call.argument, markup_of)
            finally:
                self._now = None
                self._given.clear()
            yield events


# ---- the methods ------------------------------------------------------------------------------------------------------


def _encoded(argument: object) -> bytes | None:
    if argument is None or isinstance(argument, bytes):
        return argument
    if isinstance(argument, str):
        return argument.encode("utf-8", "replace")
    if isinstance(argument, ApiError):
        return json.dumps({name: getattr(argument, name) for name in _ERROR_FIELDS}).encode()
    return msgspec.json.encode(argument)


def _insert(translator: Translator, argument: bytes | None, _: MarkupOf) -> bytes:
    assert argument is not None
    return translator.insert(msgspec.json.decode(argument)["type"], argument.decode())


def _next_turn(translator: Translator, argument: bytes | None, markup_of: MarkupOf) -> bytes:
    turn = msgspec.json.decode(argument or b"{}")
    start = turn["start"]
    return translator.next_turn(None if start is None else markup_of(start), may_call=turn["may_call"], start=start)


def _restart(translator: Translator, argument: bytes | None, markup_of: MarkupOf) -> bytes:
    start = msgspec.json.decode(argument) if argument else None
    return translator.restart(None if start is None else markup_of(start), start)


def _resume(translator: Translator, argument: bytes | None, markup_of: MarkupOf) -> bytes:
    point = msgspec.json.decode(argument or b"{}", type=JoinPoint)
    if not translator.continuable:
        raise Unplayable("another backend continued an answer of which nothing is known here")
    partial = translator.answer.partial()
    reads_on = point.text is None
    markup = None if reads_on else markup_of(point.start)
    if (reads_on and not partial.raw) or isinstance(markup, LeadingThoughtDetector):
        raise Unplayable("the answer that another backend continued is read in another way here")
    try:
        join = join_at(point, partial, translator.lifecycle, markup)
    except Diverged:
        raise Unplayable("the second reading of the answer finds something else here") from None
    return translator.resume(join, markup)


def _take_number(translator: Translator, _argument: bytes | None, _markup_of: MarkupOf) -> bytes:
    translator.take_number()
    return b""


def _text(argument: bytes | None) -> str | None:
    return None if argument is None else argument.decode()


# Makes a call of a translator, given the argument as it was noted.
METHODS: dict[str, Callable[[Translator, bytes | None, MarkupOf], bytes]] = {
    "queue": lambda translator, _, __: translator.queue(),
    "start": lambda translator, _, __: translator.start(),
    "begin_summary": lambda translator, item_id, _: translator.begin_summary((item_id or b"").decode()),
    "insert": _insert,
    "feed": lambda translator, data, _: translator.feed(data or b""),
    "feed_completion": lambda translator, body, _: translator.feed_completion(body or b""),
    "finish": lambda translator, _, __: translator.finish(),
    "fail": lambda translator, error, _: translator.fail(ApiError(**json.loads(error or b"{}"))),
    "judge": lambda translator, replacement, _: translator.judge(_text(replacement)),
    "refuse": lambda translator, _, __: translator.refuse(),
    "ask_again": lambda translator, _, __: translator.ask_again(),
    "restart": _restart,
    "resume": _resume,
    "list_tools": lambda translator, listing, _: translator.list_tools(
        msgspec.json.decode(listing or b"", type=ToolListing)
    ),
    "approved_call": lambda translator, call, _: translator.approved_call(
        msgspec.json.decode(call or b"", type=ApprovedCall)
    ),
    "finish_call": lambda translator, outcome, _: translator.finish_call(
        msgspec.json.decode(outcome or b"", type=CallOutcome)
    ),
    "next_turn": _next_turn,
    "keep_alive": lambda translator, _, __: translator.keep_alive(),
    "stop_after_item": lambda translator, reason, _: translator.stop_after_item((reason or b"").decode()),
    "cut_short": lambda translator, _, __: translator.cut_short(),
    "take_number": _take_number,
}  # fmt: skip
