"""Several workers in one window, whichever of them answers."""

from __future__ import annotations

import asyncio
import json
import os
import signal
from typing import Any

import pytest

from responses_gateway.simulator import SimulatorOptions, serving
from responses_gateway.simulator import create_app as create_simulator
from tests.server.gateway_process import Program, fresh_connections, program, status_of
from tests.server.running_gateway import run, until
from tests.server.window.looking import KEY, bearer, last_ended, look, picture_in_which
from tests.waiting import PATIENCE

WORKERS = ("--workers", "2", "--store", "none", "--no-adapt", "--admin-key", KEY)


def processes(picture: dict[str, Any]) -> set[str]:
    return {view["process"] for view in picture["views"]}


async def asked_of_both(running: Program, **fields: Any) -> list[dict[str, Any]]:
    """Ask until both workers have answered something; return all requests that have ended."""
    async with asyncio.timeout(PATIENCE), fresh_connections() as session:
        while True:
            assert set(await asyncio.gather(*(status_of(running, session, **fields) for _ in range(8)))) == {"completed"}
            found = await last_ended(running, headers=bearer())
            if len({summary["id"].partition("-")[0] for summary in found}) == 2:
                return found


@pytest.mark.slow
def test_every_worker_shows_the_requests_of_all() -> None:
    async def test() -> None:
        async with serving(create_simulator()) as backend, program("--backend", backend, *WORKERS) as running:
            found = await asked_of_both(running)
            one_of_each = {summary["id"].partition("-")[0]: summary for summary in found}
            for _ in range(6):  # by whichever worker
                for summary in one_of_each.values():
                    answer = await look(running, f"requests/{summary['id']}", headers=bearer())
                    assert answer.json["response_id"] == summary["response_id"]
            (shown,) = (await look(running, "backends", headers=bearer())).json
            assert shown["in_flight"] == 0
            (used,) = (await look(running, "usage?days=7", headers=bearer())).json["rows"]
            assert used["requests"] >= len(found)
            intervals = (await look(running, "plots", headers=bearer())).json["intervals"]
            assert sum(interval["outcomes"].get("completed", 0) for interval in intervals) >= len(found)

    run(test())


@pytest.mark.slow
def test_recording_begins_in_all_workers_and_any_of_them_has_the_records() -> None:
    async def test() -> None:
        async with serving(create_simulator()) as backend, program("--backend", backend, *WORKERS) as running:
            answer = await look(running, "recording", "POST", json={"minutes": 5}, headers=bearer())
            assert answer.json["until"] > 0
            for summary in await asked_of_both(running, instructions="Be brief."):
                contents = (await look(running, f"requests/{summary['id']}/contents", headers=bearer())).json
                assert json.loads(contents["request"]["text"])["instructions"] == "Be brief."
                done = await look(running, f"requests/{summary['id']}/replay", "POST", headers=bearer())
                assert done.json["identical"] is True

    run(test())


@pytest.mark.slow
def test_a_worker_that_comes_later_records_as_the_others_do() -> None:
    async def test() -> None:
        async with serving(create_simulator()) as backend, program("--backend", backend, *WORKERS) as running:
            await look(running, "recording", "POST", json={"minutes": 5}, headers=bearer())
            before = {summary["id"].partition("-")[0] for summary in await asked_of_both(running)}
            os.kill(running.workers[0], signal.SIGKILL)
            await until(lambda: "worker died" in running.said, "one is dead")
            statuses: dict[str, int] = {}  # of the requests of the new one
            async with asyncio.timeout(PATIENCE), fresh_connections() as session:
                while 200 not in statuses.values():
                    await asyncio.gather(*(status_of(running, session) for _ in range(8)))
                    for summary in await last_ended(running, headers=bearer()):
                        if summary["id"].partition("-")[0] not in before:
                            path = f"requests/{summary['id']}/contents"
                            statuses[summary["id"]] = (await look(running, path, headers=bearer())).status
                    assert len(statuses) < 100, "it records nothing"

    run(test())


@pytest.mark.slow
def test_a_worker_that_died_takes_its_requests_with_it_and_no_visitor_waits() -> None:
    async def test() -> None:
        options = SimulatorOptions(models=("m",))
        async with serving(create_simulator(options)) as backend, program("--backend", backend, *WORKERS) as running:
            before = processes(await picture_in_which(running, lambda picture: len(processes(picture)) == 2, headers=bearer()))
            found = await asked_of_both(running)
            os.kill(running.workers[0], signal.SIGKILL)
            await until(lambda: "worker died" in running.said, "one is dead")

            def again_two(picture: dict[str, Any]) -> bool:
                return len(processes(picture)) == 2 and processes(picture) != before

            after = processes(await picture_in_which(running, again_two, headers=bearer()))
            statuses = {}
            for summary in found:
                answer = await look(running, f"requests/{summary['id']}", headers=bearer())
                statuses[summary["id"].partition("-")[0]] = answer.status
            (dead,) = before - after
            (alive,) = before & after
            assert statuses == {dead: 404, alive: 200}

    run(test())


@pytest.mark.slow
def test_the_port_for_operators_shows_all_workers() -> None:
    async def test() -> None:
        flags = ("--operations-port", "0", *WORKERS)
        async with serving(create_simulator()) as backend, program("--backend", backend, *flags) as running:
            operators = _At(running.operations)
            found = await picture_in_which(operators, lambda picture: len(processes(picture)) == 2, headers=bearer())
            assert len(processes(found)) == 2
            running.signal(signal.SIGTERM)
            assert await running.exit() == 0

    run(test())


class _At:
    def __init__(self, url: str) -> None:
        self.url = url
