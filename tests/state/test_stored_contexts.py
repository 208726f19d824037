"""What a session lost of its prefix cache where its earlier turns were in another process: through the front door."""

from __future__ import annotations

import asyncio
import re
import sqlite3
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from aiohttp import web

from responses_gateway.server.features.cache_diagnostics import stored_contexts
from responses_gateway.simulator import CACHE, CacheModel, SimulatorOptions, create_app, serving
from responses_gateway.state.prompt_hashes import PromptHashTable
from tests.log_lines import log_lines
from tests.request.builders import function, user
from tests.server.features.test_cache_turns import INSTRUCTIONS, Client, caused, clients, lost
from tests.server.gateway_process import fresh_connections, program
from tests.server.running_gateway import gateway, post, run
from tests.waiting import until


async def settled() -> None:
    """Wait until what is read of earlier turns, or written, is done."""
    await asyncio.gather(*[task for task in asyncio.all_tasks() if task.get_name() == "earlier turns"])


def patient_server() -> web.Application:
    """Return a server that answers when what a gateway has to know of earlier turns is read, as one with a real model does."""

    @web.middleware
    async def answer(request: web.Request, handler: Any) -> Any:
        await settled()
        return await handler(request)

    app = create_app(SimulatorOptions(cache=CacheModel()))
    app.middlewares.append(answer)
    return app


@asynccontextmanager
async def at_processes(number: int, store: Path | str, *apps: web.Application) -> AsyncIterator[list[Client]]:
    """Yield the same client at several gateways with one store, before these servers."""
    async with AsyncExitStack() as stack:
        lines = stack.enter_context(log_lines())
        urls = [await stack.enter_async_context(serving(app)) for app in apps]
        history: list[Any] = []
        found = []
        for _ in range(number):
            served = await stack.enter_async_context(gateway(*urls, access_log=True, store=str(store)))
            stack.push_async_callback(served.parts.pool.close)  # its idle connections count as tasks
            found.append(Client(served, lines, items=history))
        yield found


QUESTION = "scenario: plain " + "and so on " * 40


@pytest.mark.parametrize("change", ["", "evicted", "tools_changed", "instructions_changed", "input_changed"])
@pytest.mark.parametrize("instructions", [INSTRUCTIONS, "Be brief. " * 9])
def test_after_a_restart_a_session_goes_on_with_the_right_cause(tmp_path: Path, change: str, instructions: str) -> None:
    async def test() -> None:
        app = patient_server()
        items: list[Any] = []
        with log_lines() as lines:
            async with serving(app) as url:
                for number in range(4):
                    async with gateway(url, access_log=True, store=str(tmp_path / "store.db")) as served:
                        client = Client(served, lines, items=items, instructions=instructions)
                        if number == 3:
                            make(change, client, app)
                        line = await client.turn(user(f"{QUESTION} {number}"))
                    if number < 3:
                        assert caused(line) == (None if number else "first", 0), line
        assert caused(line) == ((change, lost(line)) if change else (None, 0)), line

    run(test())


def make(change: str, client: Client, app: web.Application) -> None:
    if change == "evicted":
        app[CACHE].clear()
    elif change == "tools_changed":
        client.tools = [function("another")]
    elif change == "instructions_changed":
        client.instructions += " And truly."
    elif change == "input_changed":
        client.items[2] = user("scenario: plain, edited " + "and so on " * 30)


@pytest.mark.parametrize("store", ["file", "postgres"])
def test_turns_that_several_processes_have_lose_nothing(store: str, tmp_path: Path, request: pytest.FixtureRequest) -> None:
    """One after the other, and of many sessions at once."""
    place = request.getfixturevalue("postgres_url") if store == "postgres" else tmp_path / "store.db"

    async def test() -> None:
        async with at_processes(3, place, patient_server()) as found:
            causes = []
            for number in range(6):
                causes.append(caused(await found[number % 3].turn(user(f"{QUESTION} {number}"))))
                await settled()
            assert causes == [("first", 0), *[(None, 0)] * 5]
            asked = {"model": "simulator", "store": False, "input": QUESTION}
            for client in found:
                await asyncio.gather(*[post(client.served, headers={"x-session-id": f"t{n}"}, **asked) for n in range(9)])
                await settled()
                client.served.parts.metrics.flush()
            later = [line["cache_cause"] for line in found[0].lines("response")[6:]]
            assert later == ["first"] * 9 + ["input_changed"] * 18  # which has nothing of the answer

    run(test())


@pytest.mark.slow
def test_another_backend_is_named_by_another_process(tmp_path: Path) -> None:
    async def test() -> None:
        async with at_processes(2, tmp_path / "store.db", patient_server(), patient_server()) as (one, other):
            line = await one.turn(user(QUESTION))
            await settled()
            other.served.parts.pool.members.by_name[line["backend"]].draining = True
            line = await other.turn(user(QUESTION))
            assert caused(line) == ("other_backend", lost(line))

    run(test())


def test_a_session_that_comes_back_is_compared_with_the_turn_that_another_process_had_meanwhile(tmp_path: Path) -> None:
    async def test() -> None:
        async with at_processes(2, tmp_path / "store.db", patient_server(), patient_server()) as (one, other):
            first = await one.turn(user(QUESTION))
            await settled()
            other.served.parts.pool.members.by_name[first["backend"]].draining = True
            await other.turn(user(QUESTION))
            await settled()
            line = await one.turn(user(QUESTION))
            assert line["backend"] == first["backend"]
            assert caused(line) == ("other_backend", lost(line))

    run(test())


def test_what_a_session_that_comes_back_loses_is_all_that_was_read_meanwhile(tmp_path: Path) -> None:
    async def test() -> None:
        app = patient_server()
        async with at_processes(2, tmp_path / "store.db", app) as (one, other):
            await one.turn(user(QUESTION))
            await settled()
            before = await other.turn(user(QUESTION))
            await settled()
            app[CACHE].clear()
            line = await one.turn(user(QUESTION))
            assert caused(line) == ("evicted", lost(line))
            assert line["cache_context"] == before["input_tokens"] + before["output_tokens"]

    run(test())


def test_a_thread_that_is_too_large_for_the_store_is_not_taken_for_what_it_was(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def test() -> None:
        async with at_processes(2, tmp_path / "store.db", patient_server()) as (one, other):
            await one.turn(user(QUESTION))
            await settled()
            monkeypatch.setattr(stored_contexts, "LARGEST", 0)
            before = await other.turn(user(QUESTION))
            await settled()
            line = await other.turn(user(QUESTION))
            assert line["cache_context"] == before["input_tokens"] + before["output_tokens"]

    run(test())


@pytest.mark.slow
def test_without_a_store_no_worker_says_what_it_does_not_know_of_a_session() -> None:
    async def test() -> None:
        flags = ("--simulator", "--workers", "2", "--no-adapt", "--store", "none")
        async with program(*flags) as running, fresh_connections() as session:
            items: list[Any] = []
            for _ in range(12):
                items.append(user("scenario: plain tps: 2000"))
                body = {"model": "simulator", "input": items}
                async with session.post(f"{running.url}/v1/responses", json=body, headers={"x-session-id": "s1"}) as answer:
                    items += (await answer.json())["output"]
            await running.says(" outcome=completed", times=12)
            # By their times, because each worker writes its lines when it likes.
            ended = sorted(line for line in running.said.splitlines() if " outcome=completed" in line)
            causes = re.findall(r"cache_cause=(\w+)", "\n".join(ended))
            assert causes[0] == "first"
            assert "first" not in causes[1:]

    run(test())


def test_a_store_of_one_process_is_asked_only_for_threads_that_are_not_known(monkeypatch: pytest.MonkeyPatch) -> None:
    """And not at all for requests of no session."""
    asked: list[str | None] = []
    exchange = PromptHashTable.exchange

    async def noted(table: PromptHashTable, tenant: str, name: str, data: bytes, other: str | None) -> bytes | None:
        if not name:
            asked.append(other)
        return await exchange(table, tenant, name, data, other)

    monkeypatch.setattr(PromptHashTable, "exchange", noted)

    async def test() -> None:
        async with clients(patient_server(), store="memory") as new:
            for session in ("s1", "s2"):
                client = new(session=session)
                for number in range(3):
                    await client.turn(user(f"scenario: plain {number}"))
            await post(client.served)
            assert len(asked) == len(set(asked)) == 2

    run(test())


def test_no_turn_waits_for_a_store_that_is_away(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, quiet_store: None) -> None:
    monkeypatch.setattr(stored_contexts, "MOST_AT_ONCE", 3)

    async def test() -> None:
        path = tmp_path / "store.db"
        async with clients(create_app(SimulatorOptions(cache=CacheModel())), store=str(path)) as new:
            other = sqlite3.connect(path, isolation_level=None)
            other.execute("BEGIN EXCLUSIVE")
            for number in range(8):
                client = new(session=f"s{number}")
                assert caused(await client.turn(user(QUESTION))) == ("first", 0)
                assert caused(await client.turn(user(QUESTION))) == (None, 0)
            waiting = [task for task in asyncio.all_tasks() if task.get_name() == "earlier turns"]
            assert 0 < len(waiting) <= 6
            other.execute("ROLLBACK")
            other.close()
            await until(lambda: all(task.done() for task in waiting), "the store is back")

    run(test())
