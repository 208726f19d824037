"""A chat stream in, a Responses stream out: reader, lifecycle and writer composed. Sans I/O.

    translator = Translator(options, clock)
    send(translator.start())
    for data in body:  send(translator.feed(data))
    send(translator.finish())

Whatever happens, exactly one terminal event is written: `finish` without a finish_reason, an error chunk, a malformed
chunk and a defect of our own all end in `response.failed`. After the terminal event every method returns no bytes.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from proxy.stream import writer
from proxy.stream.accounts import Accounts
from proxy.stream.clients import STANDARD, Client
from proxy.stream.deltas import Reasoning, Text
from proxy.stream.items import MessageItem, ReasoningItem
from proxy.stream.lifecycle import ItemOptions, Lifecycle, State
from proxy.stream.markup import Markup, Plain
from proxy.stream.reader import Reader
from proxy.stream.response import ResponseObject, Status, usage_json
from proxy.stream.tokens import Encode
from proxy.wire.chat import Chunk, MalformedChunk, decode_chunk
from proxy.wire.chat_errors import read_error_chunk
from proxy.wire.errors import ApiError, server_error
from proxy.wire.sse import SSEDecoder, SSETooLong
from proxy.wire.tools import ToolTable

#: The codes that `response.error.code` may have for clients (a closed list in the SDKs, and what Codex acts on).
_STREAM_CODES = frozenset({"context_length_exceeded", "rate_limit_exceeded", "invalid_prompt", "insufficient_quota"})

#: Clock: Unix time in seconds.
Clock = Callable[[], float]


@dataclass(frozen=True, slots=True)
class StreamOptions:
    """All that a translation needs to know about its request."""

    response_id: str  #: `resp_` and letters or digits, unique
    model: str
    echo: Mapping[str, Any] = field(default_factory=dict)  #: response fields that repeat the request
    tools: ToolTable = field(default_factory=dict)
    allowed: frozenset[str] | None = None
    max_calls: int | None = None
    call_ids: frozenset[str] = frozenset()
    summary: bool = False  #: mirror reasoning into a summary
    seal: Callable[[str], str] | None = None  #: makes the encrypted content of reasoning
    logprobs: bool = False
    reasoning_event: str = "response.reasoning_text"
    client: Client = STANDARD
    markup: Markup | None = None  #: reads the markup in the text; one for each stream
    encode: Encode | None = None  #: the model's tokenizer, to count where the backend does not


class Translator:
    """One stream. `status` tells how it stands, `response_json` is the final response once it has ended."""

    def __init__(self, options: StreamOptions, clock: Clock) -> None:
        self._clock = clock
        self._sse = SSEDecoder()
        self._reader = Reader(
            known_tools=options.tools, logprobs=options.logprobs, refusal_as_text=options.client.drops_refusals
        )
        self.lifecycle = self._lifecycle = Lifecycle(
            ItemOptions(
                token=options.response_id.removeprefix("resp_"),
                tools=options.tools,
                allowed=options.allowed,
                max_calls=options.max_calls,
                call_ids=options.call_ids,
                mirror_summary=options.summary,
                seal=options.seal,
                reasoning_event=options.reasoning_event,
                omit_cut_calls=options.client.runs_cut_calls,
                omit_broken_text=options.client.keeps_broken_text,
            )
        )
        self._pen = self._lifecycle.pen
        self._markup = options.markup
        self.accounts = Accounts(options.encode)
        self._response = ResponseObject(options.response_id, int(clock()), options.model, options.echo)
        self.status: Status = "queued"
        self.response_json = ""
        self.first_json = ""  # the response as the first event had it
        self.error: ApiError | None = None
        self.incomplete_reason: str | None = None
        self.defect: Exception | None = None
        self.ended = False  # the terminal event is written
        self.chunks = 0
        # Usually the next chunk brings more of the open text: then these say what and where, and nothing is looked up.
        self._run: list[str] = []
        self._counting = options.encode is not None
        self._open_text: ReasoningItem | MessageItem | None = None
        self._open_kind: State = "idle"
        self._field: State = "idle"  # the field of a chunk in which more of it comes: "reasoning", or else the content
        self._plain: Plain | None = None  # whether raw text has no markup in it
        self.malformed = 0

    @property
    def response_id(self) -> str:
        """The id of the response, the same from first event to last."""
        return self._response.id

    @property
    def visible(self) -> bool:
        """Something that a user sees has begun: text, a refusal or a call."""
        return self._lifecycle.visible

    @property
    def repairs(self) -> dict[str, int]:
        """What had to be mended on the way, by kind."""
        return {
            **self._reader.repairs,
            **self._lifecycle.repairs,
            **(self._markup.repairs if self._markup is not None else {}),
        }

    @property
    def output(self) -> list[str]:
        """The JSON of the items done so far, as it was streamed."""
        return [item.encode("utf-8", "replace").decode() for item in self._pen.done]

    @property
    def next_number(self) -> int:
        """The sequence number of the next event."""
        return self._pen.seq

    def queue(self) -> bytes:
        """`response.created` and `response.queued`, for a response that runs in the background; `start` follows."""
        self.first_json = self._response.json("queued", [])
        for kind in ("response.created", "response.queued"):
            self._pen.write(writer.response_event(kind, self._pen.seq, self.first_json))
        return self._take()

    def start(self) -> bytes:
        """`response.created` and `response.in_progress`."""
        self.status = "in_progress"
        snapshot = self._response.json("in_progress", [])
        was_queued, self.first_json = self.first_json != "", self.first_json or snapshot
        for kind in ("response.in_progress",) if was_queued else ("response.created", "response.in_progress"):
            self._pen.write(writer.response_event(kind, self._pen.seq, snapshot))
        return self._take()

    def feed(self, data: bytes) -> bytes:
        """The events for the next piece of the backend's body, cut anywhere.

        Deltas of one text that came with one read leave as one event: a client gets tokens as fast as they come, and no
        more events than it can take.
        """
        open_text = self._open_text
        if open_text is not None and data.find(b"\n") == len(data) - 2 and not self._sse.buffer:
            # The usual case, without a detour: one read is one event, and that is more of the open text.
            text = self._more(data)
            if text is not None:
                return open_text.more(self._pen, text)
        if self.ended:
            return b""
        try:
            for payload in self._sse.feed(data):
                self._read(payload)
                if self.ended:
                    break
            self._flush()
        except Exception as error:  # every failure must end in a terminal event, our own defects too
            self._break(error)
        return self._take()

    def feed_completion(self, body: bytes) -> bytes:
        """The events for the body of a backend that answered with one JSON object instead of a stream."""
        return self.feed(b"data: " + body.replace(b"\r", b" ").replace(b"\n", b" ") + b"\n\ndata: [DONE]\n\n")

    def finish(self) -> bytes:
        """The backend's body has ended."""
        if self.ended:
            return b""
        try:
            for payload in self._sse.finish():
                self._read_last(payload)
            self._end()
        except Exception as error:  # as in feed
            self._break(error)
        return self._take()

    def fail(self, error: ApiError) -> bytes:
        """The stream broke (connection lost, time-out, shutdown): close truthfully.

        Behind a finish_reason nothing was lost but usage and `[DONE]`: then the response ends as the model ended it.
        """
        if self._lifecycle.finish_reason is not None:
            return self.finish()
        if not self.ended:
            self._fail(error)
        return self._take()

    def keep_alive(self) -> bytes:
        """`response.in_progress` with the true snapshot so far: an event that resets the idle timers of clients."""
        if self.ended:
            return b""
        snapshot = self._response.json("in_progress", self._pen.done)
        self._pen.write(writer.response_event("response.in_progress", self._pen.seq, snapshot))
        return self._take()

    def _read(self, payload: bytes) -> None:
        if payload == b"[DONE]":
            self._end()
            return
        chunk = decode_chunk(payload)
        self.chunks += 1
        if self._open_text is not None:
            text = _more_of(self._field, chunk)
            if text is not None and (self._plain is None or self._plain(text, _token_ids(chunk))):
                self._run.append(text)
                if self._counting:
                    self._count(text, chunk)
                return
            self._flush()
        if chunk.error is not None or chunk.object == "error":
            self._fail(read_error_chunk(_error_of(chunk)))
            return
        deltas, token_ids = self._reader.read(chunk), _token_ids(chunk)
        if self._markup is not None:
            deltas = self._markup.read(deltas, token_ids)
        self._counting = self._counting or token_ids is not None
        if self._counting:
            self.accounts.book(deltas, token_ids)
        for delta in deltas:
            self._lifecycle.step(delta)
        self._look_ahead()

    def _more(self, event: bytes) -> str | None:
        """The text of an event that brings more of the open text and nothing else, not even white space at its end."""
        if event[:6] != b"data: " or event.find(b"\r") >= 0:
            return None
        try:
            chunk = decode_chunk(event[6:-2])
        except MalformedChunk:
            return None  # `feed` meets it again, and says so
        text = _more_of(self._field, chunk)
        if text is None or text[-1].isspace() or (self._plain is not None and not self._plain(text, _token_ids(chunk))):
            return None
        self.chunks += 1
        if self._counting:
            self._count(text, chunk)
        return text

    def _count(self, text: str, chunk: Chunk) -> None:
        self.accounts.book([Reasoning(text) if self._open_kind == "reasoning" else Text(text)], _token_ids(chunk))

    def _flush(self) -> None:
        """Write the run of pieces that all belong to the open text."""
        run = self._run
        if not run:
            return
        text = run[0] if len(run) == 1 else "".join(run)
        run.clear()
        if text[-1].isspace():
            self._lifecycle.step(Reasoning(text) if self._open_kind == "reasoning" else Text(text))
            self._look_ahead()
        else:
            self._open_text.append(self._pen, text, None)  # type: ignore[union-attr]

    def _look_ahead(self) -> None:
        self._open_text = None if self._reader.waiting else self._lifecycle.open_text
        self._open_kind = self._field = self._lifecycle.state
        if self._markup is not None and self._open_text is not None:
            lane = self._markup.lane(self._open_kind)
            if lane is None:
                self._open_text = None
            else:
                self._field, self._plain = lane

    def _read_last(self, payload: bytes) -> None:
        """An event without its blank line: whole, or cut by the end of the body. The finish_reason tells what was lost."""
        try:
            self._read(payload)
        except MalformedChunk:
            self.malformed += 1

    def _end(self) -> None:
        if self.ended:
            return
        self._flush()
        lifecycle = self._lifecycle
        reason = lifecycle.finish_reason
        rest = self._reader.finish()
        if self._markup is not None:
            rest = self._markup.read(rest, None) + self._markup.finish(reason or "error")
        for delta in rest:
            lifecycle.step(delta)
        if reason is None:
            self._fail(server_error("The backend closed the stream before the model finished."))
        elif reason == "error":
            self._fail(server_error("The backend aborted the generation."))
        elif not lifecycle.close():
            self._fail(server_error("The model stopped in the middle of a tool call: its arguments are not complete."))
        elif reason == "stop":
            self._terminate("completed")
        else:
            self.incomplete_reason = "max_output_tokens" if reason == "length" else "content_filter"
            self._terminate("incomplete")

    def _break(self, error: Exception) -> None:
        if isinstance(error, MalformedChunk | SSETooLong):
            self.malformed += 1
            self._fail(server_error("The backend sent something that is not a chat completion chunk."))
        else:
            self.defect = error
            self._fail(
                server_error("The gateway failed while it translated the stream. This is a defect: please report it.", 500)
            )

    def _fail(self, error: ApiError) -> None:
        self.error = error
        for step in (self._flush, self._give_out_held, self._lifecycle.abandon):
            try:
                step()
            except Exception as defect:  # nothing may stand between the client and its terminal event
                self.defect = defect
        self._terminate("failed")

    def _give_out_held(self) -> None:
        """What a parser of ours held back is as true as what the model had said before."""
        if self._markup is not None and self.defect is None:
            for delta in self._markup.finish("error"):
                self._lifecycle.step(delta)

    def _terminate(self, status: Status) -> None:
        error = None
        if self.error is not None:
            code = self.error.code if self.error.code in _STREAM_CODES else "server_error"
            error = (code or "server_error", self.error.message)
        self.status, self.ended, self._open_text = status, True, None
        response = self._response.json(
            status,
            self._pen.done,
            usage=usage_json(self.accounts.settle(self._lifecycle.usage, self._pen.characters)),
            completed_at=int(self._clock()) if status == "completed" else None,
            incomplete_reason=self.incomplete_reason,
            error=error,
        )
        self.response_json = response.encode("utf-8", "replace").decode()  # as in _take
        self._pen.write(writer.response_event(f"response.{status}", self._pen.seq, self.response_json))
        self._pen.out.append(writer.DONE.encode())

    def _take(self) -> bytes:
        out = self._pen.out
        if not out:
            return b""
        data = b"".join(out)
        out.clear()
        return data


def _more_of(state: State, chunk: Chunk) -> str | None:
    """The text of the usual chunk, which brings a piece of the open text and nothing else; None for any other."""
    choices = chunk.choices
    if not choices or chunk.usage is not None or chunk.error is not None or chunk.lenient:
        return None
    choice = choices[0]
    delta = choice.delta
    if (
        delta is None
        or choice.finish_reason is not None
        or choice.logprobs is not None
        or delta.tool_calls is not None
        or delta.refusal
        or delta.function_call is not None
    ):
        return None
    thinking = delta.reasoning or delta.reasoning_content or delta.thinking
    text = delta.content
    if state == "reasoning":
        text, thinking = thinking, text
    if thinking or not text or text.__class__ is not str:
        return None
    return text


def _token_ids(chunk: Chunk) -> list[int] | None:
    return chunk.choices[0].token_ids if chunk.choices else None


def _error_of(chunk: Chunk) -> Any:
    return chunk.error if chunk.error is not None else {"message": chunk.message}
