"""Conversations, in every kind of store."""

from __future__ import annotations

from responses_gateway.state import Cursor, Database, HistorySpan, Store
from tests.state.conftest import Clock, Opening
from tests.state.test_store_contract import USER, play, record, rows, said


def test_conversations_grow_and_lose_items(opening: Opening) -> None:
    async def test(store: Store, database: Database, _clock: Clock) -> None:
        begun = await store.conversations.create("a", {"topic": "x"}, [USER])
        added = await store.conversations.add_items("a", begun.id, [{"id": "two", **USER}, {"id": "three", **USER}])
        assert added is not None
        assert len(await store.histories.items(added)) == 3
        await store.responses.save(record("resp_1", context=0, input=[USER], output=[said(1)], conversation=begun.id))
        found = await store.conversations.get("a", begun.id)
        assert found is not None
        assert len(await store.histories.items(found.end)) == 5  # the response came late: what it adds stands at the end
        assert await store.conversations.remove_item("a", begun.id, "two") is not None
        assert await store.conversations.remove_item("a", begun.id, "two") is None
        after = await store.conversations.update("a", begun.id, {"topic": "y"})
        assert after is not None
        assert (len(await store.histories.items(after.end)), after.metadata) == (4, {"topic": "y"})
        assert await store.conversations.delete("a", begun.id)
        assert await store.responses.delete("a", "resp_1")
        assert set((await rows(database)).values()) == {0}

    play(opening, test)


def test_what_a_failed_request_has_left_is_there_once_if_it_comes_again(opening: Opening) -> None:
    async def test(store: Store, database: Database, _clock: Clock) -> None:
        begun = await store.conversations.create("a", {}, [said(0)])
        asked = [USER, {**USER, "role": "developer"}]

        async def answer(name: str, status: str) -> int:
            """Store the answer to the same request; return how many items the conversation has by then."""
            before = await store.conversations.continued("a", begun.id, asked)
            assert before is not None
            assert len(await store.histories.items(before.end)) == 1
            made = record(name, context=before.end, input=asked, output=[said(1)], conversation=begun.id, status=status)
            assert await store.responses.save(made)
            found = await store.conversations.get("a", begun.id)
            assert found is not None
            return len(await store.histories.items(found.end))

        assert [await answer("resp_1", "failed"), await answer("resp_2", "failed")] == [3, 3]
        other = await store.conversations.continued("a", begun.id, [USER])
        assert other is not None
        assert len(await store.histories.items(other.end)) == 3
        assert await answer("resp_3", "completed") == 4
        following = await store.conversations.continued("a", begun.id, asked)
        assert following is not None
        assert len(await store.histories.items(following.end)) == 4
        assert await store.conversations.continued("b", begun.id, asked) is None
        for name in ("resp_1", "resp_2", "resp_3"):
            assert await store.responses.delete("a", name)
        assert await store.conversations.delete("a", begun.id)
        assert set((await rows(database)).values()) == {0}

    play(opening, test)


def test_items_keep_their_ids_when_another_is_removed(opening: Opening) -> None:
    async def test(store: Store, database: Database, _clock: Clock) -> None:
        async def ids(end: int) -> list[str]:
            page = await store.histories.page(HistorySpan(0, end), "asc", 10, Cursor())
            assert page is not None
            return [item["id"] for item in page.items]

        other = await store.conversations.create("a", {}, [USER])  # the same words at the same place
        begun = await store.conversations.create("a", {}, [USER, USER, {"id": "last", **USER}])
        found = await store.conversations.get("a", begun.id)
        assert found is not None
        first, second, _ = before = await ids(found.end)
        assert await store.conversations.remove_item("a", begun.id, first) is not None
        after = await store.conversations.get("a", begun.id)
        assert after is not None
        assert await ids(after.end) == before[1:]
        assert await store.histories.item(after.end, first) is None
        assert (await store.histories.find("a", [second]))[second]["content"] == [{"type": "input_text", "text": "hello"}]
        assert await store.conversations.delete("a", begun.id)
        assert await store.conversations.delete("a", other.id)
        assert set((await rows(database)).values()) == {0}

    play(opening, test)


def test_a_conversation_is_kept_as_long_as_it_changes(opening: Opening) -> None:
    async def test(store: Store, _database: Database, clock: Clock) -> None:
        names = [(await store.conversations.create("a", {}, [USER])).id for _ in range(5)]
        changed, added, taken, answered, left = names
        found = await store.conversations.get("a", taken)
        assert found is not None
        page = await store.histories.page(HistorySpan(0, found.end), "asc", 1, Cursor())
        assert page is not None
        clock.now += 600
        await store.conversations.update("a", changed, {"topic": "x"})
        await store.conversations.add_items("a", added, [USER])
        await store.conversations.remove_item("a", taken, page.items[0]["id"])
        await store.responses.save(record("resp_1", created_at=clock.now, input=[USER], conversation=answered))
        clock.now += 600
        assert await store.upkeep.clean_up() == 1
        assert [name for name in names if await store.conversations.get("a", name) is None] == [left]

    play(opening, test)
