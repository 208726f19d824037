"""What a server wants back of a turn, though it means nothing here: OpenRouter's `reasoning_details` and, for clients that keep
nothing of a call but what the API knows, the `extra_content` of calls."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from typing import Any

from responses_gateway.stream.writer.interface import EventWriter
from responses_gateway.wire.json_text import json_text

# Details that come in pieces, and the member that has them.
_TEXTS = {"reasoning.text": "text", "reasoning.summary": "summary"}
# Details that only repeat the thought have no more than these members.
_READABLE = frozenset({"type", "text", "summary", "format", "index", "id"})
# Characters of all the details of a turn: a thought has fewer, and its signature some thousands.
_MOST = 4 * 1024 * 1024
_PIECES = 512
# Begins what is sealed where that is more than a thought, which no model begins like that.
_MARK = "\0"


class ReasoningDetails:
    """Takes details as they come, and gives them out as members of an item. What is more than can be kept is dropped."""

    __slots__ = ("_calls", "_entries", "_left", "_opaque", "_pieces", "_told")

    def __init__(self) -> None:
        self._left = _MOST
        self._told: dict[str, str] = {}  # the texts of earlier items, by the types and indices of their details
        self._forget()

    def _forget(self) -> None:
        self._calls: dict[str, Any] = {}  # the `extra_content` of calls, by their ids
        self._entries: list[dict[str, Any]] = []
        self._pieces: list[str] = []  # of the text of the last one
        self._opaque = False  # there is more than the thought itself

    def add(self, details: object) -> None:
        """Take the details of a chunk."""
        for entry in details if isinstance(details, list) else ():
            if isinstance(entry, dict):
                self._add({name: value for name, value in entry.items() if value is not None})

    def add_call(self, call_id: str, extra: str) -> None:
        """Take the `extra_content` of a call, as JSON."""
        self._calls[call_id] = json.loads(extra)

    def _add(self, entry: dict[str, Any]) -> None:
        self._left -= len(json_text(entry))
        if self._left < 0:
            return
        name = _TEXTS.get(str(entry.get("type")), "")
        piece = entry.get(name, "")
        self._opaque = self._opaque or not entry.keys() <= _READABLE or not name
        key = _key(entry)
        if name and isinstance(piece, str) and self._entries and _key(self._entries[-1]) == key:
            entry.pop(name, None)
            self._entries[-1].update(entry)
        else:
            self._end_text()
            known = next((known for known in self._entries if name and not piece and _key(known) == key), None)
            if known is not None:  # the signature of a text behind which another one stands
                known.update({member: value for member, value in entry.items() if member != name})
                return
            self._entries.append(entry)
            piece = piece or self._told.get(key, "")  # the signature of one that an earlier item has
        if piece and isinstance(piece, str):
            self._pieces.append(piece)
            if len(self._pieces) == _PIECES:  # many small strings take far more memory than one
                self._pieces = ["".join(self._pieces)]

    def _end_text(self) -> None:
        if self._pieces:
            self._entries[-1][_TEXTS[self._entries[-1]["type"]]] = "".join(self._pieces)
            self._pieces = []

    def take(self) -> dict[str, Any]:
        """Return all that came since the last time, as members of an item of reasoning; empty if that was nothing."""
        self._end_text()
        for entry in self._entries:
            if text := entry.get(_TEXTS.get(str(entry.get("type")), "")):
                self._told[_key(entry)] = text
        wanted: dict[str, Any] = {"reasoning_details": self._entries} if self._opaque and self._left >= 0 else {}
        if self._calls:
            wanted["extra_content"] = self._calls
        self._forget()
        return wanted

    def write(self, writer: EventWriter, new_id: Callable[[str], str], seal: Callable[[str], str] | None) -> None:
        """Write what came without a thought, or behind it, as an item of its own."""
        wanted = self.take()
        if wanted:
            sealed = None if seal is None else seal(to_seal("", wanted))
            writer.write_details(new_id("rs"), details_json(wanted), sealed)


def _key(entry: Mapping[str, Any]) -> str:
    """Return what tells of which text a detail is a piece."""
    return json_text([entry.get("type"), entry.get("index")])


def details_json(wanted: Mapping[str, Any]) -> str:
    """Return the JSON of the details that an item shows; empty if there are none."""
    return json_text(wanted["reasoning_details"]) if "reasoning_details" in wanted else ""


def to_seal(text: str, wanted: Mapping[str, Any]) -> str:
    """Return what the encrypted content of a thought has in it."""
    return _MARK + json_text({**_thought(text), **wanted}) if wanted else text


def sealed_members(sealed: str) -> dict[str, Any]:
    """Return the members of an item of reasoning that were sealed like that."""
    return json.loads(sealed.removeprefix(_MARK)) if sealed.startswith(f"{_MARK}{{") else _thought(sealed)


def _thought(text: str) -> dict[str, Any]:
    return {"content": [{"type": "reasoning_text", "text": text}] if text else []}
