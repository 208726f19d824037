"""What all requests of one process share."""

from __future__ import annotations

import asyncio
import secrets
from typing import Protocol

import aiohttp
import msgspec
from aiohttp import web

from proxy.backend.client import Backend
from proxy.backend.tokenizers import ModelTokenizer
from proxy.request import Policy
from proxy.server.background import Background
from proxy.server.parsers import Parsers
from proxy.server.recorder import Recorder
from proxy.server.sealing import COMPACTION_PROMPT, Seal
from proxy.server.storage import open_store
from proxy.settings import Settings
from proxy.state import Store
from proxy.telemetry import logs
from proxy.telemetry.metrics import Metrics
from proxy.wire.errors import ApiError


class Activity(Protocol):
    """Something under way that the gateway times, and ends when it stops."""

    @property
    def ended(self) -> asyncio.Future[None]: ...

    def tick(self, now: float) -> None: ...

    def shut_down(self) -> None: ...

    def abandon(self) -> None: ...


_TICKS_PER_LIMIT = 4
#: Seconds until a backend that did not say what it is is asked again.
_IDENTIFY_AGAIN = 10


class _Model(msgspec.Struct):
    owned_by: str | None = None


class _ModelList(msgspec.Struct):
    data: list[_Model] = []


#: How long clients may take to read that their response has failed, in seconds.
_CUT_TIMEOUT = 2


class Gateway:
    """Settings, the backend, the metrics, and the exchanges under way."""

    def __init__(self, settings: Settings) -> None:
        self.settings = settings
        self.metrics = Metrics()
        self.parsers = Parsers(settings, _policy(settings))
        self.store: Store | None = None
        self.background: Background | None = None
        self.seal: Seal  # there from `start`
        self.backend: Backend  # there from `start` to `close`
        self.recorder = Recorder(settings.record, settings.record_limit, settings) if settings.record is not None else None
        self.exchanges: set[Activity] = set()
        self.draining = False
        self.usage_reported = False  # by the backend, at least once
        self.tokenizer: ModelTokenizer | None = None  # of the settings; loaded before `start`
        self._sends_token_ids = False  # as vLLM does
        self._ticker: asyncio.Task[None] | None = None
        self._identifying: asyncio.Task[None] | None = None

    async def start(self) -> None:
        """Open what needs the event loop."""
        settings = self.settings
        if self.tokenizer is not None:
            self.parsers.use_tokenizer(self.tokenizer)
        await asyncio.to_thread(self.parsers.load_vllm, settings.tokenizer)
        self.store = await open_store(settings)
        if self.store is not None:
            self.background = Background(self.store)
        self.seal = Seal(await _seal_key(settings, self.store))
        key = settings.backend_api_key
        self.backend = Backend(
            settings.backend[0],
            api_key=key.get_secret_value() if key else None,
            connect_timeout=settings.connect_timeout,
        )
        self._ticker = asyncio.create_task(self._tick())
        if settings.token_ids == "auto" and self.parsers.any_raw:
            self._identifying = asyncio.create_task(self._identify())

    async def close(self) -> None:
        """End what `start` began."""
        for task in (self._ticker, self._identifying):
            if task is not None:
                task.cancel()
        if self.background is not None:
            await self.background.close()
        await self.backend.close()
        if self.store is not None:
            await self.store.close()
        if self.recorder is not None:
            await asyncio.to_thread(self.recorder.close)
        logs.flush()

    def asks_token_ids(self, model: str) -> bool:
        """Whether the backend is to send the ids of its tokens: always, or where it helps and it can."""
        if self.settings.token_ids == "auto":
            return self._sends_token_ids and self.parsers.raw(model)
        return self.settings.token_ids == "on"

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

    async def _identify(self) -> None:
        """Find out whether the backend is a vLLM, which can send the ids of its tokens. Until it answers, none are asked."""
        while True:
            try:
                async with await self.backend.request("GET", "models") as answer:
                    listed = msgspec.json.decode(await answer.read(), type=_ModelList)
            except (ApiError, aiohttp.ClientError, msgspec.DecodeError):
                await asyncio.sleep(_IDENTIFY_AGAIN)
            else:
                self._sends_token_ids = any(model.owned_by == "vllm" for model in listed.data)
                return

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


async def _seal_key(settings: Settings, store: Store | None) -> bytes:
    """The key of the settings, or one that was made once and is kept in the store; without a store, one for this process."""
    if settings.seal_key is not None:
        return settings.seal_key.get_secret_value().encode()
    return await store.secret("seal") if store is not None else secrets.token_bytes(32)


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
        compaction_trigger_prompt=COMPACTION_PROMPT,
        seals_reasoning=True,
        stores_responses=settings.store != "none",
    )


GATEWAY: web.AppKey[Gateway] = web.AppKey("gateway", Gateway)
