"""`responses-gateway demo`: the simulator, the gateway and a client in one process, one live stream in the terminal."""

from __future__ import annotations

import argparse
import asyncio
import json
import sys
import time
from collections.abc import AsyncIterator, Sequence
from contextlib import AsyncExitStack
from dataclasses import dataclass, field
from typing import Any

import httpx
from rich.console import Console, Group, RenderableType
from rich.json import JSON
from rich.live import Live
from rich.markdown import Markdown
from rich.panel import Panel
from rich.text import Text

from responses_gateway.commands.argument_types import not_negative
from responses_gateway.conformance.checker import Violation, check_stream
from responses_gateway.server.app import create_app as create_gateway
from responses_gateway.server.lifespan import open_parts
from responses_gateway.settings import Settings
from responses_gateway.simulator import DIALECTS, SimulatorOptions, create_app, serving
from responses_gateway.wire.sse import SSEDecoder

_TIMEOUT = 30.0
_QUESTION = "What is the weather in Paris?"
# A model name for which the simulator answers with items of all kinds.
_MODEL = "sim-demo"
_WEATHER = {
    "type": "function",
    "name": "get_weather",
    "description": "Current weather of a city.",
    "parameters": {
        "type": "object",
        "properties": {"city": {"type": "string"}, "unit": {"type": "string", "enum": ["celsius", "fahrenheit"]}},
        "required": ["city", "unit"],
    },
}


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of the command."""
    parser.add_argument("--question", default=_QUESTION, help="what to ask the simulated model")
    parser.add_argument(
        "--tokens-per-second", type=not_negative, default=45.0, metavar="N", help="speed (default: %(default)s)"
    )
    parser.add_argument(
        "--dialect",
        choices=sorted(DIALECTS),
        default="vllm",
        metavar="NAME",
        help="server that the backend behaves like; `responses-gateway simulate --help` lists them (default: %(default)s)",
    )


def run(args: argparse.Namespace) -> int:
    """Play one stream. Returns 0 if it was complete and valid, 1 if not."""
    console = Console(highlight=False)
    transcript, violations = asyncio.run(_play(args, console))
    console.print(transcript.summary(violations))
    return 0 if transcript.final == "response.completed" and not violations else 1


@dataclass
class Item:
    """An output item as far as it has arrived. `text` is reasoning, answer or arguments."""

    kind: str
    name: str = ""
    text: str = ""
    done: bool = False

    def render(self) -> RenderableType:
        """Render reasoning dim and italic, text as Markdown, a call in a frame."""
        if self.kind == "reasoning":
            return Text(self.text.strip(), style="dim italic")
        if self.kind == "message":
            return Markdown(self.text.strip()) if self.done else Text(self.text.strip())
        return Panel(_pretty(self.text), title=f"[bold cyan]{self.name}[/]", title_align="left", expand=False)


@dataclass
class DemoTranscript:
    """The events of one stream, collected into what a terminal shows. Times are seconds since the request."""

    items: list[Item] = field(default_factory=list)
    events: int = 0
    first_token: float | None = None
    elapsed: float = 0.0
    usage: dict[str, Any] = field(default_factory=dict)
    final: str = ""

    def take(self, event: dict[str, Any], at: float) -> None:
        """Add an event that came `at` seconds after the request."""
        self.events += 1
        self.elapsed = at
        kind = str(event.get("type"))
        if kind == "response.output_item.added":
            item = event["item"]
            self.items.append(Item(item["type"], item.get("name", "")))
        elif kind.endswith(".delta") and self.items:
            self.first_token = at if self.first_token is None else self.first_token
            if "summary" not in kind:  # the summary mirrors the reasoning
                self.items[-1].text += event["delta"]
        elif kind == "response.output_item.done" and self.items:
            self.items[-1].done = True
        elif kind in ("response.completed", "response.incomplete", "response.failed", "error"):
            self.final = kind
            self.usage = (event.get("response") or {}).get("usage") or {}

    def render(self) -> RenderableType:
        """Render all items, one below the other."""
        return Group(*(part for item in self.items for part in (item.render(), Text())))

    def summary(self, violations: Sequence[Violation]) -> Text:
        """Render tokens, times, events, and whether the stream was valid."""
        reasoning = (self.usage.get("output_tokens_details") or {}).get("reasoning_tokens", 0)
        sent = self.usage.get("input_tokens", "?")
        received = self.usage.get("output_tokens", "?")
        first = "–" if self.first_token is None else f"{self.first_token * 1000:.0f} ms"
        facts = [
            f"{sent} tokens in, {received} out ({reasoning} reasoning)",
            f"first token {first}",
            f"{self.elapsed:.1f} s",
            f"{self.events} events",
            self.final or "no terminal event",
        ]
        result = "; ".join(f"{violation.rule}: {violation.detail}" for violation in violations) or "ok"
        style = "bold red" if violations else "bold green"
        return Text.assemble((" · ".join([*facts, ""]), "dim"), (f"invariants: {result}", style))


def _pretty(arguments: str) -> RenderableType:
    try:
        return JSON(arguments, indent=2)
    except ValueError:  # not complete yet
        return Text(arguments or "…")


async def _play(args: argparse.Namespace, console: Console) -> tuple[DemoTranscript, list[Violation]]:
    transcript = DemoTranscript()
    body = bytearray()
    async with AsyncExitStack() as stack:
        dialect = DIALECTS[args.dialect]
        options = SimulatorOptions(
            models=(_MODEL,), dialect=dialect, tokens_per_second=args.tokens_per_second, first_token_seconds=0.3
        )
        backend = await stack.enter_async_context(serving(create_app(options)))
        settings = _settings(f"{backend}/v1", raw=dialect.markup is not None)
        parts = await stack.enter_async_context(open_parts(settings))
        gateway = await stack.enter_async_context(serving(create_gateway(parts)))
        ports = [url.rpartition(":")[2] for url in (gateway, backend)]
        console.print(Text(f"you ─▶ gateway on port {ports[0]} ─▶ simulated backend on port {ports[1]}\n", style="dim"))
        console.print(Text(f"▸ {args.question}\n", style="bold"))
        live = None
        if console.is_terminal:
            live = stack.enter_context(Live(console=console, refresh_per_second=20, vertical_overflow="visible"))
        started = time.monotonic()
        async for event in _events(gateway, args.question, body):
            transcript.take(event, time.monotonic() - started)
            if live is not None:
                live.update(transcript.render())
        if live is None:
            console.print(transcript.render())
    return transcript, check_stream(bytes(body))


def _settings(backend: str, *, raw: bool) -> Settings:
    """Return settings for this backend, which is `raw` if it leaves the model's markup in the text."""
    parser = "auto" if raw else "none"
    return Settings(backend=[backend], store="none", reasoning_parser=parser, tool_call_parser=parser)


async def _events(gateway: str, question: str, body: bytearray) -> AsyncIterator[dict[str, Any]]:
    """Yield the events of `POST /v1/responses` as they arrive; `body` collects the bytes."""
    request = {"model": _MODEL, "input": question, "stream": True, "tools": [_WEATHER], "reasoning": {"summary": "auto"}}
    decoder = SSEDecoder()
    async with (
        httpx.AsyncClient(timeout=_TIMEOUT, trust_env=False) as client,
        client.stream("POST", f"{gateway}/v1/responses", json=request) as response,
    ):
        if response.is_error:
            await response.aread()
            print(f"responses-gateway demo: the gateway answered HTTP {response.status_code}: {response.text}", file=sys.stderr)
            return
        async for data in response.aiter_bytes():
            body += data
            for payload in decoder.feed(data):
                if payload != b"[DONE]":
                    yield json.loads(payload)
