"""The clients of a soak: each kind asks once, in a way of its own, and tells what was wrong with the answer.

Refusals and failures are part of the traffic. Wrong is an answer that hangs, breaks a rule of a stream, ends twice or never, or
says that a bad request was good."""

from __future__ import annotations

import asyncio
import gzip
import json
import random
from collections.abc import Awaitable, Callable
from typing import Any, NamedTuple

import aiohttp

from responses_gateway.conformance.checker import check_stream
from responses_gateway.conformance.levels import Violation
from responses_gateway.conformance.messages import check_message_stream

# Longest time for one exchange, in seconds: a gateway that needs more has hung.
PATIENCE = 90.0
# What a gateway may answer while backends come and go, or all of them are busy.
_TROUBLE = frozenset({429, 502, 503, 504})
_SCENARIOS = ("default", "plain", "reasoning", "parallel", "unicode", "code", "refusal", "empty", "text_after_call")
_FAULTS = (
    "drop", "eof", "error", "malformed", "reset", "no-done", "no-finish", "length=5", "filter", "status=400", "status=404",
    "status=429", "status=500", "status=503", "overflow=vllm", "slow-headers=0.3", "delay=0.3", "silence=0.3", "drop=call",
    "eof=reasoning", "drop,once",
)  # fmt: skip
_TOOL = {
    "type": "function",
    "name": "get_weather",
    "parameters": {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]},
}
_BAD_BODIES: tuple[bytes, ...] = (
    b"",
    b"{",
    b"[" * 50_000,
    b'{"model": 5, "input": "x"}',
    b'{"model": "m", "input": [{"type": "message", "role": "user", "content": 5}]}',
    b'{"model": "m", "input": "x", "temperature": "hot"}',
    b'{"model": "m", "input": "x", "tools": [{"type": "function"}]}',
    b'{"model": "m", "input": "x", "previous_response_id": "resp_of_somebody_else"}',
    json.dumps(
        {
            "model": "m",
            "input": [
                {
                    "type": "message",
                    "role": "user",
                    "content": [{"type": "input_image", "image_url": f"data:image/png;base64,{'A' * 600_000}", "detail": 5}],
                }
            ],
        }
    ).encode(),
)
_BOMB = gzip.compress(b" " * 30_000_000)


class Visit(NamedTuple):
    """What one client needs: the session, the base URL of the gateway and its own source of chance."""

    session: aiohttp.ClientSession
    url: str
    random: random.Random


# One exchange; returns what was wrong, or an empty text.
Kind = Callable[[Visit], Awaitable[str]]


def _body(visit: Visit, directives: str, **fields: Any) -> dict[str, Any]:
    text = f"{directives} {visit.random.random()}"
    return {"model": "simulator", "input": text, "tools": [_TOOL], "store": False, **fields}


def _first(broken: list[Violation]) -> str:
    """Tell the first broken rule of a stream; nothing if there is none."""
    return f"{broken[0].rule}: {broken[0].detail}" if broken else ""


async def _judged(visit: Visit, body: dict[str, Any]) -> str:
    """Ask for a stream, read it to its end and judge it."""
    async with visit.session.post(f"{visit.url}/responses", json={**body, "stream": True}) as answer:
        data = await answer.read()
        if answer.status != 200:
            return "" if answer.status in _TROUBLE or 400 <= answer.status < 500 else f"HTTP {answer.status}"
    return _first(check_stream(data))


async def stream(visit: Visit) -> str:
    """Read a stream."""
    scenario = visit.random.choice(_SCENARIOS)
    return await _judged(visit, _body(visit, f"scenario: {scenario}", store=visit.random.random() < 0.5))


async def fault(visit: Visit) -> str:
    """Read a stream whose backend fails."""
    scenario = visit.random.choice(_SCENARIOS)
    return await _judged(visit, _body(visit, f"scenario: {scenario} fault: {visit.random.choice(_FAULTS)}"))


async def whole(visit: Visit) -> str:
    """Ask without a stream."""
    directives = f"scenario: {visit.random.choice(_SCENARIOS)}"
    if visit.random.random() < 0.3:
        directives += f" fault: {visit.random.choice(_FAULTS)}"
    async with visit.session.post(f"{visit.url}/responses", json=_body(visit, directives)) as answer:
        response = await answer.json(content_type=None)
    if answer.status == 200:
        return "" if response["status"] in ("completed", "incomplete", "failed") else f"status {response['status']}"
    return "" if "error" in response else f"HTTP {answer.status} without an error"


async def refused(visit: Visit) -> str:
    """Send what no gateway should take."""
    headers = {"Content-Type": "application/json"}
    async with visit.session.post(f"{visit.url}/responses", data=visit.random.choice(_BAD_BODIES), headers=headers) as answer:
        await answer.read()
    return "" if 400 <= answer.status < 500 else f"HTTP {answer.status} for a bad body"


async def bomb(visit: Visit) -> str:
    """Send 30 KB that unpack to 30 MB."""
    headers = {"Content-Type": "application/json", "Content-Encoding": "gzip"}
    async with visit.session.post(f"{visit.url}/responses", data=_BOMB, headers=headers) as answer:
        await answer.read()
    return "" if answer.status in (400, 413, 429, 503) else f"HTTP {answer.status} for a bomb"


async def slow(visit: Visit) -> str:
    """Read a long stream more slowly than it comes."""
    body = _body(visit, "scenario: long tokens: 3000", stream=True)
    data = bytearray()
    async with visit.session.post(f"{visit.url}/responses", json=body) as answer:
        async for piece in answer.content.iter_chunked(16_384):
            data += piece
            await asyncio.sleep(0.01)
        if answer.status != 200:
            return ""
    return _first(check_stream(bytes(data)))


async def leaving(visit: Visit) -> str:
    """Close the connection somewhere: before the headers, or after some bytes."""
    body = _body(visit, "scenario: long tokens: 2000 tps: 400", stream=True, store=visit.random.random() < 0.5)
    size = visit.random.choice((0, 1, 500, 5_000, 50_000))
    try:
        async with asyncio.timeout(visit.random.uniform(0.01, 1.0)):
            async with visit.session.post(f"{visit.url}/responses", json=body) as answer:
                await answer.content.readexactly(size)
                answer.close()
    except (TimeoutError, asyncio.IncompleteReadError):
        pass
    return ""


async def chained(visit: Visit) -> str:
    """Continue a stored response, then delete it."""
    async with visit.session.post(f"{visit.url}/responses", json=_body(visit, "scenario: plain", store=True)) as answer:
        first = await answer.json(content_type=None)
    if answer.status != 200 or not first.get("store"):
        return ""
    name = first["id"]
    wrong = await _judged(visit, _body(visit, "scenario: plain", store=True, previous_response_id=name))
    async with visit.session.delete(f"{visit.url}/responses/{name}") as answer:
        await answer.read()
    return wrong or ("" if answer.status == 200 else f"HTTP {answer.status} for the deletion of a stored response")


async def background(visit: Visit) -> str:
    """Let a response run in the background; wait for it, follow its stream or cancel it."""
    body = _body(visit, "scenario: reasoning tps: 200", background=True, store=True)
    async with visit.session.post(f"{visit.url}/responses", json=body) as answer:
        response = await answer.json(content_type=None)
    if answer.status != 200:
        return ""
    url = f"{visit.url}/responses/{response['id']}"
    way = visit.random.choice(("poll", "stream", "cancel"))
    if way == "cancel":
        async with visit.session.post(f"{url}/cancel") as answer:
            await answer.read()
    if way == "stream":
        async with visit.session.get(url, params={"stream": "true"}) as answer:
            broken = check_stream(await answer.read()) if answer.status == 200 else []
        if broken:
            return _first(broken)
    while response["status"] in ("queued", "in_progress"):
        await asyncio.sleep(0.05)
        async with visit.session.get(url) as answer:
            response = await answer.json(content_type=None)
        if answer.status != 200:
            return f"HTTP {answer.status} for a response in the background"
    return ""


async def socket(visit: Visit) -> str:
    """Ask over a WebSocket, once or more; leave in the middle sometimes."""
    async with visit.session.ws_connect(f"{visit.url}/responses") as connection:
        for _ in range(visit.random.randint(1, 3)):
            await connection.send_json({"type": "response.create", **_body(visit, "scenario: reasoning")})
            leaves = visit.random.random() < 0.2
            async for message in connection:
                if message.type is not aiohttp.WSMsgType.TEXT:
                    return f"the connection ended with {message.type.name}"
                kind = json.loads(message.data)["type"]
                if kind in ("response.completed", "response.incomplete", "response.failed", "error"):
                    break
                if leaves and kind.endswith(".delta"):
                    return ""
    return ""


async def message(visit: Visit) -> str:
    """Ask the Messages API for a stream or for the whole, of a backend that may fail; or have the tokens counted."""
    directives = f"scenario: {visit.random.choice(_SCENARIOS)}"
    if visit.random.random() < 0.4:
        directives += f" fault: {visit.random.choice(_FAULTS)}"
    body: dict[str, Any] = {
        "model": "simulator",
        "max_tokens": 4000,
        "thinking": {"type": "adaptive"},
        "tools": [{"name": _TOOL["name"], "input_schema": _TOOL["parameters"]}],
        "messages": [{"role": "user", "content": f"{directives} {visit.random.random()}"}],
    }
    way = visit.random.choice(("stream", "stream", "whole", "count"))
    path = "messages/count_tokens" if way == "count" else "messages"
    async with visit.session.post(f"{visit.url}/{path}", json={**body, "stream": way == "stream"}) as answer:
        data = await answer.read()
    if answer.status != 200:
        return "" if json.loads(data)["type"] == "error" else f"HTTP {answer.status} without an error"
    if way == "stream":
        return _first(check_message_stream(data))
    result = json.loads(data)
    ended = result["input_tokens"] > 0 if way == "count" else result["stop_reason"] is not None
    return "" if ended else f"neither a count nor a message that has ended: {result}"


async def relayed(visit: Visit) -> str:
    """Use the paths that go through to the backend."""
    async with visit.session.get(f"{visit.url}/models") as answer:
        await answer.read()
    body = {"model": "simulator", "messages": [{"role": "user", "content": "scenario: plain"}], "stream": True}
    async with visit.session.post(f"{visit.url}/chat/completions", json=body) as answer:
        try:
            await answer.read()
        except aiohttp.ClientPayloadError:  # all that can be told of a backend that breaks off
            return ""
    return "" if answer.status == 200 or answer.status in _TROUBLE else f"HTTP {answer.status} for a relayed request"


# How often each kind comes, of all exchanges.
KINDS: dict[Kind, int] = {
    stream: 30, fault: 20, whole: 10, refused: 8, bomb: 2, slow: 3, leaving: 12, chained: 5, background: 5, socket: 8,
    message: 12, relayed: 4,
}  # fmt: skip


async def client(visit: Visit, stop: asyncio.Event, done: Callable[[str, str], None]) -> None:
    """Ask again and again until told to stop; `done` gets the kind of each exchange and what was wrong with it."""
    kinds = list(KINDS)
    weights = list(KINDS.values())
    while not stop.is_set():
        kind = visit.random.choices(kinds, weights)[0]
        wrong = ""
        try:
            async with asyncio.timeout(PATIENCE):
                wrong = await kind(visit)
        except TimeoutError:
            wrong = f"no end within {PATIENCE:.0f} s"
        except aiohttp.ClientPayloadError as error:
            wrong = f"the body broke off ({error})"
        except aiohttp.ClientError as error:
            wrong = f"no answer ({type(error).__name__}: {error})"
        done(kind.__name__, wrong)
