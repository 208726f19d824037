"""A chat stream in, a Responses stream out: reader, lifecycle and writer composed. Sans I/O.

    translator = Translator(options, clock)
    send(translator.start())
    for data in body:  send(translator.feed(data))
    send(translator.finish())
    send(translator.terminal())

Whatever happens, the response ends with one terminal event: `finish` without a finish_reason, an error chunk, a malformed chunk
and a defect of our own all end in `response.failed`. That event is asked for by itself, so that the response can be stored
before its client is told; behind the end every other method returns no bytes.

A response may take several turns of the model, where the gateway runs tools itself:

    while translator.calls_to_run():                      # in order
        send(translator.finish_call(outcome))
    if translator.wants_turn:                             # the model reads the results
        translator.next_turn(markup)                      # and feed goes on

Where the options say that another backend may go on with an answer, a stream that broke off does not end it by itself:

    if translator.failover.broken_off or the connection broke and translator.continuable:
        beginning = translator.beginning()                # what another backend is asked to go on with
        send(translator.resume(rejoining, markup))        # and feed goes on; or fail(error)"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from functools import reduce
from typing import Any, Literal, NamedTuple, TypeAlias

import msgspec

from proxy.stream import writer
from proxy.stream.catch_up import Diverged
from proxy.stream.citations import CitationReader
from proxy.stream.compaction import compaction_item
from proxy.stream.deferred_calls import close_judged, is_unclosed, waiting_call
from proxy.stream.failover import Failover
from proxy.stream.fast_path import FastPath
from proxy.stream.items.calls import without_rest
from proxy.stream.items.hosted import CallOutcome, HostedItem, HostedOptions, McpCallItem, write_tool_list
from proxy.stream.ledger import Beginning
from proxy.stream.lifecycle import Lifecycle, Stop
from proxy.stream.markup import Markup
from proxy.stream.options import Clock, SealText, StreamOptions
from proxy.stream.reader import Reader
from proxy.stream.rejoining import Rejoining
from proxy.stream.thought_watch import ThoughtWatch
from proxy.stream.tokens import TokenCounter, markup_of
from proxy.stream.unseen import unseen_tokens
from proxy.stream.writer import EventWriter, Outcome, ResponseObject, Status, usage_json
from proxy.wire.chat import Chunk, MalformedChunk, decode_chunk
from proxy.wire.deltas import Delta, Text, Usage
from proxy.wire.errors import ApiError, in_client_terms, read_error_chunk, server_error
from proxy.wire.item_ids import BEFORE_THE_MODEL
from proxy.wire.sse import SSEDecoder, SSETooLong
from proxy.wire.tools import ToolTarget, target_of

# Takes each call of a public method: its name, its argument (plain data, or an error), the events that it returns. The terminal
# event is among those of the call that ended the response.
Note: TypeAlias = Callable[[str, object, bytes], None]

# Why something waits: the read ended within a chunk; a call has no name yet, or half a character came; it may be markup; it may
# be the white space at an end; the open call has to be complete first; the input of a call is to be judged first.
Held = Literal["partial_chunk", "partial_delta", "markup", "white_space", "open_call", "verdict"]

# The codes that `response.error.code` may have for clients (a closed list in the SDKs, and what Codex acts on).
_STREAM_CODES = frozenset({"context_length_exceeded", "rate_limit_exceeded", "invalid_prompt", "insufficient_quota"})
# How a body of server-sent events begins.
_STREAM = re.compile(rb"(?:\xef\xbb\xbf)?\s*(?:data|event|id|retry)?:")
_NO_OUTCOME = Outcome()


class ToolListing(msgspec.Struct, frozen=True):
    """The tools of an MCP server, as its item shows them; `error` says why there are none."""

    label: str
    tools: list[dict[str, Any]] = []
    error: str | None = None


class ApprovedCall(msgspec.Struct, frozen=True):
    """A call of an MCP tool that the client has approved, and what came of it. `request_id` is the id of the request."""

    request_id: str
    label: str
    name: str
    arguments: str
    outcome: CallOutcome


class CallToRun(NamedTuple):
    """A call of a hosted tool that the model has made: the chat name, the tool, and the JSON of its arguments."""

    name: str
    target: ToolTarget
    arguments: str


class Translator:
    """One stream. `status` tells how it stands."""

    __slots__ = (
        "_citations", "_clock", "_earlier_chunks", "_earlier_repairs", "_earlier_usages", "_fast_path", "_first_status",
        "_markup", "_outcome", "_reader", "_received", "_response", "_runs_calls", "_sse", "_terminal_noted",
        "_terminal_number", "_usage", "awaiting", "created", "defect", "ended", "error", "failover", "incomplete_reason",
        "lifecycle", "malformed", "options", "status", "tape", "tokens", "turn_began", "turns", "wants_turn", "writer",
    )  # fmt: skip

    def __init__(self, options: StreamOptions, clock: Clock) -> None:
        self.options = options
        self._clock = clock
        self.tape: Note | None = None  # see `tape.py`; may be set, or taken away, between two calls
        self.writer = EventWriter(options.stream_id, clock)
        # What the model writes for a compaction is not sent.
        self.lifecycle = Lifecycle(options, self.writer if options.compaction is None else EventWriter())
        self.tokens = TokenCounter(options.encode)
        self.failover = Failover(options, self.lifecycle)
        self._begin_answer(options.markup)
        self._earlier_chunks = 0
        self._earlier_repairs: dict[str, int] = {}  # of the parsers of earlier turns
        self._earlier_usages: list[Usage | None] = []
        self._usage: Usage | None = None  # of the whole response, once it has ended
        self._runs_calls = False  # the open call waits for its outcome
        self.turns = 1
        self.turn_began = 0  # how many items were done by then
        self.wants_turn = False  # the model has not got the results of its calls yet
        self.created = clock()
        self._response = ResponseObject(options.response_id, int(self.created), options.model, options.echo)
        self._first_status: Status = "in_progress"
        self._outcome = _NO_OUTCOME
        self._terminal_number = 0
        self._terminal_noted = False
        self._received = False  # a chunk with something in it
        self.status: Status = "queued"
        self.awaiting: tuple[str, str] | None = None  # the call to be judged: its chat name, its input
        self.ended = False  # all but the terminal event is written
        self.error: ApiError | None = None
        self.incomplete_reason: str | None = None
        self.defect: Exception | None = None
        self.malformed = 0

    def _begin_answer(self, markup: Markup | ThoughtWatch | None) -> None:
        """Be ready for another answer of the model."""
        self._citations = CitationReader(self.lifecycle.sources) if self.options.hosted is not None else None
        self._begin_body(markup)

    def _begin_body(self, markup: Markup | ThoughtWatch | None) -> None:
        """Be ready for another body of a backend."""
        options = self.options
        self._sse = SSEDecoder()
        self._reader = Reader(
            known_tools=options.tools, logprobs=options.logprobs, refusal_as_text=options.client.drops_refusals
        )
        self._markup = markup
        learns = options.compaction is None
        self._fast_path = FastPath(self._sse, self.lifecycle, self.tokens, self.failover, self._markup, learns=learns)

    @property
    def response_id(self) -> str:
        """The id of the response, the same from first event to last."""
        return self._response.id

    @property
    def unheard(self) -> bool:
        """Whether the backend has not said anything yet, not even a part of something: another one may be fed in its place. A
        chunk that only names the role says nothing."""
        return not self._received and not self.malformed and not self._sse.buffer

    @property
    def visible(self) -> bool:
        """Whether something that a user sees has begun: text, a refusal or a call."""
        return self.lifecycle.visible

    @property
    def chunks(self) -> int:
        """How many chunks the backend sent so far."""
        return self._earlier_chunks + self._fast_path.chunks

    @property
    def repairs(self) -> dict[str, int]:
        """What had to be repaired on the way, by kind."""
        found = {**self.lifecycle.repairs, **self._turn_repairs()}
        for kind, count in self._earlier_repairs.items():
            found[kind] = found.get(kind, 0) + count
        return found

    @property
    def usage(self) -> Usage | None:
        """What the backends have reported for all turns so far; behind the end, with the reasoning that was counted here."""
        return self._usage if self.ended else self._reported_usage()

    @property
    def usage_by_turn(self) -> list[Usage | None]:
        """What the backends reported for each turn of the model, or what its ids tell; None where neither is known."""
        usage = self.lifecycle.usage
        return [*self._earlier_usages, self.failover.usage if usage is None else usage]

    def _reported_usage(self) -> Usage | None:
        usage = reduce(_sum, self.usage_by_turn)
        if usage is not None and self.failover.reasoning_unknown:
            usage.reasoning = None  # then it is counted here
        return usage

    def _turn_repairs(self) -> dict[str, int]:
        return {**self._reader.repairs, **(self._markup.repairs if self._markup is not None else {})}

    @property
    def unclosed(self) -> bool:
        """Whether the model did not close the input that waits for a verdict: it passes only if the grammar accepts it."""
        return self.awaiting is not None and is_unclosed(self.lifecycle)

    @property
    def unseen_tokens(self) -> int:
        """How many tokens of a completed answer the backend used without showing anything of them."""
        if self.status != "completed":
            return 0
        written = self.lifecycle.writer
        used = self.tokens.reported
        most = markup_of(len(written.done)) + (0 if self.tokens.exact else sum(written.characters.values()) // 2)
        if used is None or used <= most:  # nearly every answer
            return 0
        return unseen_tokens(self.tokens, used, written.done, self.repairs)

    @property
    def held(self) -> list[Held]:
        """Why some of what came was not sent yet; empty if all of it was."""
        call = self.lifecycle.call
        reasons: dict[Held, bool] = {
            "partial_chunk": bool(self._sse.buffer),
            "partial_delta": self._reader.waiting,
            "markup": self._markup is not None and self._markup.holds,
            "white_space": bool(self.lifecycle.space),
            "open_call": self.lifecycle.holds_deltas,
            "verdict": self.awaiting is not None or (call is not None and call.deferred),
        }
        return [] if self.ended else [reason for reason, holds in reasons.items() if holds]

    @property
    def output(self) -> list[str]:
        """The JSON of the items done so far, as it was streamed."""
        return [writer.sendable(item) for item in self.writer.done]

    @property
    def next_number(self) -> int:
        """The sequence number of the next event; behind the end, that of the terminal event is taken."""
        return self.writer.next_number

    # ---- the response ----------------------------------------------------------------------------------------------------

    def terminal(self, *, stored: bool | None = None) -> bytes:
        """Return the terminal event and `[DONE]`; no bytes before the end. `stored` overrides the `store` of the request."""
        if not self.ended:
            return b""
        fields = f'"response":{self._json(None, stored)}'
        event = self.writer.event(f"response.{self.status}", self._terminal_number, fields)
        return event + writer.DONE.encode()

    def response(self, *, stored: bool | None = None, status: Status | None = None) -> str:
        """Return the final response as JSON; before the end, the response as it stands. `status` takes the place of its own."""
        return writer.sendable(self._json(status, stored))

    def around(self, *, status: Status | None = None) -> tuple[str, str]:
        """Return the text of that response before and behind its output items."""
        before, behind = self._around(status)
        return writer.sendable(before), writer.sendable(behind)

    def first_around(self) -> tuple[str, str]:
        """Return the same of the response as the first event has it."""
        before, behind = self._response.around(self._first_status, _NO_OUTCOME)
        return writer.sendable(before), writer.sendable(behind)

    @property
    def long_texts(self) -> Sequence[str]:
        """The long values in the text behind the output items, in order. They repeat the request, and the next ones often have
        the same."""
        return self._response.long_texts

    def _json(self, status: Status | None = None, stored: bool | None = None) -> str:
        before, behind = self._around(status, stored)
        return f"{before}{','.join(self.writer.done)}{behind}"

    def _around(self, status: Status | None, stored: bool | None = None) -> tuple[str, str]:
        outcome = self._outcome._replace(error=None) if status == "cancelled" else self._outcome
        return self._response.around(status or self.status, outcome, stored=stored)

    # ---- the stream ------------------------------------------------------------------------------------------------------

    def queue(self) -> bytes:
        """Return `response.created` and `response.queued`, for a response that runs in the background; `start` follows."""
        self._first_status = "queued"
        self._write_snapshot("queued", "response.created", "response.queued")
        return self._noted("queue", None, self._take())

    def start(self) -> bytes:
        """Return `response.created` and `response.in_progress`."""
        self.status = "in_progress"
        if self._first_status == "queued":
            self._write_snapshot("in_progress", "response.in_progress")
        else:
            self._write_snapshot("in_progress", "response.created", "response.in_progress")
        return self._noted("start", None, self._take())

    def insert(self, kind: str, item: str) -> bytes:
        """Return the events for an item that the gateway made itself, as JSON: behind `start`, before the model's first one."""
        if not self.ended:
            self.writer.finish_item(kind, self.writer.add_item(item), item)
        return self._noted("insert", item, self._take())

    def feed(self, data: bytes) -> bytes:
        """Return the events for the next piece of the backend's body, cut anywhere. Deltas of one text that came with one read
        leave as one event: a client gets tokens as fast as they come, and no more events than it can take."""
        events: bytes | None = None
        try:
            fast_path = self._fast_path
            if fast_path.pattern is not None and fast_path.item is not None:
                events = fast_path.feed(data, fast_path.pattern, fast_path.item)
            if events is None and not self.ended and self.failover.broken_off is None:
                for payload in self._sse.feed(data):
                    self._read(payload)
                    if self.ended or self.failover.broken_off is not None:
                        break
                if fast_path.item is not None:
                    fast_path.flush()
        except Exception as error:  # every failure must end in a terminal event, our own defects too
            self._break(error)
        if events is None:
            events = self._take()
        if self.tape is not None:
            self._noted("feed", data, events)
        return events

    def feed_completion(self, body: bytes) -> bytes:
        """Return the events for the body of a backend that did not say that it streams: one JSON object, or a stream."""
        tape = self.tape
        self.tape = None  # the calls below are parts of this one
        if _STREAM.match(body):
            events = self.feed(body) + self.finish()
        else:
            events = self.feed(b"data: " + body.replace(b"\r", b" ").replace(b"\n", b" ") + b"\n\ndata: [DONE]\n\n")
        self.tape = tape
        return self._noted("feed_completion", body, events)

    def finish(self) -> bytes:
        """Return the last events: the backend's body has ended."""
        self._finish()
        return self._noted("finish", None, self._take())

    def fail(self, error: ApiError) -> bytes:
        """Return the last events of a stream that broke (connection lost, time-out, shutdown): what is open is incomplete.
        Behind a finish_reason nothing was lost but usage and `[DONE]`: then the response ends as the model ended it, unless the
        model waits for the results of calls (`finish` has them run)."""
        self.failover.end_answer()
        if self.ended:
            return self._noted("fail", error, self._take())
        if self.failover.joined and self.lifecycle.finish_reason is not None and not self._waits_for_results:
            self._finish()
            if self._waits_for_results:
                self._fail(error)
        else:
            self._fail(error)
        while self.awaiting is not None:
            if self.unclosed:
                self._refuse()
            else:
                self._judge(None)
        return self._noted("fail", error, self._take())

    def judge(self, replacement: str | None) -> bytes:
        """Return the events that were held for the verdict on the call that waits: None lets its input pass as it is."""
        if self.awaiting is not None and not self.ended:
            self._judge(replacement)
        return self._noted("judge", replacement, self._take())

    def refuse(self) -> bytes:
        """Return the events that were held for the verdict, which is that the call that waits is not to be handed over."""
        if self.awaiting is not None and not self.ended:
            self._refuse()
        return self._noted("refuse", None, self._take())

    # ---- continuing on another backend -----------------------------------------------------------------------------------

    @property
    def continuable(self) -> bool:
        """Whether another backend can go on with the answer, should it break off now."""
        waits = self.ended or self.awaiting is not None or self._waits_for_results
        return not waits and self.failover.possible

    def beginning(self) -> Beginning:
        """Return what was generated of an answer that is `continuable`."""
        return self.failover.beginning(self._markup)

    def restart(self, markup: Markup | ThoughtWatch | None, start: object = None) -> bytes:
        """Forget an answer that has said nothing yet: another backend answers in its place. `start` is how that answer is read,
        as plain data, for the tape."""
        self._received = False
        self._earlier_chunks += self._fast_path.chunks
        self.tokens.forget_answer()
        self.failover.restart()
        self._begin_answer(markup)
        return self._noted("restart", start, b"")

    def resume(self, rejoining: Rejoining, markup: Markup | None) -> bytes:
        """Go on with the answer of another backend, which `feed` takes. `markup` reads it, in the place of what read the answer
        that broke off; None if that goes on. Return the events of what a second reading of the beginning has shown."""
        self._fast_path.flush()
        dropped = self.failover.keep(rejoining)
        self.tokens.uncount(len(dropped))
        if markup is None:
            assert isinstance(self._markup, Markup)
            self._markup.unsee(dropped)
            earlier = self._reader.repairs
        else:
            earlier = self._turn_repairs()
            self._citations = None  # the second reading takes the marks out by itself
        for kind, count in earlier.items():
            self._earlier_repairs[kind] = self._earlier_repairs.get(kind, 0) + count
        self._earlier_chunks += self._fast_path.chunks
        self.failover.join(rejoining, same_parser=markup is None)
        self._begin_body(self._markup if markup is None else markup)
        for delta in rejoining.news:
            self.lifecycle.step(delta)
        return self._noted("resume", rejoining.point, self._take())

    # ---- hosted calls ----------------------------------------------------------------------------------------------------

    def list_tools(self, listing: ToolListing) -> bytes:
        """Return the events for the tools of an MCP server, which are offered to the model: before its first turn."""
        if not self.ended:
            write_tool_list(self.writer, self._new_id("mcpl"), listing.label, listing.tools, listing.error)
        return self._noted("list_tools", listing, self._take())

    def approved_call(self, call: ApprovedCall) -> bytes:
        """Return the events for a call that the client has approved and that was run: before the model's first turn."""
        if not self.ended:
            target = ToolTarget("mcp", call.name, call.label)
            hosted = self.options.hosted or HostedOptions()
            item = McpCallItem(self.writer, self._new_id("mcp"), target, hosted, approval=call.request_id)
            item.append(self.writer, call.arguments or "{}")
            item.outcome = call.outcome
            item.close(self.writer, "completed", call.arguments or "{}")
            self.lifecycle.count_approved()
            self.turn_began = len(self.writer.done)  # the model has not begun
        return self._noted("approved_call", call, self._take())

    def calls_to_run(self) -> list[CallToRun]:
        """Return the calls of hosted tools for which an outcome is needed, in order: the open one, and those that are held
        behind it. None where the stream waits for no outcome."""
        if not self._runs_calls:
            return []
        call = self.lifecycle.call
        assert call is not None
        found: list[CallToRun] = []
        for name, arguments in ((call.name, call.arguments.text), *self.lifecycle.held_calls()):
            target = target_of(self.options.tools, name)
            if target is not None and target.hosted and not target.needs_approval:
                found.append(CallToRun(name, target, without_rest(arguments)))
        return found

    def finish_call(self, outcome: CallOutcome) -> bytes:
        """Return the events for the outcome of the first call to run, and those that were held for it."""
        if self._runs_calls and not self.ended:
            self._finish_call(outcome)
        return self._noted("finish_call", outcome, self._take())

    def next_turn(self, markup: Markup | ThoughtWatch | None, *, may_call: bool = True, start: object = None) -> bytes:
        """Begin the next answer of the model, which has got the results: `feed` takes the body of another request. Unless it
        `may_call`, its calls are suppressed. `start` is how the answer is read, as plain data, for the tape."""
        if self.wants_turn and not self.ended:
            self.wants_turn = False
            self.turns += 1
            self.turn_began = len(self.writer.done)
            self._earlier_usages.append(self.usage_by_turn[-1])
            self._earlier_chunks += self._fast_path.chunks
            for kind, count in self._turn_repairs().items():
                self._earlier_repairs[kind] = self._earlier_repairs.get(kind, 0) + count
            self._received = False
            self.lifecycle.next_turn(may_call=may_call)
            self.tokens.begin_answer()
            self.failover.begin_answer()
            self._begin_answer(markup)
        return self._noted("next_turn", {"may_call": may_call, "start": start}, b"")

    @property
    def _waits_for_results(self) -> bool:
        return self._runs_calls or self.wants_turn

    def _new_id(self, prefix: str) -> str:
        return f"{prefix}_{self.response_id.removeprefix('resp_')}{self.writer.next_index:04x}{BEFORE_THE_MODEL}"

    def keep_alive(self) -> bytes:
        """Return `response.in_progress` with the true snapshot so far: an event that resets the idle timers of clients."""
        if not self.ended:
            self._write_snapshot("in_progress", "response.in_progress")
        return self._noted("keep_alive", None, self._take())

    def _noted(self, method: str, argument: object, events: bytes) -> bytes:
        if self.tape is not None:
            ends = self.ended and not self._terminal_noted
            self._terminal_noted = self.ended
            self.tape(method, argument, events + self.terminal() if ends else events)
        return events

    def _take(self) -> bytes:
        if self.options.compaction is not None:
            self.lifecycle.writer.events.clear()
        events = self.writer.events
        data = b"".join(events)
        events.clear()
        return data

    def _write_snapshot(self, status: Status, *kinds: str) -> None:
        snapshot = f'"response":{self._json(status)}'
        for kind in kinds:
            self.writer.write(kind, snapshot)

    # ---- reading ---------------------------------------------------------------------------------------------------------

    def _read(self, payload: bytes) -> None:
        if payload[:6] == b"[DONE]":
            self._end()
            return
        fast_path = self._fast_path
        fast_path.chunks += 1
        if fast_path.item is not None and fast_path.take_payload(payload):
            return
        chunk = decode_chunk(payload)
        failover = self.failover
        if failover.ledger is not None:
            failover.see(chunk)
            if failover.ends_with(chunk):
                fast_path.stop()
                return
        if fast_path.item is not None:
            if fast_path.take_chunk(chunk, payload):
                return
            fast_path.flush()
        if chunk.failure is not None:
            self._fail(in_client_terms(read_error_chunk(chunk.failure)))
            return
        for delta in self._deltas_of(chunk):
            self.lifecycle.step(delta)
        if not self.lifecycle.sources and failover.joined:  # else every text has to be looked at
            fast_path.look_ahead(self._reader.waiting)

    def _deltas_of(self, chunk: Chunk) -> list[Delta]:
        deltas = self._reader.read(chunk)
        token_ids = chunk.token_ids
        if deltas or token_ids or self._reader.waiting:
            self._received = True
        rejoining = self.failover.rejoining
        if rejoining is not None:
            deltas = rejoining.without_overlap(deltas)
        if self._markup is not None:
            if chunk.prompt_token_ids:
                self._markup.see_prompt(chunk.prompt_end)
            deltas = self._markup.read(deltas, token_ids)
        if rejoining is not None:
            deltas = rejoining.only_news(deltas)
        if token_ids is not None or self.tokens.exact:
            self.tokens.count(deltas, token_ids)
        return deltas if self._citations is None else self._citations.read(deltas)

    @property
    def _thought_is_marked(self) -> bool:
        """Whether a marker tells reasoning from the answer, which no backend shows that parses by itself."""
        return self._markup is not None and not self.failover.reads_again and self._markup.evidence.marked

    # ---- the end ---------------------------------------------------------------------------------------------------------

    def _finish(self) -> None:
        if self.ended:
            return
        try:
            try:
                for payload in self._sse.finish():  # one event at most, whole or cut by the end of the body
                    self._read(payload)
            except MalformedChunk:
                self.malformed += 1  # the finish_reason tells what was lost
            self._end()
        except Exception as error:  # as in feed
            self._break(error)

    def _judge(self, replacement: str | None) -> None:
        self.awaiting = None
        try:
            close_judged(self.lifecycle, replacement)
            self._conclude()
        except Exception as error:  # as in feed
            self._break(error)

    def _refuse(self) -> None:
        self.awaiting = None
        try:
            self.lifecycle.step(Stop())
            self._conclude()
        except Exception as error:  # as in feed
            self._break(error)

    def _finish_call(self, outcome: CallOutcome) -> None:
        self._runs_calls = False
        lifecycle = self.lifecycle
        try:
            assert lifecycle.call is not None
            assert isinstance(lifecycle.call.item, HostedItem)
            lifecycle.call.item.outcome = outcome
            lifecycle.sources.update((source.number, source) for source in outcome.sources)
            lifecycle.step(Stop())
            self._conclude()
        except Exception as error:  # as in feed
            self._break(error)

    def _end(self) -> None:
        if self.ended or self.awaiting is not None or self._waits_for_results:
            return
        self._fast_path.flush()
        if self.failover.ends_early():
            self._fast_path.stop()
            return
        lifecycle = self.lifecycle
        rest = self._reader.finish()
        if self._markup is not None:
            rest = self._markup.read(rest, None) + self._markup.finish(lifecycle.finish_reason or "error")
        rejoining = self.failover.rejoining
        if rejoining is not None:
            rest = rejoining.only_news(rest, last=True)
            if not rejoining.joined:
                raise Diverged
        if self._citations is not None:
            rest = self._citations.read(rest) + self._citations.finish()
        for delta in rest:
            lifecycle.step(delta)
        if lifecycle.finish_reason == "stop" and not self._thought_is_marked:
            lifecycle.repeat_reasoning()
        self._conclude()

    def _conclude(self) -> None:
        lifecycle = self.lifecycle
        reason = lifecycle.finish_reason
        if reason is None:
            self._fail(server_error("The backend closed the stream before the model finished."))
            return
        if reason == "error":
            self._fail(server_error("The backend aborted the generation."))
            return
        if reason == "stop":
            self._show_silent_tokens()
        grammars = self.options.grammars if self.options.compaction is None else {}
        while lifecycle.state != "ended":
            call = lifecycle.call
            if call is not None and reason == "stop" and call.runnable:
                self._runs_calls = True
                self.failover.end_answer()
                lifecycle.run_call()
                return
            if grammars:
                self.awaiting = waiting_call(lifecycle, grammars)
                if self.awaiting is not None:
                    return
            lifecycle.close_next()
        if reason == "stop" and not lifecycle.call_cut:
            if lifecycle.hosted_calls and not lifecycle.client_calls:
                self.wants_turn = True
                return
            self._terminate("completed")
        else:
            # There is no third reason, and this one tells what happened to a call that was cut: the model wrote too little.
            self.incomplete_reason = "content_filter" if reason == "content_filter" else "max_output_tokens"
            self._terminate("incomplete")

    def _show_silent_tokens(self) -> None:
        """Give out as text what the model wrote, where the backend showed nothing at all of it but the ids of its tokens."""
        ids = self.tokens.silent_ids
        decode = self.options.decode
        if (
            ids
            and decode is not None
            and self._markup is None
            and self.lifecycle.state == "idle"
            and not self.lifecycle.writer.done
        ):
            text = decode(ids)
            if text.strip():
                self.lifecycle.repairs["silent_tokens_shown"] = 1
                self.lifecycle.step(Text(text))

    def _break(self, error: Exception) -> None:
        if isinstance(error, Diverged):
            self.failover.diverged = str(error) or "text_differs"
            self._fail(server_error("The connection to the backend broke in the middle of the answer."))
        elif isinstance(error, MalformedChunk | SSETooLong):
            self.malformed += 1
            if self.lifecycle.finish_reason is None:
                self._fail(server_error("The backend sent something that is not a chat completion chunk."))
                return
            try:
                self._end()  # nothing was lost but usage, as in `fail`
            except Exception as defect:
                self._break(defect)
        else:
            self.defect = error
            self._fail(server_error("The gateway failed to translate the stream. This is a defect: please report it.", 500))

    def _fail(self, error: ApiError) -> None:
        self.error = error
        for step in (self._fast_path.flush, self._release_markup, self.lifecycle.abandon):
            try:
                step()
            except Exception as defect:  # nothing may stand between the client and its terminal event
                self.defect = defect
        self._terminate("failed")

    def _release_markup(self) -> None:
        """Write what a parser held back: it is as true as what the model said before."""
        rest: list[Delta] = []
        rejoining = self.failover.rejoining
        if self._markup is not None and self.defect is None and self.failover.joined:
            rest = self._markup.finish("error")
            if rejoining is not None:
                rest = rejoining.only_news(rest, last=True)
        if self._citations is not None:
            rest = self._citations.read(rest) + self._citations.finish()
        for delta in rest:
            self.lifecycle.step(delta)

    def _terminate(self, status: Status) -> None:
        if self.options.compaction is not None and status != "failed":
            status = self._compact(self.options.compaction)
        error = None
        if self.error is not None:
            code = self.error.code if self.error.code in _STREAM_CODES else "server_error"
            error = (code or "server_error", self.error.message)
        self.status = status
        self.ended = True
        self.awaiting = None
        self.wants_turn = False
        self._runs_calls = False
        self._fast_path.item = None
        self.failover.end_answer()
        self._usage = self._reported_usage()
        usage = self.tokens.complete_usage(self._usage, self.lifecycle.writer.characters)
        completed_at = int(self._clock()) if status == "completed" else None
        self._outcome = Outcome(usage_json(usage), completed_at, self.incomplete_reason, error)
        self._terminal_number = self.writer.next_number
        self.writer.next_number += 1

    def _compact(self, seal: SealText) -> Status:
        """Write the item that takes the place of what the model wrote; return how the response ends."""
        item = compaction_item(self.options.response_id, self.lifecycle.writer.done, seal)
        if item is None:
            self.error = server_error("The model wrote no summary.")
            return "failed"
        self.incomplete_reason = None  # a summary that was cut is better than none
        self.writer.finish_item("compaction", self.writer.add_item(item), item)
        return "completed"


def _sum(earlier: Usage | None, later: Usage | None) -> Usage | None:
    """Return the usage of several turns together. Of a turn that reported none nothing is known."""
    if earlier is None or later is None:
        return later if earlier is None else earlier
    return Usage(*(_sum_of(getattr(earlier, name), getattr(later, name)) for name in Usage.__struct_fields__))


def _sum_of(earlier: int | None, later: int | None) -> int | None:
    return later if earlier is None else earlier if later is None else earlier + later
