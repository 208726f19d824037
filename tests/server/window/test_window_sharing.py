"""However many visitors look, the workers are asked as often as for one, and not at all for nobody."""

from __future__ import annotations

import asyncio
import json
import socket
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, aclosing, asynccontextmanager
from functools import partial
from pathlib import Path
from typing import Any, cast

import aiohttp
import pytest
from aiohttp import web

from responses_gateway.server.app import create_app
from responses_gateway.server.http.connections import Runner
from responses_gateway.server.lifespan import open_parts
from responses_gateway.server.window import live_requests, workers
from responses_gateway.server.window.live_requests import LiveRequests
from responses_gateway.server.window.worker_view import WorkerView
from responses_gateway.server.window.workers import SharedAnswer, Workers
from responses_gateway.settings import Settings
from responses_gateway.wire.errors import ApiError
from tests.server.running_gateway import Served, run, simulated
from tests.server.window.looking import look, pictures
from tests.waiting import PATIENCE


class FakeView:
    """One worker. Counts what it is asked; `ended` are the requests that have ended there."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.asked: Counter[str] = Counter()
        self.ended: list[dict[str, Any]] = []
        self.failure: Exception | None = None
        self.permitted: asyncio.Semaphore | None = None  # so many answers

    async def requests(self, seen: dict[str, int]) -> dict[str, Any]:
        if self.permitted is not None:
            await self.permitted.acquire()
        self.asked["requests"] += 1
        if self.failure is not None:
            raise self.failure
        ended = self.ended[seen.get(self.name, 0) :]
        return {"process": self.name, "last": len(self.ended), "running": [], "ended": ended}

    async def search(self, text: str) -> dict[str, Any]:
        if self.permitted is not None:
            await self.permitted.acquire()
        return {"found": [text], "searched": 1, "recorded": 1}

    def recording(self) -> dict[str, Any]:
        return {"always": False, "until": 0.0, "on": False}

    def intervals(self) -> list[dict[str, Any]]:
        self.asked["intervals"] += 1
        return [{"began": 10}]

    def close(self) -> None:
        pass


def workers_of(view: FakeView, folder: Path | None = None) -> Workers:
    return Workers(cast(WorkerView, view), folder, {})


@asynccontextmanager
async def two_workers(folder: Path) -> AsyncIterator[tuple[Workers, FakeView, FakeView]]:
    """Yield the first of two workers, and the views of both."""
    here = FakeView("here")
    there = FakeView("there")
    asking = workers_of(here, folder)
    async with asking.answering(), workers_of(there, folder).answering():
        yield asking, here, there


@pytest.fixture(autouse=True)
def _fast(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(live_requests, "POLL_INTERVAL", 0.01)


def is_polling() -> bool:
    return any("_poll" in repr(task.get_coro()) for task in asyncio.all_tasks())


# ---- the live list ----------------------------------------------------------------------------------------------------


def test_many_visitors_cause_as_many_questions_as_one(tmp_path: Path) -> None:
    async def test() -> None:
        async with two_workers(tmp_path) as (asking, here, there):
            live = LiveRequests(asking)
            async with AsyncExitStack() as stack:
                visitors = [await stack.enter_async_context(aclosing(live.updates())) for _ in range(10)]
                here.permitted = asyncio.Semaphore(0)
                for number in range(1, 6):
                    here.permitted.release()
                    await asyncio.gather(*(anext(visitor) for visitor in visitors))
                    assert (live.visitors, there.asked["requests"]) == (10, number)

    run(test())


def test_nobody_is_asked_before_the_first_visitor_and_after_the_last(tmp_path: Path) -> None:
    async def test() -> None:
        async with two_workers(tmp_path) as (asking, here, there):
            live = LiveRequests(asking)
            assert not is_polling()
            async with aclosing(live.updates()) as first:
                await anext(first)
                async with aclosing(live.updates()) as second:
                    await anext(second)
                await anext(first)  # the other one has left, and this one is served
                assert is_polling()
            assert (live.visitors, is_polling()) == (0, False)
            asked = (here.asked["requests"], there.asked["requests"])
            await asyncio.sleep(0.05)
            assert (here.asked["requests"], there.asked["requests"]) == asked

    run(test())


def test_who_comes_later_and_who_reads_slowly_miss_nothing(tmp_path: Path) -> None:
    async def test() -> None:
        async with two_workers(tmp_path) as (asking, here, there):
            live = LiveRequests(asking)
            here.ended.append({"id": "here-1"})
            async with aclosing(live.updates()) as fast, aclosing(live.updates()) as slow:
                assert ids(await anext(slow)) == ids(await anext(fast)) == ["here-1"]
                found: list[str] = []
                for name in ("there-1", "there-2"):
                    there.ended.append({"id": name})
                    while name not in found:
                        found += ids(await anext(fast))
                assert found == ["there-1", "there-2"]
                assert ids(await anext(slow)) == ["there-1", "there-2"]
                async with aclosing(live.updates()) as late:
                    assert ids(await anext(late)) == ["here-1", "there-1", "there-2"]

    run(test())


def test_visitors_who_come_together_get_the_very_same_bytes() -> None:
    async def test() -> None:
        live = LiveRequests(workers_of(FakeView("here")))
        async with aclosing(live.updates()) as one, aclosing(live.updates()) as other:
            first, second = await asyncio.gather(anext(one), anext(other))
            assert first is second

    run(test())


def test_a_defect_ends_the_updates_of_all_and_the_next_visitor_begins_anew() -> None:
    async def test() -> None:
        view = FakeView("here")
        live = LiveRequests(workers_of(view))
        async with aclosing(live.updates()) as one, aclosing(live.updates()) as other:
            await asyncio.gather(anext(one), anext(other))
            view.failure = ZeroDivisionError()
            for visitor in (one, other):
                with pytest.raises(ZeroDivisionError):
                    await exhaust(visitor)
        view.failure = None
        assert live.visitors == 0
        async with aclosing(live.updates()) as again:
            assert ids(await anext(again)) == []

    run(test())


async def exhaust(updates: AsyncIterator[bytes]) -> None:
    async for _ in updates:
        pass


def ids(event: bytes) -> list[str]:
    update = json.loads(event.removeprefix(b"data: "))
    return [request["id"] for view in update["views"] for request in view["ended"]]


# ---- one session for each worker --------------------------------------------------------------------------------------


@pytest.fixture
def sessions(monkeypatch: pytest.MonkeyPatch) -> list[aiohttp.ClientSession]:
    """Return a list to which the sessions are added that are opened."""
    opened: list[aiohttp.ClientSession] = []
    original = aiohttp.ClientSession

    def noted(**options: Any) -> aiohttp.ClientSession:
        opened.append(original(**options))
        return opened[-1]

    monkeypatch.setattr(aiohttp, "ClientSession", noted)
    return opened


def test_the_connections_to_a_worker_are_kept_until_it_has_ended(tmp_path: Path, sessions: list[aiohttp.ClientSession]) -> None:
    async def test() -> None:
        asking = workers_of(FakeView("here"), tmp_path)
        async with asking.answering():
            async with workers_of(FakeView("there"), tmp_path).answering():
                assert len(await asking.ask_all("recording")) == 2
                assert len(await asking.ask_all("recording")) == 2
                assert [session.closed for session in sessions] == [False]
            assert len(await asking.ask_all("recording")) == 1
            assert [session.closed for session in sessions] == [True]
            async with workers_of(FakeView("its-successor"), tmp_path).answering():
                assert len(await asking.ask_all("recording")) == 2
                assert [session.closed for session in sessions] == [True, False]
        assert [session.closed for session in sessions] == [True, True]

    run(test())


def test_a_worker_that_was_killed_is_forgotten(
    tmp_path: Path, sessions: list[aiohttp.ClientSession], monkeypatch: pytest.MonkeyPatch
) -> None:
    async def test() -> None:
        monkeypatch.setattr(workers, "OPENING_TIMEOUT", 0.0)
        asking = workers_of(FakeView("here"), tmp_path)
        left = tmp_path / "window-dead.sock"
        with socket.socket(socket.AF_UNIX) as dead:
            dead.bind(str(left))
        async with asking.answering():
            assert len(await asking.ask_all("recording")) == 1
            assert not left.exists()
            assert len(await asking.ask_all("recording")) == 1
            assert [session.closed for session in sessions] == [True]

    run(test())


def test_a_worker_that_is_busy_has_not_forgotten_its_request(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async def test() -> None:
        async with two_workers(tmp_path) as (asking, _, there):
            monkeypatch.setattr(workers, "ANSWER_TIMEOUT", 0.1)
            there.permitted = asyncio.Semaphore(0)
            with pytest.raises(ApiError, match="does not answer in time") as raised:
                await asking.ask_owner("there-1", "requests")
            assert raised.value.status == 503

    run(test())


# ---- backends and plots -----------------------------------------------------------------------------------------------


def test_visitors_who_ask_together_share_an_answer(tmp_path: Path) -> None:
    async def test() -> None:
        async with two_workers(tmp_path) as (asking, here, there):
            shared = SharedAnswer(partial(asking.ask_all, "intervals"), 0.01)
            answers = await asyncio.gather(*(shared.get() for _ in range(10)))
            assert answers == [[[{"began": 10}], [{"began": 10}]]] * 10
            assert (here.asked["intervals"], there.asked["intervals"]) == (1, 1)
            async with asyncio.timeout(PATIENCE):
                while here.asked["intervals"] == 1:
                    await shared.get()
                    await asyncio.sleep(0)
            assert (here.asked["intervals"], there.asked["intervals"]) == (2, 2)
            await shared.close()

    run(test())


def test_a_visitor_who_leaves_does_not_end_the_question_of_the_others(tmp_path: Path) -> None:
    async def test() -> None:
        async with two_workers(tmp_path) as (asking, _, there):
            shared = SharedAnswer(partial(asking.ask_all, "intervals"), 0.01)
            first = asyncio.create_task(shared.get())
            second = asyncio.create_task(shared.get())
            await asyncio.sleep(0)
            first.cancel()
            assert len(await second) == 2
            assert there.asked["intervals"] == 1
            await shared.close()

    run(test())


# ---- through HTTP -----------------------------------------------------------------------------------------------------


def test_a_gateway_asks_itself_once_for_all_its_visitors(monkeypatch: pytest.MonkeyPatch) -> None:
    asked = 0
    requests = WorkerView.requests

    def counting(self: WorkerView, seen: dict[str, int]) -> dict[str, Any]:
        nonlocal asked
        asked += 1
        return requests(self, seen)

    monkeypatch.setattr(WorkerView, "requests", counting)

    monkeypatch.setattr(live_requests, "POLL_INTERVAL", 1000)

    async def test() -> None:
        async with simulated() as served, AsyncExitStack() as stack:
            for _ in range(5):
                visitor = await stack.enter_async_context(aclosing(pictures(served)))
                assert (await anext(visitor))["recording"] == {"always": False, "until": 0.0, "on": False}
            assert asked == 1

    run(test())


def test_no_more_visitors_than_allowed_get_in_even_if_they_come_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("responses_gateway.server.window.resource.MOST_VISITORS", 2)

    async def test() -> None:
        async with simulated() as served, aiohttp.ClientSession() as session:
            url = f"{served.url}/ui/api/live"
            answers = await asyncio.gather(*(session.get(url) for _ in range(6)))
            assert sorted(answer.status for answer in answers) == [200, 200, 503, 503, 503, 503]
            for answer in answers:
                answer.close()
            status = 503
            async with asyncio.timeout(PATIENCE):
                while status == 503:  # until the gateway has seen that the others have left
                    await asyncio.sleep(0.01)
                    async with session.get(url) as answer:
                        status = answer.status
            assert status == 200

    run(test())


@asynccontextmanager
async def beside(there: FakeView, folder: Path) -> AsyncIterator[Served]:
    """Serve a gateway that has another worker."""
    settings = Settings(backend=["http://127.0.0.1:9"], store="none")
    async with open_parts(settings) as parts, workers_of(there, folder).answering():
        runner = Runner(create_app(parts, folder=folder))
        await runner.setup()
        await web.TCPSite(runner, "127.0.0.1", 0).start()
        yield Served(f"http://127.0.0.1:{runner.addresses[0][1]}", parts)
        await runner.cleanup()


def test_a_search_says_how_many_workers_were_busy(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(workers, "ANSWER_TIMEOUT", 0.2)

    async def test() -> None:
        there = FakeView("there")
        async with beside(there, tmp_path) as served:
            searched = await look(served, "search", "POST", json={"text": "lamp"})
            assert searched.json == {"found": ["lamp"], "searched": 1, "recorded": 1, "busy": 0}
            there.permitted = asyncio.Semaphore(0)
            searched = await look(served, "search", "POST", json={"text": "lamp"})
            assert searched.json == {"found": [], "searched": 0, "recorded": 0, "busy": 1}

    run(test())


def test_an_update_says_how_many_workers_were_busy(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(workers, "ANSWER_TIMEOUT", 0.2)

    async def test() -> None:
        async with two_workers(tmp_path) as (asking, _here, there):
            there.permitted = asyncio.Semaphore(1)
            async with aclosing(LiveRequests(asking).updates()) as updates:
                seen = [json.loads((await anext(updates)).removeprefix(b"data: ")) for _ in range(2)]
            assert [(len(update["views"]), update["busy"]) for update in seen] == [(2, 0), (1, 1)]

    run(test())
