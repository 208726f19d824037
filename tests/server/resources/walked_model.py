"""What a walk over the API knows (`api_walk.py`): what was said, how the backend answers, and what a prompt has to be."""

from __future__ import annotations

import asyncio
import json
import random
import re
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from tests.server.scripted_backend import HEAD, Connection, chunk, text_stream

Item = dict[str, Any]
# What a message, a call or a result says, whatever its form.
Said = tuple[str, ...]
TOOLS = [{"type": "function", "name": name, "parameters": {"type": "object"}} for name in ("look", "act")]
# Behind this a request has the number of its plan in its limit of tokens, because that does not change the prompt.
NOTHING = 100_000
# What the model is told of a call whose result nobody gave.
_MISSING = "(The result of this call is missing. Whether it was carried out is not known.)"
_REFUSAL = b'{"error": {"message": "no", "type": "invalid_request_error", "code": 400}}'
_REFUSED = b"HTTP/1.1 400 No\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n%b"
_HEALTHY = b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: 2\r\n\r\n{}"


def said_in(items: Sequence[Item]) -> list[Said]:
    """Return what items of the Responses API say, without thoughts."""
    said: list[Said] = []
    for item in items:
        match item.get("type", "message"):
            case "message":
                said.append((item["role"], _text(item)))
            case "function_call":
                said.append(("call", item["call_id"], item["name"], item["arguments"]))
            case "function_call_output":
                said.append(("tool", item["call_id"], item["output"]))
            case "compaction":
                said.append(("compaction", item["encrypted_content"]))
    return said


def items_of(said: Sequence[Said]) -> list[Item]:
    """Return items that say this, as a client sends them that keeps its own history."""
    items: list[Item] = []
    for entry in said:
        match entry:
            case ("call", call_id, name, arguments):
                items.append({"type": "function_call", "call_id": call_id, "name": name, "arguments": arguments})
            case ("tool", call_id, output):
                items.append({"type": "function_call_output", "call_id": call_id, "output": output})
            case ("compaction", content):
                items.append({"type": "compaction", "encrypted_content": content})
            case (role, text):
                items.append({"role": role, "content": text})
    return items


def said_to(messages: Sequence[Item]) -> list[Said]:
    """Return what a backend was told. A summary is told by the mark of the response that has it."""
    said: list[Said] = []
    for message in messages:
        text = _text(message)
        if "replaced by this summary" in text:
            said.append(("compaction", re.findall(r"Said (m\d+)", text)[0]))
        elif message["role"] == "tool":
            said.append(("tool", message["tool_call_id"], text))
        elif text:
            said.append((message["role"].replace("system", "developer"), text))
        for call in message.get("tool_calls") or ():
            said.append(("call", call["id"], call["function"]["name"], call["function"]["arguments"]))
    return said


def in_order(said: Sequence[Said]) -> list[Said]:
    """Return the same with the results of calls directly behind their calls, as chat servers want them. A question that is
    repeated before such a result is left out, because it would ask for the call again; answers in a row, between which a
    message was removed, are one."""
    results = {entry[1]: entry for entry in said if entry[0] == "tool"}
    ordered: list[Said] = []
    called: list[str] = []
    awaited: set[str] = set()
    question: Said = ()
    for entry in [*said, ("end",)]:
        if entry[0] == "tool":
            awaited.discard(entry[1])
            continue
        if entry[0] == "call":
            called.append(entry[1])
            awaited |= {entry[1]} & results.keys()
            whole = entry[3] if entry[3].endswith("}") else "{}"  # a call that was cut off is told without arguments
            ordered.append((*entry[:3], whole))
            continue
        if awaited and entry == question:
            continue
        if entry[0] in ("user", "compaction"):
            question = entry
        ordered += [results.pop(name, ("tool", name, _MISSING)) for name in called]
        called = []
        awaited = set()
        if entry[0] == "assistant" and ordered and ordered[-1][0] == "assistant":
            ordered[-1] = ("assistant", f"{ordered[-1][1]}\n\n{entry[1]}")
        else:
            ordered.append(entry)
    return [*ordered[:-1], *results.values()]


def since_compaction(said: Sequence[Said]) -> list[Said]:
    """Return what the last compaction has left."""
    place = max((place for place, entry in enumerate(said) if entry[0] == "compaction"), default=0)
    return [entry for entry in said[:place] if entry[0] == "developer"] + list(said[place:])


def open_calls(said: Sequence[Said]) -> list[str]:
    """Return the ids of calls that have no results."""
    answered = {entry[1] for entry in said if entry[0] == "tool"}
    return [entry[1] for entry in said if entry[0] == "call" and entry[1] not in answered]


def results_of(said: Sequence[Said], mark: str) -> list[Item]:
    """Return results for the calls that have none."""
    return [{"type": "function_call_output", "call_id": name, "output": f"out {mark}"} for name in open_calls(said)]


def _text(message: Item) -> str:
    content = message.get("content")
    return content if isinstance(content, str) else "".join(part["text"] for part in content or ())


@dataclass(eq=False)
class Plan:
    """How the backend answers one request: it waits for `gate` before piece number `waits_at`."""

    number: int
    pieces: list[bytes]
    fate: str = "ends"
    waits_at: int | None = None
    gate: asyncio.Event = field(default_factory=asyncio.Event)
    waits: asyncio.Event = field(default_factory=asyncio.Event)
    prompts: list[list[Item]] = field(default_factory=list)
    running: int = 0

    @property
    def mark(self) -> str:
        return f"m{self.number}"

    @property
    def limit(self) -> int:
        """The limit of tokens by which the backend knows the request."""
        return NOTHING + self.number

    @property
    def model_had_finished(self) -> bool:
        """Whether only usage and the end of the stream were missing where it waited."""
        return self.waits_at is not None and self.waits_at >= len(self.pieces) - 2


def new_plan(number: int, chance: random.Random) -> Plan:
    """Decide how a request is answered."""
    pieces = [chunk({"role": "assistant", "content": ""})]
    if chance.random() < 0.3:
        pieces += [chunk({"reasoning": f"Hm m{number}. "}), chunk({"reasoning": "So."})]
    if chance.random() < 0.8:
        long = [chunk({"content": "x" * 5000})] if chance.random() < 0.1 else []
        pieces += [chunk({"content": f"Said m{number}"}), chunk({"content": " and more."}), *long]
    calls = chance.choice([0, 0, 0, 1, 1, 2, 3])
    for place in range(calls):
        named = {"name": chance.choice(["look", "act"]), "arguments": '{"n": '}
        begun = {"index": place, "id": f"call_m{number}_{place}", "type": "function", "function": named}
        pieces += [chunk({"tool_calls": [call]}) for call in (begun, {"index": place, "function": {"arguments": f"{place}}}"}})]
    fate = chance.choices(["ends", "length", "refuses", "breaks"], [10, 1, 1, 1])[0]
    if fate != "breaks":
        usage = {"prompt_tokens": 3, "completion_tokens": 2, "total_tokens": 5}
        reason = "length" if fate == "length" else "tool_calls" if calls else "stop"
        pieces += [chunk({}, reason), chunk(None, usage=usage), b"data: [DONE]\n\n"]
    return Plan(number, pieces, fate)


class WalkedBackend:
    """Answers each request by its plan. What nobody has planned for gets a short answer."""

    def __init__(self) -> None:
        self.plans: dict[int, Plan] = {}

    async def play(self, connection: Connection) -> None:
        if connection.request.startswith(b"GET "):  # it is asked how it is
            connection.write(_HEALTHY)
            return
        body = json.loads(connection.request.partition(b"\r\n\r\n")[2])
        plan = self.plans.get(body["max_completion_tokens"] - NOTHING) or Plan(0, text_stream("Nothing."))
        plan.prompts.append(body["messages"])
        plan.running += 1
        try:
            await self._answer(connection, plan)
        finally:
            plan.running -= 1

    async def _answer(self, connection: Connection, plan: Plan) -> None:
        if plan.fate == "refuses":
            connection.write(_REFUSED % (len(_REFUSAL), _REFUSAL))
            return
        connection.write(HEAD)
        for number, piece in enumerate(plan.pieces):
            if number == plan.waits_at:
                plan.waits.set()
                gate = asyncio.create_task(plan.gate.wait())
                await asyncio.wait([gate, connection.lost], return_when=asyncio.FIRST_COMPLETED)
                gate.cancel()
            connection.send(piece)
            await asyncio.sleep(0)
        if plan.fate == "breaks":
            connection.reset()
        else:
            connection.end()


@dataclass(eq=False)
class Conversation:
    """A conversation, and what was said in it. `busy`: a response adds to it."""

    id: str
    tenant: str
    said: list[Said]
    metadata: dict[str, str]
    busy: bool = False


@dataclass(eq=False)
class Known:
    """A response. `said`: all before its input, and once it has ended up to its end; `sent`: its input alone. `final` is its
    JSON. `events` are those of its own stream, if it was kept."""

    id: str
    tenant: str
    said: list[Said]
    sent: list[Said]
    plan: Plan
    conversation: Conversation | None = None
    background: bool = False
    final: str | None = None
    events: list[Item] | None = None
    stored: bool = True
    deleted: bool = False

    @property
    def json(self) -> Item:
        assert self.final is not None
        value: Item = json.loads(self.final)
        return value

    @property
    def is_there(self) -> bool:
        return self.stored and not self.deleted
