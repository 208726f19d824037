"""The deltas of a model's answer: the closed vocabulary between a backend's dialect and the lifecycle of items.

Whatever a server sends (parsed fields, raw markup, harmony channels) is reduced to these ten deltas, in the order in which
the model wrote."""

from __future__ import annotations

from typing import Literal, TypeAlias

import msgspec

from responses_gateway.wire.chat import TokenLogprob
from responses_gateway.wire.hosted import CitedSource

FinishReason = Literal["stop", "length", "content_filter", "error"]


class Reasoning(msgspec.Struct, gc=False):
    """A piece of the model's visible thinking."""

    text: str


class Text(msgspec.Struct, gc=False):
    """A piece of the answer."""

    text: str
    logprobs: list[TokenLogprob] | None = None


class Refusal(msgspec.Struct, gc=False):
    """A piece of a refusal."""

    text: str


class ToolCall(msgspec.Struct, gc=False):
    """A call begins. `index` counts the calls of this response from 0; `id` may be empty (one is then made up). `extra` is the
    JSON of what the server wants back with the call, if there is anything. `parsed`: it was read from markup here."""

    index: int
    id: str
    name: str
    extra: str = ""
    parsed: bool = False


class ToolArguments(msgspec.Struct, gc=False):
    """A piece of the JSON arguments of call `index`."""

    index: int
    text: str


class ToolCallCut(msgspec.Struct, gc=False):
    """The markup of call `index` stopped in the middle: its arguments are not whole, however the model ended."""

    index: int


class ToolCallExtra(msgspec.Struct, gc=False):
    """What the server wants back with call `index`, which has begun with something else, or nothing: JSON."""

    index: int
    extra: str


class Citation(msgspec.Struct, gc=False):
    """What stands before this in the text is taken from the source with this number; or what stands between these indices, in
    code points, from a `source` that the server names. An `end` of 0: it does not tell where."""

    number: int = 0
    source: CitedSource | None = None
    start: int = 0
    end: int = 0


class Image(msgspec.Struct, gc=False):
    """An image of the answer, for which there is no item."""


class Finish(msgspec.Struct, gc=False):
    """The model stopped. The stream may continue: usage and even text may follow. `stop_string`: which one of those that the
    request names the model wrote, where the backend tells. `says_call`: the backend says that the model ended with calls."""

    reason: FinishReason
    stop_string: str | None = None
    says_call: bool = False


class Usage(msgspec.Struct, gc=False):
    """Token counts reported by the backend; None where it reports none. A later one replaces an earlier one."""

    input: int | None
    output: int | None
    cached: int | None = None
    cache_write: int | None = None
    reasoning: int | None = None


# What belongs to a call that has begun.
CALL_PARTS = (ToolArguments, ToolCallCut, ToolCallExtra)
Delta: TypeAlias = (
    Reasoning | Text | Refusal | ToolCall | ToolArguments | ToolCallCut | ToolCallExtra | Citation | Image | Finish | Usage
)
