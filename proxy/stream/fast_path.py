"""The usual chunk: it continues the text that is open, and brings nothing else.

Such chunks differ in their text alone. So what stands around it is learned from one of them (`ChunkPattern`), and those
that follow are recognised by comparing bytes: nothing of them is decoded but the text, and that only once for all the chunks
that one read brought. A chunk that looks different in any way goes the ordinary way.
"""

from __future__ import annotations

from dataclasses import dataclass

import msgspec

from proxy.stream.lifecycle import State
from proxy.wire.chat import Chunk

_NAMES = {"reasoning": ("reasoning", "reasoning_content", "thinking"), "text": ("content",)}

_decode = msgspec.json.Decoder(str).decode


@dataclass(frozen=True, slots=True)
class ChunkPattern:
    """What stands around the text in one payload of a stream, and in the event that it comes in."""

    head: bytes
    tail: bytes
    before: bytes  #: the head, and the beginning of the event
    behind: bytes  #: the tail, and the end of the event
    begin: int  #: where the text begins in an event
    end: int  #: where it ends, counted from the end of the event
    around: int  #: how many bytes of an event are not text

    def texts(self, events: bytes) -> bytes:
        """The texts of several events, joined. Bytes of an event that does not fit stay in it, quotation marks among them."""
        return b"".join([event.removeprefix(self.before) for event in events.split(self.behind)])

    def text(self, payload: bytes) -> str:
        """The text of a payload; empty if the payload does not fit."""
        if payload.startswith(self.head) and payload.endswith(self.tail):
            return unquoted(b'"%b"' % payload[len(self.head) : -len(self.tail)])
        return ""


def learn(field: State, payload: bytes, text: str) -> ChunkPattern | None:
    """The pattern of a payload that `continued` found `text` in; None if the place of the text cannot be told for certain."""
    for name in _NAMES.get(field, ()):
        key = b'"%b":' % name.encode()
        if payload.count(key) != 1:
            continue
        begin = payload.find(key) + len(key)
        begin += payload[begin : begin + 1] == b" "
        quoted = b'"%b"' % text.encode()
        if payload[begin : begin + len(quoted)] == quoted:
            head, tail = payload[: begin + 1], payload[begin + len(quoted) - 1 :]
            before, behind = b"data: " + head, tail + b"\n\n"
            return ChunkPattern(head, tail, before, behind, len(before), -len(behind), len(before) + len(behind))
    return None


def unquoted(quoted: bytes) -> str:
    """The text of a JSON string; empty if the bytes are none, or hold half a surrogate pair."""
    try:
        return _decode(quoted)
    except (msgspec.DecodeError, UnicodeDecodeError):
        return ""


def continued(field: State, chunk: Chunk) -> str | None:
    """The text of a chunk that brings more of `field` ("reasoning", or else the content) and nothing else; None for others."""
    choices = chunk.choices
    if not choices or chunk.usage is not None or chunk.error is not None or chunk.lenient:
        return None
    choice = choices[0]
    delta = choice.delta
    if (
        delta is None
        or choice.index
        or len(choices) > 1
        or choice.error is not None
        or choice.finish_reason is not None
        or choice.logprobs is not None
        or delta.tool_calls is not None
        or delta.refusal
        or delta.function_call is not None
    ):
        return None
    thinking = delta.reasoning or delta.reasoning_content or delta.thinking
    if not thinking and delta.reasoning_details is not None:
        return None
    text = delta.content
    if field == "reasoning":
        text, thinking = thinking, text
    if thinking or not text or text.__class__ is not str:
        return None
    return text
