"""What a response has said so far, in a form that can be compared: its items without their ids."""

from __future__ import annotations

from typing import Any, NamedTuple

import msgspec

from proxy.stream.lifecycle import Lifecycle

# Made up for each item, and of no meaning.
_MADE_UP = ("id", "call_id", "encrypted_content")

_TEXT_ITEMS = ("reasoning", "message")


class Said(NamedTuple):
    """The items that are done, and the open one: its kind ("idle" for none), the name of a call, its text or arguments."""

    done: list[dict[str, Any]]
    kind: str
    name: str
    text: str


def said_by(lifecycle: Lifecycle, begin: int = 0) -> Said:
    """Return what a lifecycle has said, without the first items."""
    done = [comparable(item) for item in lifecycle.writer.done[begin:]]
    if lifecycle.call is not None:
        return Said(done, "call", lifecycle.call.name, lifecycle.call.arguments.text)
    item = lifecycle.open_item
    if item is not None:
        return Said(done, lifecycle.state, "", item.text)
    return Said(done, "idle", "", "")


def may_become(said: Said, item: dict[str, Any]) -> bool:
    """Tell whether what is open may become this item, which is done."""
    if said.kind == "idle":
        return True
    if said.kind == "call":
        return item["type"] not in _TEXT_ITEMS
    if item["type"] != ("reasoning" if said.kind == "reasoning" else "message"):
        return False
    parts: list[dict[str, str]] = item.get("content") or []
    return not parts or "".join(part.get("text", part.get("refusal", "")) for part in parts).startswith(said.text)


def comparable(item: str) -> dict[str, Any]:
    """Return an item that is done without what is made up for it."""
    fields: dict[str, Any] = msgspec.json.decode(item.encode("utf-8", "replace"))
    return {name: value for name, value in fields.items() if name not in _MADE_UP}
