"""Steers at any moment of any response: each is applied once or returned once, in order, whatever else happens.

Several clients at a time steer responses that think, call their tools, have the gateway call its own, are continued at another
backend, corrected, moderated, cancelled or refused, and that continue others; they send other messages meanwhile, and leave.
What they do follows from a number; `STEERING_CASES=250` makes more of them."""

from __future__ import annotations

import asyncio
import json
import os
import re
from collections import deque
from collections.abc import AsyncIterator, Iterator, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field
from random import Random
from typing import Any, TypeAlias

import aiohttp
import pytest
from aiohttp import web
from aiohttp.typedefs import Handler

from responses_gateway.conformance.checker import check_stream
from responses_gateway.simulator import DIALECTS, RECEIVED, SimulatorOptions, create_app, serving
from responses_gateway.simulator.state import FAULT_COUNTS
from tests.hosted.websites import SearchEngine, open_site
from tests.server.custom_tools.test_custom_tools import tool as patch_tool
from tests.server.fleet_of_simulators import WEATHER
from tests.server.hosted.model import DOCS, MCP
from tests.server.running_gateway import TERMINALS, Served, ask, gateway
from tests.waiting import PATIENCE

CASES = int(os.environ.get("STEERING_CASES", "10"))
TPS = 400
MOST = 32  # steers that may wait
Event = dict[str, Any]
# What a prompt says, in short: the number of a user's message, what the model wrote, the names of its calls.
Said: TypeAlias = list[str]

SCENARIOS = ("demo", "demo", "demo", "parallel", "mcp", "research", "patch", "wrong_patch", "unicode", "reasoning", "plain")
FAULTS = ("", "", "", "", "drop=3,times=1", "eof=25,times=1", "abort=14,times=1", "drop=40,times=1", "status=400")
FIELDS: tuple[dict[str, Any], ...] = (
    *({},) * 12,
    {"conversation": "conv_of_nobody"},
    {"context_management": [{"type": "compaction", "compact_threshold": 10**6}]},
    {"moderation": {"model": "any", "policy": {"input": {"mode": "block"}, "output": {"mode": "block"}}}},
    {"generate": False},
)
# The first events of what comes before a result.
CALLS = ("function_call_arguments.delta", "custom_tool_call_input.delta", "mcp_call.in_progress", "web_search_call.in_progress")
# What a step does; and how many events it waits for, or for which.
STEPS = (*["steer"] * 12, *["create"] * 5, "cancel", "unknown", "bad", "burst")
WAITS = ("created", "created", "call", "call", "call", "output_item.done", "steer.accepted", *range(12))


class Plan:
    """What a client does."""

    def __init__(self, chance: Random) -> None:
        self.chance = chance
        self.store = chance.random() < 0.5
        self.steps = [(chance.choice(WAITS), chance.choice(STEPS)) for _ in range(chance.randint(1, 8))]
        self.leaves = chance.randint(1, 80) if chance.random() < 0.2 else -1  # behind so many events


@dataclass
class Steer:
    """One that was sent. `fate`: sent, accepted, pending, applied, refused or returned."""

    mark: str
    target: str
    given: Any
    id: str = ""
    fate: str = "sent"


@dataclass
class Made:
    """A response, with what its prompt said."""

    id: str
    lane: str
    said: Said
    steerable: bool
    stored: bool
    applies: bool = False  # it has steers in its input
    output: Sequence[Mapping[str, Any]] = ()
    status: str = "in_progress"

    @property
    def required(self) -> list[dict[str, str]]:
        """The outputs that its client owes."""
        kinds = {"function_call": "function_call_output", "custom_tool_call": "custom_tool_call_output"}
        calls = [item for item in self.output if item["type"] in kinds and item["status"] != "incomplete"]
        return [{"type": kinds[item["type"]], "call_id": item["call_id"]} for item in calls]

    @property
    def goes_on(self) -> bool:
        return self.status in ("completed", "incomplete")


def said_by(output: Sequence[Mapping[str, Any]]) -> Said:
    """Return what items say in a prompt."""
    said: Said = []
    for item in output:
        match item["type"]:
            case "message":
                said.append("".join(part["text"] for part in item["content"]).strip())
            case "function_call" | "custom_tool_call":
                said.append(f"calls {item['name']}")
            case "mcp_call":
                said.append(f"calls docs__{item['name']}")
            case "web_search_call":
                said.append("calls web_search")
    return said


def said_in(body: Mapping[str, Any]) -> Said:
    """Return what a chat request says."""
    said: Said = []
    for message in body["messages"]:
        content = message.get("content") or ""
        if message["role"] == "user":
            said += re.findall(r"#\d+", content if isinstance(content, str) else json.dumps(content))
        elif message["role"] == "assistant":
            said += [content.strip()] if content.strip() else []
            said += [f"calls {made['function']['name']}" for made in message.get("tool_calls") or ()]
    return said


@dataclass
class World:
    """Two gateways in front of the same backends, one without a store, and what all clients share."""

    loop: asyncio.Runner
    served: Mapping[bool, Served]
    received: deque[dict[str, Any]]
    session: aiohttp.ClientSession
    background: Made  # a response that ran in the background, in the store
    number: int = 0
    begun: list[str] = field(default_factory=list)  # the ids of responses, of any client

    def next_number(self) -> int:
        self.number += 1
        return self.number


@dataclass
class Waits:
    """A request that is to be answered. `said` is its own input."""

    lane: str
    previous: str | None
    said: Said
    fields: Mapping[str, Any]


class Client:
    """A connection, and what it knows: every event is compared with that."""

    def __init__(self, world: World, plan: Plan, socket: aiohttp.ClientWebSocketResponse) -> None:
        self.world = world
        self.store = plan.store
        self.lane = f"lane-{world.next_number()}"
        self.plan = plan
        self.socket = socket
        self.waiting: list[Waits] = []
        self.steers: list[Steer] = []
        self.made: dict[str, Made] = {}
        self.running: Made | None = None
        self.last: Made | None = None  # the last one that ended
        self.unknown = 0
        self.answered: set[str | None] = set()  # responses whose calls were answered
        self.frames: list[Event] = []
        self.next_number = 0

    # ---- what it does --------------------------------------------------------------------------------------------------

    async def play(self) -> None:
        await self.create()
        steps = list(self.plan.steps)
        seen: list[str] = []  # events since the last step
        left = self.plan.leaves
        while left and (steps or not self.settled):
            await self.answer_calls()
            if steps and (self.settled or steps[0][0] in (len(seen), *seen[-1:])):
                await self.act(steps.pop(0)[1])
                seen = []
            else:
                event = json.loads(await self.socket.receive_str(timeout=PATIENCE))
                self.take(event)
                kind = event["type"].removeprefix("response.")
                seen.append("call" if kind in CALLS else kind)
                left -= 1
        await self.socket.close()
        await self.look()

    @property
    def settled(self) -> bool:
        """Whether nothing is to come."""
        open_steers = any(steer.fate in ("sent", "accepted", "pending") for steer in self.steers)
        return not (self.waiting or self.running or self.unknown or open_steers)

    async def say(self, **message: Any) -> None:
        await self.socket.send_str(json.dumps(message))

    async def act(self, step: str) -> None:
        match step:
            case "steer":
                await self.steer(self.text(), self.plan.chance.choice(["last"] * 8 + ["first", "foreign"]))
            case "burst":
                for _ in range(MOST + 3):
                    await self.steer(self.text("plain", ""))
            case "bad":
                await self.steer(self.text(), role="system")
            case "create":
                await self.create()
            case "cancel":
                await self.say(type="response.cancel")
            case "unknown":
                self.unknown += 1
                await self.say(type="response.inject", response_id="resp_1", input=[])

    def text(self, scenario: str | None = None, fault: str | None = None) -> tuple[str, str]:
        """Return a prompt that asks for an answer, by chance any, and its mark."""
        mark = f"#{self.world.next_number()}"
        fault = self.plan.chance.choice(FAULTS) if fault is None else fault
        faults = f"fault: {fault} " if fault else ""
        return f"scenario: {scenario or self.plan.chance.choice(SCENARIOS)} tps: {TPS} {faults}{mark}", mark

    async def create(self) -> None:
        given, mark = self.text()
        known = list(self.made)
        begins = self.world.background.id if self.store and self.plan.chance.random() < 0.3 else None
        target = self.plan.chance.choice([begins, known[-1], known[-1], known[0]]) if known else begins
        await self.send(target, [mark], [{"role": "user", "content": given}], self.plan.chance.choice(FIELDS))

    async def answer_calls(self) -> None:
        """Answer the calls of a response whose steers wait for that."""
        for steer in self.steers:
            if steer.fate == "pending" and steer.target not in self.answered:
                self.answered.add(steer.target)
                given, mark = self.text()
                outputs = [stub | {"output": "done"} for stub in self.made[steer.target].required]
                await self.send(steer.target, [mark], [*outputs, {"role": "user", "content": given}], {})

    async def send(self, previous: str | None, said: Said, given: list[Any], fields: Mapping[str, Any]) -> None:
        lane = self.lane
        if "conversation" in fields and not self.store:
            fields = {}
        self.waiting.append(Waits(lane, previous, said, fields))
        tools = [WEATHER, MCP, {"type": "web_search"}, patch_tool()]
        body = {"model": "simulator", "input": given, "tools": tools, "store": self.store, **fields}
        await self.say(type="response.create", stream_id=lane, previous_response_id=previous, **body)

    async def steer(self, text: tuple[str, str], which: str = "last", role: str = "user") -> None:
        given, mark = text
        known = list(self.made)
        foreign = next((name for name in self.world.begun if name not in self.made), "resp_of_nobody")
        target = foreign if which == "foreign" or not known else known[-1 if which == "last" else 0]
        steer = Steer(mark, target, [{"type": "message", "role": role, "content": given}])
        self.steers.append(steer)
        await self.say(type="response.steer", previous_response_id=target, input=steer.given)

    # ---- what it is told -----------------------------------------------------------------------------------------------

    def take(self, event: Event) -> None:
        kind = event["type"]
        if kind == "error":
            self.refused(event)
        elif kind.startswith("response.steer."):
            self.told(kind.rpartition(".")[2], event)
        elif kind == "response.created":
            self.begins(event)
        else:
            assert self.running is not None, event
            assert event["stream_id"] == self.running.lane
            self.frames.append(event)
            if kind in TERMINALS:
                self.ends(event["response"])

    def refused(self, event: Event) -> None:
        if event["error"]["param"] == "type":
            self.unknown -= 1
            assert self.unknown >= 0
            return
        assert self.running is None
        assert self.due is None, "the successor begins before any other message is answered"
        refused = self.waiting.pop(0)
        assert event["stream_id"] == refused.lane
        self.answered.discard(refused.previous)

    def told(self, what: str, event: Event) -> None:
        name = event["steer"]["previous_response_id"]
        steer = self.of_event(what, event)
        if self.running is not None and name == self.running.id:
            self.frames.append(event)
        elif name in self.made:
            assert event["sequence_number"] == self.next_number
            self.next_number += 1
        match what:
            case "accepted":
                assert steer.fate == "sent"
                target = self.running or self.last
                assert target is not None
                assert (target.id, target.steerable) == (name, True)
                steer.id = event["steer"]["id"]
                steer.fate = "accepted"
                assert len(self.open) <= MOST
            case "pending":
                assert steer.fate == "accepted"
                assert self.made[name].required
                assert len(event["required_input"]) == len(self.made[name].required)
                steer.fate = "pending"
            case "failed":
                code = event["error"]["code"]
                assert event["steer"]["input"] == steer.given
                if steer.id:
                    assert (steer.fate in ("accepted", "pending"), code) == (True, "successor_creation_failed")
                    steer.fate = "returned"
                else:
                    assert steer.fate == "sent"
                    self.check_refusal(steer, code)
                    steer.fate = "refused"

    def of_event(self, what: str, event: Event) -> Steer:
        """Return the steer that an event is about: those of one response are answered in their order."""
        named = event["steer"]
        if what == "accepted":
            name = named["previous_response_id"]
            return next(steer for steer in self.steers if steer.fate == "sent" and steer.target == name)
        if "id" in named:
            return next(steer for steer in self.steers if steer.id == named["id"])
        first = next(steer for steer in self.steers if steer.fate == "sent" and steer.target == named["previous_response_id"])
        assert first.given == named["input"]
        return first

    def check_refusal(self, steer: Steer, code: str) -> None:
        made = self.made.get(steer.target)
        if made is None:
            assert code == "response_not_found"
        elif code == "invalid_input":
            assert steer.given[0]["role"] == "system"
        elif code == "too_many_pending_steers":
            assert len(self.open) == MOST
        elif code == "steering_not_supported":
            assert made is (self.running or self.last)
            assert not made.steerable
        else:
            assert code == ("response_already_completed" if made.status == "completed" else "response_not_active")

    @property
    def open(self) -> list[Steer]:
        """Those that were accepted, and are neither applied nor returned."""
        return [steer for steer in self.steers if steer.fate in ("accepted", "pending")]

    @property
    def due(self) -> Made | None:
        """The response that is to be continued unasked."""
        last = self.last
        if self.running is not None or last is None or not last.goes_on or last.required:
            return None
        return last if any(steer.target == last.id and steer.fate == "accepted" for steer in self.steers) else None

    def begins(self, event: Event) -> None:
        assert self.running is None
        response = event["response"]
        previous = response["previous_response_id"]
        due = self.due
        fields: Mapping[str, Any] = {}
        own: Said = []
        if due is not None:
            assert (previous, event["stream_id"]) == (due.id, due.lane), "the successor begins before any other message"
            lane = due.lane
        else:
            asked = self.waiting.pop(0)
            assert (previous, event["stream_id"]) == (asked.previous, asked.lane)
            lane, fields, own = asked.lane, asked.fields, asked.said
        applied = [steer for steer in self.open if steer.target == previous]
        for steer in applied:
            steer.fate = "applied"
        said: Said = []
        if previous is not None:
            before = self.made.get(previous, self.world.background)
            said = [*before.said, *said_by(before.output)]
        said += [*(steer.mark for steer in applied), *own]
        if "moderation" not in fields and "generate" not in fields:
            asked_for = [said_in(entry["body"]) for entry in self.world.received if "messages" in entry["body"]]
            assert said in asked_for, (said, [each for each in asked_for if each[-1:] == said[-1:]])
        steerable = not {"conversation", "context_management", "generate"} & set(fields)
        made = Made(response["id"], lane, said, steerable, self.store, bool(applied))
        self.running = self.made[made.id] = made
        self.world.begun.append(made.id)
        self.frames = [event]

    def ends(self, response: Mapping[str, Any]) -> None:
        made = self.running
        assert made is not None
        made.status = response["status"]
        made.output = response["output"]
        made.stored = made.stored and response["store"]
        if (response["incomplete_details"] or {}).get("reason") == "steered":
            assert any(steer.target == made.id and steer.fate == "accepted" for steer in self.steers)
        frames = "".join(f"event: {event['type']}\ndata: {json.dumps(event)}\n\n" for event in self.frames)
        assert check_stream((frames + "data: [DONE]\n\n").encode()) == []
        self.next_number = self.frames[-1]["sequence_number"] + 1
        self.running = None
        self.last = made

    # ---- what is left --------------------------------------------------------------------------------------------------

    async def look(self) -> None:
        """Compare the store with what was told of the responses that ended, and of those that have steers in their input."""
        if not self.store:
            return
        path = "/v1/responses/"
        for made in self.made.values():
            if made.status != "in_progress" and made.stored:
                found = (await ask(self.world.served[True], "GET", path + made.id)).json
                assert (found["status"], found["output"]) == (made.status, made.output)
            elif made.status == "in_progress" and made.applies:
                found = {"status": "in_progress"}
                while found["status"] == "in_progress":  # the gateway may not have noticed yet that the client has left
                    found = (await ask(self.world.served[True], "GET", path + made.id)).json


@asynccontextmanager
async def serve(runner: asyncio.Runner) -> AsyncIterator[World]:
    """Serve two alike backends, a search engine, and a gateway with a store and one without."""

    @web.middleware
    async def guard(request: web.Request, handler: Handler) -> web.StreamResponse:
        if request.method == "POST" and b'"guard"' in await request.read():
            return web.json_response({"choices": [{"message": {"content": "safe"}, "finish_reason": "stop"}]})
        return await handler(request)

    received: deque[dict[str, Any]] = deque(maxlen=300)
    apps = [create_app(SimulatorOptions(dialect=DIALECTS["vllm"], models=("simulator", "guard"))) for _ in range(2)]
    engine = SearchEngine()
    async with AsyncExitStack() as stack:
        urls = []
        for app in apps:
            app.middlewares.append(guard)
            app[FAULT_COUNTS] = apps[0][FAULT_COUNTS]
            app[RECEIVED] = received
            urls.append(await stack.enter_async_context(serving(app)))
        await stack.enter_async_context(open_site(engine))
        wanted: dict[str, Any] = {
            "adapt": False, "continue_answers": 1, "breaker_failures": 10_000, "mcp_servers": DOCS,
            "web_search_url": engine.url, "repair_custom_tools": "once", "moderation_model": "guard", "access_log": False,
        }  # fmt: skip
        served = {
            store: await stack.enter_async_context(gateway(*urls, store="memory" if store else "none", **wanted))
            for store in (True, False)
        }
        session = await stack.enter_async_context(aiohttp.ClientSession())
        yield World(runner, served, received, session, await in_background(served[True]))


async def in_background(served: Served) -> Made:
    """Return a response that has run in the background."""
    body = {"model": "simulator", "input": "scenario: reasoning #0", "background": True}
    response = (await ask(served, "POST", "/v1/responses", json=body)).json
    while response["status"] != "completed":
        response = (await ask(served, "GET", f"/v1/responses/{response['id']}")).json
    return Made(response["id"], "", ["#0"], False, True, output=response["output"], status="completed")


@pytest.fixture(scope="module")
def world() -> Iterator[World]:
    with asyncio.Runner() as runner:
        stack = AsyncExitStack()
        try:
            yield runner.run(stack.enter_async_context(serve(runner)))
        finally:
            runner.run(stack.aclose())


async def play(world: World, plans: Sequence[Plan]) -> None:
    async def one(plan: Plan) -> None:
        url = world.served[plan.store].url + "/v1/responses"
        async with world.session.ws_connect(url, max_msg_size=0) as socket:
            await Client(world, plan, socket).play()

    async with asyncio.TaskGroup() as group:
        for plan in plans:
            group.create_task(one(plan))


@pytest.mark.parametrize("seed", range(CASES))
def test_each_steer_is_applied_once_or_returned_once(world: World, seed: int) -> None:
    chance = Random(seed)
    world.loop.run(play(world, [Plan(chance) for _ in range(3)]))
