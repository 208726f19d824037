"""Histories, stored as a tree of items.

A history is identified by its last node and read by following the parents. A request that continues a history adds what is new
and shares the rest, whether it names the previous response or repeats the whole conversation: a conversation of n turns takes
space for n turns, not for n². `prune` deletes what is no longer referred to, from the leaves inward."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, NamedTuple, cast

import msgspec

from responses_gateway.state.interfaces import Database, Sql, transaction
from responses_gateway.state.records import (
    NO_ITEMS,
    Cursor,
    HistorySpan,
    ItemPage,
    JsonText,
    KnownItems,
    NewItem,
    PageOrder,
    Place,
    new_ids,
)
from responses_gateway.state.repeated_texts import utf8
from responses_gateway.wire.hosted_kinds import HOSTED_CALLS

_decode = msgspec.json.decode
_encode = msgspec.json.Encoder().encode
_canonical = msgspec.json.Encoder(order="sorted").encode

# The prefix of the id of an item that came without one, by type.
_PREFIXES = {
    "message": "msg",
    "reasoning": "rs",
    "function_call": "fc",
    "function_call_output": "fco",
    "custom_tool_call": "ctc",
    "custom_tool_call_output": "ctco",
    "compaction": "cmp",
}
# The members that content parts always have, by type.
_PART_DEFAULTS: dict[str, dict[str, Any]] = {"output_text": {"annotations": []}, "input_image": {"detail": "auto"}}

# The nodes after one place, up to and including another; the depth counts from the end.
_CHAIN = (
    "WITH RECURSIVE chain (key, parent, depth) AS (SELECT key, parent, 0 FROM nodes WHERE key = ? "
    "UNION ALL SELECT n.key, n.parent, c.depth + 1 FROM chain c JOIN nodes n ON n.key = c.parent WHERE n.key <> ?) "
)
_BODY = "coalesce(n.body, i.body) FROM nodes n LEFT JOIN items i ON i.key = n.item"
# As bytes, because nothing is done with the text but decoding it as JSON.
_UTF8 = "CAST(coalesce(n.body, i.body) AS BLOB) FROM nodes n LEFT JOIN items i ON i.key = n.item"
# The nodes whose items have the digests that stand one after the other in a value.
_WALK = (
    "WITH RECURSIVE walk (key, next) AS (SELECT CAST(? AS BIGINT), 1 UNION ALL SELECT n.key, w.next + {size} FROM walk w "
    "JOIN nodes n ON n.parent = w.key AND n.digest = substr(?, w.next, {size})) SELECT key FROM walk ORDER BY next"
)
# The items with the digests that stand one after the other in a value.
_ITEMS = (
    "WITH RECURSIVE given (next) AS (SELECT 1 UNION ALL SELECT next + {size} FROM given WHERE next + {size} <= ?) "
    "SELECT i.digest, i.key FROM given g JOIN items i ON i.digest = substr(?, g.next, {size})"
)
# Items of more bytes are stored once for each tenant: a new one changes a page of their index, which has as many.
_LONG = 4096
# Bytes of the digest of an item, and of a text: they are never the same.
_OF_ITEM = 16
_OF_TEXT = 32
_NODE = ("key", "tenant", "parent", "digest", "item", "item_id", "body")


@dataclass(eq=False)
class HistoryTable:
    """Reads the histories in a database. Every method raises `StoreUnavailable`."""

    database: Database

    @transaction
    def items(self, sql: Sql, end: Place, known: KnownItems = NO_ITEMS) -> Sequence[dict[str, Any]]:
        """Return the items up to a place, in order, without ids that the store made up. Those that are known are not read."""
        statement = _CHAIN + f"SELECT n.parent, {_UTF8} JOIN chain c ON c.key = n.key ORDER BY c.depth DESC"
        rows = sql.execute(statement, (end, known.end)).fetchall()
        bodies = [utf8(row[1]) for row in rows]
        items: list[dict[str, Any]] = _decode(b"[%b]" % b",".join(bodies))  # at once, which is faster than one by one
        # Else they are those from the first one on: what is known was deleted, or is another history.
        goes_on = rows and rows[0][0] == known.end
        return [*known.items, *items] if goes_on else items

    @transaction
    def page(self, sql: Sql, span: HistorySpan, order: PageOrder, limit: int, cursor: Cursor) -> ItemPage | None:
        """Return a page of a part of a history, each item with its id; None if the cursor names none. What is gone is empty."""
        statement = _CHAIN + "SELECT n.item_id, n.key FROM chain c JOIN nodes n ON n.key = c.key ORDER BY c.depth"
        statement += " DESC" if order == "asc" else ""
        rows = sql.execute(statement, (span.end, span.begin)).fetchall() if span.end != span.begin else []
        first = 0
        last = len(rows)
        ids = [row[0] for row in rows]
        for named in (cursor.after, cursor.before):
            if named is not None and named not in ids:
                return None if ids or span.end == span.begin else ItemPage([], False)
        if cursor.after is not None:  # if two have this id, after both: paging must reach the end
            first = last - ids[::-1].index(cursor.after)
        if cursor.before is not None:
            last = ids.index(cursor.before)
        if cursor.before is not None and cursor.after is None:
            more = last > limit
            first = max(0, last - limit)  # the nearest ones
        else:
            more = last > first + limit
        return ItemPage([_shown(sql, item_id, key) for item_id, key in rows[first:last][:limit]], more)

    @transaction
    def item(self, sql: Sql, end: Place, item_id: str) -> dict[str, Any] | None:
        """Return one of the items up to a place, by its id."""
        statement = _CHAIN + "SELECT n.key FROM chain c JOIN nodes n ON n.key = c.key WHERE n.item_id = ?"
        row = sql.execute(statement, (end, 0, item_id)).fetchone()
        return None if row is None else _shown(sql, item_id, row[0])

    @transaction
    def inputs(self, sql: Sql, end: Place, positions: Sequence[int]) -> frozenset[int]:
        """Return at which of these positions of a history there are items that came in the input of a response, as far as the
        responses are there, and in the output of none."""
        rows = sql.execute(_CHAIN + "SELECT key FROM chain ORDER BY depth DESC", (end, 0)).fetchall()
        number = {row[0]: count for count, row in enumerate(rows, 1)}  # of items up to a place
        statement = "SELECT r.input_begin, r.input_end, r.output_end FROM chain c JOIN responses r ON r.input_end = c.key"
        responses = sql.execute(_CHAIN + statement, (end, 0)).fetchall()
        inputs = [range(number.get(begin, 0), number[middle]) for begin, middle, _ in responses]
        outputs = [range(number[middle], number.get(last, 0)) for _, middle, last in responses]
        came_in = {position for position in positions if any(position in span for span in inputs)}
        return frozenset(position for position in came_in if not any(position in span for span in outputs))

    @transaction
    def find(self, sql: Sql, tenant: str, ids: Sequence[str]) -> dict[str, dict[str, Any]]:
        """Find items by id in any history, the last one if several have it; unknown ids are left out."""
        statement = "SELECT key FROM nodes WHERE tenant = ? AND item_id = ? ORDER BY key DESC LIMIT 1"
        rows = {item_id: sql.execute(statement, (tenant, item_id)).fetchone() for item_id in filter(None, ids)}
        return {item_id: _shown(sql, item_id, row[0]) for item_id, row in rows.items() if row is not None}


# ---- inside an open transaction ----------------------------------------------------------------------------------------


def exists(sql: Sql, place: Place) -> bool:
    """Tell whether the place still exists: deleting a response may have deleted it."""
    return not place or sql.execute("SELECT 1 FROM nodes WHERE key = ?", (place,)).fetchone() is not None


def known_end(sql: Sql, tenant: str, place: Place, items: Sequence[dict[str, Any]]) -> Place | None:
    """Return the place of the last of these items after a place; None if they do not all stand there."""
    places = [place, *_known_beginning(sql, place, _digests(tenant, items)[0])]
    return places[-1] if len(places) > len(items) else None


def append(sql: Sql, tenant: str, place: Place, items: Sequence[NewItem]) -> Place:
    """Add items after a place, reusing those that are already there. Return the place of the last one."""
    return [place, *append_each(sql, tenant, place, items)][-1]


def append_each(
    sql: Sql, tenant: str, place: Place, items: Sequence[NewItem], results: Mapping[str, bytes] | None = None
) -> list[Place]:
    """Do the same; `results` by the ids of items are kept with them. Return the place of each item."""
    values = [item if isinstance(item, dict) else cast("dict[str, Any]", _decode(item)) for item in items]
    digests, lengths = _digests(tenant, values)
    places = _known_beginning(sql, place, digests)
    known = len(places)
    named = results or {}
    shared = {
        digest: item
        for item, value, digest, length in zip(items[known:], values[known:], digests[known:], lengths[known:], strict=True)
        if length > _LONG or value.get("type") in HOSTED_CALLS or (named and str(value.get("id")) in named)
    }
    new = _NewItems(digests[known:], items[known:], shared, _ids(values[known:]))
    places += _add(sql, tenant, places[-1] if places else place, new)
    for value, digest in zip(values, digests, strict=True) if named else ():
        if (result := named.get(str(value.get("id")))) is not None:
            sql.execute("UPDATE items SET result = ? WHERE digest = ?", (result, digest))
    return places


def append_texts(sql: Sql, tenant: str, texts: Sequence[JsonText]) -> Place:
    """Store texts as a history of their own, reusing those that are already there. They have no ids, and are never found as
    items. Return the place of the last one."""
    digests = [_hashed(_hasher(tenant), utf8(text), _OF_TEXT) for text in texts]
    places = [0, *_known_beginning(sql, 0, digests)]
    known = len(places) - 1
    shared = dict(zip(digests[known:], texts[known:], strict=True))
    new = _NewItems(digests[known:], texts[known:], shared, [""] * len(shared))
    return [*places, *_add(sql, tenant, places[-1], new)][-1]


class _NewItems(NamedTuple):
    """Items, or texts, to be added one after the other: their digests, contents, and ids, which texts do not have. `shared` are
    those that are stored once for their tenant, by their digests."""

    digests: Sequence[bytes]
    contents: Sequence[NewItem]
    shared: Mapping[bytes, NewItem]
    ids: Sequence[str]


def _known_beginning(sql: Sql, place: Place, digests: Sequence[bytes]) -> list[Place]:
    """Return the places of the first items after a place, by their digests, as far as they are there."""
    if not digests:
        return []
    statement = _WALK.format(size=len(digests[0]))
    return [row[0] for row in sql.execute(statement, (place, b"".join(digests))).fetchall()][1:]


def _add(sql: Sql, tenant: str, place: Place, new: _NewItems) -> Sequence[Place]:
    """Add nodes after a place, which has no such one yet. Return their keys."""
    digests, contents, shared, ids = new
    if not digests:
        return ()
    items = _shared_items(sql, shared)
    keys = sql.new_keys("nodes", len(digests))
    # Each text is made when its row is written: all at once would be as long as the request.
    rows = (
        (key, tenant, parent, digest, items.get(digest), item_id, None if digest in items else _json(content))
        for key, parent, digest, content, item_id in zip(keys, [place, *keys[:-1]], digests, contents, ids, strict=True)
    )
    sql.insert("nodes", _NODE, rows, utf8="body")
    return keys


def _shared_items(sql: Sql, contents: Mapping[bytes, NewItem]) -> dict[bytes, int]:
    """Return the keys of items that are stored once, by their digests; write those that are new."""
    if not contents:
        return {}
    digests = b"".join(contents)
    size = len(digests) // len(contents)
    rows = sql.execute(_ITEMS.format(size=size), (len(digests), digests)).fetchall()
    keys = {bytes(digest): key for digest, key in rows}
    new = [digest for digest in contents if digest not in keys]
    if new:
        new_keys = sql.new_keys("items", len(new))
        bodies = ((key, digest, _json(contents[digest])) for key, digest in zip(new_keys, new, strict=True))
        sql.insert("items", ("key", "digest", "body"), bodies, utf8="body")
        keys.update(zip(new, new_keys, strict=True))
    return keys


def texts(sql: Sql, end: Place, begin: Place = 0) -> list[str]:
    """Return the JSON of the items after `begin`, up to and including `end`, in order, as they were stored."""
    if end == begin:
        return []
    statement = _CHAIN + f"SELECT {_BODY} JOIN chain c ON c.key = n.key ORDER BY c.depth DESC"
    return [row[0] for row in sql.execute(statement, (end, begin)).fetchall()]


def without(sql: Sql, tenant: str, end: Place, item_id: str) -> Place | None:
    """Make the history without one of its items, by adding the later ones again. Return None if the item is not in it."""
    statement = _CHAIN + "SELECT n.key, n.parent, n.item_id FROM chain c JOIN nodes n ON n.key = c.key ORDER BY c.depth DESC"
    rows = sql.execute(statement, (end, 0)).fetchall()
    at = next((number for number, row in enumerate(rows) if row[2] == item_id), None)
    if at is None:
        return None
    place: Place = rows[at][1]
    for key, _, kept_id in rows[at + 1 :]:
        place = _add_moved(sql, tenant, place, key, kept_id)
    return place


def prune(sql: Sql, place: Place) -> None:
    """Delete a node that nothing refers to, then its parents likewise, and their items."""
    while place:
        row = sql.execute("SELECT parent, item FROM nodes WHERE key = ?", (place,)).fetchone()
        if row is None or sql.execute(_IS_USED, (place,) * len(_USERS)).fetchone()[0]:
            return
        sql.execute("DELETE FROM nodes WHERE key = ?", (place,))
        if row[1] is not None:
            sql.execute("DELETE FROM items WHERE key = ? AND NOT EXISTS (SELECT 1 FROM nodes WHERE item = ?)", (row[1], row[1]))
        place = row[0]


_USERS = (
    "SELECT 1 FROM nodes WHERE parent = ?",
    "SELECT 1 FROM responses WHERE input_end = ?",
    "SELECT 1 FROM responses WHERE output_end = ?",
    "SELECT 1 FROM responses WHERE repeated_end = ? AND repeated_end > 0",
    "SELECT 1 FROM conversations WHERE output_end = ?",
)
_IS_USED = "SELECT " + " OR ".join(f"EXISTS ({user})" for user in _USERS)


def _digests(tenant: str, values: Sequence[dict[str, Any]]) -> tuple[list[bytes], list[int]]:
    """Return the digests of items, and the lengths of their JSON."""
    hasher = _hasher(tenant)
    digests: list[bytes] = []
    lengths: list[int] = []
    for value in values:
        try:
            text = _canonical(value)
        except UnicodeEncodeError:
            text = json.dumps(value, sort_keys=True).encode()
        digests.append(_hashed(hasher, text, _OF_ITEM))
        lengths.append(len(text))
    return digests, lengths


def _hashed(hasher: hashlib._Hash, text: bytes, size: int) -> bytes:
    own = hasher.copy()
    own.update(text)
    return own.digest()[:size]


@lru_cache(maxsize=256)
def _hasher(tenant: str) -> hashlib._Hash:
    """Return what makes the digests of a tenant others than those of any other tenant. SHA-256, because processors have
    instructions for it."""
    return hashlib.sha256(hashlib.sha256(tenant.encode("utf-8", "surrogatepass")).digest())


def _json(item: NewItem) -> bytes:
    if not isinstance(item, dict):
        return utf8(item)
    try:
        return _encode(item)
    except UnicodeEncodeError:  # a lone surrogate, which JSON text may not contain
        return json.dumps(item, ensure_ascii=False).encode("utf-8", "replace")


def _ids(values: Sequence[dict[str, Any]]) -> list[str]:
    """Return the ids that items came with, or new ones."""
    own = [value.get("id") for value in values]
    new = new_ids([_PREFIXES.get(value.get("type") or "message", "item") for value in values])
    return [item_id if isinstance(item_id, str) and item_id else new_id for item_id, new_id in zip(own, new, strict=True)]


def _add_moved(sql: Sql, tenant: str, parent: Place, key: int, item_id: str) -> Place:
    """Add the item of a node after another parent, with the id that it has."""
    statement = (
        "INSERT INTO nodes (tenant, parent, digest, item, item_id, body) SELECT tenant, ?, digest, item, item_id, body "
        "FROM nodes WHERE key = ? ON CONFLICT DO NOTHING RETURNING key"
    )
    row = sql.execute(statement, (parent, key)).fetchone()
    if row is not None:
        return int(row[0])
    statement = "SELECT key, item_id FROM nodes WHERE parent = ? AND digest = (SELECT digest FROM nodes WHERE key = ?)"
    place, other_id = sql.execute(statement, (parent, key)).fetchone()
    if other_id == item_id:
        return int(place)
    # The same item is there already, with another id from the store: with an id of its own it is another item.
    return append(sql, tenant, parent, [_value(sql, key) | {"id": item_id}])


def _value(sql: Sql, key: int) -> dict[str, Any]:
    value: dict[str, Any] = _decode(sql.execute(f"SELECT {_BODY} WHERE n.key = ?", (key,)).fetchone()[0])
    return value


def _shown(sql: Sql, item_id: str, key: int) -> dict[str, Any]:
    """Return an item as the API shows it: with its id, and with the members that clients may omit."""
    value = _value(sql, key)
    kind = value.get("type") or "message"
    if kind == "message" and not isinstance(value.get("content"), list):
        part = "output_text" if value.get("role") == "assistant" else "input_text"
        value["content"] = [] if value.get("content") is None else [{"type": part, "text": value["content"]}]
    if kind == "function_call_output" and value.get("output") is None:
        value["output"] = ""
    if kind == "reasoning":
        value.setdefault("summary", [])
    elif value.get("status") is None and (kind == "message" or kind.endswith(("_call", "_output"))):
        value["status"] = "completed"
    for member in ("content", "output"):
        if isinstance(value.get(member), list):
            value[member] = [_complete_part(part) for part in value[member]]
    return value | {"id": item_id, "type": kind}


def _complete_part(part: Any) -> Any:
    kind = part.get("type") if isinstance(part, dict) else None
    return {**_PART_DEFAULTS.get(kind, {}), **part} if isinstance(kind, str) else part
