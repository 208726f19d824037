"""What all requests of one process share."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from aiohttp import web

from proxy.backend.client import Backend
from proxy.request import Policy
from proxy.server.parsers import Parsers
from proxy.settings import Settings
from proxy.telemetry import logs
from proxy.telemetry.metrics import Metrics

if TYPE_CHECKING:
    from proxy.server.exchange import Exchange

_TICKS_PER_LIMIT = 4
#: How long clients may take to read that their response has failed, in seconds.
_CUT_TIMEOUT = 2


class Gateway:
    """Settings, the backend, the metrics, and the exchanges under way."""

    def __init__(self, settings: Settings) -> None:
        self.settings = settings
        self.metrics = Metrics()
        self.parsers = Parsers(settings, _policy(settings))
        self.policy = self.parsers.policy
        self.backend: Backend  # there from `start` to `close`
        self.exchanges: set[Exchange] = set()
        self.draining = False
        self._ticker: asyncio.Task[None] | None = None

    async def start(self) -> None:
        """Open what needs the event loop."""
        settings = self.settings
        key = settings.backend_api_key
        self.backend = Backend(
            settings.backend[0],
            api_key=key.get_secret_value() if key else None,
            connect_timeout=settings.connect_timeout,
        )
        self._ticker = asyncio.create_task(self._tick())

    async def close(self) -> None:
        """End what `start` began."""
        if self._ticker is not None:
            self._ticker.cancel()
        await self.backend.close()
        logs.flush()

    async def drain(self, hurry: asyncio.Event) -> None:
        """Let the exchanges under way end, within the limit of the settings or until `hurry` is set; what is left then ends
        as failed."""
        self.draining = True
        waits = [asyncio.create_task(self._all_ended(self.settings.drain_timeout)), asyncio.create_task(hurry.wait())]
        await asyncio.wait(waits, return_when=asyncio.FIRST_COMPLETED)
        for wait in waits:
            wait.cancel()
        for exchange in list(self.exchanges):
            exchange.shut_down()
        await self._all_ended(_CUT_TIMEOUT)
        for exchange in list(self.exchanges):
            exchange.abandon()
        await self._all_ended(_CUT_TIMEOUT)

    async def _all_ended(self, within: float) -> None:
        """Wait for the exchanges of now, at most so many seconds."""
        if self.exchanges:
            await asyncio.wait([exchange.ended for exchange in self.exchanges], timeout=within)

    async def _tick(self) -> None:
        """One timer for all streams: keep-alives and time limits cost nothing per chunk."""
        settings = self.settings
        limits = [settings.keepalive_comment, settings.keepalive_event, settings.idle_timeout]
        interval = min(1.0, min(limit for limit in limits if limit > 0) / _TICKS_PER_LIMIT)
        loop = asyncio.get_running_loop()
        while True:
            await asyncio.sleep(interval)
            logs.flush()
            now = loop.time()
            for exchange in list(self.exchanges):
                exchange.tick(now)


def _policy(settings: Settings) -> Policy:
    return Policy(
        system_messages=settings.system_messages,
        late_developer=settings.late_developer,
        user_messages=settings.user_messages,
        reasoning_field=settings.reasoning_field,
        reasoning_effort=settings.reasoning_effort,
        max_tokens_field=settings.max_tokens_field,
        forward=frozenset(settings.forward),
        forward_unknown=settings.forward_unknown,
        strict=settings.strict,
    )


GATEWAY: web.AppKey[Gateway] = web.AppKey("gateway", Gateway)
