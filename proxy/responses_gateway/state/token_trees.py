"""The calls of the model that were kept, token by token, as trees: a rollout, or a chain of responses.

A call has its prompt as what is new since its parent, because whole prompts of a chain would grow with its square."""

from __future__ import annotations

import sys
import time
from array import array
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple, TypeAlias

from responses_gateway.bounded_memory import BoundedDict
from responses_gateway.state.interfaces import Database, Sql, add_row, transaction
from responses_gateway.state.responses import is_active

MOST_TREES = 10_000  # the most trees of one tenant: another one takes the place of the oldest
MOST_CALLS = 10_000  # the most calls of a tree: more than the longest task of an agent has
MOST_IDS = 1_000_000  # the most ids of whole prompts and answers in one page, because it is built in memory
# About what a call takes besides its tokens, and a tree without calls: rows and indices, in bytes.
_CALL_BYTES = 1000
_TREE_BYTES = 300
_TREE_SHARE = 4  # the part of all room that one tree may have, so that it leaves some to others
# The part of the room that is filled, and made again, at a time: to look for it with each call would take long.
_STEP = 64
_BATCH = 20  # the most trees that are deleted in one transaction besides what it does


class TreeFull(Exception):
    """A tree has as many calls as it may have."""


# What a prompt may continue: the digest of the messages of an earlier one, and that of the answer behind them.
Link: TypeAlias = tuple[bytes, bytes]


class CallTokens(NamedTuple):
    """The tokens of one call; None where they are not known."""

    prompt: array[int] | None
    sampled: array[int] | None
    log_probs: array[float] | None


class CallRecord(NamedTuple):
    """One call. `details` is JSON that is kept as it is. `link` is what a later call that continues this one has as a link."""

    id: str
    response: str
    kind: str | None
    thread: str | None
    details: bytes
    tokens: CallTokens
    link: Link | None


class Parentage(NamedTuple):
    """Where the parent of a response's first call is looked for: the response that the request names, what its messages
    continue (the longest first), the last call of this kind in its thread that has another `prompt` (the digest)."""

    response: str | None
    links: Sequence[Link]
    thread: str | None = None
    kind: str | None = None
    prompt: bytes = b""


class KeptCall(NamedTuple):
    """One call as it was kept. `unbroken`: its prompt begins with all tokens of its parent."""

    id: str
    response: str
    parent: str | None
    kind: str | None
    details: bytes
    tokens: CallTokens
    unbroken: bool


class Page(NamedTuple):
    """Some calls of a tree, the oldest first."""

    calls: Sequence[KeptCall]
    more: bool


class Tree(NamedTuple):
    """A tree: its key, the reward that it was given, as JSON, how many of its calls were dropped because there was no room, and
    how many bytes the others take."""

    key: int
    reward: str | None
    dropped: int
    bytes: int


_COLUMNS = "key, id, response, parent, shared, rest, sampled, log_probs, kind, details"
# The calls that lead to one, and this.
_PATH = (
    "WITH RECURSIVE path (key, parent) AS (SELECT key, parent FROM model_calls WHERE key = ? "
    "UNION ALL SELECT model_calls.key, model_calls.parent FROM model_calls JOIN path ON model_calls.key = path.parent)"
)
_DELETE_CALLS = "DELETE FROM model_calls WHERE tree = ?"


@dataclass(eq=False)
class TokenTreeTable:
    """The trees of a database. `retention`: how long a tree is kept after its last call, in seconds. `most_bytes`: how many
    bytes all trees may take; None means any."""

    database: Database
    retention: float
    clock: Callable[[], float] = time.time
    most_bytes: int | None = None
    _unchecked: int = 0  # bytes that were added since room was made

    @transaction
    def begin(self, sql: Sql, tenant: str, name: str) -> None:
        """Make sure that there is a tree of this name, which may get another call. Raise `TreeFull`."""
        now = self.clock()
        expires_at = now + self.retention
        statement = "SELECT key, calls, expires_at FROM token_trees WHERE tenant = ? AND name = ?"
        row = sql.execute(statement, (tenant, name)).fetchone()
        if row is not None and row[2] < now:  # as if it had been deleted already
            _delete(sql, row[0])
        elif row is not None:
            if row[1] >= MOST_CALLS:
                raise TreeFull
            # Mostly this writes nothing, but it is refused where nothing can be written, because the call could not be kept.
            statement = "UPDATE token_trees SET expires_at = ? WHERE key = ? AND expires_at < ?"
            sql.execute(statement, (expires_at, row[0], expires_at - self.retention / 100))
            return
        delete_expired(sql, now, _BATCH)
        add_row(sql, "token_trees", {"tenant": tenant, "name": name, "expires_at": expires_at})
        _delete_surplus(sql, tenant)

    @transaction
    def add(self, sql: Sql, tenant: str, name: str, calls: Sequence[CallRecord], parentage: Parentage) -> None:
        """Add the calls of one response, each the parent of the next one: without their tokens to a tree that has no room.
        Nothing is added to a tree that is gone. Of two gateways that run a response, the one that ends it counts, unless
        what the first one has kept is continued already, by a client that saw it. As many calls keep their places in pages."""
        tree = _tree(sql, tenant, name)
        if tree is None or not calls:
            return
        response = calls[0].response
        statement = "SELECT key, parent FROM model_calls WHERE tree = ? AND response = ? ORDER BY key"
        before = sql.execute(statement, (tree.key, response)).fetchall()
        if before:
            continued = "parent IN (SELECT key FROM model_calls WHERE response = ?) AND response <> ?"
            if not is_active(sql, response) or _last_key(sql, tree.key, continued, response, response):
                return
            sql.execute("DELETE FROM model_calls WHERE tree = ? AND response = ?", (tree.key, response))
            sql.execute("UPDATE token_trees SET calls = calls - ? WHERE key = ?", (len(before), tree.key))
        if self.most_bytes is not None and tree.bytes > self.most_bytes // _TREE_SHARE:
            calls = [call._replace(tokens=CallTokens(None, None, None)) for call in calls]
        parent = before[0][1] if before else _parent_of(sql, tree.key, parentage)
        keys = [row[0] for row in before] if len(before) == len(calls) else sql.new_keys("model_calls", len(calls))
        rebuilt = _Rebuilt(sql)
        added = 0
        for key, call in zip(keys, calls, strict=True):
            added += _insert(sql, tree.key, key, call, parent, rebuilt)
            parent = key
        sql.execute("UPDATE token_trees SET calls = calls + ?, bytes = bytes + ? WHERE key = ?", (len(calls), added, tree.key))
        self._unchecked += added + _TREE_BYTES
        if self.most_bytes is not None and self._unchecked > self.most_bytes // _STEP:
            self._unchecked = 0
            _make_room(sql, self.most_bytes, tree.key)

    @transaction
    def parent_of(self, sql: Sql, tenant: str, name: str, parentage: Parentage) -> tuple[int | None, KeptCall] | None:
        """Return the parent that a call will have, and the place of the link by which its messages continue it; None if they do
        not. Return None for a call without a parent."""
        tree = _tree(sql, tenant, name)
        key = 0 if tree is None else _parent_of(sql, tree.key, parentage)
        if not key:
            return None
        statement = "SELECT prompt_digest, answer_digest FROM model_calls WHERE key = ?"
        prompt, answer = sql.execute(statement, (key,)).fetchone()
        own = None if prompt is None else (bytes(prompt), bytes(answer))
        place = next((place for place, link in enumerate(parentage.links) if link == own), None)
        return place, _kept(_Rebuilt(sql), _row(sql, key))

    @transaction
    def name_of(self, sql: Sql, tenant: str, response: str) -> str | None:
        """Return the name of the tree that has the calls of a response."""
        row = sql.execute(
            "SELECT token_trees.name FROM model_calls JOIN token_trees ON token_trees.key = model_calls.tree "
            "WHERE model_calls.response = ? AND token_trees.tenant = ? ORDER BY model_calls.key DESC LIMIT 1",
            (response, tenant),
        ).fetchone()
        return None if row is None else row[0]

    @transaction
    def tree(self, sql: Sql, tenant: str, name: str) -> Tree | None:
        """Return a tree."""
        return _tree(sql, tenant, name)

    @transaction
    def page(self, sql: Sql, tree: Tree, after: str | None, limit: int) -> Page | None:
        """Return some calls of a tree; None where there is none of the id `after`."""
        start = 0 if after is None else _last_key(sql, tree.key, "id = ?", after)
        if after is not None and not start:
            return None
        statement = "SELECT key FROM model_calls WHERE tree = ? AND key > ? ORDER BY key LIMIT ?"
        keys = sql.execute(statement, (tree.key, start, limit + 1)).fetchall()
        return _page(sql, [row[0] for row in keys], limit)

    @transaction
    def chain(self, sql: Sql, tree: Tree, last: str, after: str | None, limit: int) -> Page | None:
        """Return some of the calls that lead to one, from the first one on; None where there is no such call."""
        key = _last_key(sql, tree.key, "id = ?", last)
        if not key:
            return None
        path = [row[0] for row in sql.execute(f"{_PATH} SELECT key FROM path ORDER BY key", (key,)).fetchall()]
        if after is not None:
            begin = _last_key(sql, tree.key, "id = ?", after)
            if begin not in path:
                return None
            path = path[path.index(begin) + 1 :]
        return _page(sql, path[: limit + 1], limit)

    @transaction
    def reward(self, sql: Sql, tenant: str, name: str, reward: str) -> bool:
        """Give a tree a reward, as JSON, in the place of an earlier one. Return False where there is no such tree."""
        statement = "UPDATE token_trees SET reward = ? WHERE tenant = ? AND name = ?"
        return sql.execute(statement, (reward, tenant, name)).rowcount > 0

    @transaction
    def delete(self, sql: Sql, tenant: str, name: str) -> bool:
        """Delete a tree. Return False where there is none."""
        tree = _tree(sql, tenant, name)
        if tree is not None:
            _delete(sql, tree.key)
        return tree is not None


def delete_expired(sql: Sql, now: float, limit: int) -> int:
    """Delete at most `limit` trees that have expired. Return how many."""
    rows = sql.execute("SELECT key FROM token_trees WHERE expires_at < ? ORDER BY expires_at LIMIT ?", (now, limit)).fetchall()
    for row in rows:
        _delete(sql, row[0])
    return len(rows)


def _delete_surplus(sql: Sql, tenant: str) -> None:
    """Delete trees of a tenant that has too many, so many at a time; the newest that it may have are kept."""
    statement = "SELECT key FROM token_trees WHERE tenant = ? ORDER BY key DESC LIMIT ? OFFSET ?"
    for row in sql.execute(statement, (tenant, _BATCH, MOST_TREES)).fetchall():
        _delete(sql, row[0])


def _make_room(sql: Sql, most_bytes: int, kept: int) -> None:
    """Drop the calls of the trees that were not used for longest, of the tenant that has most at the time, until there is room,
    but none of the tree `kept`. The trees stay, and tell what was dropped, as long as there is something else to drop."""
    statement = "SELECT tenant, sum(bytes), count(*) FROM token_trees GROUP BY tenant"
    held = {tenant: taken + trees * _TREE_BYTES for tenant, taken, trees in sql.execute(statement).fetchall()}
    too_many = sum(held.values()) - most_bytes + most_bytes // _STEP
    trees: dict[str, list[tuple[int, int]]] = {}
    while too_many > 0 and held:
        tenant = max(held, key=held.__getitem__)
        if tenant not in trees:
            statement = (
                "SELECT key, bytes FROM token_trees WHERE tenant = ? AND key <> ? ORDER BY bytes = 0 DESC, expires_at DESC"
            )
            trees[tenant] = [tuple(row) for row in sql.execute(statement, (tenant, kept)).fetchall()]
        if not trees[tenant]:
            del held[tenant]
            continue
        key, size = trees[tenant].pop()
        if size:
            dropped = sql.execute(_DELETE_CALLS, (key,)).rowcount
            sql.execute("UPDATE token_trees SET bytes = 0, dropped = dropped + ? WHERE key = ?", (dropped, key))
        else:
            size = _TREE_BYTES
            _delete(sql, key)
        held[tenant] -= size
        too_many -= size


def _delete(sql: Sql, key: int) -> None:
    sql.execute(_DELETE_CALLS, (key,))
    sql.execute("DELETE FROM token_trees WHERE key = ?", (key,))


def _tree(sql: Sql, tenant: str, name: str) -> Tree | None:
    statement = "SELECT key, reward, dropped, bytes FROM token_trees WHERE tenant = ? AND name = ?"
    row = sql.execute(statement, (tenant, name)).fetchone()
    return None if row is None else Tree(*row)


def _parent_of(sql: Sql, tree: int, parentage: Parentage) -> int:
    """Return the key of the call that another one continues; 0 if it begins something. What a warm-up sampled is in no prompt,
    so that its parent is continued."""
    continued = "key IN (SELECT CASE kind WHEN 'prewarm' THEN parent ELSE key END FROM model_calls WHERE tree = ? AND id = ?)"
    key = 0 if parentage.response is None else _last_key(sql, tree, continued, tree, parentage.response)
    linked = (_last_key(sql, tree, "prompt_digest = ? AND answer_digest = ?", *link) for link in parentage.links)
    key = key or next(filter(None, linked), 0)
    if key or parentage.thread is None:
        return key
    # A thread whose history was rewritten goes on all the same. Calls of another kind, and repeated ones, stand beside it.
    condition = "thread = ? AND coalesce(kind, 'main') = coalesce(?, 'main') AND (prompt_digest IS NULL OR prompt_digest <> ?)"
    return _last_key(sql, tree, condition, parentage.thread, parentage.kind, parentage.prompt)


def _last_key(sql: Sql, tree: int, condition: str, *values: Any) -> int:
    """Return the key of the last call of a tree that meets a condition; 0 without one."""
    statement = f"SELECT key FROM model_calls WHERE tree = ? AND {condition} ORDER BY key DESC LIMIT 1"
    row = sql.execute(statement, (tree, *values)).fetchone()
    return 0 if row is None else int(row[0])


class _Rebuilt:
    """The whole tokens of calls, each rebuilt out of those of its parent; the last ones are kept, because they are next."""

    def __init__(self, sql: Sql) -> None:
        self._sql = sql
        self._whole: BoundedDict[int, array[int]] = BoundedDict(2)

    def whole(self, key: int) -> array[int]:
        """Return the prompt of a call and what was sampled behind it; nothing where that is not known. From the end on, so that
        each token is copied once, however many calls there are."""
        if key in self._whole:
            return self._whole[key]
        statement = (
            f"{_PATH} SELECT shared, rest, sampled FROM model_calls WHERE key IN (SELECT key FROM path) ORDER BY key DESC"
        )
        pieces: list[bytes] = []
        wanted = sys.maxsize  # so many of the first tokens
        for shared, rest, sampled in self._sql.execute(statement, (key,)).fetchall():
            if rest is None or sampled is None or not wanted:
                break
            pieces.append((_ids(rest) + _ids(sampled))[: max(wanted - shared, 0)].tobytes())
            wanted = min(wanted, shared)
        self._whole[key] = array("q", b"".join(reversed(pieces)))
        return self._whole[key]

    def keep(self, key: int, prompt: array[int] | None, sampled: bytes | None) -> None:
        """Note the tokens of a call."""
        self._whole[key] = array("q") if prompt is None or sampled is None else prompt + _ids(sampled)


def _insert(sql: Sql, tree: int, key: int, call: CallRecord, parent: int, rebuilt: _Rebuilt) -> int:
    """Write a call. Return how many bytes it takes."""
    shared = 0
    if call.tokens.prompt is not None and parent:
        shared = common_prefix(rebuilt.whole(parent), call.tokens.prompt)
    sampled = None if call.tokens.sampled is None else packed(call.tokens.sampled)
    row: dict[str, Any] = {
        "key": key,
        "tree": tree,
        "id": call.id,
        "response": call.response,
        "parent": parent,
        "shared": shared,
        "rest": None if call.tokens.prompt is None else packed(call.tokens.prompt[shared:]),
        "sampled": sampled,
        "log_probs": None if call.tokens.log_probs is None else call.tokens.log_probs.tobytes(),
        "kind": call.kind,
        "thread": call.thread,
        "prompt_digest": None if call.link is None else call.link[0],
        "answer_digest": None if call.link is None else call.link[1],
        "details": call.details,
    }
    add_row(sql, "model_calls", row)
    rebuilt.keep(key, call.tokens.prompt, sampled)
    return _CALL_BYTES + sum(len(value) for value in row.values() if isinstance(value, bytes))


def common_prefix(one: array[int], other: array[int]) -> int:
    """Return how many numbers at the beginning of two arrays are the same."""
    least = 0
    most = min(len(one), len(other))
    if one[:most] == other[:most]:
        return most
    while most - least > 1:  # `least` are the same, `most` are not
        middle = (least + most) // 2
        if one[least:middle] == other[least:middle]:
            least = middle
        else:
            most = middle
    return least


def _row(sql: Sql, key: int) -> Any:
    return sql.execute(f"SELECT {_COLUMNS} FROM model_calls WHERE key = ?", (key,)).fetchone()


def _page(sql: Sql, keys: Sequence[int], limit: int) -> Page:
    rebuilt = _Rebuilt(sql)
    calls: list[KeptCall] = []
    ids = 0
    for key in keys[:limit]:
        call = _kept(rebuilt, _row(sql, key))
        ids += len(call.tokens.prompt or ()) + len(call.tokens.sampled or ())
        if calls and ids > MOST_IDS:
            return Page(calls, more=True)
        calls.append(call)
    return Page(calls, len(keys) > limit)


def _kept(rebuilt: _Rebuilt, row: Any) -> KeptCall:
    key, call_id, response, parent, shared, rest, sampled, log_probs, kind, details = row
    before = rebuilt.whole(parent) if parent else array("q")
    prompt = None if rest is None else before[:shared] + _ids(rest)
    rebuilt.keep(key, prompt, sampled)
    numbers = None if log_probs is None else array("d", bytes(log_probs))
    tokens = CallTokens(prompt, None if sampled is None else _ids(sampled), numbers)
    parent_id = _row(rebuilt._sql, parent)[1] if parent else None
    unbroken = bool(before) and shared == len(before)
    return KeptCall(call_id, response, parent_id, kind, bytes(details), tokens, unbroken)


def packed(ids: array[int]) -> bytes:
    """Return ids as they are stored: the type of the numbers, which nearly always have four bytes, and these."""
    try:
        return b"i" + array("i", ids).tobytes()
    except OverflowError:
        return b"q" + ids.tobytes()


def _ids(data: bytes) -> array[int]:
    data = bytes(data)
    return array("q", array(chr(data[0]), data[1:]))
