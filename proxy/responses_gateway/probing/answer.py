"""Send one chat request to a server, and record what its answer reveals about the server."""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal, NamedTuple

from responses_gateway.backend.transport.client import Backend, ChatStream
from responses_gateway.ended_tasks import end_tasks
from responses_gateway.wire.added_fields import UNSEEN_FIELDS, AddedFields
from responses_gateway.wire.chat import Choice, Chunk, ForeignEvent, MalformedChunk, ToolCallDelta, decode_chunk
from responses_gateway.wire.deltas import Usage
from responses_gateway.wire.errors import ApiError, read_error, read_error_chunk
from responses_gateway.wire.json_text import plain_json
from responses_gateway.wire.sse import SSEDecoder, SSETooLong
from responses_gateway.wire.usage import counts_of, merged, usage_in

# The shapes of error bodies: "openai" is OpenAI's, "flat" SGLang's `{"object": "error", "message": …}`, "text" Ollama's
# `{"error": "text"}`, "detail" FastAPI's.
ErrorShape = Literal["openai", "flat", "text", "detail", "other"]

# Tokens of which nothing is shown in any answer: markers around a thought, the end token, white space.
MARKER_TOKENS = 8
_LARGEST = 4 * 1024 * 1024  # the largest answer, in bytes: some thousand tokens with log probabilities
# The fields in which servers send reasoning, the most common first.
REASONING_FIELDS = ("reasoning", "reasoning_content", "thinking")


class Patience(NamedTuple):
    """How long an answer is waited for, in seconds: `silence` in which nothing comes, and the `whole`, after which it is cut
    though it goes on."""

    silence: float
    whole: float


@dataclass
class ReceivedCall:
    """A tool call in an answer."""

    id: str | None = None
    name: str = ""
    arguments: str = ""


@dataclass
class Arrival:
    """How an answer comes: its bytes, its chunks, and those in which something is shown, the pieces; `first` and `last` are the
    times of the first and the last piece, in seconds of a monotonic clock."""

    size: int = 0
    chunks: int = 0
    pieces: int = 0
    first: float = 0.0
    last: float = 0.0

    def add_piece(self) -> None:
        """Note that something is shown now."""
        self.last = time.monotonic()
        self.first = self.first or self.last
        self.pieces += 1


@dataclass
class Answer:
    """What a server answered to one request.

    `status` is 0 if there was no HTTP response. `problem` says what is wrong with the body. `reasoning` is keyed by the name of
    the field it came in. `cut` is set if we closed the connection before the end: because enough had come, or because it
    took too long. `silent_ids` are those of tokens of which nothing was shown."""

    status: int = 0
    error: ApiError | None = None
    error_shape: ErrorShape | None = None
    streamed: bool = False
    text: str = ""
    reasoning: dict[str, str] = field(default_factory=dict)
    calls: dict[int, ReceivedCall] = field(default_factory=dict)
    legacy_call: bool = False
    interleaved: bool = False
    finish_reason: str | None = None
    done: bool = False
    usage: Usage = field(default_factory=lambda: Usage(None, None))
    arrival: Arrival = field(default_factory=Arrival)
    chunks_with_usage: int = 0
    token_ids: bool = False
    silent_ids: list[int] = field(default_factory=list)
    cut: Literal["enough", "time"] | None = None
    problem: str | None = None
    _last_call: int = -1

    @property
    def ok(self) -> bool:
        """Whether the answer is complete and without errors."""
        return self.status == 200 and self.error is None and self.problem is None

    @property
    def out_of_time(self) -> bool:
        """Whether the answer was still coming when it was cut."""
        return self.cut == "time"

    @property
    def generation(self) -> tuple[int, float]:
        """The tokens that were generated after the first piece, as far as they are known, and the seconds that this took."""
        arrival = self.arrival
        tokens = self.usage.output or arrival.pieces
        return (max(0, tokens - 1), arrival.last - arrival.first) if arrival.pieces > 1 else (0, 0.0)

    @property
    def prompt_tokens(self) -> int:
        """The tokens of the prompt; 0 if nobody counted them."""
        return self.usage.input or 0

    @property
    def unseen_tokens(self) -> int:
        """How many tokens were used of which nothing was shown, at least: by their ids, else by the length of what came."""
        if self.token_ids:
            return len(self.silent_ids)
        text = "".join((self.text, *self.reasoning.values(), *(call.name + call.arguments for call in self.calls.values())))
        return max(0, (self.usage.output or 0) - len(text.encode("utf-8", "replace")))

    def add(self, chunk: Chunk) -> None:
        """Add one chunk of the stream, or a whole completion."""
        self.arrival.chunks += 1
        counts = None if chunk.usage is None else counts_of(chunk.usage)
        if counts is not None:
            self.usage = merged(self.usage, counts) if self.chunks_with_usage else counts
            self.chunks_with_usage += 1
        for choice in chunk.choices or ():
            self._add_choice(choice)

    def _add_choice(self, choice: Choice) -> None:
        self.finish_reason = choice.finish_reason or self.finish_reason
        delta = choice.delta or choice.message
        if choice.token_ids:
            self.token_ids = True
        if delta is None or not (delta.content or delta.tool_calls or any(map(delta.__getattribute__, REASONING_FIELDS))):
            self.silent_ids += choice.token_ids or ()
        else:
            self.arrival.add_piece()
        if delta is None:
            return
        if isinstance(delta.content, str):
            self.text += delta.content
        for name in REASONING_FIELDS:
            piece = getattr(delta, name)
            if piece:
                self.reasoning[name] = self.reasoning.get(name, "") + piece
        for call in delta.tool_calls or ():
            self._add_call(call)
        self.legacy_call = self.legacy_call or delta.function_call is not None

    def _add_call(self, delta: ToolCallDelta) -> None:
        index = delta.index if delta.index is not None else max(self._last_call, 0)
        if index < self._last_call:
            self.interleaved = True
        self._last_call = index
        call = self.calls.setdefault(index, ReceivedCall())
        call.id = delta.id or call.id
        function = delta.function
        if function is None:
            return
        call.name += function.name or ""
        arguments = function.arguments
        call.arguments += arguments if isinstance(arguments, str) else json.dumps(arguments) if arguments else ""


async def ask(
    backend: Backend,
    body: Mapping[str, Any],
    *,
    patience: Patience,
    cut_after: int | None = None,
    added: AddedFields = UNSEEN_FIELDS,
) -> Answer:
    """Send a chat request and return what came back. After `cut_after` chunks the connection is closed, and at the end of
    `patience`. `added` are the fields that may be left out. Raises nothing: errors are part of the answer."""
    answer = Answer()
    data = json.dumps(body).encode()
    whole = asyncio.timeout(patience.whole)
    silence = asyncio.timeout(patience.silence)
    try:
        async with whole, silence, await backend.open_chat(data, {}, body["model"], added) as chat:
            answer.status = chat.status
            if chat.status == 200:
                await _read(chat, answer, cut_after, _Silence(silence, patience.silence))
            else:
                data = await chat.read_refusal()
                answer.error = read_error(chat.status, data, chat.retry_after)
                answer.error_shape = _error_shape(data)
    except TimeoutError:
        _end_by_time(answer, patience, whole)
    except ApiError as error:
        answer.error = error
        answer.problem = error.message
    return answer


class _Silence(NamedTuple):
    """The time in which something has to come; it begins again with all that comes."""

    timeout: asyncio.Timeout
    seconds: float

    def begin_again(self) -> None:
        if not self.timeout.expired():  # bytes may arrive while the connection is being closed
            self.timeout.reschedule(asyncio.get_running_loop().time() + self.seconds)


def _end_by_time(answer: Answer, patience: Patience, whole: asyncio.Timeout) -> None:
    """Note that time was up: an answer that was coming all the time is not the server's fault."""
    if whole.expired() and answer.arrival.pieces:
        answer.cut = "time"
    else:
        answer.problem = f"nothing came within {patience.whole if whole.expired() else patience.silence:g} seconds"


async def _read(chat: ChatStream, answer: Answer, cut_after: int | None, silence: _Silence) -> None:
    answer.streamed = chat.is_event_stream
    if not chat.is_event_stream:
        _add_payload(answer, await chat.read(_LARGEST))
        answer.done = True
    else:
        await _read_events(chat, answer, cut_after, silence)
    if answer.problem is None and answer.finish_reason is None and not answer.cut:
        answer.problem = "the stream ends without a finish_reason"


async def _read_events(chat: ChatStream, answer: Answer, cut_after: int | None, silence: _Silence) -> None:
    decoder = SSEDecoder()
    enough = asyncio.Event()

    def receive(data: bytes) -> None:
        silence.begin_again()
        answer.arrival.size += len(data)
        if answer.arrival.size > _LARGEST:
            answer.problem = f"the answer does not end: it has more than {_LARGEST} bytes"
        try:
            for payload in decoder.feed(data):
                _add_payload(answer, payload)
        except SSETooLong as error:
            answer.problem = str(error)
        if answer.problem is not None or (cut_after is not None and answer.arrival.chunks >= cut_after):
            enough.set()

    chat.attach(receive)
    tasks = [asyncio.ensure_future(chat.finish()), asyncio.ensure_future(enough.wait())]
    try:
        await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
        if tasks[0].done():
            await tasks[0]
            for payload in decoder.finish():
                _add_payload(answer, payload)
        else:
            answer.cut = "enough"
    finally:
        await end_tasks(*tasks)


def _add_payload(answer: Answer, payload: bytes) -> None:
    if payload == b"[DONE]":
        answer.done = True
        return
    try:
        chunk = decode_chunk(payload)
        chunk.usage = usage_in(payload, chunk.usage)
        failure = chunk.failure(payload)
        if failure is not None:
            answer.error = read_error_chunk(failure)
            answer.problem = f"an error in the stream: {answer.error.message}"
        answer.add(chunk)
    except ForeignEvent:
        return
    except MalformedChunk:
        answer.problem = "a chunk that is not valid JSON of a chat completion"


def object_in(text: str | bytes) -> dict[str, Any] | None:
    """Return the JSON object that a text is; None if it is something else."""
    value = plain_json(text)
    return value if isinstance(value, dict) else None


def _error_shape(body: bytes) -> ErrorShape:
    """Tell how an error body is built."""
    value = object_in(body)
    if value is None:
        return "other"
    error = value.get("error")
    if isinstance(error, dict) and isinstance(error.get("message"), str):
        return "openai"
    if isinstance(error, str):
        return "text"
    if isinstance(value.get("message"), str):
        return "flat"
    return "detail" if "detail" in value else "other"
