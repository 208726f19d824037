"""The trees of calls, on every kind of store."""

from __future__ import annotations

import asyncio
import random
from array import array
from collections.abc import Callable, Sequence
from typing import Any, cast

import pytest
from hypothesis import given
from hypothesis import strategies as st

from responses_gateway.state import token_trees
from responses_gateway.state.interfaces import Database, Rows, Sql
from responses_gateway.state.token_trees import CallRecord, CallTokens, Parentage, TokenTreeTable, TreeFull, common_prefix
from tests.state.conftest import Opening
from tests.state.test_store_contract import record

NOTHING = Parentage(None, [])


def call(name: str, prompt: list[int] | None, sampled: list[int] | None, *, thread: str | None = None) -> CallRecord:
    log_probs = None if sampled is None else array("d", [-0.5] * len(sampled))
    tokens = CallTokens(
        None if prompt is None else array("q", prompt), None if sampled is None else array("q", sampled), log_probs
    )
    return CallRecord(name, name.partition(".")[0], None, thread, b"{}", tokens, (b"prompt " + name.encode(), b"answer"))


def test_prompts_are_rebuilt_out_of_what_is_new(opening: Opening) -> None:
    async def test() -> None:
        async with opening() as (_, database, clock):
            table = TokenTreeTable(database, 100.0, clock)
            await table.begin("one", "tree")
            big = 2**40
            await table.add("one", "tree", [call("a.1", [1, 2], [3]), call("a", [1, 2, 3, 4], [5])], NOTHING)
            await table.add("one", "tree", [call("b", [1, 2, 3, 4, 5, 6], [big])], Parentage("a", []))
            await table.add("one", "tree", [call("c", [1, 9], [7])], Parentage(None, [(b"x", b"y"), (b"prompt b", b"answer")]))
            await table.add("one", "tree", [call("d", None, None)], Parentage("c", []))
            await table.add("one", "tree", [call("e", [1, 9], [7])], Parentage("d", []))
            tree = await table.tree("one", "tree")
            assert tree is not None
            page = await table.page(tree, None, 10)
            assert page is not None
            shown = [(kept.id, kept.parent, kept.tokens.prompt, kept.tokens.sampled, kept.unbroken) for kept in page.calls]
            assert shown == [
                ("a.1", None, array("q", [1, 2]), array("q", [3]), False),
                ("a", "a.1", array("q", [1, 2, 3, 4]), array("q", [5]), True),
                ("b", "a", array("q", [1, 2, 3, 4, 5, 6]), array("q", [big]), True),
                ("c", "b", array("q", [1, 9]), array("q", [7]), False),
                ("d", "c", None, None, False),
                ("e", "d", array("q", [1, 9]), array("q", [7]), False),
            ]
            later = await table.page(tree, "a", 2)
            assert later is not None
            assert ([kept.id for kept in later.calls], later.more) == (["b", "c"], True)
            assert later.calls[0].tokens.prompt == array("q", [1, 2, 3, 4, 5, 6])
            chain = await table.chain(tree, "b", "a.1", 10)
            assert chain is not None
            assert [kept.id for kept in chain.calls] == ["a", "b"]
            assert await table.chain(tree, "nobody", None, 10) is None
            assert await table.chain(tree, "b", "c", 10) is None
            assert await table.page(tree, "nobody", 10) is None

    asyncio.run(test())


def test_the_tokens_of_responses_are_deleted_with_the_last_of_them(opening: Opening) -> None:
    async def test() -> None:
        async with opening() as (store, database, clock):
            table = TokenTreeTable(database, 100.0, clock)
            places = {"a": "response:a", "b": "response:a", "c": "response:c", "d": "rollout:r", "begun": "response:begun"}
            for name, tree in places.items():
                await store.responses.save(record(name, tenant="alice"))
                await table.begin("alice", tree)
                if name != "begun":
                    await table.add("alice", tree, [call(name, [1], [2])], NOTHING)
            left = set(places.values())
            for name, gone in (("a", None), ("d", None), ("b", "response:a"), ("begun", "response:begun"), ("c", "response:c")):
                assert await store.responses.delete("alice", name)
                left -= {gone}
                assert {tree for tree in places.values() if await table.tree("alice", tree) is not None} == left
            assert left == {"rollout:r"}
            assert await table.name_of("alice", "b") is None
            await table.add("alice", "response:begun", [call("begun", [1], [2])], NOTHING)
            assert await table.tree("alice", "response:begun") is None

    asyncio.run(test())


def test_a_tree_belongs_to_its_tenant(opening: Opening) -> None:
    async def test() -> None:
        async with opening() as (_, database, clock):
            table = TokenTreeTable(database, 100.0, clock)
            await table.begin("one", "tree")
            await table.add("one", "tree", [call("a", [1], [2])], NOTHING)
            await table.add("two", "tree", [call("b", [1], [2])], NOTHING)
            assert await table.tree("two", "tree") is None
            assert await table.name_of("two", "a") is None
            assert await table.name_of("one", "a") == "tree"
            assert await table.name_of("one", "b") is None
            assert await table.parent_of("two", "tree", Parentage("a", [(b"prompt a", b"answer")])) is None
            assert not await table.reward("two", "tree", "1")
            assert not await table.delete("two", "tree")
            assert await table.reward("one", "tree", "[1]")
            assert (await table.tree("one", "tree") or (0, ""))[1] == "[1]"
            assert await table.delete("one", "tree")
            assert await table.tree("one", "tree") is None

    asyncio.run(test())


def test_of_two_gateways_that_keep_a_response_the_one_that_ends_it_counts(
    opening: Opening, monkeypatch: pytest.MonkeyPatch
) -> None:
    running = {"a"}
    monkeypatch.setattr(token_trees, "is_active", lambda _sql, response: response in running)

    async def test() -> None:
        async with opening() as (_, database, clock):
            table = TokenTreeTable(database, 100.0, clock)
            await table.begin("t", "r")

            async def kept() -> list[tuple[str, list[int]]]:
                tree = await table.tree("t", "r")
                assert tree is not None
                page = await table.page(tree, None, 10)
                assert page is not None
                return [(call.id, (call.tokens.sampled or array("q")).tolist()) for call in page.calls]

            await table.add("t", "r", [call("a.1", [1], [2]), call("a", [1, 2, 3], [4])], NOTHING)
            await table.add("t", "r", [call("a.1", [1], [2]), call("a", [1, 2, 3], [5])], NOTHING)
            assert await kept() == [("a.1", [2]), ("a", [5])]
            running.clear()
            await table.add("t", "r", [call("b", [1, 2, 3, 5, 6], [7])], Parentage("a", []))
            await table.add("t", "r", [call("a", [1, 2, 3], [6])], NOTHING)
            assert await kept() == [("a.1", [2]), ("a", [5]), ("b", [7])]

    asyncio.run(test())


def test_a_call_that_another_one_continues_stays_though_a_second_gateway_keeps_its_response(
    opening: Opening, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its client has seen all items, and goes on, before the first gateway has ended the response; then that one stops."""
    monkeypatch.setattr(token_trees, "is_active", lambda _sql, _response: True)

    async def test() -> None:
        async with opening() as (_, database, clock):
            table = TokenTreeTable(database, 100.0, clock)
            await table.begin("t", "r")
            await table.add("t", "r", [call("a", [1, 2, 3], [4])], NOTHING)
            await table.add("t", "r", [call("b", [1, 2, 3, 4, 6], [7])], Parentage("a", []))
            await table.add("t", "r", [call("a", [1, 2, 3], [5])], NOTHING)
            tree = await table.tree("t", "r")
            assert tree is not None
            page = await table.page(tree, None, 10)
            assert page is not None
            assert [(one.id, one.parent, (one.tokens.prompt or array("q")).tolist()) for one in page.calls] == [
                ("a", None, [1, 2, 3]),
                ("b", "a", [1, 2, 3, 4, 6]),
            ]

    asyncio.run(test())


def test_a_page_has_no_call_again_that_a_second_gateway_keeps(opening: Opening, monkeypatch: pytest.MonkeyPatch) -> None:
    """A trainer reads while that happens; a call of the same thread has ended since, and does not become the parent."""
    monkeypatch.setattr(token_trees, "is_active", lambda _sql, response: response == "a")
    thread = Parentage(None, [], "t1")

    async def test() -> None:
        async with opening() as (_, database, clock):
            table = TokenTreeTable(database, 100.0, clock)
            await table.begin("t", "r")
            await table.add("t", "r", [call("z", [1], [2], thread="t1")], thread)
            await table.add("t", "r", [call("a.1", [1], [2]), call("a", [1, 2, 3], [4])], thread)
            await table.add("t", "r", [call("b", [8], [9], thread="t1")], thread)
            tree = await table.tree("t", "r")
            assert tree is not None
            first = await table.page(tree, None, 3)
            await table.add("t", "r", [call("a.1", [1], [2]), call("a", [1, 2, 3], [5])], thread)
            second = await table.page(tree, "a", 3)
            again = await table.page(tree, None, 9)
            chain = await table.chain(tree, "a", None, 9)
            await table.add("t", "r", [call("a.1", [1], [2]), call("a.2", [1, 3], [4]), call("a", [1, 3, 4], [5])], thread)
            longer = await table.chain(tree, "a", None, 9)
        pages = [first, second, again, chain, longer]
        assert [[one.id for one in page.calls] for page in pages if page is not None] == [
            ["z", "a.1", "a"], ["b"], ["z", "a.1", "a", "b"], ["z", "a.1", "a"], ["z", "a.1", "a.2", "a"],
        ]  # fmt: skip
        assert again is not None
        told = [(one.parent, one.tokens.sampled) for one in again.calls[1:3]]
        assert told == [("z", array("q", [2])), ("a.1", array("q", [5]))]

    asyncio.run(test())


def test_any_tree_is_rebuilt_as_it_was(opening: Opening) -> None:
    """Whatever a prompt has of its parent's tokens, and whichever calls have none."""
    chance = random.Random(7)
    made: dict[str, tuple[list[int] | None, list[int]]] = {}

    async def test() -> None:
        async with opening() as (_, database, clock):
            table = TokenTreeTable(database, 100.0, clock)
            await table.begin("t", "r")
            for number in range(60):
                parent = chance.choice(list(made)[-4:]) if made else None
                before, sampled = made[parent] if parent else ([], [])
                whole = (before or []) + sampled
                prompt = (
                    None if chance.random() < 0.1 else whole[: chance.randint(0, len(whole))] + chance.choices(range(3), k=3)
                )
                made[f"c{number}"] = (prompt, [number, number])
                record = call(f"c{number}", prompt, made[f"c{number}"][1])
                await table.add("t", "r", [record], Parentage(parent, []))
            tree = await table.tree("t", "r")
            assert tree is not None
            after = None
            for name in list(made):
                page = await table.page(tree, after, 1)
                assert page is not None
                [kept] = page.calls
                assert (kept.id, None if kept.tokens.prompt is None else kept.tokens.prompt.tolist()) == (name, made[name][0])
                after = name

    asyncio.run(test())


class Counting:
    """Counts the statements of transactions."""

    def __init__(self, database: Database) -> None:
        self._database = database
        self.statements = 0

    async def run(self, work: Callable[[Sql], Any]) -> Any:
        return await self._database.run(lambda sql: work(cast("Sql", _CountingSql(self, sql))))


class _CountingSql:
    def __init__(self, counting: Counting, sql: Sql) -> None:
        self._counting = counting
        self.new_keys = sql.new_keys
        self._execute = sql.execute

    def execute(self, statement: str, values: Sequence[Any] = (), /) -> Rows:
        self._counting.statements += 1
        return self._execute(statement, values)


def test_a_call_of_a_long_task_costs_as_many_statements_as_one_of_a_short_one(opening: Opening) -> None:
    async def test() -> None:
        async with opening() as (_, database, clock):
            counting = Counting(database)
            table = TokenTreeTable(cast("Database", counting), 100.0, clock)
            await table.begin("t", "r")
            costs: list[int] = []
            for number in range(40):
                before = counting.statements
                record = call(f"c{number}", list(range(2 * number + 1)), [2 * number + 1])
                await table.add("t", "r", [record], Parentage(f"c{number - 1}", []))
                costs.append(counting.statements - before)
            assert costs[39] == costs[2]

    asyncio.run(test())


def test_trees_expire_and_are_bounded(opening: Opening, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(token_trees, "MOST_TREES", 3)
    monkeypatch.setattr(token_trees, "MOST_CALLS", 1)

    async def test() -> None:
        async with opening() as (store, database, clock):
            table = TokenTreeTable(database, 100.0, clock)
            for name in ("1", "2", "3", "4"):
                await table.begin("one", name)
            await table.begin("two", "1")
            names = [name for name in ("1", "2", "3", "4") if await table.tree("one", name) is not None]
            assert names == ["2", "3", "4"]
            assert await table.tree("two", "1") is not None
            await table.add("one", "4", [call("a", [1], [2])], NOTHING)
            with pytest.raises(TreeFull):
                await table.begin("one", "4")
            clock.now += 99
            await table.begin("one", "3")
            clock.now += 2
            await store.upkeep.clean_up()
            assert await table.tree("one", "4") is None
            assert await table.name_of("one", "a") is None
            assert await table.tree("one", "3") is not None

    asyncio.run(test())


def test_a_tree_that_has_expired_begins_anew_though_nobody_has_deleted_it(
    opening: Opening, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(token_trees, "MOST_CALLS", 1)

    async def test() -> None:
        async with opening() as (_, database, clock):
            table = TokenTreeTable(database, 100.0, clock)
            await table.begin("one", "a")
            await table.add("one", "a", [call("c", [1], [2])], NOTHING)
            clock.now += 101
            await table.begin("one", "a")
            assert await table.name_of("one", "c") is None
            await table.add("one", "a", [call("d", [1], [2])], NOTHING)
            assert await table.name_of("one", "d") == "a"

    asyncio.run(test())


def test_without_room_the_calls_of_the_oldest_trees_of_who_has_most_are_dropped(opening: Opening) -> None:
    async def test() -> None:
        async with opening() as (_, database, clock):
            table = TokenTreeTable(database, 1000.0, clock, most_bytes=100_000)
            for number in range(40):
                clock.now += 1
                tenant = "small" if number == 0 else "large"
                await table.begin(tenant, f"tree-{number}")
                await table.add(tenant, f"tree-{number}", [call(f"c{number}", list(range(500)), [1] * 100)], NOTHING)
            small = await table.tree("small", "tree-0")
            trees = [await table.tree("large", f"tree-{number}") for number in range(1, 40)]
        assert small is not None
        assert (small.dropped, small.bytes > 0) == (0, True)
        dropped = [tree.dropped for tree in trees if tree is not None]
        assert dropped == sorted(dropped, reverse=True)
        assert 0 < sum(dropped) < 39
        assert 50_000 < sum(tree.bytes for tree in trees if tree is not None) < 100_000

    asyncio.run(test())


def test_a_tree_that_has_its_share_gets_calls_without_tokens(opening: Opening) -> None:
    async def test() -> None:
        async with opening() as (_, database, clock):
            table = TokenTreeTable(database, 1000.0, clock, most_bytes=100_000)
            await table.begin("one", "tree")
            for number in range(20):
                await table.add("one", "tree", [call(f"c{number}", list(range(500)), [1] * 100)], NOTHING)
            tree = await table.tree("one", "tree")
            assert tree is not None
            page = await table.page(tree, None, 100)
            assert page is not None
        kept = [each.tokens.prompt is not None for each in page.calls]
        assert len(kept) == 20
        assert kept == sorted(kept, reverse=True)
        assert 2 < sum(kept) < 20

    asyncio.run(test())


def test_trees_without_calls_are_bounded_too(opening: Opening) -> None:
    async def test() -> None:
        async with opening() as (_, database, clock):
            table = TokenTreeTable(database, 1000.0, clock, most_bytes=20_000)
            for number in range(100):
                clock.now += 1
                await table.begin(f"tenant-{number}", "tree")
                await table.add(f"tenant-{number}", "tree", [call(f"c{number}", [1], [2])], NOTHING)
            trees = [await table.tree(f"tenant-{number}", "tree") for number in range(100)]
        assert trees[-1] is not None
        assert sum(tree is not None for tree in trees) * 300 <= 20_000

    asyncio.run(test())


@given(st.lists(st.integers(0, 2), max_size=20), st.lists(st.integers(0, 2), max_size=20))
def test_the_common_beginning_of_two_lists_is_found(one: list[int], other: list[int]) -> None:
    same = 0
    while same < min(len(one), len(other)) and one[same] == other[same]:
        same += 1
    assert common_prefix(array("q", one), array("q", other)) == same
