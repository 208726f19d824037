"""What is sent of an answer: the frames of a stream (rendered chunks, with the ids and usage of the request, and its faults),
or one `chat.completion` object for a request without `stream`."""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from responses_gateway.simulator.chunks import Rendered, closing, dumps
from responses_gateway.simulator.dialect import Dialect
from responses_gateway.simulator.errors import dead_engine
from responses_gateway.simulator.faults import Faults
from responses_gateway.simulator.tokenizer import encode

_CALL_ID = re.compile(rb"\x7fcall-(\d+)\x7f")
_UNFINISHED = b'"finish_reason":null'
_NO_CHOICES = b'"choices":[],'
_TOTALS = re.compile(rb'"prompt_tokens":(\d+),"total_tokens":\d+,"completion_tokens":\d+')
_PART_FIELDS = {"reasoning": ("reasoning",), "text": ("content", "refusal"), "call": ("name", "arguments")}


class CompleteFrame(bytes):
    """A frame that is sent as it is; all others are sent after the stream's head."""


DONE = CompleteFrame(b"data: [DONE]\n\n")
_MALFORMED = CompleteFrame(b'data: {"id":"chatcmpl-broken","object":"chat.completion.chunk","choices":[{"index":0,"delta":\n\n')


@dataclass
class Frames:
    """What to send: `frames[i]` when `counts[i]` tokens are generated, after `pauses[i]` seconds, if any. `cut`: the connection
    is cut after the last frame, and the body does not end."""

    head: bytes
    frames: list[bytes]
    counts: list[int]
    pauses: dict[int, float] = field(default_factory=dict)
    cut: bool = False

    def bytes_of(self, start: int, end: int) -> bytes:
        """Return the bytes of a range of frames."""
        head = self.head
        return b"".join(frame if type(frame) is CompleteFrame else head + frame for frame in self.frames[start:end])

    def abort(self, position: int) -> None:
        """End the answer at a position as vLLM does when it is stopped: with a token, usage and `[DONE]`."""
        frame = self.frames[position] if position < len(self.frames) else b""
        if _UNFINISHED not in frame or not position:
            return
        count = self.counts[position]
        last = [_counted(frame, count) for frame in self.frames[position + 1 :] if _NO_CHOICES in frame]
        self.frames[position:] = [frame.replace(_UNFINISHED, b'"finish_reason":"abort"'), *last, DONE]
        self.counts[position:] = [count] * (len(last) + 2)


@dataclass(frozen=True)
class Stream:
    """What a stream needs besides its rendered chunks."""

    id: str
    created: int
    model: str
    dialect: Dialect
    prompt: str
    prompt_tokens: int
    cached_tokens: int | None  # tokens of the prompt that were in the cache; None: the server does not tell
    call_ids: Sequence[str]
    include_usage: bool = False
    usage_in_every_chunk: bool = False
    token_ids: bool = False
    prompt_ids: tuple[int, ...] = ()  # where the prompt was given as ids


def build_frames(rendered: Rendered, stream: Stream, faults: Faults) -> Frames:
    """Build the frames of a stream, without the faults that happen before it starts."""
    bodies = [chunk.body for chunk in rendered.chunks]
    if rendered.calls:
        bodies = [_CALL_ID.sub(lambda match: stream.call_ids[int(match[1])].encode(), body) for body in bodies]
    if faults.filter is not None or faults.no_finish:
        bodies = _with_finish(bodies, rendered, None if faults.no_finish else "content_filter")
    frames = [_role_body(stream), *bodies]
    counts = [1, *(chunk.tokens for chunk in rendered.chunks)]
    if stream.usage_in_every_chunk:
        frames = _with_usage(frames, rendered, stream)
    if stream.include_usage:
        totals = f'"choices":[],"usage":{dumps(usage(rendered, stream))}{stream.dialect.shape.usage_extra}}}\n\n'
        frames.append(totals.encode())
        counts.append(counts[-1])
    frames.append(DONE)
    counts.append(counts[-1])
    result = Frames(_head(stream), frames, counts)
    _apply_faults(result, rendered, faults)
    return result


def usage(rendered: Rendered, stream: Stream) -> dict[str, Any]:
    """Return the usage of the whole answer."""
    whole = rendered.chunks[-1]
    counts = _usage_counts(stream, whole.tokens, whole.reasoning_tokens)
    details: dict[str, int] | None = None
    if stream.cached_tokens is None:
        pass
    elif stream.dialect.shape.server == "vllm":
        created = stream.prompt_tokens // 16 * 16 - stream.cached_tokens
        details = {"cached_tokens": stream.cached_tokens, "created_cache_tokens": created}
    else:
        details = {"cached_tokens": stream.cached_tokens}
    reasoning = counts.pop("completion_tokens_details", None)
    return counts | {"prompt_tokens_details": details} | ({"completion_tokens_details": reasoning} if reasoning else {})


def position_of(position: str, rendered: Rendered) -> int:
    """Return the index of the frame at a fault's position: a number of chunks, `half`, or the middle of a part."""
    if position.isdigit():
        return min(1 + int(position), 1 + len(rendered.chunks))
    fields = [chunk.field for chunk in rendered.chunks]
    wanted = _PART_FIELDS.get(position, ())
    start = next((number for number, field in enumerate(fields) if field in wanted), None)
    if start is None:
        return 1 + len(fields) // 2
    later = range(start, len(fields))
    end = next((number for number in later if fields[number] not in (*wanted, "silent")), len(fields))
    return 1 + (start + end + 1) // 2


def _apply_faults(result: Frames, rendered: Rendered, faults: Faults) -> None:
    if faults.silence:
        result.pauses[position_of("half", rendered)] = faults.silence
    if faults.malformed is not None:
        position = position_of(faults.malformed, rendered)
        result.frames.insert(position, _MALFORMED)
        result.counts.insert(position, result.counts[position - 1])
    if faults.no_done:
        _leave_out(result, len(result.frames) - 1)
    for end in (faults.error, faults.eof, faults.drop):
        if end is not None:
            _leave_out(result, position_of(end, rendered))
    if faults.abort is not None:
        result.abort(position_of(faults.abort, rendered))
    if faults.filter is not None:
        _leave_out(result, position_of(faults.filter, rendered), len(rendered.chunks))  # up to the finish reason
    if faults.error is not None:
        result.frames += [CompleteFrame(b"data: " + json.dumps(dead_engine()).encode() + b"\n\n"), DONE]
        result.counts += [result.counts[-1]] * 2
    result.cut = faults.drop is not None


def _counted(frame: bytes, tokens: int) -> bytes:
    """Return the frame with the usage for so many tokens of the answer."""

    def totals(match: re.Match[bytes]) -> bytes:
        prompt = int(match[1])
        return b'"prompt_tokens":%d,"total_tokens":%d,"completion_tokens":%d' % (prompt, prompt + tokens, tokens)

    return _TOTALS.sub(totals, frame)


def _leave_out(result: Frames, begin: int, end: int | None = None) -> None:
    del result.frames[begin:end]
    del result.counts[begin:end]


def _head(stream: Stream) -> bytes:
    values = {"id": stream.id, "object": "chat.completion.chunk", "created": stream.created, "model": stream.model}
    return f"data: {dumps(values)[:-1]},".encode("utf-8", "replace")


def _role_body(stream: Stream) -> bytes:
    shape = stream.dialect.shape
    logprobs = ',"logprobs":null' if shape.has_logprobs else ""
    first = shape.first_extra
    if stream.token_ids:
        first = first.replace(
            '"prompt_token_ids":null', f'"prompt_token_ids":{dumps(stream.prompt_ids or encode(stream.prompt))}'
        )
    choice = f'{{"index":0,"delta":{shape.role_delta}{logprobs},"finish_reason":null{shape.choice_extra}}}'
    return f'"choices":[{choice}]{first}{shape.chunk_extra}}}\n\n'.encode()


def _with_usage(frames: list[bytes], rendered: Rendered, stream: Stream) -> list[bytes]:
    """Add to each frame the token counts so far."""
    counts = [(0, 0), *((chunk.tokens, chunk.reasoning_tokens) for chunk in rendered.chunks)]
    end = closing(stream.dialect.shape)
    return [
        frame[: -len(end)] + f',"usage":{dumps(_usage_counts(stream, *so_far))}}}\n\n'.encode()
        for frame, so_far in zip(frames, counts, strict=True)
    ]


def _usage_counts(stream: Stream, completion: int, reasoning: int) -> dict[str, Any]:
    counts: dict[str, Any] = {
        "prompt_tokens": stream.prompt_tokens,
        "total_tokens": stream.prompt_tokens + completion,
        "completion_tokens": completion,
    }
    if stream.dialect.markup is None:  # only a server that parses reasoning can count it
        counts["completion_tokens_details"] = {"reasoning_tokens": reasoning}
    return counts


def _with_finish(bodies: Sequence[bytes], rendered: Rendered, reason: str | None) -> list[bytes]:
    written = f'"finish_reason":"{rendered.finish_reason}"'.encode()
    return [*bodies[:-1], bodies[-1].replace(written, b'"finish_reason":' + dumps(reason).encode())]


def completion(rendered: Rendered, stream: Stream) -> dict[str, Any]:
    """Build the body; for vLLM with all the keys that it sends as null."""
    message = _message(rendered, stream)
    choice: dict[str, Any] = {"index": 0, "message": message, "logprobs": None, "finish_reason": rendered.finish_reason}
    body: dict[str, Any] = {
        "id": stream.id,
        "object": "chat.completion",
        "created": stream.created,
        "model": stream.model,
        "choices": [choice],
    }
    if stream.dialect.shape.server != "vllm":
        return body | {"usage": usage(rendered, stream)}
    choice |= {"stop_reason": None, "token_ids": None, "routed_experts": None}
    return body | {
        "service_tier": None,
        "system_fingerprint": "vllm-0.32.0-simulator",
        "usage": usage(rendered, stream),
        "prompt_logprobs": None,
        "prompt_token_ids": None,
        "prompt_text": None,
        "kv_transfer_params": None,
        "ec_transfer_params": None,
        "metrics": None,
    }


def _message(rendered: Rendered, stream: Stream) -> dict[str, Any]:
    dialect = stream.dialect
    message: dict[str, Any] = {"role": "assistant", "content": _text(rendered, "content") or None}
    if dialect.shape.server == "vllm":
        message |= {"refusal": None, "annotations": None, "audio": None, "function_call": None}
    if dialect.markup:
        return message | {"content": "".join(token.raw for token in rendered.tokens)}
    if refusal := _text(rendered, "refusal"):
        message["refusal"] = refusal
    if dialect.reasoning != "none" and (reasoning := _text(rendered, "reasoning")):
        message[dialect.reasoning] = reasoning
    elif dialect.shape.server == "vllm":
        message["reasoning"] = None
    calls = [_call(rendered, number, stream) for number in range(rendered.calls)]
    if calls and dialect.function_call:
        message["function_call"] = calls[0]["function"]
    elif calls:
        message["tool_calls"] = calls
    return message


def _text(rendered: Rendered, field: str) -> str:
    return "".join(token.text for token in rendered.tokens if token.field == field)


def _call(rendered: Rendered, number: int, stream: Stream) -> dict[str, Any]:
    own = [token for token in rendered.tokens if token.call == number]
    function = {
        "name": "".join(token.text for token in own if token.field == "name"),
        "arguments": "".join(token.text for token in own if token.field == "arguments"),
    }
    return {"id": stream.call_ids[number], "type": "function", "function": function}
