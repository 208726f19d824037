"""The fields of a chat request that the gateway adds on its own, as data: what becomes of each where a server refuses it.

A path names a field: `stream_options`, `messages[].reasoning` (of any message), `a.b` (in an object), `a=b` (for one value)."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Any, NamedTuple, TypeAlias

import msgspec


class AddedField(NamedTuple):
    """A field that no client has sent under this name. `instead`: the name under which a server may know the same. `needed`: it
    has what the client asked for, so that it is never left out. `value`: it is the gateway's own with this value alone. `word`:
    a refusal may use its name like any other word; nothing is lost where that was not meant. `switch`: it keeps the model from
    thinking, which not all models can. `also`: a status that may be its refusal, too."""

    instead: str = ""
    needed: bool = False
    value: Any = msgspec.UNSET
    word: bool = False
    switch: bool = False
    also: int | None = None


def field_at(path: str) -> str:
    """Return a path without the value for which it stands, if it stands for one."""
    return path.partition("=")[0]


# The path of the limit, under whichever name a request has it: lowered to what the server takes of this model.
LIMIT = "max_output_tokens"
# From the least on. One that is refused becomes the nearest of those that the refusal names.
EFFORTS = ("none", "minimal", "low", "medium", "high", "xhigh", "max")
# What helps a server to schedule: sessions, and how urgent a request is. SGLang refuses a priority it is not to use with 503.
HINT = AddedField(word=True, also=503)
# The choice of no tool where the gateway reads calls in the text: the model is to see the tools.
CALLS_IN_TEXT = AddedField(needed=True, value="none")
# By path.
AddedFields: TypeAlias = Mapping[str, AddedField]

# Fields that tell the model nothing. The choice of `auto` says the same as nothing, whoever sends it, and the gateway itself
# leaves out calls that are not to be parallel.
UNSEEN_FIELDS: AddedFields = MappingProxyType({
    "return_token_ids": AddedField(value=True),
    "stream_options": AddedField(value={"include_usage": True}),
    "skip_special_tokens": AddedField(value=False),
    "spaces_between_special_tokens": AddedField(value=False),
    "tool_choice": AddedField(value="auto"),
    "parallel_tool_calls": AddedField(word=True),
})  # fmt: skip
# What every request has from the gateway, as far as it has it at all: the name of the limit is not the client's either, and
# the reasoning of earlier turns has as many places as there are servers.
ALWAYS_ADDED: AddedFields = MappingProxyType({
    **UNSEEN_FIELDS,
    "max_completion_tokens": AddedField("max_tokens", needed=True),
    "max_tokens": AddedField("max_completion_tokens", needed=True),
    "messages[].reasoning": AddedField("reasoning_content"),
    "messages[].reasoning_content": AddedField("reasoning"),
    "messages[].reasoning_details": AddedField(),
    "messages[].reasoning_opaque": AddedField(),
})  # fmt: skip
