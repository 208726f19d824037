"""A gateway is killed while its clients steer: what they were told to be stored is there, and can be continued."""

from __future__ import annotations

import asyncio
import json
import signal
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any

import aiohttp

from tests.server.gateway_process import Program, program
from tests.server.running_gateway import TERMINALS, run
from tests.waiting import PATIENCE

SLOW = "scenario: long tokens: 5000 tps: 50"
FAST = "scenario: reasoning tokens: 60 tps: 2000"
Event = dict[str, Any]


class Steering:
    """A connection that steers its first response, up to an event of a kind."""

    def __init__(self, socket: aiohttp.ClientWebSocketResponse) -> None:
        self._socket = socket
        self.stored: dict[str, str | None] = {}  # what it was told of responses that have ended: why they are incomplete

    async def up_to(self, kind: str, asked: str, times: int = 1) -> None:
        """Ask, steer at the first delta, and go on until so many events of a kind came."""
        await self._say(type="response.create", model="simulator", input=asked, store=True)
        seen = 0
        first = ""
        steered = False
        while seen < times:
            event: Event = json.loads(await self._socket.receive_str(timeout=PATIENCE))
            if event["type"] == "response.created":
                first = first or event["response"]["id"]
            if event["type"].endswith(".delta") and not steered:
                steered = True
                await self._say(type="response.steer", previous_response_id=first, input=SLOW if times == 2 else "Go on.")
            if event["type"] in TERMINALS:
                self.stored[event["response"]["id"]] = (event["response"]["incomplete_details"] or {}).get("reason")
            seen += event["type"] == kind

    async def _say(self, **message: Any) -> None:
        await self._socket.send_str(json.dumps(message))


async def look(running: Program, session: aiohttp.ClientSession, told: dict[str, str | None]) -> None:
    """Compare what is stored with what a client was told; continue the last of it."""
    for response_id, reason in told.items():
        async with session.get(f"{running.url}/v1/responses/{response_id}") as answer:
            assert ((await answer.json())["incomplete_details"] or {}).get("reason") == reason
    body = {"model": "simulator", "input": "scenario: plain", "previous_response_id": next(reversed(told))}
    async with session.post(f"{running.url}/v1/responses", json=body) as answer:
        assert (await answer.json())["status"] == "completed"


def test_nothing_is_lost_that_was_told_to_be_stored(tmp_path: Path) -> None:
    flags = ("--simulator", "--store", str(tmp_path / "responses.db"))
    plans: list[tuple[str, str, int]] = [
        ("response.steer.accepted", SLOW, 1),
        ("response.incomplete", FAST, 1),
        ("response.created", FAST, 2),
        ("response.completed", FAST, 1),
    ]

    async def test() -> None:
        async with aiohttp.ClientSession() as session:
            async with program(*flags) as running, AsyncExitStack() as stack:
                sockets = [await stack.enter_async_context(session.ws_connect(f"{running.url}/v1/responses")) for _ in plans]
                clients = [Steering(socket) for socket in sockets]
                await asyncio.gather(*(client.up_to(*plan) for client, plan in zip(clients, plans, strict=True)))
                running.process.send_signal(signal.SIGKILL)
                await running.process.wait()
            told = [list(client.stored.values()) for client in clients]
            assert told == [[], ["steered"], ["steered"], ["steered", None]]
            async with program(*flags) as again:
                for client in clients[1:]:
                    await look(again, session, client.stored)

    run(test())
