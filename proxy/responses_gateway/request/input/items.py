"""The input as a flat list of items, each with its type and the path that names it in an error."""

from __future__ import annotations

from collections.abc import Callable, Container, Sequence
from typing import Any

import msgspec

from responses_gateway.request.fields import Object, missing, object_list, optional_text, quote, text
from responses_gateway.wire.errors import ApiError, invalid_request

ResolveItem = Callable[[str], "dict[str, Any] | None"]
# The type of an item that names one which is stored.
_REFERENCE = "item_reference"


class Entry(msgspec.Struct, frozen=True):
    """An item of the input: `path` is where the client put it (`input[3]`), `kind` its type."""

    path: str
    kind: str
    item: Object


def entries(
    source: str | list[Any] | None,
    resolve_item: ResolveItem | None,
    history: Sequence[Object],
    replaced: Container[int],
    limit: int,
) -> list[Entry]:
    """Return the history, then the input, in order, with item references resolved; a string is one user message. A reference to
    an item that the input itself contains is dropped, since the item is there already. Items of the input whose positions are
    in `replaced` are checked and left out. Raises `ApiError` 400, also for more than `limit` items: a body within its size
    limit can still contain millions."""
    count = len(history) + (len(source) if isinstance(source, list) else 1)
    if count > limit:
        raise too_long("input", count, limit, "items, the history included" if history else "items")
    if isinstance(source, str):
        message = Entry("input", "message", {"type": "message", "role": "user", "content": source})
        return [*entries_at(history, "history"), message] if history else [message]
    own = entries_at(object_list(source or [], "input"), "input")
    if replaced:
        own = [entry for index, entry in enumerate(own) if index not in replaced]
    references = [entry for entry in own if entry.kind == _REFERENCE]
    if references:
        own = _with_referenced(own, references, resolve_item)
    return entries_at(history, "history") + own if history else own


def entries_at(items: Sequence[Object], path: str, start: int = 0) -> list[Entry]:
    """Return the items of a list at `path`, of which `start` come before, references unresolved. Raises `ApiError` 400."""
    return [
        Entry(f"{path}[{index}]", kind, item)  # as most items of clients that store nothing
        if type(kind := item.get("type")) is str and "id" not in item
        else _entry(item, f"{path}[{index}]")
        for index, item in enumerate(items, start)
    ]


def too_long(param: str, length: int, limit: int, what: str) -> ApiError:
    """Return the error for a list with more elements than a request may have."""
    message = f"Invalid '{param}': array too long. Expected at most {limit} {what}, but got {length} instead."
    return invalid_request(message, param, "array_above_max_length")


def _entry(item: Object, path: str) -> Entry:
    if "id" in item:
        optional_text(item, "id", path)  # the store, and references to items, rely on its type
    kind = item.get("type")
    return Entry(path, kind if isinstance(kind, str) else _kind(item, path), item)


def _with_referenced(own: list[Entry], references: list[Entry], resolve_item: ResolveItem | None) -> list[Entry]:
    """Return items with those that the references among them name in their places, unless the input has them itself."""
    present = {str(entry.item.get("id")) for entry in own if entry.kind != _REFERENCE}
    needed = {entry.path for entry in references if text(entry.item, "id", entry.path) not in present}
    return [
        _resolved(entry, resolve_item) if entry.kind == _REFERENCE else entry
        for entry in own
        if entry.kind != _REFERENCE or entry.path in needed
    ]


def _kind(item: Object, path: str) -> str:
    """Return an item's type; messages and references may come without one."""
    kind = optional_text(item, "type", path)
    if kind is not None:
        return kind
    if "role" in item or "content" in item:
        return "message"
    if "id" in item:
        return _REFERENCE
    raise missing(f"{path}.type")


def _resolved(entry: Entry, resolve_item: ResolveItem | None) -> Entry:
    item_id = text(entry.item, "id", entry.path)
    item = resolve_item(item_id) if resolve_item is not None else None
    if item is None:
        raise _not_found(item_id, entry.path)
    kind = _kind(item, entry.path)
    if kind == _REFERENCE:
        raise _not_found(item_id, entry.path)
    return Entry(entry.path, kind, item)


def _not_found(item_id: str, path: str) -> ApiError:
    message = f"Item with id {quote(item_id)} not found. Only stored items can be referred to: send the item itself."
    return invalid_request(message, f"{path}.id", "item_not_found")
