"""A conversation reaches the model alike however its client continues it: by the previous response, in the store or over a
WebSocket, in a conversation, with its whole history, or with references to items."""

from __future__ import annotations

import asyncio
import json
import random
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from responses_gateway.simulator import RECEIVED, create_app, serving
from tests.hosted.websites import searched_web
from tests.request.builders import developer, user
from tests.server.resources.test_websocket_resource import Socket, connect
from tests.server.running_gateway import Served, ask, gateway, post, run
from tests.thoroughness import THOROUGH

Item = dict[str, Any]

SEEDS = 200 if THOROUGH else 6
SCENARIOS = (
    "plain", "reasoning", "demo", "parallel", "tool", "reasoning_only", "refusal", "empty", "patch", "text_after_call",
    "unicode", "broken_arguments", "research towers",
)  # fmt: skip
TOOLS = [
    {"type": "function", "name": "get_weather", "parameters": {"type": "object", "properties": {"city": {"type": "string"}}}},
    {"type": "custom", "name": "apply_patch"},
    {"type": "web_search"},
]
RESULTS = ("sunny", "", [{"type": "input_text", "text": "It rains."}, {"type": "input_text", "text": "And hails."}])
MANAGED: dict[str, Any] = {"context_management": [{"type": "compaction", "compact_threshold": 1000}]}
# The ids of calls, which each response has of its own.
_IDS = re.compile(r'"(?:call_|chatcmpl-tool-|ws_)\w+"')


class Way:
    """A conversation that is continued in one way. `calls` have no result yet; `summary` is the output of a compaction."""

    def __init__(self, name: str, served: Served, socket: Socket) -> None:
        self.name = name
        self.calls: list[Item] = []
        self.summary: list[Item] = []
        self._served = served
        self._socket = socket
        self._history: list[Item] = []
        self._last: Item = {}
        self._conversation = ""

    async def turn(self, items: list[Item], chance: random.Random, **fields: Any) -> Item:
        """Ask for a response to new items; without those before them if the last response was left behind."""
        if self.name == "socket":
            response = await self._socket.ask(input=items, **self._previous, **fields)
        else:
            answer = await post(self._served, store=True, **await self._input(items, chance), **fields)
            response = answer.final
        self._last = response
        self.calls = [item for item in response["output"] if item["type"] in ("function_call", "custom_tool_call")]
        self._history += [item for item in items if item["type"] != "compaction_trigger"]
        self.summary = response["output"] if {"type": "compaction_trigger"} in items else []
        if self.summary:  # a client may leave out what it replaces, but not the instructions
            self._history = [item for item in self._history if item.get("role") == "developer"]
        self._history += response["output"]
        return response

    def begin_anew(self) -> None:
        """Leave what was said until now behind."""
        self._last = {}
        self._history = []

    @property
    def _previous(self) -> dict[str, Any]:
        return {"previous_response_id": self._last["id"]} if self._last else {}

    async def _input(self, items: list[Item], chance: random.Random) -> dict[str, Any]:
        if self.name == "stored":
            return {"input": items, **self._previous}
        if self.name == "whole":
            return {"input": [*self._history, *items]}
        if self.name == "references":
            return {"input": [*(_reference(item) if chance.random() < 0.7 else item for item in self._history), *items]}
        if not self._last:
            self._conversation = (await ask(self._served, "POST", "/v1/conversations", json={})).json["id"]
        return {"input": items, "conversation": self._conversation}


def _reference(item: Item) -> Item:
    return {"type": "item_reference", "id": item["id"]} if "id" in item else item


def next_items(
    chance: random.Random, turn: int, calls: int, *, summed_up: bool, managed: bool
) -> tuple[Callable[[Way], list[Item]], bool]:
    """Return what the next request of each way has, and whether it begins anew, as Codex does after a compaction. `managed`:
    the gateway decides what is replaced by a summary."""
    length = chance.choice((1, 1500)) if managed else 1
    question = user(f"scenario: {chance.choice(SCENARIOS)}, number {turn}{' and so on' * length}")
    if summed_up and not managed and chance.random() < 0.6:
        task = user("The task is to be brief.")
        return lambda way: [task, *way.summary, question], True
    results = [chance.choice(RESULTS) for _ in range(calls)]
    others = [developer("Mind the gap.")] if chance.random() < 0.2 else []
    if turn and chance.random() < 0.15:
        others.append({"type": "compaction_trigger"})
    elif chance.random() < 0.7 or not (results or others):
        others.append(question)

    def items(way: Way) -> list[Item]:
        answered = zip(way.calls, results, strict=True)
        outputs = [
            {"type": f"{call['type']}_output", "call_id": call["call_id"], "output": result} for call, result in answered
        ]
        return [*outputs, *others]

    return items, False


def without_ids(messages: Any) -> str:
    """Return messages with numbers for the ids of their calls."""
    numbers: dict[str, str] = {}
    return _IDS.sub(lambda found: numbers.setdefault(found[0], f'"{len(numbers)}"'), json.dumps(messages))


@pytest.mark.slow
@pytest.mark.parametrize(
    "fields", [{}, {"include": ["reasoning.encrypted_content"]}, MANAGED], ids=["", "encrypted", "managed"]
)
def test_the_model_gets_the_same_however_a_conversation_is_continued(fields: dict[str, Any], tmp_path: Path) -> None:
    async def conversation(seed: int, served: Served, backend: Any) -> None:
        chance = random.Random(seed)
        async with connect(served) as socket:
            ways = [Way(name, served, socket) for name in ("stored", "socket", "conversation", "whole", "references")]
            first = ways[0]
            for turn in range(chance.randint(2, 7)):
                items, anew = next_items(
                    chance, turn, len(first.calls), summed_up=bool(first.summary), managed=fields is MANAGED
                )
                answers: list[tuple[list[str], str]] = []
                for way in ways:
                    if anew:
                        way.begin_anew()
                    backend[RECEIVED].clear()
                    response = await way.turn(items(way), chance, tools=TOOLS, **fields)
                    output = [response["status"], *(item["type"] for item in response["output"])]
                    answers.append((output, without_ids([received["body"]["messages"] for received in backend[RECEIVED]])))
                    assert answers[-1] == answers[0], (seed, turn, way.name)
                if answers[0][0][0] != "completed":
                    return

    async def test() -> None:
        backend = create_app()
        async with (
            searched_web() as searched,
            serving(backend) as url,
            gateway(url, store=str(tmp_path / "x.sqlite3"), **searched.settings) as served,
        ):
            for seed in range(SEEDS):
                await conversation(seed, served, backend)
                await asyncio.sleep(0)

    run(test())
