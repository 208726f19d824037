"""Several simulators of one model behind the gateway. A fault happens once in all of them, so that another one can go on."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Mapping
from contextlib import AsyncExitStack, asynccontextmanager
from typing import Any

from aiohttp import web
from aiohttp.typedefs import Handler

from responses_gateway.simulator import DIALECTS, SimulatorOptions, create_app, serving
from responses_gateway.simulator.state import FAULT_COUNTS
from tests.server.running_gateway import Answer, Served, gateway, post

WEATHER = {
    "type": "function",
    "name": "get_weather",
    "parameters": {
        "type": "object",
        "properties": {"city": {"type": "string"}, "unit": {"type": "string", "enum": ["celsius", "fahrenheit"]}},
        "required": ["city", "unit"],
    },
}
# Dialect of the simulators -> settings of the gateway.
READINGS: dict[str, dict[str, Any]] = {
    "vllm": {},
    "vllm-interval": {},
    "vllm-raw": {"reasoning_parser": "qwen3", "tool_call_parser": "hermes"},
    "vllm-raw-xml": {"reasoning_parser": "qwen3", "tool_call_parser": "qwen3_coder"},
    "vllm-raw-opened": {"reasoning_parser": "qwen3", "tool_call_parser": "hermes", "opened_thinking": "yes"},
}


@asynccontextmanager
async def fleet(
    dialect: str = "vllm",
    size: int = 2,
    without: tuple[str, ...] = (),
    ignored: str = "",
    instead: Mapping[str, Handler] | None = None,
    **settings: Any,
) -> AsyncIterator[Served]:
    """Serve the gateway in front of simulators that do not have the paths `without`, answer others with what is given for them
    `instead`, and ignore the field `ignored`."""

    @web.middleware
    async def missing(request: web.Request, handler: Handler) -> web.StreamResponse:
        if request.path in without:
            raise web.HTTPNotFound
        if instead is not None and request.path in instead:
            return await instead[request.path](request)
        if ignored and request.method == "POST":
            body = json.loads(await request.read())
            body.pop(ignored, None)
            request._read_bytes = json.dumps(body).encode()
        return await handler(request)

    options = SimulatorOptions(dialect=DIALECTS[dialect])
    apps = [create_app(options) for _ in range(size)]
    for app in apps:
        app.middlewares.append(missing)
        app[FAULT_COUNTS] = apps[0][FAULT_COUNTS]
    async with AsyncExitStack() as stack:
        urls = [await stack.enter_async_context(serving(app)) for app in apps]
        wanted = {
            "adapt": False,
            "continue_answers": 1,
            "breaker_failures": 10_000,
            **READINGS.get(dialect, {}),
            **settings,
        }
        yield await stack.enter_async_context(gateway(*urls, **wanted))


async def ask(served: Served, scenario: str, fault: str, **fields: Any) -> Answer:
    """Have a scenario answered, with a fault."""
    return await post(served, input=f"scenario: {scenario} fault: {fault}", tools=[WEATHER], **fields)


def said(answer: Answer) -> dict[str, Any]:
    """Return what a response says: everything but ids, and the tokens that were in a cache or thoughts."""
    final = answer.final
    items = [{name: value for name, value in item.items() if name not in ("id", "call_id")} for item in final["output"]]
    usage = final["usage"] and {name: final["usage"][name] for name in ("output_tokens",)}
    return {"status": final["status"], "output": items, "usage": usage, "error": final["error"]}
