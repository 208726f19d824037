"""The parts of a gateway: opened in order, closed in reverse."""

from __future__ import annotations

import asyncio
import math
import os
import secrets
import time
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from responses_gateway.backend.pool import Pool
from responses_gateway.backend.pool_options import ALL, Share
from responses_gateway.backend.tokenizer.tokenizers import ModelTokenizer, load_tokenizer
from responses_gateway.hosted.mcp.servers import McpServers
from responses_gateway.hosted.pdf import PdfReader
from responses_gateway.hosted.search.mcp_provider import CallerFor
from responses_gateway.hosted.search.web import Web
from responses_gateway.probing.autoconfiguration import Autoconfiguration
from responses_gateway.probing.known_models import KnownModels
from responses_gateway.server.custom_tools.repair import InputRepair
from responses_gateway.server.generation.background.completion_windows.runner import CompletionWindows
from responses_gateway.server.generation.background.runner import Announce, Background
from responses_gateway.server.generation.hosted_tools.openers import ImageOpener, openers_of
from responses_gateway.server.generation.hosted_tools.toolbox import Toolbox, UsedApprovals
from responses_gateway.server.generation.in_flight import InFlight
from responses_gateway.server.generation.moderation.guard import Guard
from responses_gateway.server.generation.moderation.guarded_upstream import moderate
from responses_gateway.server.generation.parser_choice.choice import ParserChoice
from responses_gateway.server.generation.parser_choice.settings import check_tokenizer, load_vllm_parsers
from responses_gateway.server.generation.preparation.encrypted_content import Encryption
from responses_gateway.server.generation.preparation.journal import Charged
from responses_gateway.server.generation.preparation.live_settings import InForce, LiveSettings, translation_policy
from responses_gateway.server.generation.preparation.prepare import Preparation
from responses_gateway.server.generation.request_log.recent_requests import RecentRequests
from responses_gateway.server.generation.request_log.request_log import LimitReservation
from responses_gateway.server.generation.request_log.usage import TokenUsage
from responses_gateway.server.generation.responses import Adapt, Responses
from responses_gateway.server.identity.sources import Sources, open_sources
from responses_gateway.server.quotas.ledger import Ledger
from responses_gateway.server.quotas.quota import QuotaReservation
from responses_gateway.server.recording.recorder import FileRecorder, Recorder, TimedRecorder
from responses_gateway.server.setup.backend_specs import specs_of
from responses_gateway.server.setup.backends import PoolMetrics, pool_options, sample_pools
from responses_gateway.server.setup.discovery import PoolWatch
from responses_gateway.server.setup.hosted_tools import hosted_limits, image_server, open_sandbox, open_web
from responses_gateway.server.setup.mcp import mcp_access, open_mcp_servers
from responses_gateway.server.setup.store import StoreUpkeep, fleet_counters, open_store, quota_counters
from responses_gateway.server.webhooks.sender import Webhooks
from responses_gateway.settings import Settings
from responses_gateway.state import FleetCounters, Store
from responses_gateway.state.prompt_hashes import PromptHashes, PromptHashMemory, PromptHashTable
from responses_gateway.telemetry import logs
from responses_gateway.telemetry.gen_ai import GenAiMetrics, MetricSink, OtlpMetrics, PrometheusSink
from responses_gateway.telemetry.instruments import Gauge
from responses_gateway.telemetry.metrics import Metrics
from responses_gateway.telemetry.tracing import Tracing
from responses_gateway.version import __version__, commit

BUILD_INFO = Gauge(
    "build_info", "1, labelled with the version and the commit of the gateway.", ("version", "commit"), together="livemax"
)
_TICKS_PER_LIMIT = 4
_LONGEST_TICK = 1.0
# For reading the PDFs of one request, in seconds.
_PDF_SECONDS = 30.0


@dataclass(frozen=True, slots=True)
class Parts:
    """What the requests of one process share. `settings` are those at the start; `live` has those in force."""

    settings: Settings
    metrics: Metrics
    pool: Pool
    store: Store | None
    counters: FleetCounters | None
    ledger: Ledger | None
    identity_sources: Sources
    background: Background | None
    windows: CompletionWindows | None
    encryption: Encryption
    tokenizer: ModelTokenizer | None
    live: LiveSettings
    autoconfiguration: Autoconfiguration
    known_models: KnownModels
    in_flight: InFlight
    responses: Responses
    web: Web | None
    toolbox: Toolbox
    usage: TokenUsage
    pools: PoolWatch | None


@asynccontextmanager
async def open_parts(settings: Settings, share: Share = ALL, workers_folder: Path | None = None) -> AsyncIterator[Parts]:
    """Open the parts, and close them in reverse order. `share` is that of this process among the workers, which share a folder,
    `workers_folder`, if there are several. Raise `ValueError` and the errors of the parts for settings that cannot be used,
    `StoreUnavailable` without a store."""
    async with AsyncExitStack() as stack:
        metrics = _new_metrics(settings)
        stack.callback(logs.flush)
        tracing = None
        if settings.otel_endpoint is not None:
            tracing = Tracing(settings.otel_endpoint, __version__)
            stack.push_async_callback(tracing.close)
        metrics.gen_ai = _gen_ai_metrics(settings, metrics, stack)
        stack.callback(metrics.flush)  # the metrics of a worker are read after its end
        check_tokenizer(settings)
        vllm_parsers = await asyncio.to_thread(load_vllm_parsers, settings)
        tokenizer = None
        if settings.tokenizer:
            trusted = settings.trust_remote_code
            tokenizer = await load_tokenizer(settings.tokenizer, os.environ, trust_remote_code=trusted)
        policy = translation_policy(settings)
        known = KnownModels()
        choice = ParserChoice(settings, policy, tokenizer=tokenizer, vllm_parsers=vllm_parsers, known=known)
        recorder = _open_recorder(settings, stack)
        store = await _open_store(settings, stack)
        usage = TokenUsage(metrics, store)
        stack.push_async_callback(usage.close)
        counters = _open_counters(settings, stack)
        ledger = _open_ledger(settings, store, stack)
        encryption = Encryption(await _encryption_key(settings, store))
        options = pool_options(settings, identify=InForce(settings, choice).identifies_backends, share=share)
        pool = Pool(specs_of(settings), options, PoolMetrics(metrics))
        stack.push_async_callback(pool.close)
        live = LiveSettings(settings, choice.with_names(pool.models.own_name), pool.watch.identify)
        pools = await _start_pool(settings, pool, metrics, stack, alone=workers_folder is None)
        if store is not None:
            stack.push_async_callback(StoreUpkeep(store, metrics).close)
        repair = InputRepair(pool, metrics)
        stack.callback(repair.close)
        autoconfiguration = Autoconfiguration(settings, pool, live.use, known)
        stack.push_async_callback(autoconfiguration.close)
        toolbox = await _open_toolbox(settings, metrics, store, stack, workers_folder, pool)
        in_flight = InFlight()
        history = RecentRequests() if settings.ui != "off" else None
        sample = partial(_sample, history, in_flight)
        timer = asyncio.create_task(in_flight.run_timer(_tick_interval(settings), metrics.flush, logs.flush, sample))
        stack.push_async_callback(_cancel, timer)
        responses = Responses(
            Preparation(pool, store, encryption, tokenizer, toolbox, _prompt_hashes(store), _pdf_reader(settings)),
            live,
            metrics,
            tracing,
            recorder,
            in_flight,
            repair,
            history,
            partial(_charge_again, ledger) if ledger is not None else None,
            _moderation(settings, pool, metrics),
        )
        background = None
        if store is not None:
            background = Background(store, responses, autoconfiguration, _open_webhooks(settings, store, metrics, stack))
            stack.push_async_callback(background.close)
        yield Parts(
            settings=settings,
            metrics=metrics,
            pool=pool,
            store=store,
            counters=counters,
            ledger=ledger,
            identity_sources=_open_sources(settings, stack),
            background=background,
            windows=_open_windows(background, responses, share, stack),
            encryption=encryption,
            tokenizer=tokenizer,
            live=live,
            autoconfiguration=autoconfiguration,
            known_models=known,
            in_flight=in_flight,
            responses=responses,
            web=toolbox.web,
            toolbox=toolbox,
            usage=usage,
            pools=pools,
        )


def _new_metrics(settings: Settings) -> Metrics:
    metrics = Metrics()
    metrics.set(BUILD_INFO, 1, __version__, commit())
    return metrics


def _gen_ai_metrics(settings: Settings, metrics: Metrics, stack: AsyncExitStack) -> GenAiMetrics | None:
    """Return what counts under the names of OpenTelemetry, for Prometheus and for the collector of the traces."""
    if settings.gen_ai_metrics == "off":
        return None
    sinks: list[MetricSink] = [PrometheusSink(metrics.registry)]
    if settings.otel_endpoint is not None and os.environ.get("OTEL_METRICS_EXPORTER") != "none":
        sent = OtlpMetrics(settings.otel_endpoint, __version__)
        stack.push_async_callback(sent.close)
        sinks.append(sent)
    return GenAiMetrics(sinks, settings.gen_ai_metrics)


def _open_counters(settings: Settings, stack: AsyncExitStack) -> FleetCounters | None:
    counters = fleet_counters(settings)
    if counters is not None:
        stack.push_async_callback(counters.close)
    return counters


def _open_ledger(settings: Settings, store: Store | None, stack: AsyncExitStack) -> Ledger | None:
    """Return what quotas are charged with; None where nobody can have one."""
    counters = quota_counters(settings, store) if settings.identifies_clients else None
    if counters is None:
        return None
    ledger = Ledger(counters, time.time)
    stack.push_async_callback(ledger.close)
    return ledger


def _open_sources(settings: Settings, stack: AsyncExitStack) -> Sources:
    sources = open_sources(settings)
    if sources.tokens is not None:
        stack.push_async_callback(sources.tokens.close)
    return sources


def _charge_again(ledger: Ledger, charged: Charged) -> LimitReservation:
    return QuotaReservation(ledger, charged.owners, charged.key, charged.team)


async def _start_pool(
    settings: Settings, pool: Pool, metrics: Metrics, stack: AsyncExitStack, *, alone: bool
) -> PoolWatch | None:
    """Find the backends, and check them. Return the watch of a process that is alone; workers share that of their parent."""
    pools = None
    if alone:
        pools = PoolWatch(settings, pool.members.apply_discovered)
        stack.push_async_callback(pools.close)
        await pools.first_answers()
    metrics.samplers.append(partial(sample_pools, pool.members, metrics))
    await pool.start()
    return pools


def _open_windows(
    background: Background | None, responses: Responses, share: Share, stack: AsyncExitStack
) -> CompletionWindows | None:
    if background is None:
        return None
    windows = CompletionWindows(background.store, responses, background, share)
    stack.push_async_callback(windows.close)
    return windows


def _open_webhooks(settings: Settings, store: Store, metrics: Metrics, stack: AsyncExitStack) -> Announce | None:
    if not settings.webhooks:
        return None
    webhooks = Webhooks(settings.webhooks, store, metrics)
    stack.push_async_callback(webhooks.close)
    return webhooks.announce


async def _open_store(settings: Settings, stack: AsyncExitStack) -> Store | None:
    store = await open_store(settings)
    if store is not None:
        stack.push_async_callback(store.close)
    return store


def _open_recorder(settings: Settings, stack: AsyncExitStack) -> Recorder | None:
    """Return what records exchanges; None where nobody could see them."""
    recorder: Recorder | None = None
    if settings.record:
        recorder = FileRecorder(settings.record, settings.record_limit, settings)
    elif settings.ui != "off":
        recorder = TimedRecorder(settings)
        if settings.ui == "open":
            with suppress(OSError):  # of a file system that cannot be written
                recorder.record_for(math.inf)
    if recorder is not None:
        stack.push_async_callback(asyncio.to_thread, recorder.close)
    return recorder


def _sample(history: RecentRequests | None, in_flight: InFlight) -> None:
    """Note how much runs, for the plots."""
    if history is not None:
        history.sample(len(in_flight.activities), sum(activity.chunks for activity in in_flight.activities))


def _pdf_reader(settings: Settings) -> PdfReader | None:
    return PdfReader(_PDF_SECONDS) if settings.pdf_inputs == "text" else None


async def _open_toolbox(
    settings: Settings,
    metrics: Metrics,
    store: Store | None,
    stack: AsyncExitStack,
    workers_folder: Path | None,
    pool: Pool,
) -> Toolbox:
    """Open the hosted tools that the settings turn on; the stack closes them. Raise `ValueError`."""
    servers = open_mcp_servers(settings)
    if servers is not None:
        stack.push_async_callback(servers.close)
    search = settings.searches_with or ""
    by_tool = servers is not None and search.startswith("mcp:")
    web = open_web(settings, _caller_for(servers, search.removeprefix("mcp:")) if servers is not None and by_tool else None)
    if web is not None:
        stack.push_async_callback(web.close)
    sandbox = await open_sandbox(settings, workers_folder)
    if sandbox is not None:
        stack.push_async_callback(sandbox.close)
    code = settings.code_interpreter
    if code.startswith("mcp:") and servers is None:
        raise ValueError(f"code_interpreter: there is no MCP server for {code}")
    model = settings.image_generation_model
    images = ImageOpener(image_server(pool, model), model) if model else None
    openers = openers_of(settings, web, servers, mcp_access(settings), sandbox, images)
    approvals = UsedApprovals(None if store is None else store.hosted_calls)
    return Toolbox(hosted_limits(settings), metrics, approvals, openers, web)


def _caller_for(servers: McpServers, name: str) -> CallerFor:
    """Return what calls an MCP tool for a tenant. Raise `ValueError` for one of an unknown server."""
    servers.caller("", name)
    return lambda tenant: servers.caller(tenant, name)


async def _encryption_key(settings: Settings, store: Store | None) -> bytes:
    """Return the key of the settings, or one that is made once and kept in the store; without either, one for this process."""
    if settings.seal_key is not None:
        return settings.seal_key.get_secret_value().encode()
    return await store.secret("seal") if store is not None else secrets.token_bytes(32)


def _tick_interval(settings: Settings) -> float:
    """Return the seconds between two ticks, by which keep-alives and time limits are exact enough."""
    limits = [settings.keepalive_comment, settings.keepalive_event, settings.idle_timeout]
    return min(_LONGEST_TICK, min(limit for limit in limits if limit > 0) / _TICKS_PER_LIMIT)


async def _cancel(task: asyncio.Task[None]) -> None:
    task.cancel()
    with suppress(asyncio.CancelledError):
        await task


def _moderation(settings: Settings, pool: Pool, metrics: Metrics) -> Adapt | None:
    if settings.moderation_model is None:
        return None
    return partial(moderate, Guard(pool, settings, metrics))


def _prompt_hashes(store: Store | None) -> PromptHashes:
    return PromptHashMemory() if store is None else PromptHashTable(store.database)
