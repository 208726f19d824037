"""A gateway is killed while its clients steer: what they were told to be stored, or applied, is there and can be continued."""

from __future__ import annotations

import asyncio
import json
import signal
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any

import aiohttp

from responses_gateway.simulator import RECEIVED, create_app, serving
from tests.server.gateway_process import Program, program
from tests.server.running_gateway import TERMINALS, run
from tests.waiting import PATIENCE

SLOW = "scenario: long tokens: 5000 tps: 50"
FAST = "scenario: reasoning tokens: 600 tps: 300"
CALL = "scenario: tool tps: 20"
TOOL = {"type": "function", "name": "get_weather", "parameters": {"type": "object", "properties": {"city": {}}}}
# For a gateway that sooner takes a process for dead that gives no sign of life: 15 seconds by default.
SHORTER = "import responses_gateway.server.generation.background.runner as runner; runner.SILENCE = 2.0"
Event = dict[str, Any]


class Steering:
    """A connection that steers its first response, up to an event of a kind."""

    def __init__(self, socket: aiohttp.ClientWebSocketResponse) -> None:
        self._socket = socket
        self.stored: dict[str, str | None] = {}  # what it was told of responses that have ended: why they are incomplete
        self.begun: list[str] = []  # the responses that it was told of

    async def up_to(self, kind: str, asked: str, times: int = 1) -> None:
        """Ask, steer at the first delta (of the call, if one is asked for), and go on until so many events of a kind came."""
        await self._ask(asked)
        steers_at = "arguments.delta" if asked == CALL else ".delta"
        seen = 0
        steered = False
        while seen < times:
            event: Event = json.loads(await self._socket.receive_str(timeout=PATIENCE))
            if event["type"] == "response.created":
                self.begun.append(event["response"]["id"])
            if event["type"].endswith(steers_at) and not steered:
                steered = True
                steer = SLOW if times > 1 else "Go on."
                await self._say(type="response.steer", previous_response_id=self.begun[0], input=steer)
            if event["type"] in TERMINALS:
                self.stored[event["response"]["id"]] = (event["response"]["incomplete_details"] or {}).get("reason")
            if event["type"] == "response.steer.pending":
                (required,) = event["required_input"]
                await self._ask([required | {"output": "sunny"}], previous_response_id=self.begun[0])
            seen += event["type"] == kind

    async def _ask(self, given: Any, **fields: Any) -> None:
        await self._say(type="response.create", model="simulator", input=given, tools=[TOOL], store=True, **fields)

    async def _say(self, **message: Any) -> None:
        await self._socket.send_str(json.dumps(message))

    @property
    def cut_off(self) -> list[str]:
        """The successors that had begun, and had not ended."""
        return [response_id for response_id in self.begun[1:] if response_id not in self.stored]


async def get(running: Program, session: aiohttp.ClientSession, path: str) -> Any:
    async with session.get(f"{running.url}/v1/responses/{path}") as answer:
        assert answer.status == 200, await answer.text()
        return await answer.json()


async def look(running: Program, session: aiohttp.ClientSession, client: Steering) -> None:
    """Compare what is stored with what a client was told; continue the last of it."""
    for response_id, reason in client.stored.items():
        response = await get(running, session, response_id)
        assert response["output"]
        assert (response["incomplete_details"] or {}).get("reason") == reason
    for response_id in client.cut_off:
        response = await get(running, session, response_id)
        while response["status"] == "in_progress":
            response = await get(running, session, response_id)
        assert (response["status"], response["previous_response_id"]) == ("failed", client.begun[0])
        given = (await get(running, session, f"{response_id}/input_items?order=asc"))["data"]
        assert SLOW in json.dumps(given), "the steer"
    body = {"model": "simulator", "input": "scenario: plain", "previous_response_id": client.begun[-1]}
    async with session.post(f"{running.url}/v1/responses", json=body) as answer:
        assert (await answer.json())["status"] == "completed"


def test_nothing_is_lost_that_was_told_to_be_stored_or_applied(tmp_path: Path) -> None:
    plans: list[tuple[str, str, int]] = [
        ("response.steer.accepted", SLOW, 1),
        ("response.incomplete", FAST, 1),
        ("response.created", FAST, 2),
        ("response.output_text.delta", FAST, 5),  # of the successor
        ("response.created", CALL, 2),  # the client has answered a call, and the steer went before that
        ("response.completed", FAST, 1),
    ]

    async def test() -> None:
        behind = create_app()
        async with serving(behind) as backend, aiohttp.ClientSession() as session:
            flags = ("--backend", backend, "--no-adapt", "--store", str(tmp_path / "responses.db"))
            async with program(*flags, first=SHORTER) as running, AsyncExitStack() as stack:
                sockets = [await stack.enter_async_context(session.ws_connect(f"{running.url}/v1/responses")) for _ in plans]
                clients = [Steering(socket) for socket in sockets]
                await asyncio.gather(*(client.up_to(*plan) for client, plan in zip(clients, plans, strict=True)))
                running.process.send_signal(signal.SIGKILL)
                await running.process.wait()
            told = [list(client.stored.values()) for client in clients]
            assert told == [[], ["steered"], ["steered"], ["steered"], [None], ["steered", None]]
            assert [len(client.cut_off) for client in clients] == [0, 0, 1, 1, 1, 0]
            async with program(*flags, first=SHORTER) as again:
                for client in clients[1:]:
                    await look(again, session, client)
                    users = [each["content"] for each in behind[RECEIVED][-1]["body"]["messages"] if each["role"] == "user"]
                    steered = ["Go on."] if client is clients[-1] else [SLOW] if client.cut_off else []
                    assert users[1:] == [*steered, "scenario: plain"]

    run(test())
