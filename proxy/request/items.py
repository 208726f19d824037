"""The input as a flat list of items, each with its type and the path that names it in an error."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

from proxy.request.fields import Object, missing, object_list, optional_text, shown, text
from proxy.wire.errors import ApiError, invalid_request

ResolveItem = Callable[[str], "dict[str, Any] | None"]


class Entry(NamedTuple):
    """An item of the input: `path` is where the client put it (`input[3]`), `kind` its type."""

    path: str
    kind: str
    item: Object


def entries(source: str | list[Any] | None, resolve_item: ResolveItem | None, history: Sequence[Object] = ()) -> list[Entry]:
    """The history, then the input, in order; a string is one user message. Item references stand for what they refer to.

    A reference to an item that the input itself holds adds nothing: the item is there already. Raises `ApiError` 400.
    """
    before = [Entry(f"history[{index}]", _kind(item, f"history[{index}]"), item) for index, item in enumerate(history)]
    return before + _input(source, resolve_item)


def _input(source: str | list[Any] | None, resolve_item: ResolveItem | None) -> list[Entry]:
    if isinstance(source, str):
        return [Entry("input", "message", {"type": "message", "role": "user", "content": source})]
    items = object_list(source or [], "input")
    found = [Entry(f"input[{index}]", _kind(item, f"input[{index}]"), item) for index, item in enumerate(items)]
    if not any(entry.kind == "item_reference" for entry in found):
        return found
    present = {str(entry.item.get("id")) for entry in found if entry.kind != "item_reference"}
    return [
        _resolved(entry, resolve_item) if entry.kind == "item_reference" else entry
        for entry in found
        if entry.kind != "item_reference" or text(entry.item, "id", entry.path) not in present
    ]


def _kind(item: Object, path: str) -> str:
    """An item's type; messages and references may come without one."""
    kind = optional_text(item, "type", path)
    if kind is not None:
        return kind
    if "role" in item or "content" in item:
        return "message"
    if "id" in item:
        return "item_reference"
    raise missing(f"{path}.type")


def _resolved(entry: Entry, resolve_item: ResolveItem | None) -> Entry:
    item_id = text(entry.item, "id", entry.path)
    item = resolve_item(item_id) if resolve_item is not None else None
    if item is None:
        raise _not_found(item_id, entry.path)
    kind = _kind(item, entry.path)
    if kind == "item_reference":
        raise _not_found(item_id, entry.path)
    return Entry(entry.path, kind, item)


def _not_found(item_id: str, path: str) -> ApiError:
    return invalid_request(f"Item with id {shown(item_id)} not found.", f"{path}.id", "item_not_found")
