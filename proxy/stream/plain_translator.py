"""A chat stream in, a Responses stream out: reader, lifecycle and writer composed. Sans I/O.

    translator = Translator(options, clock)
    send(translator.start())
    for data in body:  send(translator.feed(data))
    send(translator.finish())

Whatever happens, one terminal event is written: `finish` without a finish_reason, an error chunk, a malformed chunk and a
defect of our own all end in `response.failed`. Behind it every method returns no bytes.
"""

from __future__ import annotations

import re

from proxy.stream import writer
from proxy.stream.fast_path import ChunkPattern, continued, learn, unquoted
from proxy.stream.items.text_items import MessageItem, ReasoningItem
from proxy.stream.lifecycle import Lifecycle, State
from proxy.stream.markup import Plain
from proxy.stream.options import Clock, StreamOptions
from proxy.stream.reader import Reader
from proxy.stream.response import ResponseObject, Status, usage_json
from proxy.stream.tokens.usage import Accounts
from proxy.wire.chat import MalformedChunk, decode_chunk
from proxy.wire.chat_errors import read_error_chunk
from proxy.wire.deltas import Reasoning, Text
from proxy.wire.errors import ApiError, server_error
from proxy.wire.sse import SSEDecoder, SSETooLong

#: The codes that `response.error.code` may have for clients (a closed list in the SDKs, and what Codex acts on).
_STREAM_CODES = frozenset({"context_length_exceeded", "rate_limit_exceeded", "invalid_prompt", "insufficient_quota"})
#: How a body of server-sent events begins.
_STREAM = re.compile(rb"(?:\xef\xbb\xbf)?\s*(?:data|event|id|retry)?:")


class PlainTranslator:
    """One stream. `status` tells how it stands, `response_json` is the final response once it has ended."""

    __slots__ = (
        "_clock", "_counting", "_field", "_markup", "_missed", "_misses", "_open_kind", "_open_text", "_pattern",
        "_pen", "_plain", "_reader", "_response", "_run", "_said", "_sse", "accounts", "chunks", "defect", "ended", "error",
        "first_json", "incomplete_reason", "lifecycle", "malformed", "response_json", "status",
    )  # fmt: skip

    awaiting: tuple[str, str] | None = None  #: a call that waits for a verdict, see `judged.py`

    def __init__(self, options: StreamOptions, clock: Clock) -> None:
        self._clock = clock
        self._sse = SSEDecoder()
        self._reader = Reader(
            known_tools=options.tools, logprobs=options.logprobs, refusal_as_text=options.client.drops_refusals
        )
        self.lifecycle = Lifecycle(options)
        self._pen = self.lifecycle.pen
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
        self._said = False  # something was in them
        # Usually the next chunk brings more of the open text: then these say what and where, and nothing is looked up.
        self._run: list[str] = []
        self._counting = options.encode is not None
        self._open_text: ReasoningItem | MessageItem | None = None
        self._open_kind: State = "idle"
        self._field: State = "idle"  # the field of a chunk in which more of it comes: "reasoning", or else the content
        self._plain: Plain | None = None  # whether raw text has no markup in it
        self._pattern: ChunkPattern | None = None  # what such a chunk looks like, once one was seen
        self._misses = self._missed = 0  # such chunks in a row that did not look like it, and the last one's number
        self.malformed = 0

    @property
    def response_id(self) -> str:
        """The id of the response, the same from first event to last."""
        return self._response.id

    @property
    def unheard(self) -> bool:
        """The backend has not said anything yet, not even a part of something: another one may be fed in its place. A chunk
        that only says who speaks says nothing."""
        return not self._said and not self.malformed and not self._sse.buffer

    @property
    def visible(self) -> bool:
        """Something that a user sees has begun: text, a refusal or a call."""
        return self.lifecycle.visible

    @property
    def repairs(self) -> dict[str, int]:
        """What had to be mended on the way, by kind."""
        return {
            **self._reader.repairs,
            **self.lifecycle.repairs,
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

    def insert(self, kind: str, item: str) -> bytes:
        """An item that the gateway made itself, as JSON: behind `start`, before the first of the model's own."""
        if not self.ended:
            self._pen.finish(kind, self._pen.add(item), item)
        return self._take()

    def feed(self, data: bytes) -> bytes:
        """The events for the next piece of the backend's body, cut anywhere.

        Deltas of one text that came with one read leave as one event: a client gets tokens as fast as they come, and no
        more events than it can take.
        """
        try:
            if self._pattern is not None and self._open_text is not None:
                events = self._feed_usual(data, self._pattern, self._open_text)
                if events is not None:
                    return events
            if self.ended:
                return b""
            for payload in self._sse.feed(data):
                self._read(payload)
                if self.ended:
                    break
            self._flush()
        except Exception as error:  # every failure must end in a terminal event, our own defects too
            self._break(error)
        return self._take()

    def feed_completion(self, body: bytes) -> bytes:
        """The events for the body of a backend that did not say that it streams: one JSON object, or a stream all the same."""
        if _STREAM.match(body):
            return self.feed(body) + self.finish()
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
        if self.lifecycle.finish_reason is not None:
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

    def _feed_usual(self, data: bytes, pattern: ChunkPattern, open_text: ReasoningItem | MessageItem) -> bytes | None:
        """The events for a read of nothing but usual chunks: more of the open text. None, with nothing done, for any other."""
        whole, rest, chunks = data, b"", 1
        if self._sse.buffer or not data.endswith(pattern.behind):
            whole, rest = self._sse.split(data)
            if not whole.endswith(pattern.behind):
                return None
        if not whole.startswith(pattern.before):
            return None
        inside = whole[pattern.begin : pattern.end]
        if len(inside) > pattern.around:  # else it is one event
            inside = pattern.texts(whole)
            chunks = (len(whole) - len(inside)) // pattern.around
        quoted = b'"%b"' % inside
        text = unquoted(quoted)
        if not text or not (self._plain is None or self._plain(text, None)):
            return None
        self._sse.buffer = rest
        self.chunks += chunks
        if self._counting:
            self._count(text, None)
        if self.lifecycle.space or text[-1].isspace():
            text = self.lifecycle.trimmed(text)
            if not text:
                return b""
            quoted = writer.quoted(text)
            open_text.fold()
        return open_text.more(self._pen, text, quoted)

    def _read(self, payload: bytes) -> None:
        if payload[:6] == b"[DONE]":
            self._end()
            return
        self.chunks += 1
        if self._pattern is not None and self._open_text is not None:
            text = self._pattern.text(payload)
            if text and (self._plain is None or self._plain(text, None)):
                self._continue(text, None)
                return
        chunk = decode_chunk(payload)
        if self._open_text is not None:
            found, token_ids = continued(self._field, chunk), chunk.token_ids
            if found is not None and (self._plain is None or self._plain(found, token_ids)):
                self._continue(found, token_ids)
                if token_ids is None:
                    self._learn(payload, found)
                return
            self._flush()
        if chunk.failure is not None:
            self._fail(read_error_chunk(chunk.failure))
            return
        deltas, token_ids = self._reader.read(chunk), chunk.token_ids
        if deltas or token_ids or self._reader.waiting:
            self._said = True
        if self._markup is not None:
            deltas = self._markup.read(deltas, token_ids)
        self._counting = self._counting or token_ids is not None
        if self._counting:
            self.accounts.book(deltas, token_ids)
        for delta in deltas:
            self.lifecycle.step(delta)
        self._look_ahead()

    def _learn(self, payload: bytes, text: str) -> None:
        """See what a usual chunk looks like; less and less often in a stream in which no two are alike."""
        self._misses = self._misses + 1 if self.chunks == self._missed + 1 else 1
        self._missed = self.chunks
        if self._misses & (self._misses - 1) == 0:  # 1, 2, 4, ...
            self._pattern = learn(self._field, payload, text) or self._pattern

    def _continue(self, text: str, token_ids: list[int] | None) -> None:
        self._run.append(text)
        if self._counting:
            self._count(text, token_ids)

    def _count(self, text: str, token_ids: list[int] | None) -> None:
        self.accounts.book([Reasoning(text) if self._open_kind == "reasoning" else Text(text)], token_ids)

    def _flush(self) -> None:
        """Write the run of pieces that all belong to the open text."""
        run = self._run
        if not run:
            return
        text = run[0] if len(run) == 1 else "".join(run)
        run.clear()
        text = self.lifecycle.trimmed(text)
        if text:
            self._open_text.append(self._pen, text, None)  # type: ignore[union-attr]

    def _look_ahead(self) -> None:
        field = self._field
        self._open_text = None if self._reader.waiting else self.lifecycle.open_text
        self._open_kind = self._field = self.lifecycle.state
        if self._markup is not None and self._open_text is not None:
            lane = self._markup.lane(self._open_kind)
            if lane is None:
                self._open_text = None
            else:
                self._field, self._plain = lane
        if self._field != field:
            self._pattern, self._misses = None, 0

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
        lifecycle = self.lifecycle
        rest = self._reader.finish()
        if self._markup is not None:
            rest = self._markup.read(rest, None) + self._markup.finish(lifecycle.finish_reason or "error")
        for delta in rest:
            lifecycle.step(delta)
        self._conclude()

    def _conclude(self) -> None:
        lifecycle, reason = self.lifecycle, self.lifecycle.finish_reason
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
        for step in (self._flush, self._give_out_held, self.lifecycle.abandon):
            try:
                step()
            except Exception as defect:  # nothing may stand between the client and its terminal event
                self.defect = defect
        self._terminate("failed")

    def _give_out_held(self) -> None:
        """What a parser of ours held back is as true as what the model had said before."""
        if self._markup is not None and self.defect is None:
            for delta in self._markup.finish("error"):
                self.lifecycle.step(delta)

    def _terminate(self, status: Status) -> None:
        error = None
        if self.error is not None:
            code = self.error.code if self.error.code in _STREAM_CODES else "server_error"
            error = (code or "server_error", self.error.message)
        self.status, self.ended, self._open_text = status, True, None
        response = self._response.json(
            status,
            self._pen.done,
            usage=usage_json(self.accounts.settle(self.lifecycle.usage, self._pen.characters)),
            completed_at=int(self._clock()) if status == "completed" else None,
            incomplete_reason=self.incomplete_reason,
            error=error,
        )
        self.response_json = response.encode("utf-8", "replace").decode()  # as in _take
        self._pen.write(writer.response_event(f"response.{status}", self._pen.seq, self.response_json))
        self._pen.out.append(writer.DONE.encode())

    def _take(self) -> bytes:
        out = self._pen.out
        data = b"".join(out)
        out.clear()
        return data
