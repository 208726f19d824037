"""The input as a flat list of items, each with its type and the path that names it in an error."""

from __future__ import annotations

from collections.abc import Callable, Container, Sequence
from typing import Any, NamedTuple

from proxy.request.fields import Object, missing, object_list, optional_text, shown, text
from proxy.wire.errors import ApiError, invalid_request

ResolveItem = Callable[[str], "dict[str, Any] | None"]


class Entry(NamedTuple):
    """An item of the input: `path` is where the client put it (`input[3]`), `kind` its type."""

    path: str
    kind: str
    item: Object


def entries(
    source: str | list[Any] | None,
    resolve_item: ResolveItem | None,
    history: Sequence[Object] = (),
    replaced: Container[int] = (),
) -> list[Entry]:
    """The history, then the input, in order; a string is one user message. Item references stand for what they refer to.

    A reference to an item that the input itself holds adds nothing: the item is there already. Items of the input whose
    places are in `replaced` are checked and left out. Raises `ApiError` 400.
    """
    return entries_at(history, "history") + _input(source, resolve_item, replaced)


def entries_at(items: Sequence[Object], path: str) -> list[Entry]:
    """The items of a list that stands at `path`, as they are. Raises `ApiError` 400."""
    return [_entry(item, f"{path}[{index}]") for index, item in enumerate(items)]


def _entry(item: Object, path: str) -> Entry:
    optional_text(item, "id", path)  # what stores and refers to items later takes it for a string
    return Entry(path, _kind(item, path), item)


def _input(source: str | list[Any] | None, resolve_item: ResolveItem | None, replaced: Container[int]) -> list[Entry]:
    if isinstance(source, str):
        return [Entry("input", "message", {"type": "message", "role": "user", "content": source})]
    items = entries_at(object_list(source or [], "input"), "input")
    found = [entry for index, entry in enumerate(items) if index not in replaced]
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
    message = f"Item with id {shown(item_id)} not found. Only stored items can be referred to: send the item itself."
    return invalid_request(message, f"{path}.id", "item_not_found")
