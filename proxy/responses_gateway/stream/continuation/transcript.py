"""What a turn of the model has said so far, in a form that can be compared: its items without their ids."""

from __future__ import annotations

from typing import Any, NamedTuple

import msgspec

from responses_gateway.stream.lifecycle.machine import Lifecycle
from responses_gateway.wire.deltas import Reasoning, Refusal, Text, ToolCall

# Generated for each item, and of no meaning.
_GENERATED = ("id", "call_id", "encrypted_content")

_TEXT_ITEMS = ("reasoning", "message")
_KINDS: dict[type, str] = {Reasoning: "reasoning", Text: "text", Refusal: "refusal"}


class Part(NamedTuple):
    """An item that is not done: its kind, the name of a call, its text or arguments, and how many annotations a text has."""

    kind: str
    name: str
    text: str
    annotations: int = 0


class Transcript(NamedTuple):
    """The items that are done; the open one, and what is held behind it; and the white space at the end."""

    done: list[dict[str, Any]]
    parts: list[Part]
    space: str


def transcript_of(lifecycle: Lifecycle, first_item: int = 0) -> Transcript:
    """Return what a lifecycle has written and holds, without the items before `first_item`."""
    done = [without_generated_ids(item) for item in lifecycle.writer.done[first_item:]]
    if lifecycle.call is not None:
        parts = [Part("call", lifecycle.call.made.name, lifecycle.call.arguments.text)]
        space = ""
        for first, text in lifecycle.pending.texts() if lifecycle.pending is not None else ():
            if type(first) is ToolCall:
                parts.append(Part("call", first.name, text))
                space = ""
            elif not text.isspace():
                parts.append(Part(_KINDS[type(first)], "", text.strip()))
                space = text[len(text.rstrip()) :]
        return Transcript(done, parts, space)
    item = lifecycle.item
    if item is not None:
        return Transcript(done, [Part(lifecycle.state, "", item.text, len(item.annotations))], lifecycle.space.text)
    return Transcript(done, [], "")


def call_numbers(lifecycle: Lifecycle) -> list[int]:
    """Return the model's numbers of the open call, and of those that are held behind it."""
    held = lifecycle.pending.call_numbers if lifecycle.pending is not None else []
    return [] if lifecycle.call is None else [lifecycle.call.made.index, *held]


def is_prefix_of(part: Part, item: dict[str, Any]) -> bool:
    """Tell whether an open item may become this item, which is done."""
    if part.kind == "call":
        return item["type"] not in _TEXT_ITEMS
    if item["type"] != ("reasoning" if part.kind == "reasoning" else "message"):
        return False
    content: list[dict[str, str]] = item.get("content") or []
    return not content or "".join(piece.get("text", piece.get("refusal", "")) for piece in content).startswith(part.text)


def without_generated_ids(item: str) -> dict[str, Any]:
    """Return an item that is done, given its JSON, without its ids and its encrypted content."""
    fields: dict[str, Any] = msgspec.json.decode(item.encode("utf-8", "replace"))
    return {name: value for name, value in fields.items() if name not in _GENERATED}
