"""Simulated backends for a gateway to probe, and what the gateway logs about it."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any

from aiohttp import web

from responses_gateway.simulator import DIALECTS, RECEIVED, SimulatorOptions, create_app, serving
from tests.server.running_gateway import Served, gateway
from tests.waiting import PATIENCE

Change = Callable[[dict[str, Any]], web.Response | None]


class SimulatedBackend:
    """A simulator. `change` may alter a chat request, or answer it instead; `refused` are the requests that it answered.

    `chats` are the chat requests that reached the simulator.
    """

    def __init__(self, dialect: str = "vllm", change: Change | None = None, **options: Any) -> None:
        self.app = create_app(SimulatorOptions(dialect=DIALECTS[dialect], **options))
        self.refused: list[dict[str, Any]] = []
        if change is not None:
            self.app.middlewares.insert(0, self._middleware(change))

    def _middleware(self, change: Change) -> Any:
        @web.middleware
        async def changing(request: web.Request, handler: Any) -> web.StreamResponse:
            if request.path.endswith("/chat/completions"):
                body = json.loads(await request.read())
                instead = change(body)
                if instead is not None:
                    self.refused.append(body)
                    return instead
                request._read_bytes = json.dumps(body).encode()
            answer: web.StreamResponse = await handler(request)
            return answer

        return changing

    @property
    def chats(self) -> list[dict[str, Any]]:
        return [entry["body"] for entry in self.app[RECEIVED]]


@asynccontextmanager
async def adapted(backend: SimulatedBackend, **settings: Any) -> AsyncIterator[Served]:
    """Serve a gateway that has probed this backend."""
    async with serving(backend.app) as url, gateway(url, **settings) as served:
        await examined(served)
        yield served


async def examined(served: Served) -> None:
    served.parts.autoconfiguration.begin()
    assert served.parts.autoconfiguration.task is not None
    await asyncio.wait_for(asyncio.shield(served.parts.autoconfiguration.task), PATIENCE)


def settings_of(lines: list[str]) -> dict[str, str]:
    """Return the settings that were applied, according to the log."""
    applied = [dict(word.split("=", 1) for word in line.split() if "=" in word) for line in lines if line.startswith("adapted")]
    return {fields["setting"]: fields["value"] for fields in applied}
