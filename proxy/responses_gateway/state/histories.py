"""Histories, stored as a tree of items.

A history is identified by its last node and read by following the parents. A request that continues a history adds what is new
and shares the rest, whether it names the previous response or repeats the whole conversation: a conversation of n turns takes
space for n turns, not for n². `prune` deletes what is no longer referred to, from the leaves inward."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, cast

import msgspec

from responses_gateway.state.interfaces import Database, Sql, transaction
from responses_gateway.state.records import Cursor, HistorySpan, ItemPage, NewItem, PageOrder, Place, new_id, new_ids

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

_CHAIN = (
    "WITH RECURSIVE chain (key, parent, item, item_id, depth) AS ("
    "SELECT key, parent, item, item_id, 0 FROM nodes WHERE key = ? "
    "UNION ALL SELECT n.key, n.parent, n.item, n.item_id, c.depth + 1 FROM nodes n JOIN chain c ON n.key = c.parent "
    "WHERE n.key <> ?) "
)
_BRANCH = (
    "WITH RECURSIVE chain (key, parent, item, depth) AS ("
    "SELECT key, parent, item, 1 FROM nodes WHERE key = ? "
    "UNION ALL SELECT n.key, n.parent, n.item, c.depth + 1 FROM nodes n JOIN chain c ON n.key = c.parent "
    "WHERE c.depth < ?) SELECT parent, item, key FROM chain"
)
# From so many items on they are looked up and written together: for fewer, statements of their own are cheaper.
_MANY = 8
# Bytes of the digest of an item, and of a text: they are never the same.
_OF_ITEM = 16
_OF_TEXT = 32
# Digests in one look-up.
_LOOKED_UP = 100
_KEYS = f"SELECT digest, key FROM items WHERE digest IN ({', '.join('?' * _LOOKED_UP)})"


@dataclass(eq=False)
class HistoryTable:
    """Reads the histories in a database. Every method raises `StoreUnavailable`."""

    database: Database

    @transaction
    def items(self, sql: Sql, end: Place) -> list[dict[str, Any]]:
        """Return the items up to a place, in order, without ids that the store made up."""
        items: list[dict[str, Any]] = _decode(f"[{','.join(texts(sql, end))}]")  # at once, which is faster than one by one
        return items

    @transaction
    def page(self, sql: Sql, span: HistorySpan, order: PageOrder, limit: int, cursor: Cursor) -> ItemPage | None:
        """Return a page of a part of a history, each item with its id; None if the cursor names none of its items."""
        statement = _CHAIN + "SELECT item_id, item FROM chain ORDER BY depth" + (" DESC" if order == "asc" else "")
        rows = sql.execute(statement, (span.end, span.begin)).fetchall() if span.end != span.begin else []
        first = 0
        last = len(rows)
        ids = [row[0] for row in rows]
        for named in (cursor.after, cursor.before):
            if named is not None and named not in ids:
                return None
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
        row = sql.execute(_CHAIN + "SELECT item FROM chain WHERE item_id = ?", (end, 0, item_id)).fetchone()
        return None if row is None else _shown(sql, item_id, row[0])

    @transaction
    def find(self, sql: Sql, tenant: str, ids: Sequence[str]) -> dict[str, dict[str, Any]]:
        """Find items by id in any history, the last one if several have it; unknown ids are left out."""
        statement = "SELECT item FROM nodes WHERE tenant = ? AND item_id = ? ORDER BY key DESC LIMIT 1"
        rows = {item_id: sql.execute(statement, (tenant, item_id)).fetchone() for item_id in filter(None, ids)}
        return {item_id: _shown(sql, item_id, row[0]) for item_id, row in rows.items() if row is not None}


# ---- inside an open transaction ----------------------------------------------------------------------------------------


def exists(sql: Sql, place: Place) -> bool:
    """Tell whether the place still exists: deleting a response may have deleted it."""
    return not place or sql.execute("SELECT 1 FROM nodes WHERE key = ?", (place,)).fetchone() is not None


def append(sql: Sql, tenant: str, place: Place, items: Sequence[NewItem], results: Mapping[str, bytes] | None = None) -> Place:
    """Add items after a place, reusing those that are already there; `results` by their ids are kept with them. Return the
    place of the last one."""
    if len(items) >= _MANY:
        return _append_many(sql, tenant, place, items, results or {})
    for item in items:
        body = item if isinstance(item, str) else _json(item).decode()
        value: dict[str, Any] = _decode(body) if isinstance(item, str) else item
        key = _body(sql, _digest(tenant, value), body)
        _keep_result(sql, key, value, results)
        place = _child(sql, tenant, place, key, _id_of(value) or new_id(_prefix(value)))
    return place


def _append_many(sql: Sql, tenant: str, place: Place, items: Sequence[NewItem], results: Mapping[str, bytes]) -> Place:
    """Do the same with few statements for all of them."""
    values = [cast("dict[str, Any]", _decode(item)) if isinstance(item, str) else item for item in items]
    digests = [_digest(tenant, value) for value in values]
    keys = _known_keys(sql, list(dict.fromkeys(digests)))
    known = next((number for number, digest in enumerate(digests) if digest not in keys), len(digests))
    new: dict[bytes, NewItem] = {}
    for item, digest in zip(items, digests, strict=True):
        if digest not in keys:
            new.setdefault(digest, item)
    if new:
        new_keys = sql.new_keys("items", len(new))
        # Each text is made when its row is written: all at once would be as long as the request.
        rows = ((key, digest, _json(item)) for key, (digest, item) in zip(new_keys, new.items(), strict=True))
        sql.insert("items", ("key", "digest", "body"), rows, utf8="body")
        keys.update(zip(new, new_keys, strict=True))
    if results:
        for value, digest in zip(values, digests, strict=True):
            _keep_result(sql, keys[digest], value, results)
    return _add_nodes(sql, tenant, place, [(keys[digest], value) for digest, value in zip(digests, values, strict=True)], known)


def _keep_result(sql: Sql, key: int, value: dict[str, Any], results: Mapping[str, bytes] | None) -> None:
    if results and (result := results.get(str(value.get("id")))) is not None:
        sql.execute("UPDATE items SET result = ? WHERE key = ?", (result, key))


def _known_keys(sql: Sql, digests: Sequence[bytes]) -> dict[bytes, int]:
    """Return the keys of the items that are stored, by their digests."""
    keys: dict[bytes, int] = {}
    for first in range(0, len(digests), _LOOKED_UP):
        some = list(digests[first : first + _LOOKED_UP])
        asked = [*some, *(some[-1:] * (_LOOKED_UP - len(some)))]  # always as many: one statement, which is prepared once
        keys.update((bytes(digest), key) for digest, key in sql.execute(_KEYS, asked).fetchall())
    return keys


def _add_nodes(sql: Sql, tenant: str, place: Place, items: Sequence[tuple[int, dict[str, Any]]], known: int) -> Place:
    """Add nodes for items, each with its key, after a place, unless they are there. The first `known` items were stored
    before."""
    branch = _branch(sql, items[known - 1][0], known) if known >= _MANY else {}
    there = 0
    for key, _ in items[:known]:
        node = branch.get((place, key))
        if node is None:
            row = sql.execute("SELECT key FROM nodes WHERE parent = ? AND item = ?", (place, key)).fetchone()
            if row is None:
                break
            node = row[0]
        place = node
        there += 1
    new = items[there:]
    if not new:
        return place
    made_up = new_ids([_prefix(value) for _, value in new])
    rows: list[tuple[int, str, Place, int, str]] = []
    for node, (key, value), made_up_id in zip(sql.new_keys("nodes", len(new)), new, made_up, strict=True):
        rows.append((node, tenant, place, key, _id_of(value) or made_up_id))
        place = node
    sql.insert("nodes", ("key", "tenant", "parent", "item", "item_id"), rows)
    return place


def _branch(sql: Sql, item: int, length: int) -> dict[tuple[Place, int], Place]:
    """Return the last nodes of the newest history with an item, up to that, by their parents and items: most requests
    continue what was stored last."""
    row = sql.execute("SELECT key FROM nodes WHERE item = ? ORDER BY key DESC LIMIT 1", (item,)).fetchone()
    rows = [] if row is None else sql.execute(_BRANCH, (row[0], length)).fetchall()
    return {(parent, of_item): key for parent, of_item, key in rows}


def append_texts(sql: Sql, tenant: str, texts: Iterable[str]) -> Place:
    """Store texts as a history of their own, reusing those that are already there. They have no ids, and are never found as
    items. Return the place of the last one."""
    place = 0
    for text in texts:
        digest = hashlib.blake2b(text.encode(), digest_size=_OF_TEXT, key=_key_of(tenant)).digest()
        key = _known(sql, digest) or _body(sql, digest, text)
        row = sql.execute("SELECT key FROM nodes WHERE parent = ? AND item = ?", (place, key)).fetchone()
        place = row[0] if row is not None else _child(sql, tenant, place, key, "")
    return place


def texts(sql: Sql, end: Place, begin: Place = 0) -> list[str]:
    """Return the JSON of the items after `begin`, up to and including `end`, in order, as they were stored."""
    if end == begin:
        return []
    statement = _CHAIN + "SELECT i.body FROM chain c JOIN items i ON i.key = c.item ORDER BY c.depth DESC"
    return [row[0] for row in sql.execute(statement, (end, begin)).fetchall()]


def without(sql: Sql, tenant: str, end: Place, item_id: str) -> Place | None:
    """Make the history without one of its items, by adding the later ones again. Return None if the item is not in it."""
    rows = sql.execute(_CHAIN + "SELECT key, parent, item, item_id FROM chain ORDER BY depth DESC", (end, 0)).fetchall()
    at = next((number for number, row in enumerate(rows) if row[3] == item_id), None)
    if at is None:
        return None
    place: Place = rows[at][1]
    for _, _, key, kept_id in rows[at + 1 :]:
        place = _add_moved(sql, tenant, place, key, kept_id)
    return place


def prune(sql: Sql, place: Place) -> None:
    """Delete a node that nothing refers to, then its parents likewise, and their items."""
    while place:
        row = sql.execute("SELECT parent, item FROM nodes WHERE key = ?", (place,)).fetchone()
        if row is None or sql.execute(_IS_USED, (place,) * len(_USERS)).fetchone()[0]:
            return
        sql.execute("DELETE FROM nodes WHERE key = ?", (place,))
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


def _digest(tenant: str, value: dict[str, Any]) -> bytes:
    try:
        text = _canonical(value)
    except UnicodeEncodeError:
        text = json.dumps(value, sort_keys=True).encode()
    return hashlib.blake2b(text, digest_size=_OF_ITEM, key=_key_of(tenant)).digest()


@lru_cache(maxsize=256)
def _key_of(tenant: str) -> bytes:
    """Return what makes the digests of a tenant others than those of any other tenant."""
    return hashlib.blake2b(tenant.encode("utf-8", "surrogatepass")).digest()


def _body(sql: Sql, digest: bytes, body: str) -> int:
    statement = "INSERT INTO items (digest, body) VALUES (?, ?) ON CONFLICT DO NOTHING RETURNING key"
    row = sql.execute(statement, (digest, body)).fetchone()
    return int(row[0]) if row is not None else cast("int", _known(sql, digest))


def _known(sql: Sql, digest: bytes) -> int | None:
    row = sql.execute("SELECT key FROM items WHERE digest = ?", (digest,)).fetchone()
    return None if row is None else row[0]


def _json(item: NewItem) -> bytes:
    if isinstance(item, str):
        return item.encode("utf-8", "replace")
    try:
        return _encode(item)
    except UnicodeEncodeError:  # a lone surrogate, which JSON text may not contain
        return json.dumps(item, ensure_ascii=False).encode("utf-8", "replace")


def _id_of(value: dict[str, Any]) -> str:
    """Return the id that an item came with; empty for none."""
    item_id = value.get("id")
    return item_id if isinstance(item_id, str) else ""


def _prefix(value: dict[str, Any]) -> str:
    return _PREFIXES.get(value.get("type", "message"), "item")


def _child(sql: Sql, tenant: str, parent: Place, key: int, item_id: str) -> Place:
    statement = "INSERT INTO nodes (tenant, parent, item, item_id) VALUES (?, ?, ?, ?) ON CONFLICT DO NOTHING RETURNING key"
    row = sql.execute(statement, (tenant, parent, key, item_id)).fetchone()
    if row is None:
        row = sql.execute("SELECT key FROM nodes WHERE parent = ? AND item = ?", (parent, key)).fetchone()
    return int(row[0])


def _add_moved(sql: Sql, tenant: str, parent: Place, key: int, item_id: str) -> Place:
    """Add an item after another parent, with the id that it has."""
    place = _child(sql, tenant, parent, key, item_id)
    if sql.execute("SELECT item_id FROM nodes WHERE key = ?", (place,)).fetchone()[0] == item_id:
        return place
    # The same item is there already, with another id from the store: with an id of its own it is another item.
    value = _value(sql, key) | {"id": item_id}
    return _child(sql, tenant, parent, _body(sql, _digest(tenant, value), _json(value).decode()), item_id)


def _value(sql: Sql, key: int) -> dict[str, Any]:
    value: dict[str, Any] = _decode(sql.execute("SELECT body FROM items WHERE key = ?", (key,)).fetchone()[0])
    return value


def _shown(sql: Sql, item_id: str, key: int) -> dict[str, Any]:
    """Return an item as the API shows it: with its id, and with the members that clients may omit."""
    value = _value(sql, key)
    kind = value.setdefault("type", "message")
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
    return value | {"id": item_id}


def _complete_part(part: Any) -> Any:
    kind = part.get("type") if isinstance(part, dict) else None
    return {**_PART_DEFAULTS.get(kind, {}), **part} if isinstance(kind, str) else part
