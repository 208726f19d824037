"""What several workers of one gateway do as one: limits, changes of backends, examination, and what outlives one of them."""

from __future__ import annotations

import asyncio
import json
import os
import signal
from pathlib import Path
from typing import Any

import aiohttp
import yaml
from aiohttp import web

from responses_gateway.simulator import serving
from tests.probing.simulated_backend import SimulatedBackend
from tests.server.gateway_process import Program, fresh_connections, program, status_of, statuses_of_some
from tests.server.process.test_workers import TWO, metric
from tests.server.running_gateway import RawClient, run, until
from tests.waiting import PATIENCE

KEY = "an-administrators-key"
ALONE = ("--workers", "2", "--store", "none", "--no-adapt")


def configured(folder: Path, **settings: Any) -> tuple[str, str]:
    file = folder / "gateway.yaml"
    file.write_text(yaml.safe_dump(settings), encoding="utf-8")
    return "--config", str(file)


async def of_some(running: Program, number: int, **fields: Any) -> list[str]:
    """What so many requests come to, at the same time."""
    async with fresh_connections() as session:
        return await asyncio.gather(*(status_of(running, session, **fields) for _ in range(number)))


async def seen_by_all(running: Program, wanted: dict[str, bool]) -> None:
    """Wait until every worker has these backends: by name, draining or not. Any worker may answer, so ask often."""
    headers = {"Authorization": f"Bearer {KEY}"}
    in_a_row = 0
    async with asyncio.timeout(PATIENCE), fresh_connections() as session:
        while in_a_row < 12:
            async with session.get(f"{running.url}/admin/backends", headers=headers) as answer:
                found = {each["name"]: each["draining"] for each in (await answer.json())["data"]}
            in_a_row = in_a_row + 1 if found == wanted else 0


async def admin(running: Program, method: str, path: str = "", **fields: Any) -> int:
    headers = {"Authorization": f"Bearer {KEY}"}
    async with fresh_connections() as session:
        sent = session.request(method, f"{running.url}/admin/backends{path}", headers=headers, json=fields or None)
        async with sent as answer:
            return answer.status


# ---- limits -----------------------------------------------------------------------------------------------------------


def test_a_limit_of_requests_holds_for_all_workers_together() -> None:
    async def test() -> None:
        async with program(*TWO, "--no-adapt", "--requests-per-minute", "10") as running:
            outcomes = await of_some(running, 40)
            assert (outcomes.count("completed"), outcomes.count("HTTP 429")) == (10, 30)
            running.signal(signal.SIGUSR2)
            await running.says(" rolled ")
            assert (await of_some(running, 20)).count("completed") <= 5  # what has come back meanwhile, and no full bucket

    run(test())


def test_what_a_killed_worker_had_running_is_given_back() -> None:
    async def test() -> None:
        async with program(*TWO, "--no-adapt", "--concurrent-requests", "6") as running:
            clients = [await RawClient.connect(running) for _ in range(6)]
            for client in clients:
                await client.post(input="tokens: 5000 tps: 20")
            for client in clients:
                await client.read_until(b"output_text.delta")
            assert set(await of_some(running, 10)) == {"HTTP 429"}
            for pid in running.workers:
                os.kill(pid, signal.SIGKILL)
            await running.says("worker died", times=2)
            await until(lambda: len(running.workers) == 2)
            assert await of_some(running, 6, input="scenario: plain tps: 50") == ["completed"] * 6
            for client in clients:
                client.close()

    run(test())


def test_what_a_backend_gets_at_once_is_shared_out() -> None:
    most = now = 0
    both = asyncio.Event()  # set when more ask than one worker may

    async def chat(request: web.Request) -> web.Response:
        nonlocal most, now
        now += 1
        most = max(most, now)
        if most > 2:
            both.set()
        await asyncio.wait_for(both.wait(), PATIENCE)
        await asyncio.sleep(0.02)
        now -= 1
        chunk = {"id": "c", "model": "m", "choices": [{"index": 0, "delta": {"content": "Hi."}, "finish_reason": "stop"}]}
        return web.Response(text=f"data: {json.dumps(chunk)}\n\ndata: [DONE]\n\n", content_type="text/event-stream")

    async def test() -> None:
        app = web.Application()
        app.router.add_post("/v1/chat/completions", chat)
        async with serving(app) as url, program("--backend", url, *ALONE, "--max-concurrency", "4") as running:
            outcomes = await of_some(running, 40)
            assert set(outcomes) == {"completed"}
            assert 2 < most <= 4

    run(test())


# ---- backends ---------------------------------------------------------------------------------------------------------


def test_changes_of_backends_reach_all_workers_and_those_that_come_later(tmp_path: Path) -> None:
    async def test() -> None:
        async with serving(SimulatedBackend().app) as one, serving(SimulatedBackend().app) as two:
            backends = {"one": {"url": one}, "two": {"url": two}}
            config = configured(tmp_path, backends=backends, admin_key=KEY)
            async with program(*ALONE, *config) as running:
                assert await admin(running, "POST", "/one/drain") == 200
                assert await admin(running, "POST", name="three", url=two) == 201
                assert await admin(running, "DELETE", "/two") == 200, running.said
                changed = {"one": True, "three": False}
                await seen_by_all(running, changed)
                os.kill(running.workers[0], signal.SIGKILL)
                await running.says("worker died")
                await until(lambda: len(running.workers) == 2)
                await seen_by_all(running, changed)
                old = set(running.workers)
                running.signal(signal.SIGUSR2)
                await running.says(" rolled ")
                await until(lambda: not old & set(running.workers), "the old ones ended", 120)
                await seen_by_all(running, changed)
                running.signal(signal.SIGHUP)
                await seen_by_all(running, {"one": True, "two": False})
                assert await admin(running, "POST", "/one/resume") == 200
                await seen_by_all(running, {"one": False, "two": False})

    run(test())


# ---- examination ------------------------------------------------------------------------------------------------------


def test_one_worker_examines_the_backend_for_all() -> None:
    async def test() -> None:
        backend = SimulatedBackend("vllm-raw")
        async with serving(backend.app) as url, program("--backend", url, "--workers", "3", "--store", "none") as running:
            await running.says("examined the backend")
            asked = len(backend.chats)
            assert asked <= 6
            for pid in running.workers[:2]:
                os.kill(pid, signal.SIGKILL)
            await running.says("worker died", times=2)
            await until(lambda: len(running.workers) == 3)
            assert await statuses_of_some(running, 10, input="scenario: demo") == {"completed"}
            answered = backend.chats[asked:]
            assert len(answered) == 10  # and nothing beside
            assert all(chat.get("return_token_ids") for chat in answered)
            assert running.said.count("examined the backend") == 1

    run(test())


def test_another_worker_takes_over_when_the_one_that_examines_dies() -> None:
    asked = asyncio.Event()

    async def test() -> None:
        may_answer = False
        backend = SimulatedBackend()

        @web.middleware
        async def slow(request: web.Request, handler: Any) -> web.StreamResponse:
            asked.set()
            while not may_answer:  # noqa: ASYNC110
                await asyncio.sleep(0.01)
            answer: web.StreamResponse = await handler(request)
            return answer

        backend.app.middlewares.insert(0, slow)
        async with serving(backend.app) as url, program("--backend", url, "--workers", "2", "--store", "none") as running:
            await asyncio.wait_for(asked.wait(), PATIENCE)
            asked.clear()
            async with aiohttp.ClientSession() as session, session.get(f"{running.url}/health") as answer:
                assert (await answer.json()).get("examining")
            for pid in running.workers:
                os.kill(pid, signal.SIGKILL)
            await running.says("worker died", times=2)
            await asyncio.wait_for(asked.wait(), PATIENCE)
            may_answer = True
            await running.says("examined the backend")

    run(test())


# ---- what outlives a worker -------------------------------------------------------------------------------------------


def test_what_a_killed_worker_ran_in_the_background_ends_as_failed(tmp_path: Path) -> None:
    flags = ("--simulator", "--workers", "2", "--no-adapt", "--store", str(tmp_path / "responses.sqlite3"))

    async def test() -> None:
        first = "import responses_gateway.server.generation.background.runner as runner; runner.SILENCE = 3.0"
        async with program(*flags, first=first) as running, fresh_connections() as session:
            url = f"{running.url}/v1/responses"
            body = {"model": "m", "input": "tokens: 5000 tps: 20", "background": True}
            ids = []
            for _ in range(4):
                async with session.post(url, json=body) as answer:
                    ids.append((await answer.json())["id"])
            for pid in running.workers:
                os.kill(pid, signal.SIGKILL)
            await running.says("worker died", times=2)
            statuses: set[str] = set()
            async with asyncio.timeout(PATIENCE):
                while statuses != {"failed"}:
                    await asyncio.sleep(0.1)
                    statuses = set()
                    for each in ids:
                        async with session.get(f"{url}/{each}") as answer:
                            statuses.add((await answer.json())["status"])

    run(test())


# ---- metrics ----------------------------------------------------------------------------------------------------------


def test_what_the_processes_use_is_shown_for_all_of_them() -> None:
    async def test() -> None:
        async with program(*TWO, "--no-adapt") as running:
            await statuses_of_some(running, 5)
            async with aiohttp.ClientSession() as session, session.get(f"{running.url}/metrics") as answer:
                lines = (await answer.text()).splitlines()
            values = {name: float(value) for name, _, value in (line.partition(" ") for line in lines) if "process_" in name}
            assert values["process_resident_memory_bytes"] > 60e6
            assert values["process_cpu_seconds_total"] > 0.1
            assert 5 < values["process_open_fds"] < values["process_max_fds"]
            assert values["process_start_time_seconds"] > 1.6e9
            assert await metric(running.url, "workers") == 2

    run(test())
