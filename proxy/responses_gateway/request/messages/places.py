"""Where the parts of a Messages body stand that became parts of a Responses request: errors name the client's fields."""

from __future__ import annotations

import re
from collections.abc import Sequence

import msgspec

from responses_gateway.wire.errors import ApiError
from responses_gateway.wire.messages import FIELDS, for_client

# Fields of a Responses request -> those of a Messages body, the longest first.
_FIELDS = {
    **FIELDS,
    "reasoning": "thinking",
    "instructions": "system",
    "parallel_tool_calls": "tool_choice.disable_parallel_tool_use",
    "stop": "stop_sequences",
    "input": "messages",
}
# The same within items and tools.
_MEMBERS = {
    "arguments": "input",
    "image_url": "source.url",
    "file_url": "source.url",
    "file_data": "source.data",
    "parameters": "input_schema",
    "filters.allowed_domains": "allowed_domains",
    "filters.blocked_domains": "blocked_domains",
}
_ITEM = re.compile(r"(input|tools)\[(\d{1,9})\](?:\.(?:content|output)\[(\d{1,9})\])?(?:\.(.+))?")


class Place(msgspec.Struct, frozen=True):
    """Where an item stands in the body, and each of its parts."""

    path: str
    parts: Sequence[str]


class Places(msgspec.Struct):
    """The places of the items of an input, and of its tools."""

    items: list[Place] = []
    tools: list[str] = []

    def error(self, error: ApiError) -> ApiError:
        """Return an error of the translation, or of a backend, with the fields that the client has sent."""
        renamed = for_client(error).copy()
        if renamed.param is not None:
            renamed.param = self.path(renamed.param)
            if not renamed.quoted:
                renamed.message = renamed.message.replace(f"'{error.param}'", f"'{renamed.param}'")
        return renamed

    def path(self, param: str) -> str:
        """Return the path of the client's field for that of a Responses request."""
        match = _ITEM.fullmatch(param)
        if match is None:
            name = next((name for name in _FIELDS if param == name or param.startswith((f"{name}.", f"{name}["))), None)
            return param if name is None else _FIELDS[name] + param[len(name) :]
        kind, number, part, member = match.groups()
        place = self._at(kind, int(number), None if part is None else int(part))
        if member is None or member == "type":
            return place
        return f"{place}.{_MEMBERS.get(member, member)}"

    def _at(self, kind: str, number: int, part: int | None) -> str:
        if kind == "tools":
            return self.tools[number] if number < len(self.tools) else "tools"
        if number >= len(self.items):
            return "messages"
        place = self.items[number]
        return place.path if part is None or part >= len(place.parts) else place.parts[part]
