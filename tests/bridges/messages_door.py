"""An endpoint for the Messages API, asked as Claude Code asks, and what comes of an answer."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import httpx

from responses_gateway.conformance.checker import frames
from responses_gateway.conformance.messages import check_message_stream
from tests.bridges.backend import MARK, MODEL, Backend

WEATHER = {
    "name": "get_weather",
    "description": "The weather.",
    "input_schema": {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]},
}


@dataclass(frozen=True)
class Heard:
    """An answer: its status (0: none), headers and body, and whether its connection was cut."""

    status: int
    headers: httpx.Headers
    body: bytes
    cut: bool = False

    @property
    def events(self) -> list[dict[str, Any]]:
        """The events of the stream that are JSON objects."""
        found = []
        for frame in frames(self.body):
            try:
                event = json.loads(frame.data)
            except ValueError:
                continue
            if isinstance(event, dict):
                found.append(event)
        return found

    @property
    def kinds(self) -> list[object]:
        """The types of the events."""
        return [event.get("type") for event in self.events]

    def json(self) -> Any:
        """Return the body as JSON, an empty object if it is none."""
        try:
            return json.loads(self.body)
        except ValueError:
            return {}

    def broken(self, *prefixes: str) -> str:
        """Return the rules broken whose names begin so, or the status where there is no stream."""
        if self.status != 200:
            return f"HTTP {self.status}"
        rules = {violation.rule for violation in check_message_stream(self.body)}
        return ", ".join(f"`{rule}`" for rule in sorted(rules) if rule.startswith(prefixes))

    def blocks(self) -> list[tuple[Any, ...]]:
        """Return what the deltas say: `("text", "…")`, `("call", name, input)`, as `Truth.items` has it."""
        open_blocks: dict[object, list[str]] = {}
        for event in self.events:
            if event.get("type") == "content_block_start":
                block = event["content_block"]
                kind = {"tool_use": "call", "thinking": "reasoning"}.get(block["type"], block["type"])
                open_blocks[event["index"]] = [kind, *([block["name"]] if kind == "call" else []), ""]
            elif event.get("type") == "content_block_delta" and event["index"] in open_blocks:
                delta = event["delta"]
                said = delta.get("text") or delta.get("thinking") or delta.get("partial_json") or ""
                open_blocks[event["index"]][-1] += said
        return [(*head, _input(said) if head[0] == "call" else said.strip()) for *head, said in open_blocks.values()]

    def stop(self) -> Mapping[str, Any]:
        """Return the delta of `message_delta`."""
        return next((event["delta"] for event in self.events if event.get("type") == "message_delta"), {})

    def usage(self) -> Mapping[str, Any]:
        """Return the usage of `message_delta`."""
        return next((event.get("usage") or {} for event in self.events if event.get("type") == "message_delta"), {})


def _input(text: str) -> object:
    try:
        return json.loads(text or "{}")
    except ValueError:
        return text


@dataclass(frozen=True)
class Door:
    """The endpoint: a client with its base URL, the name of its model, and the backend behind it."""

    client: httpx.AsyncClient
    backend: Backend
    model: str = MODEL

    def body(self, name: str, **fields: Any) -> dict[str, Any]:
        """Return a request for the stream of this name. Fields that are given replace its own."""
        own = {"model": self.model, "max_tokens": 1000, "stream": True, "thinking": {"type": "adaptive"}}
        return own | {"messages": [user(f"{MARK}{name}")]} | fields

    async def ask(self, name: str, headers: Mapping[str, str] | None = None, **fields: Any) -> Heard:
        """Send the request, and read the answer to its end."""
        body = b""
        versions = {"anthropic-version": "2023-06-01"} if headers is None else headers
        async with self.client.stream("POST", "/v1/messages", json=self.body(name, **fields), headers=versions) as response:
            try:
                async for piece in response.aiter_bytes():
                    body += piece
            except httpx.HTTPError:
                return Heard(response.status_code, response.headers, body, cut=True)
        return Heard(response.status_code, response.headers, body)

    async def sent(self, name: str, **fields: Any) -> dict[str, Any]:
        """Send the request, and return what the backend was asked: nothing if it was not."""
        self.backend.requests.pop(name, None)
        await self.ask(name, **fields)
        return self.backend.requests.get(name, {})


def user(*content: str | Mapping[str, Any]) -> dict[str, Any]:
    """Return a message of the user."""
    blocks: Sequence[Any] = [{"type": "text", "text": part} if isinstance(part, str) else part for part in content]
    return {"role": "user", "content": blocks}
