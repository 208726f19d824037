"""Any interleaving of lanes: requests that begin, continue, fork, fail and end in any order, against a model of the contract.

Each lane is answered in its order without overlap, at most a few of them at the same time and in the order in which they came;
each request has the history that it names, and a failure forgets what it continues in its own lane, and nowhere else."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Iterator
from contextlib import AsyncExitStack
from dataclasses import dataclass, field
from typing import Any
from unittest.mock import patch

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.server.resources.test_lanes import ENDS, Gates, Reader, send
from tests.server.resources.test_websocket_resource import connect
from tests.server.running_gateway import Served, gateway, until
from tests.server.scripted_backend import backend
from tests.thoroughness import examples

MOST_ACTIVE = 3
LANES = (None, "a", "b", "c", "d")
ACTIONS = ("new", "continue", "continue", "continue", "unknown", "wrong", "finish", "finish", "finish", "refuse")
Step = tuple[str | None, str, int]


@dataclass
class Asked:
    """A request; `parent` is the text of the one that it continues."""

    text: str
    lane: str | None
    parent: str | None = None
    wrong: bool = False
    said: list[str] = field(default_factory=list)


class Model:
    """What the contract says of the requests that were sent, and of those that ended."""

    def __init__(self) -> None:
        self.queues: dict[str | None, deque[Asked]] = {lane: deque() for lane in LANES}
        self.waiting: deque[str | None] = deque()  # lanes, for a place
        self.running: dict[str | None, Asked] = {}
        self.known: dict[str, Asked] = {}  # responses that can be continued
        self.ends: dict[str | None, list[str]] = {lane: [] for lane in LANES}

    def send(self, asked: Asked) -> None:
        idle = asked.lane not in self.running and asked.lane not in self.waiting
        self.queues[asked.lane].append(asked)
        if idle:
            self.waiting.append(asked.lane)
        self._begin()

    def finish(self, lane: str | None, *, refused: bool) -> None:
        asked = self.running.pop(lane)
        if refused:
            self._fail(asked, "invalid_prompt")
        else:
            self.known[asked.text] = asked
            self.ends[lane].append(asked.text)
            self._next(lane)
        self._begin()

    def _begin(self) -> None:
        while self.waiting and len(self.running) < MOST_ACTIVE:
            lane = self.waiting.popleft()
            asked = self.queues[lane].popleft()
            if asked.wrong:
                self._fail(asked, "invalid_type")
            elif asked.parent is not None and asked.parent not in self.known:
                self._fail(asked, "previous_response_not_found")
            else:
                before = [] if asked.parent is None else self.known[asked.parent].said
                asked.said = [*before, asked.text]
                self.running[lane] = asked

    def _fail(self, asked: Asked, code: str) -> None:
        self.ends[asked.lane].append(code)
        if asked.parent in self.known and self.known[asked.parent].lane == asked.lane:
            del self.known[asked.parent]
        self._next(asked.lane)

    def _next(self, lane: str | None) -> None:
        if self.queues[lane]:
            self.waiting.append(lane)


class Game:
    """A connection, played along with the model."""

    def __init__(self, gates: Gates, reader: Reader) -> None:
        self.gates = gates
        self.reader = reader
        self.model = Model()
        self.ids: dict[str, str] = {}  # of responses, by the text that they answer
        self.number = 0

    async def play(self, steps: list[Step]) -> None:
        reading = asyncio.create_task(self._read())
        try:
            for lane, action, pick in steps:
                await self._act(lane, action, pick)
                await self._settle()
            while self.model.running:
                await self._act(None, "finish", 0)
                await self._settle()
        finally:
            reading.cancel()
        self.reader.judged()

    async def _read(self) -> None:
        while True:
            event = await self.reader.read()
            if event["type"] == "response.completed":
                response = event["response"]
                self.ids[response["output"][0]["content"][0]["text"]] = response["id"]

    async def _act(self, lane: str | None, action: str, pick: int) -> None:
        if action in ("finish", "refuse"):
            await self._end(pick, refused=action == "refuse")
            return
        self.number += 1
        asked = Asked(f"#{self.number}", lane, wrong=action == "wrong")
        fields: dict[str, Any] = {"temperature": "hot"} if asked.wrong else {}
        if action == "unknown":
            asked.parent = "nothing"
        elif action != "new" and self.ids:
            asked.parent = list(self.ids)[pick % len(self.ids)]
        if asked.parent is not None:
            fields["previous_response_id"] = self.ids.get(asked.parent, "resp_x")
        self.model.send(asked)
        await send(self.reader, asked.text, lane, **fields)

    async def _end(self, pick: int, *, refused: bool) -> None:
        if not self.model.running:
            return
        lane = list(self.model.running)[pick % len(self.model.running)]
        text = self.model.running[lane].text
        self.model.finish(lane, refused=refused)
        if refused:
            self.gates.refuse(text)
        else:
            self.gates.open(text)

    async def _settle(self) -> None:
        """Wait until all is as the model says."""
        expected = {asked.text: asked.said for asked in self.model.running.values()}
        await until(lambda: set(self.gates.running) == set(expected), "those run that should")
        assert {text: self.gates.prompts[text] for text in expected} == expected
        await until(lambda: {lane: self._ends(lane) for lane in LANES} == self.model.ends, "those have ended that should")

    def _ends(self, lane: str | None) -> list[str]:
        ends = [event for event in self.reader.events.get(lane, ()) if event["type"] in ENDS]
        return [end["error"]["code"] if end["type"] == "error" else _text(end["response"]) for end in ends]


def _text(response: dict[str, Any]) -> str:
    text: str = response["output"][0]["content"][0]["text"]
    return text


@dataclass
class World:
    loop: asyncio.Runner
    gates: Gates
    served: Served


@pytest.fixture(scope="module")
def world() -> Iterator[World]:
    async def serve(stack: AsyncExitStack) -> tuple[Gates, Served]:
        gates = Gates()
        behind = await stack.enter_async_context(backend(gates.play))
        return gates, await stack.enter_async_context(gateway(behind.url))

    with asyncio.Runner() as runner:
        stack = AsyncExitStack()
        try:
            yield World(runner, *runner.run(serve(stack)))
        finally:
            runner.run(stack.aclose())


STEPS = st.lists(st.tuples(st.sampled_from(LANES), st.sampled_from(ACTIONS), st.integers(0, 50)), max_size=30)


@settings(max_examples=examples(120), derandomize=True)
@given(STEPS)
def test_every_interleaving_is_as_the_contract_says(world: World, steps: list[Step]) -> None:
    async def test() -> None:
        async with connect(world.served) as socket:
            await Game(world.gates, Reader(socket)).play(steps)

    with patch("responses_gateway.server.resources.socket_lanes.MOST_ACTIVE", MOST_ACTIVE):
        world.loop.run(test())
