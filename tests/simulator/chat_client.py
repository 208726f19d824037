"""A client for a simulator, and its replies."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import aiohttp

from responses_gateway.wire.sse import SSEDecoder

WEATHER = {
    "type": "function",
    "function": {
        "name": "get_weather",
        "parameters": {
            "type": "object",
            "properties": {"city": {"type": "string"}, "unit": {"type": "string", "enum": ["celsius", "fahrenheit"]}},
            "required": ["city", "unit"],
        },
    },
}


@dataclass
class Reply:
    """A reply. `broken`: the connection ended before the body. `payloads` are those of the stream, `[DONE]` included."""

    status: int
    headers: dict[str, str]
    body: bytes
    broken: bool = False

    @property
    def payloads(self) -> list[bytes]:
        return SSEDecoder().feed(self.body)

    @property
    def chunks(self) -> list[dict[str, Any]]:
        return [json.loads(payload) for payload in self.payloads if payload != b"[DONE]"]

    @property
    def json(self) -> Any:
        return json.loads(self.body)

    @property
    def deltas(self) -> list[dict[str, Any]]:
        return [chunk["choices"][0]["delta"] for chunk in self.chunks if chunk.get("choices")]

    def text(self, field: str = "content") -> str:
        return "".join(delta.get(field) or "" for delta in self.deltas)

    @property
    def finish_reason(self) -> str | None:
        return next((c["choices"][0]["finish_reason"] for c in reversed(self.chunks) if c.get("choices")), None)

    @property
    def calls(self) -> list[dict[str, Any]]:
        """The calls of the stream: id, name, arguments (text), in the order of their indices."""
        calls: dict[int, dict[str, Any]] = {}
        for delta in self.deltas:
            for part in delta.get("tool_calls") or ():
                call = calls.setdefault(part["index"], {"arguments": ""})
                call |= {"id": part["id"]} if part.get("id") else {}
                call |= {"name": part["function"]["name"]} if part["function"].get("name") else {}
                call["arguments"] += part["function"].get("arguments") or ""
        return [calls[index] for index in sorted(calls)]


async def post(session: aiohttp.ClientSession, url: str, body: Any, headers: dict[str, str] | None = None) -> Reply:
    """Send a POST request, and read the reply up to its end or to where the connection breaks."""
    data = body if isinstance(body, bytes) else json.dumps(body).encode()
    sent = {"content-type": "application/json", **(headers or {})}
    received = bytearray()
    try:
        async with session.post(url, data=data, headers=sent) as response:
            status = response.status
            given = {name.lower(): value for name, value in response.headers.items()}
            try:
                async for piece in response.content.iter_any():
                    received += piece
            except aiohttp.ClientPayloadError:
                return Reply(status, given, bytes(received), broken=True)
            return Reply(status, given, bytes(received))
    except (aiohttp.ServerDisconnectedError, aiohttp.ClientOSError):
        return Reply(0, {}, b"", broken=True)


# The type of the fixture `ask`.
Ask = Callable[..., Reply]
