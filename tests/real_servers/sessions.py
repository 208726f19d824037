"""Sessions of fifty turns on a real vLLM, and the tokens of all scripts: `make oracle`.

The cause of each turn's lost cache has to be the one that was made; each prompt of a loop of tools that is sent as ids has to
extend the one before; and the ids of an answer have to be those that the server gives when it is asked itself.
"""

from __future__ import annotations

import asyncio
import sys
import tempfile
from collections import Counter
from collections.abc import AsyncIterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path
from typing import Any, NamedTuple

import aiohttp

from tests.log_lines import log_lines
from tests.real_servers.conversation import scenario
from tests.real_servers.programs import Server, engine
from tests.real_servers.scripts import questions
from tests.real_servers.settings import Setting
from tests.server.running_gateway import Served, gateway

_PARSING = (
    "--disable-hybrid-kv-cache-manager",
    "--reasoning-parser",
    "qwen3",
    "--enable-auto-tool-choice",
    "--tool-call-parser",
    "hermes",
)
_RAW = {"reasoning_parser": "qwen3", "tool_call_parser": "hermes"}
_TURNS = 50
_BLOCK = 32
_TOOL = {
    "type": "function",
    "name": "get_weather",
    "parameters": {"type": "object", "properties": {"city": {"type": "string"}}},
}
_OTHER_TOOL = {**_TOOL, "name": "get_time"}
_SETTINGS: dict[str, tuple[tuple[str, ...], dict[str, Any]]] = {"parsed": (_PARSING, {}), "raw": ((), _RAW)}
_SCRIPTS = ("think", "weather", "hello")
_KINDS = ("tools_changed", "evicted", "instructions_changed", "other_backend", "input_changed")
# By the number of the turn: each kind twice, never in the turn behind another one.
_CHANGES = {0: "first"} | {4 + 4 * place: _KINDS[place % len(_KINDS)] for place in range(2 * len(_KINDS))}
_ARRAYS = ("prompt_token_ids", "generation_token_ids", "generation_log_probs", "item_spans")
Item = dict[str, Any]


@dataclass
class Verdict:
    """How many were right, and a line for each that was wrong."""

    right: int = 0
    wrong: list[str] = field(default_factory=list)
    causes: Counter[str] = field(default_factory=Counter)

    def count(self, right: bool, line: str) -> None:
        """Count one; the line says what it was."""
        if right:
            self.right += 1
        else:
            self.wrong.append(line)


class Sampled(NamedTuple):
    """The ids of the tokens of a prompt, and of what was sampled behind it."""

    prompt: list[int]
    answer: list[int]


@dataclass
class Session:
    """A client that sends its whole history each time."""

    served: Served
    client: aiohttp.ClientSession
    instructions: str = "You are an agent. " + "Be careful with every file. " * 20
    tools: list[Item] = field(default_factory=lambda: [_TOOL])
    items: list[Item] = field(default_factory=list)
    headers: dict[str, str] = field(default_factory=lambda: {"X-Session-Id": "s1"})

    async def turn(self, *items: Item) -> Sampled:
        """Have the model answer to these items as well, and return the tokens."""
        self.items += items
        body = {"model": "tiny", "temperature": 0, "store": False, "input": self.items, "instructions": self.instructions}
        body |= {"tools": self.tools, "include": ["token_ids"]}
        async with self.client.post(f"{self.served.url}/v1/responses", json=body, headers=self.headers) as answer:
            response: dict[str, Any] = await answer.json()
            assert answer.status == 200, response
        self.items += [{name: item[name] for name in item if name not in _ARRAYS} for item in response["output"]]
        last = response["output"][-1]
        return Sampled(last["prompt_token_ids"], last["generation_token_ids"])

    async def change(self, kind: str | None, number: int, used: str) -> None:
        """Make the next turn lose what was cached. `used`: the backend of the turn before."""
        members = self.served.parts.pool.members.by_name
        match kind:
            case "tools_changed":
                self.tools = [_TOOL, _OTHER_TOOL] if len(self.tools) == 1 else [_TOOL]
            case "instructions_changed":
                self.instructions += f"Rule {number}: answer briefly. "
            case "input_changed":
                self.items[0] = said(f"Edited in turn {number}. {'And so on. ' * 30} {scenario('think')}")
            case "other_backend":
                for name, member in members.items():
                    member.draining = name == used
            case "evicted":
                async with self.client.post(f"http://{used}/reset_prefix_cache") as answer:
                    assert answer.status == 200

    def results(self) -> list[Item]:
        """Return a result for each call of the last answer."""
        names = {item["call_id"] for item in self.items if item["type"] == "function_call_output"}
        calls = [item for item in self.items if item["type"] == "function_call" and item["call_id"] not in names]
        return [{"type": "function_call_output", "call_id": call["call_id"], "output": "18 degrees, sunny"} for call in calls]


def said(text: str) -> Item:
    """Return a message of the user."""
    return {"type": "message", "role": "user", "content": text}


async def causes(servers: Sequence[Server], settings: dict[str, Any]) -> Verdict:
    """Play a session with a change of each kind, on two servers; the cause of each turn has to be what its tokens tell."""
    verdict = Verdict()
    with log_lines() as lines:
        urls = [f"{server.url}/v1" for server in servers]
        async with gateway(*urls, access_log=True, **settings) as served, aiohttp.ClientSession() as client:
            session = Session(served, client)
            before = Sampled([], [])
            used = ""
            for number in range(_TURNS):
                change = _CHANGES.get(number)
                await session.change(change, number, used)
                sampled = await session.turn(*(session.results() or [said(scenario(_SCRIPTS[number % len(_SCRIPTS)]))]))
                served.parts.metrics.flush()
                line = lines("response")[-1]
                expected, lost = _causes(before, sampled, line, change)
                seen = line.get("cache_cause")
                right = seen in expected and line["cache_lost"] == lost
                verdict.count(right, f"turn {number}, {change}: {seen}, expected {expected}, {lost} lost, {_tokens(line)}")
                verdict.causes[seen or "nothing lost"] += 1
                before = sampled
                used = line["backend"]
    return verdict


def _causes(before: Sampled, now: Sampled, line: Item, change: str | None) -> tuple[set[str | None], int]:
    """Return what the tokens tell: which causes are right, and how many tokens were lost."""
    if not before.prompt:
        return {"first"}, 0
    context = before.prompt + before.answer
    cached = line["cached_tokens"]
    common = next((n for n, pair in enumerate(zip(context, now.prompt, strict=False)) if pair[0] != pair[1]), len(context))
    lost = (len(context) - cached) // _BLOCK * _BLOCK
    if not lost or cached >= (len(context) - 1) // _BLOCK * _BLOCK:
        return {None}, 0
    if change not in (None, "input_changed"):
        return {change}, lost
    # This model has a sliding window: vLLM finds no block of an answer again, and at times one less of the prompt.
    kept = min(common, len(before.prompt)) // _BLOCK * _BLOCK - _BLOCK
    if cached < kept:
        return {"evicted"}, lost
    if common > len(before.prompt):
        return {"evicted", "template"}, lost
    return {change or "template"}, lost


def _tokens(line: Item) -> str:
    names = ("cache_lost", "cache_context", "input_tokens", "cached_tokens")
    return ", ".join(f"{name} {line[name]}" for name in names)


async def loop_by_ids(server: Server, settings: dict[str, Any]) -> Verdict:
    """Play a loop of tools whose turns are sent as ids; each prompt has to begin with the one before and its answer."""
    verdict = Verdict()
    async with gateway(f"{server.url}/v1", store="memory", **settings) as served, aiohttp.ClientSession() as client:
        session = Session(served, client, headers={"X-Rollout-Id": "loop", "X-Token-True": "1"})
        for _ in range(_TURNS):
            await session.turn(*(session.results() or [said(scenario("weather"))]))
        async with client.get(f"{served.url}/rollouts/loop?limit=1000") as answer:
            calls = (await answer.json())["calls"]
    verdict.count(len(calls) == _TURNS, f"{len(calls)} calls")
    for call, following in pairwise(calls):
        before = call["prompt_token_ids"] + call["generation_token_ids"]
        whole = following["prompt_token_ids"][: len(before)] == before
        verdict.count(whole and following["token_true"], f"{following['id']}: {following['reason']}")
    return verdict


async def ids_of_all_scripts(server: Server, settings: dict[str, Any]) -> Verdict:
    """Ask each script through the gateway and of the server itself; the ids of prompt and answer have to be equal."""
    verdict = Verdict()
    async with gateway(f"{server.url}/v1", **settings) as served, aiohttp.ClientSession() as client:
        for question in questions():
            body = {**question.body, "stream": False, "store": False, "include": ["token_ids"]}
            async with client.post(f"{served.url}/v1/responses", json=body) as answer:
                output = (await answer.json())["output"]
            chat = {**question.chat, "stream": False, "return_token_ids": True, "temperature": 0}
            chat.pop("stream_options", None)
            if settings and "tools" in chat:
                chat["tool_choice"] = "none"  # because this server parses no calls, and refuses others
            chat["model"] = server.model
            async with client.post(f"{server.url}/v1/chat/completions", json=chat) as answer:
                own = await answer.json()
                assert answer.status == 200, own
            if not output:
                continue  # there is no item that could have them
            ids = (output[-1]["prompt_token_ids"], output[-1]["generation_token_ids"])
            verdict.count(ids == (own["prompt_token_ids"], own["choices"][0]["token_ids"]), question.name)
    return verdict


async def play(folder: Path) -> AsyncIterator[tuple[str, Verdict]]:
    """Play everything, and yield a verdict for each row of the table."""
    for name, (flags, settings) in _SETTINGS.items():
        for drops_thoughts in (False, True):
            setting = Setting(name, "vLLM", flags, questions=False, drops_thoughts=drops_thoughts)
            title = f"{name}, thoughts {'dropped' if drops_thoughts else 'kept'}"
            with ExitStack() as stack, ThreadPoolExecutor() as pool:
                opened = [engine(setting, folder / f"{name}-{drops_thoughts}-{number}") for number in range(2)]
                servers = list(pool.map(stack.enter_context, opened))
                yield f"causes of lost tokens: {title}", await causes(servers, settings)
                if not drops_thoughts:
                    yield f"ids of all scripts: {name}", await ids_of_all_scripts(servers[0], settings)
                    yield f"turns sent as ids: {name}", await loop_by_ids(servers[0], settings)


async def main() -> int:
    status = 0
    with tempfile.TemporaryDirectory() as folder:
        async for title, verdict in play(Path(folder)):
            print(
                f"{title}: {verdict.right} of {verdict.right + len(verdict.wrong)}",
                dict(verdict.causes),
                *verdict.wrong,
                sep="\n    ",
                flush=True,
            )
            status = status or bool(verdict.wrong)
    return status


if __name__ == "__main__":
    sys.exit(asyncio.run(main()))
