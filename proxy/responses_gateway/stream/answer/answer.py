"""One answer: what one backend sends for one turn of the model, from its bytes to the deltas of the lifecycle.

A turn has more than one answer where another backend continues it, or answers in the place of one that said nothing."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Literal, TypeAlias

import msgspec

from responses_gateway.stream.answer.fast_path import FastPath
from responses_gateway.stream.continuation.join import Diverged, Join
from responses_gateway.stream.continuation.ledger import PartialAnswer, TokenLedger
from responses_gateway.stream.lifecycle.machine import Lifecycle
from responses_gateway.stream.lifecycle.needs import BrokenOff, is_no_answer
from responses_gateway.stream.lifecycle.turn import Turn
from responses_gateway.stream.options import StreamOptions
from responses_gateway.stream.reading.citations import CitationReader
from responses_gateway.stream.reading.leading_thought import LeadingThoughtDetector
from responses_gateway.stream.reading.markup import Markup
from responses_gateway.stream.reading.reader import Reader
from responses_gateway.stream.tokens.counter import TokenCounter
from responses_gateway.stream.writer.interface import TextKind
from responses_gateway.wire.chat import OPAQUE, Chunk, ForeignEvent, decode_chunk, text_of
from responses_gateway.wire.deltas import Delta, Finish, Text, Usage
from responses_gateway.wire.errors import ApiError, in_client_terms, is_dead_engine, read_error_chunk
from responses_gateway.wire.sse import SSEDecoder
from responses_gateway.wire.usage import usage_in

# Why something waits: the read ended within a chunk; a call has no name yet, or half a character came; it may be markup.
HeldPart = Literal["partial_chunk", "partial_delta", "markup"]
# Takes a chunk before anything else does.
Observer: TypeAlias = Callable[[Chunk], None]
# Returns what becomes of the deltas of one chunk, given the ids of its tokens.
Stage: TypeAlias = Callable[[list[Delta], Sequence[int] | None], list[Delta]]


class AnswerReading(msgspec.Struct, frozen=True, gc=False):
    """How an answer is read: `start`, as plain data, for who continues it; `marked`: before a break, a marker told reasoning
    from the answer; `by_markers`: such markers come in the text, where the parser that reads it finds them."""

    start: object
    marked: bool = False
    by_markers: bool = True


class Answer:
    """Feed it the body of the backend; its deltas go to the lifecycle. Behind the `last` chunk, or the end of the body,
    `finish` it; then `broken_off` tells whether another backend is to continue it.

    `ledger` has the ids of its tokens, unless no other backend may continue it; `join` tells how it continues an earlier one.
    `error` is what the backend sent in place of the rest, `late_error` what it sent behind the end of the answer, of which only
    the usage is lost then."""

    __slots__ = (
        "_citations", "_counted", "_fast_path", "_lifecycle", "_markup", "_observers", "_options", "_plain", "_reader",
        "_reading", "_received", "_sse", "_stages", "_tokens", "broken_off", "diverged", "error", "join", "last",
        "late_error", "ledger",
    )  # fmt: skip

    def __init__(
        self,
        options: StreamOptions,
        lifecycle: Lifecycle,
        tokens: TokenCounter,
        markup: Markup | LeadingThoughtDetector | None,
        ledger: TokenLedger | None,
        citations: CitationReader | None,
        reading: AnswerReading,
        join: Join | None = None,
    ) -> None:
        """`markup` reads the markup in its text, `citations` the marks of sources."""
        self._options = options
        self._lifecycle = lifecycle
        self._tokens = tokens
        self._markup = markup
        self._citations = citations
        self._reading = reading
        self.ledger = ledger
        self.join = join
        self._sse = SSEDecoder()
        self._plain = citations is None and join is None
        self._reader = _new_reader(options, raw=type(markup) is Markup)
        # Chunks like others are not decoded where nothing but their text is wanted of them.
        self._fast_path = FastPath(self._sse, lifecycle, tokens, ledger, markup, learns=not options.hides_answer)
        self._observers = self._chosen_observers()
        self._read_on_with(markup)
        self._received = False  # a chunk with something in it
        self._counted = False  # the usage has come behind the end
        self.last = False  # the chunk was read that ends the body
        self.broken_off: BrokenOff | None = None
        self.error: ApiError | None = None
        self.late_error: ApiError | None = None
        self.diverged = ""  # why it does not fit what was said before it

    def _chosen_observers(self) -> tuple[Observer, ...]:
        """Return the observers that this answer has; nearly always none."""
        observers: list[Observer] = []
        if self.join is not None:
            observers.append(self.join.observe)
        if self._options.recorder is not None:
            kept = None if self.join is None else self.join.generated
            observers.append(self._options.recorder.answer(len(self._lifecycle.turns) - 1, kept))
            self._fast_path.sampled = self._options.recorder.calls[-1]
        if self.ledger is not None:
            observers.append(self.ledger.observe)
        if type(self._markup) is Markup:
            observers.append(self._markup.observe)
        return tuple(observers)

    def _chosen_stages(self) -> tuple[Stage, ...]:
        """Return the stages that its deltas pass, in order."""
        stages: tuple[Stage, ...] = () if self._markup is None else (self._markup.read,)
        if self.join is not None:
            stages = (self.join.without_overlap, *stages, self.join.unseen_part)
        counted = self._tokens.counted
        return (*stages, counted) if self._citations is None else (*stages, counted, self._citations.read)

    # ---- reading ---------------------------------------------------------------------------------------------------------

    def feed(self, data: bytes) -> bytes | None:
        """Take the next piece of the body, cut anywhere. Return the events where nothing but the open text was continued; else
        the lifecycle's writer has them."""
        fast_path = self._fast_path
        if fast_path.pattern is not None and fast_path.item is not None:
            events = fast_path.feed(data, fast_path.pattern, fast_path.item)
            if events is not None:
                return events
        for payload in self._sse.feed(data):
            self._read(payload)
            if self.last:
                break
        # Not every server sends `[DONE]` behind the usage, or closes the connection. An error in the same read still counts.
        self.last = self.last or self._counted
        if fast_path.item is not None:
            fast_path.flush()
        return None

    def finish_body(self) -> None:
        """Read the last event of a body that has ended: it may be cut."""
        for payload in self._sse.finish():
            self._read(payload)

    def finish(self) -> None:
        """Give the lifecycle what was held for its rest, unless another backend may continue the answer (`broken_off`). Raise
        `Diverged` if it has not repeated what it had to."""
        fast_path = self._fast_path
        fast_path.flush()
        if self.broken_off is None and self.continuable:
            self.broken_off = "eof" if self._lifecycle.turn.finish_reason is None else "abort"
        if self.broken_off is not None:
            fast_path.stop()
            return
        lifecycle = self._lifecycle
        rest = self._reader.finish()
        if self._markup is not None:
            rest = self._markup.read(rest, None) + self._markup.finish(lifecycle.turn.finish_reason or "error")
        if self.join is not None:
            rest = self.join.unseen_part(rest, last=True)
            if not self.join.joined:
                raise Diverged
        self._step_last(rest)
        if lifecycle.turn.finish_reason == "stop":
            if lifecycle.state == "reasoning" and type(self._markup) is Markup and not lifecycle.turn.calls:
                self._step_last(self._markup.calls_at_end(_said(lifecycle, "reasoning") or "", self._options.tools))
            if lifecycle.state == "reasoning" and not self._thought_is_marked and not is_no_answer(lifecycle, self._options):
                lifecycle.repeat_reasoning()
            if self._tokens.silent_ids:
                self._show_silent_tokens(self._tokens.silent_ids)

    def release(self) -> None:
        """Give the lifecycle what reader and parser held back of a stream that broke: it is as true as all before."""
        rest = self._reader.finish() if self.joined else []
        if self._markup is not None and self.joined:
            rest = self._markup.read(rest, None) + self._markup.finish("error")
            if self.join is not None:
                rest = self.join.unseen_part(rest, last=True)
        self._step_last(rest)

    def stop(self) -> None:
        """Write what was read of the open text, and read no more."""
        self._fast_path.stop()

    def _read(self, payload: bytes) -> None:
        if payload[:6] == b"[DONE]":
            self.last = True
            _end_behind_call(self._lifecycle, waits=self._reader.waiting or self._markup is not None)
            return
        fast_path = self._fast_path
        fast_path.chunks += 1
        if fast_path.pattern is not None and fast_path.item is not None and fast_path.take_payload(payload, fast_path.pattern):
            return
        try:
            chunk = decode_chunk(payload)
        except ForeignEvent:
            self._reader.skip()
            return
        for observe in self._observers:
            observe(chunk)
        if chunk.choices and payload.find(b'"reasoning_') >= 0 and self.joined:
            _keep_details(chunk, self._lifecycle.turn)
        if fast_path.item is not None and fast_path.take_chunk(chunk, payload):
            return
        is_usual = chunk.choices and not chunk.choices[1:] and chunk.error is None and chunk.choices[0].error is None
        failure = None if is_usual else chunk.failure(payload)
        if failure is not None:
            self._take_failure(failure)
            return
        chunk.usage = usage_in(payload, chunk.usage) if chunk.may_count(payload) else chunk.usage
        token_ids = chunk.choices[0].token_ids if chunk.choices else None
        deltas = self._reader.read(chunk)
        if deltas or token_ids or self._reader.waiting:
            self._received = True
            for stage in self._stages:
                deltas = stage(deltas, token_ids)
            for delta in deltas:
                self._lifecycle.step(delta)
            if type(self._markup) is LeadingThoughtDetector and self._markup.settled:
                self._read_on_with(self._markup.markup)
        self._counted |= chunk.usage is not None and not chunk.choices and self._lifecycle.turn.usage_at_end
        if self._plain or (not self._lifecycle.sources and self.joined):  # no text has to be searched
            reader = self._reader
            fast_path.look_ahead(reader.waiting or reader.finished or bool(reader.choice))

    def _read_on_with(self, markup: Markup | LeadingThoughtDetector | None) -> None:
        self._markup = markup
        self._fast_path.markup = markup
        self._stages = self._chosen_stages()
        if type(markup) is Markup:
            self._reader.said = None
        elif self._plain and self._reader.said is None:
            # A function of the lifecycle, because a reader that refers to its answer is not freed with it at once.
            self._reader.said = partial(_said, self._lifecycle)

    def _take_failure(self, failure: object) -> None:
        self.last = True
        error = in_client_terms(read_error_chunk(failure))
        if self._lifecycle.turn.finish_reason not in (None, "error") and self.joined:
            self.late_error = error
            return
        self.error = error
        if is_dead_engine(failure) and self.continuable:
            self.broken_off = "engine"
            self._fast_path.stop()

    def _step_last(self, deltas: list[Delta]) -> None:
        if deltas:
            deltas = self._tokens.counted(deltas, None)
        if self._citations is not None:
            deltas = self._citations.read(deltas) + self._citations.finish()
        for delta in deltas:
            self._lifecycle.step(delta)

    @property
    def _thought_is_marked(self) -> bool:
        """Whether a marker tells reasoning from the answer, which no backend shows that parses by itself: nor is one asked for
        that a second reading finds."""
        reading = self._reading
        return reading.marked or (reading.by_markers and self._markup is not None and self._markup.evidence.marked)

    def _show_silent_tokens(self, ids: Sequence[int]) -> None:
        """Give out as text what the model wrote, where the backend showed nothing at all of it but the ids of its tokens."""
        decode = self._options.decode
        lifecycle = self._lifecycle
        if decode is None or self._markup is not None or lifecycle.state != "idle" or lifecycle.writer.done:
            return
        text = decode(ids)
        if text.strip():
            lifecycle.repairs["silent_tokens_shown"] = 1
            lifecycle.step(Text(text))

    # ---- what is known of it ---------------------------------------------------------------------------------------------

    @property
    def nothing_received(self) -> bool:
        """Whether the backend has not said anything yet, not even a part of something: another one may be fed in its place. A
        chunk that only names the role says nothing."""
        return not self._received and self.join is None and not self._sse.buffer

    @property
    def chunks(self) -> int:
        """How many chunks the backend sent so far."""
        return self._fast_path.chunks

    @property
    def repairs(self) -> dict[str, int]:
        """What had to be repaired, by kind."""
        return self._reader.repairs if self._markup is None else {**self._reader.repairs, **self._markup.repairs}

    @property
    def holds(self) -> list[HeldPart]:
        """Why some of what came is not given to the lifecycle yet."""
        reasons: dict[HeldPart, bool] = {
            "partial_chunk": bool(self._sse.buffer),
            "partial_delta": self._reader.waiting,
            "markup": self._markup is not None and self._markup.holds,
        }
        return [reason for reason, holds in reasons.items() if holds]

    # ---- continuing it ---------------------------------------------------------------------------------------------------

    @property
    def joined(self) -> bool:
        """Whether the client has everything that an earlier answer of the turn said: there is nothing left to repeat."""
        return self.join is None or self.join.joined

    @property
    def continuable(self) -> bool:
        """Whether all is known that another backend needs, and the model has not ended the answer."""
        if self.ledger is None:
            return False
        self._fast_path.take_tokens()
        # In this order, because the ids of a long prompt take long to read.
        return not self.ended_by_model and self.ledger.complete

    @property
    def ended_by_model(self) -> bool:
        """Whether the model has ended the answer."""
        aborted = self.ledger is not None and self.ledger.aborted
        return self._lifecycle.turn.finish_reason is not None and not aborted

    @property
    def said_nothing(self) -> bool:
        """Whether the turn has begun no item."""
        lifecycle = self._lifecycle
        return lifecycle.state == "idle" and len(lifecycle.writer.done) == lifecycle.turn.first_item

    def partial(self) -> PartialAnswer:
        """Return what was generated of an answer that is `continuable`."""
        self._fast_path.take_tokens()
        ledger = self.ledger
        assert ledger is not None
        tail = "".join(ledger.tail)
        reads = isinstance(self._markup, Markup)
        raw = isinstance(self._markup, Markup) and self._markup.reads_all and not ledger.parsed
        return PartialAnswer(ledger.prompt, ledger.ids, ledger.whole, tail, raw, reads, self._reading.start)

    def continue_with(self, join: Join, markup: Markup | None) -> Answer:
        """Return the answer of another backend that continues this one. `markup` reads it, in the place of what read this one;
        None if that reads on."""
        self._fast_path.stop()
        ledger = self.ledger
        assert ledger is not None
        self.ledger = None
        dropped = ledger.cut(join.generated)
        self._tokens.keep(ledger.ids, len(dropped))
        turn = self._lifecycle.turn
        turn.reopen()
        turn.reasoning_unknown = True
        new = partial(Answer, self._options, self._lifecycle, self._tokens)
        if markup is not None:  # which takes the marks of sources out by itself
            by_markers = self._reading.by_markers and isinstance(self._markup, Markup) and not self._markup.evidence.field
            return new(markup, ledger, None, AnswerReading(join.point.start, self._thought_is_marked, by_markers), join)
        assert isinstance(self._markup, Markup)
        markup = self._markup
        self._markup = None  # its repairs count once
        markup.rewind(dropped)
        if self.join is not None:
            join.follow(self.join)
        return new(markup, ledger, self._citations, self._reading, join)

    def forget_ids(self) -> None:
        """Forget the ids: nothing of the answer is missing, or nobody continues it."""
        ledger = self.ledger
        if ledger is None:
            return
        self._fast_path.take_tokens()
        turn = self._lifecycle.turn
        if turn.usage is None and ledger.complete:
            turn.counted = Usage(len(ledger.prompt), len(ledger.ids))
            turn.reasoning_unknown = True
        self.ledger = None


def new_answer(
    options: StreamOptions,
    lifecycle: Lifecycle,
    tokens: TokenCounter,
    markup: Markup | LeadingThoughtDetector | None,
    start: object,
) -> Answer:
    """Return an answer of which nothing is known yet. `start` is how `markup` reads it, as plain data."""
    ledger = TokenLedger(holds_text=options.holds_text) if options.continuable else None
    citations = CitationReader(lifecycle.sources) if options.hosted is not None else None
    return Answer(options, lifecycle, tokens, markup, ledger, citations, AnswerReading(start))


def _end_behind_call(lifecycle: Lifecycle, *, waits: bool) -> None:
    """Take the mark of the end as its reason where none was given, if the last item is a whole call, and nothing `waits`:
    NVIDIA NIM gives none behind a call. If more was to come, the model makes up for it behind the result."""
    call = lifecycle.call
    if call is not None and call.complete and not waits and lifecycle.turn.finish_reason is None:
        lifecycle.step(Finish("stop"))


def _new_reader(options: StreamOptions, *, raw: bool) -> Reader:
    return Reader(
        tools=options.tools,
        requires=None if options.calls is None else options.calls.has_required,
        logprobs=options.logprobs,
        refusal_as_text=options.client.drops_refusals,
        generated=options.continuable,  # because only servers of a known type continue an answer
        raw=raw,
    )


def _said(lifecycle: Lifecycle, kind: TextKind) -> str | None:
    """Return the thoughts of the turn, or the text of its messages; None where more than calls is held."""
    if lifecycle.pending is not None and lifecycle.pending.calls < len(lifecycle.pending):
        return None
    item = lifecycle.item
    is_open = item is not None and (item.kind == "reasoning") == (kind == "reasoning")
    open_text = item.text + lifecycle.space.text if item is not None and is_open else ""
    name = "reasoning" if kind == "reasoning" else "message"
    records = lifecycle.writer.done[lifecycle.turn.first_item :]
    done = [msgspec.json.decode(record) for record in records]
    return "".join([text_of(item.get("content")) for item in done if item["type"] == name]) + open_text


def _keep_details(chunk: Chunk, turn: Turn) -> None:
    """Keep what the server wants back with the thought; a message behind deltas only repeats it."""
    for choice in chunk.choices or ():
        delta = choice.delta or (choice.message if turn.details is None else None)
        if delta is not None and delta.reasoning_details is not None:
            turn.wanted_back().add(delta.reasoning_details)
        if delta is not None and isinstance(delta.reasoning_opaque, str):
            turn.wanted_back().add([{"type": OPAQUE, "data": delta.reasoning_opaque}])
