"""Simulated backends that a gateway examines, and what it logs of it."""

from __future__ import annotations

import asyncio
import json
import logging
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager
from typing import Any

import pytest
from aiohttp import web

from proxy.simulator import PERSONALITIES, RECEIVED, SimulatorOptions, create_app, serving
from tests.server.harness import Served, gateway

Change = Callable[[dict[str, Any]], web.Response | None]


class Backend:
    """A simulated server; `chats` are the chat requests that reached it."""

    def __init__(self, personality: str = "vllm", change: Change | None = None, **options: Any) -> None:
        self.app = create_app(SimulatorOptions(personality=PERSONALITIES[personality], **options))
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
            answer: web.StreamResponse = await handler(request)
            return answer

        return changing

    @property
    def chats(self) -> list[dict[str, Any]]:
        return [entry["body"] for entry in self.app[RECEIVED]]


@asynccontextmanager
async def adapted(backend: Backend, **settings: Any) -> AsyncIterator[Served]:
    """A gateway that has examined this backend."""
    async with serving(backend.app) as url, gateway(url, **settings) as served:
        await examined(served)
        yield served


async def examined(served: Served) -> None:
    served.parts.autoconfiguration.begin()
    assert served.parts.autoconfiguration.task is not None
    await asyncio.wait_for(asyncio.shield(served.parts.autoconfiguration.task), 30)


@pytest.fixture
def lines(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[str]]:
    """What the gateway logs: message and fields."""
    found: list[str] = []

    class Collector(logging.Handler):
        def emit(self, record: logging.LogRecord) -> None:
            values = {
                name: value for name, value in getattr(record, "fields", {}).items() if name not in ("seconds", "backend")
            }
            found.append(" ".join([record.getMessage(), *(f"{name}={value}" for name, value in values.items())]))

    logger = logging.getLogger("responses_proxy")
    monkeypatch.setattr(logger, "handlers", [Collector()])
    before = logger.level
    logger.setLevel(logging.INFO)  # not by the attribute: a logger remembers what it may pass on
    yield found
    logger.setLevel(before)


def settings_of(lines: list[str]) -> dict[str, str]:
    """The settings that were taken, by what was logged."""
    taken = [dict(word.split("=", 1) for word in line.split() if "=" in word) for line in lines if line.startswith("adapted")]
    return {fields["setting"]: fields["value"] for fields in taken}
