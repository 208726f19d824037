"""What all requests of one process share."""

from __future__ import annotations

import asyncio
import secrets
from collections.abc import Callable, Mapping
from typing import Protocol

from aiohttp import web

from proxy import __version__
from proxy.backend.member import Share
from proxy.backend.pool import Pool
from proxy.backend.tokenizer.tokenizers import ModelTokenizer
from proxy.probing.autoconfigure import Examination
from proxy.request import Policy
from proxy.server.custom_tools.grammar_check import Judge
from proxy.server.generation.background import Background
from proxy.server.generation.encrypted_content import COMPACTION_PROMPT, Seal
from proxy.server.generation.parser_choice import Parsers
from proxy.server.process.notices import Notice
from proxy.server.recording.recorder import Recorder, Recording
from proxy.server.setup.backends import PoolJournal, pool_options, specs_of
from proxy.server.setup.storage import open_store
from proxy.settings import Settings
from proxy.state import Store
from proxy.telemetry import logs
from proxy.telemetry.metrics import Metrics
from proxy.telemetry.tracing import Trace, Tracing
from proxy.version import commit


class Activity(Protocol):
    """Something under way that the gateway times, and ends when it stops."""

    @property
    def ended(self) -> asyncio.Future[None]: ...

    def tick(self, now: float) -> None: ...

    def shut_down(self) -> None: ...

    def abandon(self) -> None: ...


_TICKS_PER_LIMIT = 4
#: How long clients may take to read that their response has failed, in seconds.
_CUT_TIMEOUT = 2


class Gateway:
    """Settings, the backends, the metrics, and the exchanges under way."""

    def __init__(self, settings: Settings, number: int = 0) -> None:
        """`number`: of this process among `workers`."""
        self.settings = settings
        self._share = Share(number, settings.workers)
        self.metrics = Metrics()
        self.metrics.build_info.labels(__version__, commit()).set(1)
        self.parsers = Parsers(settings, _policy(settings))
        self.store: Store | None = None
        self.background: Background | None = None
        self.seal: Seal  # there from `start`
        self.pool: Pool  # there from `start` to `close`
        self.judge = Judge()  # of the inputs of custom tools
        self.counting: set[asyncio.Task[None]] = set()  # inputs that are judged for the metrics alone
        self.recorder = Recorder(settings.record, settings.record_limit, settings) if settings.record is not None else None
        self.tracing: Tracing | None = None
        self.exchanges: set[Activity] = set()
        self.closing = False  # connections end with their next answer
        self.leaving = False  # not ready any more, though what comes is still answered
        self.draining = False
        self.tokenizer: ModelTokenizer | None = None  # of the settings; loaded before `start`
        self._ticker: asyncio.Task[None] | None = None
        self.adapting: asyncio.Task[None] | None = None  # under way, or done
        self.examination: Examination | None = None  # of the backend, if it is to be examined
        self.post: Callable[[Notice], None] = _nobody  # tells other workers what was done here

    async def start(self) -> None:
        """Open what needs the event loop."""
        settings = self.settings
        if settings.otel_endpoint is not None:
            self.tracing = Tracing(settings.otel_endpoint, __version__)
        if self.tokenizer is not None:
            self.parsers.use_tokenizer(self.tokenizer)
        await asyncio.to_thread(self.parsers.load_vllm, settings.tokenizer)
        self.store = await open_store(settings)
        if self.store is not None:
            self.background = Background(self.store)
        self.seal = Seal(await _seal_key(settings, self.store))
        options = pool_options(settings, identify=self._wants_token_ids(), share=self._share)
        self.pool = Pool(specs_of(settings), options, PoolJournal(self.metrics))
        self.parsers.use_aliases(self.pool.members.own_name)
        await self.pool.start()
        self._ticker = asyncio.create_task(self._tick())

    def begin_adapting(self) -> None:
        """Examine the backend in the background, and take what fits it where the settings say nothing."""
        if self.settings.adapt:
            self.examination = Examination(self.settings, self.use_settings)
            self.examine()

    def examine(self) -> None:
        """Begin the examination that is there."""
        assert self.examination is not None
        backends = [member.backend for member in self.pool.members.by_name.values()]
        self.adapting = asyncio.create_task(self.examination.run(backends))
        self.adapting.add_done_callback(_report_defect)

    def use_settings(self, settings: Settings) -> None:
        """Other settings for the requests that come from now on: those of translation and parsers. The rest stays as it was
        at the start."""
        self.settings = settings
        self.parsers = self.parsers.changed(settings, _policy(settings))
        if self.recorder is not None:
            self.recorder.use_settings(settings)
        if self._wants_token_ids():
            self.pool.members.identify()

    def _wants_token_ids(self) -> bool:
        """It matters whether a backend can send the ids of its tokens."""
        return self.settings.token_ids == "auto" and self.parsers.any_raw

    async def close(self) -> None:
        """End what `start` began."""
        for task in (self._ticker, self.adapting, *self.counting):
            if task is not None:
                task.cancel()
        if self.background is not None:
            await self.background.close()
        await self.pool.close()
        if self.store is not None:
            await self.store.close()
        if self.recorder is not None:
            await asyncio.to_thread(self.recorder.close)
        self.metrics.settle()  # the files of several workers outlive this one
        if self.tracing is not None:
            await self.tracing.close()
        logs.flush()

    def trace(self, name: str, headers: Mapping[str, str]) -> Trace | None:
        """The trace of a request that has just come with these headers, where traces are wanted."""
        if self.tracing is None:
            return None
        return self.tracing.begin(name, headers, asyncio.get_running_loop().time())

    def recording(self, headers: Mapping[str, str], *, websocket: bool = False) -> Recording | None:
        """The recording of a request with these headers, or of a message, where exchanges are recorded."""
        return None if self.recorder is None else self.recorder.begin(headers, websocket=websocket)

    def asks_token_ids(self, model: str) -> bool:
        """Whether the backend is to send the ids of its tokens: always, or where it helps and it can (as vLLM can)."""
        if self.settings.token_ids == "auto":
            return self.parsers.raw(model) and self.pool.members.all_vllm(model)
        return self.settings.token_ids == "on"

    async def drain(self, hurry: asyncio.Event) -> None:
        """Let the exchanges under way end, within the limit of the settings or until `hurry` is set; what is left then ends
        as failed."""
        self.closing = self.leaving = self.draining = True
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
            self.metrics.settle()
            logs.flush()
            now = loop.time()
            for exchange in list(self.exchanges):
                exchange.tick(now)


def _nobody(notice: Notice) -> None:
    """A single process has nobody to tell."""


def _report_defect(task: asyncio.Task[None]) -> None:
    error = None if task.cancelled() else task.exception()
    if error is not None:
        logs.logger().error("a defect while adapting to the backend", exc_info=error)


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
        url_inputs=settings.url_inputs,
        max_input_items=settings.max_input_items,
        max_tools=settings.max_tools,
        custom_tool_grammar=settings.custom_tool_grammar,
        strict=settings.strict,
        compaction_trigger_prompt=COMPACTION_PROMPT,
        compacts_context=True,
        seals_reasoning=True,
        stores_responses=settings.store != "none",
    )


GATEWAY: web.AppKey[Gateway] = web.AppKey("gateway", Gateway)
