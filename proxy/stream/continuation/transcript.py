"""What a turn of the model has said so far, in a form that can be compared: its items without their ids."""

from __future__ import annotations

from typing import Any, NamedTuple

import msgspec

from proxy.stream.lifecycle.machine import Lifecycle
from proxy.wire.deltas import Reasoning, Refusal, Text, ToolCall

# Made up for each item, and of no meaning.
_MADE_UP = ("id", "call_id", "encrypted_content")

_TEXT_ITEMS = ("reasoning", "message")
_KINDS: dict[type, str] = {Reasoning: "reasoning", Text: "text", Refusal: "refusal"}


class Part(NamedTuple):
    """What is not done: its kind, the name of a call, its text or arguments, and how many annotations a text has."""

    kind: str
    name: str
    text: str
    annotations: int = 0


class Said(NamedTuple):
    """The items that are done; the open one, and what waits behind it; and the white space at the end."""

    done: list[dict[str, Any]]
    parts: list[Part]
    space: str


def said_by(lifecycle: Lifecycle, begin: int = 0) -> Said:
    """Return what a lifecycle has said, without the first items."""
    done = [comparable(item) for item in lifecycle.writer.done[begin:]]
    if lifecycle.call is not None:
        parts = [Part("call", lifecycle.call.name, lifecycle.call.arguments.text)]
        space = ""
        for first, text in lifecycle.held_texts():
            if type(first) is ToolCall:
                parts.append(Part("call", first.name, text))
                space = ""
            elif not text.isspace():
                parts.append(Part(_KINDS[type(first)], "", text.strip()))
                space = text[len(text.rstrip()) :]
        return Said(done, parts, space)
    item = lifecycle.open_item
    if item is not None:
        return Said(done, [Part(lifecycle.state, "", item.text, len(item.annotations))], lifecycle.space)
    return Said(done, [], "")


def may_become(part: Part, item: dict[str, Any]) -> bool:
    """Tell whether what is open may become this item, which is done."""
    if part.kind == "call":
        return item["type"] not in _TEXT_ITEMS
    if item["type"] != ("reasoning" if part.kind == "reasoning" else "message"):
        return False
    content: list[dict[str, str]] = item.get("content") or []
    return not content or "".join(piece.get("text", piece.get("refusal", "")) for piece in content).startswith(part.text)


def comparable(item: str) -> dict[str, Any]:
    """Return an item that is done without what is made up for it."""
    fields: dict[str, Any] = msgspec.json.decode(item.encode("utf-8", "replace"))
    return {name: value for name, value in fields.items() if name not in _MADE_UP}
