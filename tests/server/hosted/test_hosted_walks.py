"""Random walks through hosted turns: models that call anything, right or wrong, and break off; tools that answer, fail, hang
and hang up; clients that approve, refuse, repeat, cancel and leave. No call is run twice, none without its approval, and what
the model, the client and the store are told of it is the same."""

from __future__ import annotations

import asyncio
import json
import random
import re
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import pytest
from aiohttp import web

from tests.hosted.mcp_peers import peer, text_result, tool
from tests.hosted.websites import SearchEngine, open_site
from tests.server.hosted.model import calls, model, says
from tests.server.running_gateway import Answer, Served, ask, final_of, post, run
from tests.server.scripted_backend import chunk
from tests.thoroughness import REPEATABLE, THOROUGH
from tests.waiting import until

SEEDS = 40 if THOROUGH else 1
STEPS = 40 if THOROUGH else 25
# Behind this a request has the number of its plan in its limit of tokens, because that does not change the prompt.
STEP = 100_000
HOSTED = {"mcp_call", "web_search_call", "file_search_call", "code_interpreter_call"}
# What a tool does; in half of the calls it answers.
ANSWERS = ["text", "half a pair", "long"]
WAYS = [*ANSWERS * 3, "error", "refuses", "hangs", "hangs up", "garbage", "half a character"]
FUNCTIONS = {"peer__echo": "token", "peer__pay": "token", "python": "code", "file_search": "queries", "web_search": "queries"}
CLOCK = {"type": "function", "name": "clock", "parameters": {"type": "object", "properties": {}}}
TOOLS = [
    {"type": "file_search", "vector_store_ids": ["vs"]},
    {"type": "code_interpreter", "container": {"type": "auto"}},
    {"type": "web_search_preview"},
    CLOCK,
]
Item = dict[str, Any]


@dataclass
class Made:
    """A call of the model. `whole`: its arguments are right."""

    name: str
    arguments: str
    way: str
    whole: bool = True
    runs: int = 0
    running: int = 0


@dataclass
class Plan:
    """The turns of one response: calls, and how each ends."""

    turns: list[tuple[list[Made], str]]
    requests: list[Item] = field(default_factory=list)

    @property
    def calls(self) -> list[Made]:
        return [made for calls, _ in self.turns for made in calls]


class Walk:
    """What one client has asked, and what has become of it."""

    def __init__(self, chance: random.Random) -> None:
        self.chance = chance
        self.plans: list[Plan] = []
        self.made: dict[str, Made] = {}  # by the word that stands for it
        self.known: list[Item] = []  # responses
        self.asked: dict[str, Item] = {}  # requests for an approval, by id
        self.taken: Counter[str] = Counter()  # approvals, by id
        self.log: list[str] = []
        self.complaints: list[str] = []  # about what the model was asked
        self.served: Served

    # ---- the model -------------------------------------------------------------------------------------------------------

    def plan(self) -> Plan:
        chance = self.chance
        turns = [
            ([self._call() for _ in range(chance.choice([1, 1, 2, 3]))], chance.choices(["ends", "breaks"], [12, 1])[0])
            for _ in range(chance.choice([0, 1, 1, 2, 3]))
        ]
        self.plans.append(Plan(turns))
        return self.plans[-1]

    def _call(self) -> Made:
        name = self.chance.choice([*FUNCTIONS, "peer__echo", "clock", "peer__nothing"])
        word = f"word{len(self.made)}x"
        member = FUNCTIONS.get(name, "token")
        arguments = json.dumps({member: [word] if member == "queries" else word})
        made = self.made[word] = Made(name, arguments, self.chance.choice(WAYS))
        if self.chance.random() < 0.1:
            wrong = ["{}", "[]", arguments[:-1], arguments[:-4], f'"{word}"', f'{{"x": "{word}\\ud83d"}}', arguments * 2]
            made.arguments, made.whole = self.chance.choice(wrong), False
        return made

    def answer(self, body: Item) -> list[bytes]:
        """Answer a request of the gateway by its plan, once it is found to be one that chat servers take."""
        plan = self.plans[body["max_completion_tokens"] // STEP - 1]
        self.complaints += _unpaired(body["messages"])
        before = plan.requests[-1]["messages"] if plan.requests else []
        if body["messages"][: len(before)] != before:
            self.complaints.append("the next turn does not begin as the last one")
        plan.requests.append(body)
        if len(plan.requests) > len(plan.turns):
            return says("It is done【1】.")
        made, end = plan.turns[len(plan.requests) - 1]
        pieces = calls(*((call.name, call.arguments) for call in made), thought="Hm.")
        return pieces if end == "ends" else [*pieces[: self.chance.randrange(len(pieces) - 3)], chunk({"content": ""})]

    # ---- the tools -------------------------------------------------------------------------------------------------------

    async def serve(self, request: web.Request, message: Item) -> Any:
        """Answer the call of an MCP tool."""
        made, word = self._begin(json.dumps(message["params"]["arguments"]))
        result = {"jsonrpc": "2.0", "id": message["id"], "result": text_result(await self._told(request, made, word))}
        body = json.dumps(result).encode()
        if made is not None and made.way == "half a character":
            body = body.replace(b"found", b"found\xc3")
        return web.Response(
            body=b"<html>" if made is not None and made.way == "garbage" else body, content_type="application/json"
        )

    async def search(self, request: web.Request) -> web.StreamResponse:
        """Answer a search."""
        made, word = self._begin(request.query["q"])
        found = {"url": f"https://example.com/{word}", "title": word, "content": await self._told(request, made, word)}
        return web.Response(text=json.dumps({"results": [found]}), content_type="application/json")

    def _begin(self, text: str) -> tuple[Made | None, str]:
        found = re.search(r"word\d+x", text)
        made = None if found is None else self.made[found[0]]
        if made is not None:
            made.runs += 1
        return made, "nothing" if found is None else found[0]

    async def _told(self, request: web.Request, made: Made | None, word: str) -> str:
        way = "text" if made is None else made.way
        if way in ("error", "refuses"):
            raise web.HTTPInternalServerError if way == "error" else web.HTTPForbidden
        if way == "hangs" and made is not None:
            made.running += 1
            try:
                await asyncio.Event().wait()
            finally:
                made.running -= 1
        if way == "hangs up":
            assert request.transport is not None
            request.transport.close()
        return f"found {word} " + {"half a pair": "\ud83d", "long": "x" * 200_000}.get(way, "")

    # ---- the client ------------------------------------------------------------------------------------------------------

    def request(self) -> tuple[Plan, Item]:
        """Return the plan and the body of a request, which may go on from an earlier one."""
        chance = self.chance
        approval = chance.choice(["never", "never", "always", {"always": {"tool_names": ["pay"]}}])
        tools = [{"type": "mcp", "server_label": "peer", "require_approval": approval}, *TOOLS]
        plan = self.plan()
        body: Item = {"model": "m", "tools": tools, "max_output_tokens": STEP * len(self.plans) + STEP // 2}
        body |= {"stream": chance.random() < 0.6, "store": chance.random() < 0.8}
        items: list[Item] = []
        if self.known and chance.random() < 0.7:
            parent = chance.choice(self.known[-3:])
            body |= {"previous_response_id": parent["id"], "tools": chance.choice([tools, parent["tools"]])}
            items = [each for item in parent["output"] for each in self._reply(item)]
        body["input"] = [*items, {"role": "user", "content": f"Go on {len(self.plans)}"}]
        if chance.random() < 0.2:
            body["max_tool_calls"] = chance.choice([1, 2, 3])
        if chance.random() < 0.2:
            body["parallel_tool_calls"] = False
        if chance.random() < 0.2:
            body["tool_choice"] = chance.choice(["none", "required", {"type": "mcp", "server_label": "peer"}])
        self.log.append(f"{len(self.plans)} {body} {plan.turns}")
        return plan, body

    def _reply(self, item: Item) -> list[Item]:
        if item["type"] == "function_call":
            return [{"type": "function_call_output", "call_id": item["call_id"], "output": "noon"}]
        if item["type"] != "mcp_approval_request":
            return []
        decisions = self.chance.choice([[True], [True], [True, True], [False], [False, True], [True, False], []])
        named = {"type": "mcp_approval_response", "approval_request_id": item["id"]}
        return [{**named, "approve": approve} for approve in decisions]

    async def respond(self) -> None:
        """Ask, read all, and ask again with the same approvals: they are used up."""
        plan, body = self.request()
        final = self._final(await post(self.served, body), plan, body)
        if final is None:
            return
        await self._check(final, plan, body)
        if any(item.get("approval_request_id") and item.get("error") is None for item in final["output"]):
            decisions = [item for item in body["input"] if "role" not in item]  # behind a message they would be history
            again = await post(self.served, body, input=decisions, max_output_tokens=STEP * len(self.plans) + STEP // 2)
            assert again.json["error"]["code"] == "approval_already_used"

    async def in_background(self) -> None:
        """Ask in the background, and follow the response, or cancel it at any time."""
        plan, body = self.request()
        begun = await post(self.served, body, background=True, store=True, stream=False)
        if begun.status != 200:
            assert self._final(begun, plan, body) is None
            return
        path = f"/v1/responses/{begun.json['id']}"
        if self.chance.random() < 0.5:
            await asyncio.sleep(self.chance.choice([0, 0.01, 0.05]))
            await ask(self.served, "POST", f"{path}/cancel")
        await ask(self.served, "GET", f"{path}?stream=true")
        final = (await ask(self.served, "GET", path)).json
        await self._check(final, plan, {**body, "store": True})

    async def leave(self) -> None:
        """Ask, and leave at any time: what ran is stopped."""
        plan, body = self.request()
        asking = asyncio.create_task(post(self.served, body))
        await asyncio.sleep(self.chance.choice([0, 0.01, 0.05]))
        asking.cancel()
        await asyncio.gather(asking, return_exceptions=True)
        await until(lambda: not self.served.parts.in_flight.activities, "the gateway notices it")
        await until(lambda: not any(made.running for made in plan.calls), "the tools are stopped")
        assert all(made.runs <= 1 or made.way == "hangs up" for made in plan.calls)

    def _final(self, answer: Answer, plan: Plan, body: Item) -> Item | None:
        """Return the response; None for an error, with which nothing was run."""
        if answer.status == 200:
            final: Item = final_of(answer.body) if body["stream"] else answer.json
            return final
        assert any(end == "breaks" for _, end in plan.turns) or answer.json["error"]["code"] == "approval_already_used", answer
        assert not any(made.runs for made in plan.calls)
        return None

    async def _check(self, final: Item, plan: Plan, body: Item) -> None:
        """Compare a response with what was run, with what its model was told, and with what is stored."""
        output = final["output"]
        assert len({item["id"] for item in output}) == len(output)
        self.asked |= {item["id"]: item for item in output if item["type"] == "mcp_approval_request"}
        for item in output:
            if item.get("approval_request_id") and item["status"] != "failed":
                self.taken[item["approval_request_id"]] += 1
                assert self.taken[item["approval_request_id"]] == 1
                assert self.asked[item["approval_request_id"]]["arguments"] == item["arguments"]
        shown = Counter(word for item in output for word in set(re.findall(r"word\d+x", _told_by(item))))
        told = json.dumps(plan.requests[-1]["messages"]) if plan.requests else ""
        for word, made in self.made.items():
            assert made.runs <= 1 or made.way == "hangs up", made  # a search is tried again
            if made in plan.calls:
                assert shown[word] <= 1
                last = not plan.requests or made in plan.turns[min(len(plan.requests), len(plan.turns)) - 1][0]
                if made.runs and made.way in ANSWERS and made.whole and not last:
                    assert f"found {word}" in told or "in time" in told or "seconds" in told
        for item in output:
            assert item.get("status") != "in_progress"
            if item["type"] == "mcp_approval_request":
                assert all(self.made[word].runs == 0 for word in re.findall(r"word\d+x", item["arguments"]))
        if body.get("tool_choice") == "none":
            assert not any(made.runs for made in plan.calls)
        assert sum(min(made.runs, 1) for made in plan.calls) <= body.get("max_tool_calls", 128)
        broken = any(end == "breaks" or not all(made.whole for made in each) for each, end in plan.turns)
        assert broken or final["status"] in {"completed", "cancelled"} or "used already" in final["error"]["message"]
        stored = await ask(self.served, "GET", f"/v1/responses/{final['id']}")
        assert stored.status == (200 if body["store"] else 404)
        if body["store"]:
            assert stored.json == final
            again = await ask(self.served, "GET", f"/v1/responses/{final['id']}?stream=true")
            assert final["status"] == "cancelled" or final_of(again.body) == final
            self.known.append(final)


def _told_by(item: Item) -> str:
    return json.dumps([item.get(name) for name in ("arguments", "action", "queries", "code")]) if item["type"] in HOSTED else ""


def _unpaired(messages: Sequence[Item]) -> list[str]:
    """Return what is wrong unless each call has exactly one result, directly behind the calls, in their order."""
    complaints: list[str] = []
    awaited: list[str] = []
    for message in [*messages, {"role": "end"}]:
        if message["role"] == "tool" and awaited[:1] == [message["tool_call_id"]]:
            del awaited[0]
            continue
        if message["role"] == "tool" or awaited:
            complaints.append(f"{awaited} before {message}")
        made = message.get("tool_calls") or []
        awaited = [call["id"] for call in made]
        complaints += [f"{call}" for call in made if not isinstance(json.loads(call["function"]["arguments"]), dict)]
    return complaints


async def walk(seed: int) -> None:
    """Walk so many steps in front of one gateway."""
    chance = random.Random(seed)
    walked = Walk(chance)
    engine = SearchEngine()
    engine.pages["/search"] = walked.search
    async with open_site(engine), peer() as tools:
        tools.tools = [
            tool("echo"),
            tool("pay"),
            tool("run", inputSchema=_taking("code")),
            tool("find", inputSchema=_taking("query")),
        ]
        tools.answers["tools/call"] = walked.serve
        settings: Item = {
            "mcp_servers": {"peer": {"url": tools.url}},
            "code_interpreter": "mcp:peer/run",
            "file_search_tools": {"vs": "peer/find"},
            "web_search_url": engine.url,
            "hosted_call_timeout": 0.5,
            "hosted_turns": chance.choice([2, 3, 16]),
            "store": "memory",
            "retries": 0,
            "breaker_failures": 1_000_000,
        }
        async with model(walked.answer, **settings) as (served, _):
            walked.served = served
            try:
                for _ in range(STEPS):
                    await chance.choice([walked.respond, walked.respond, walked.in_background, walked.leave])()
                    assert walked.complaints == []
            except BaseException:
                print(f"seed {seed}:", *walked.log[-8:], sep="\n  ")
                raise


def _taking(member: str) -> Item:
    return {"type": "object", "properties": {member: {"type": "string"}}, "required": [member]}


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(SEEDS))
def test_hosted_turns(seed: int) -> None:
    run(walk(seed if REPEATABLE else random.randrange(1 << 30)), "uvloop")
