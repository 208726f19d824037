"""Traffic with something of all that the metrics know: models, calls, errors, losses, keep-alives, clients that leave."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

from tests.server.gateway_process import Program
from tests.server.running_gateway import RawClient, Served, ask, post, simulated, until

WEATHER = {"type": "function", "name": "get_weather", "parameters": {"type": "object"}}
SEAL = {"type": "custom", "name": "seal", "format": {"type": "grammar", "syntax": "regex", "definition": ".*"}}
CODEX = {"originator": "codex_exec"}  # a call that is cut is left out for it: a repair
REPEATED = [
    item
    for number in range(2)
    for item in (
        {"type": "function_call", "call_id": f"call_{number}", "name": "get_weather", "arguments": "{}"},
        {"type": "function_call_output", "call_id": f"call_{number}", "output": "no city"},
    )
]
REQUESTS: list[dict[str, Any]] = [
    {"model": "sim-reasoning+tps=400", "input": "think"},
    {"model": "sim-long+tokens=60+tps=600", "input": "write"},
    {"model": "sim-demo", "input": "what is the weather in Paris?", "tools": [WEATHER]},
    {"model": "sim-demo", "input": "once more, in one piece", "stream": False},
    {"model": "sim-demo", "input": "seal it", "tools": [SEAL], "tool_choice": "required"},
    {"input": "fault: status=503"},
    {"input": "fault: status=429", "stream": False},
    {"input": "fault: status=400"},
    {"input": "fault: malformed"},
    {"input": "scenario: demo fault: drop=call", "tools": [WEATHER], "headers": CODEX},
    {"input": "scenario: plain fault: length=3"},
    {"input": "scenario: parallel dialect: vllm-wrong-tool-parser", "tools": [WEATHER]},
    {"input": "scenario: plain fault: slow-headers=0.01,delay=0.15"},
    {"input": "hi", "service_tier": "flex", "prompt_cache_key": "k"},
    {"input": "hi", "temperature": 9},
    {"input": [{"role": "user", "content": "hi"}, *REPEATED], "tools": [WEATHER]},
    {"input": "scenario: empty", "tools": [WEATHER]},
]


@asynccontextmanager
async def busy_gateway(**settings: Any) -> AsyncIterator[Served]:
    """Serve a gateway that sends keep-alives quickly, and checks every stream."""
    async with simulated(keepalive_comment=0.02, keepalive_event=0.05, invariant_sampling=1.0, **settings) as served:
        yield served


async def send_everything(served: Served) -> None:
    """Send one round; it takes about a third of a second. Seventeen requests, with the one that leaves."""
    await send_requests(served)
    await until(lambda: not served.parts.in_flight.activities)


async def send_requests(served: Served | Program) -> None:
    """Send the same, to one that may be other processes."""
    relayed = ask(served, "POST", "/v1/chat/completions", json={"model": "simulator", "messages": [], "max_tokens": 1})
    await asyncio.gather(*(post(served, **body) for body in REQUESTS), _leave(served), relayed)


async def _leave(served: Served | Program) -> None:
    client = await RawClient.connect(served)
    await client.post(input="tokens: 3000 tps: 100")
    await client.read_until(b"output_text.delta")
    client.close()
