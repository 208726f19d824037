"""A gateway is killed in the middle of rollouts: what their agents were answered is there, and goes on."""

from __future__ import annotations

import asyncio
import json
import signal
from pathlib import Path
from typing import Any

import aiohttp

from tests.server.gateway_process import Program, program
from tests.server.running_gateway import final_of, run
from tests.waiting import until

Json = dict[str, Any]
TOKEN_TRUE = {"X-Token-True": "1"}


async def said(running: Program, session: aiohttp.ClientSession, rollout: str, **fields: Any) -> str:
    """Have a response made as part of a rollout; return its id once all of it has come."""
    body = {"model": "simulator", "input": "scenario: plain tps: 500", "stream": True, **fields}
    headers = {**TOKEN_TRUE, "X-Rollout-Id": rollout}
    async with session.post(f"{running.url}/v1/responses", json=body, headers=headers) as answer:
        assert answer.status == 200, await answer.text()
        return str(final_of(await answer.read())["id"])


async def read(running: Program, session: aiohttp.ClientSession, path: str) -> Json:
    async with session.get(f"{running.url}{path}") as answer:
        assert answer.status == 200, await answer.text()
        return json.loads(await answer.read())


def test_what_had_ended_is_there_and_goes_on_unbroken_behind_a_gateway_that_was_killed(tmp_path: Path) -> None:
    flags = ("--simulator", "--no-adapt", "--store", str(tmp_path / "store.sqlite3"))
    acknowledged: dict[str, list[str]] = {f"ep{number}": [] for number in range(4)}

    async def work(running: Program, session: aiohttp.ClientSession, rollout: str) -> None:
        """Take turns until the gateway is gone."""
        mine = acknowledged[rollout]
        while True:
            mine.append(await said(running, session, rollout, **({"previous_response_id": mine[-1]} if mine else {})))

    async def test() -> None:
        async with program(*flags) as running, aiohttp.ClientSession() as session:
            working = [asyncio.create_task(work(running, session, rollout)) for rollout in acknowledged]
            await until(lambda: min(map(len, acknowledged.values())) >= 3, "each has three turns")
            before = {rollout: (await read(running, session, f"/rollouts/{rollout}"))["calls"] for rollout in acknowledged}
            running.signal(signal.SIGKILL)
            ends = await asyncio.gather(*working, return_exceptions=True)
            assert all(isinstance(end, aiohttp.ClientError) for end in ends), ends
        async with program(*flags) as again, aiohttp.ClientSession() as session:
            for rollout, ids in acknowledged.items():
                calls = (await read(again, session, f"/rollouts/{rollout}"))["calls"]
                kept = [call["id"] for call in calls]
                assert calls[: len(before[rollout])] == before[rollout]
                assert kept[: len(ids)] == ids
                assert len(kept) <= len(ids) + 1  # the last one may have ended, and its client not have heard of that
                last = await said(again, session, rollout, previous_response_id=ids[-1])
                chain = await read(again, session, f"/rollouts/{rollout}?chain={last}")
                assert (chain["call_ids"], chain["breaks"]) == ([*ids, last], [])

    run(test())
