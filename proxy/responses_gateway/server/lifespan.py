"""The parts of a gateway: opened in order, closed in reverse."""

from __future__ import annotations

import asyncio
import math
import os
import time
from collections.abc import AsyncIterator, Sequence
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from functools import partial
from pathlib import Path
from typing import NamedTuple

from responses_gateway.backend.pool import Pool
from responses_gateway.backend.pool_options import ALL, Share
from responses_gateway.backend.tokenizer.tokenizers import ModelTokenizer, load_tokenizer
from responses_gateway.ended_tasks import end_tasks, keep_going
from responses_gateway.extras import how_to_install
from responses_gateway.hosted.documents import DocumentReader, pdf_obstacle
from responses_gateway.probing.autoconfiguration import Autoconfiguration
from responses_gateway.server.custom_tools.repair import InputRepair
from responses_gateway.server.features.feature import Core, Feature, open_features
from responses_gateway.server.features.standard import FEATURES
from responses_gateway.server.generation.additions import Additions
from responses_gateway.server.generation.background.runner import Background
from responses_gateway.server.generation.in_flight import InFlight
from responses_gateway.server.generation.parser_choice.choice import ParserChoice
from responses_gateway.server.generation.parser_choice.settings import check_tokenizer, load_vllm_parsers
from responses_gateway.server.generation.preparation.encrypted_content import Encryption
from responses_gateway.server.generation.preparation.known_inputs import KnownInputs
from responses_gateway.server.generation.preparation.live_settings import InForce, LiveSettings, translation_policy
from responses_gateway.server.generation.preparation.prepare import Preparation
from responses_gateway.server.generation.request_log.recent_requests import RecentRequests
from responses_gateway.server.generation.request_log.reports import RequestReports
from responses_gateway.server.generation.request_log.usage import TokenUsage
from responses_gateway.server.generation.responses import Responses
from responses_gateway.server.identity.sources import open_sources
from responses_gateway.server.metrics import BUILD_INFO, METRICS
from responses_gateway.server.parts import Accounts, Parts
from responses_gateway.server.quotas.ledger import Ledger
from responses_gateway.server.recording.recorder import Recorder
from responses_gateway.server.setup.backend_specs import specs_of
from responses_gateway.server.setup.backends import PoolMetrics, pool_options, sample_pools
from responses_gateway.server.setup.discovery import PoolWatch
from responses_gateway.server.setup.seal_key import client_key_secret, content_secret
from responses_gateway.server.setup.store import fleet_counters, keep_up, open_store, quota_counters
from responses_gateway.settings import Settings
from responses_gateway.state import Store
from responses_gateway.state.usage import UsageTable
from responses_gateway.telemetry import logs
from responses_gateway.telemetry.gen_ai import GenAiMetrics, MetricSink, OtlpMetrics, PrometheusSink
from responses_gateway.telemetry.metrics import Metrics
from responses_gateway.telemetry.tracing import Tracing
from responses_gateway.version import __version__, commit

# A tick is exact enough for keep-alives and time limits if each of them has so many; in seconds.
_TICKS_PER_LIMIT = 4
_LONGEST_TICK = 1.0
_DOCUMENT_SECONDS = 30.0  # for reading the documents of one request, in seconds


@asynccontextmanager
async def open_parts(
    settings: Settings, share: Share = ALL, workers_folder: Path | None = None, features: Sequence[Feature] = FEATURES
) -> AsyncIterator[Parts]:
    """Open the parts, and close them in reverse order. `share` is that of this process among the workers, which share a folder,
    `workers_folder`, if there are several. Raise `ValueError` and the errors of the parts for settings that cannot be used,
    `StoreUnavailable` without a store."""
    async with AsyncExitStack() as stack:
        opened = await _open_responses(settings, share, stack)
        responses = opened.responses
        pool = responses.preparation.pool
        pools = await _start_pool(settings, pool, responses.metrics, stack, alone=workers_folder is None)
        _start_timer(settings, responses, stack)
        background = _open_background(responses.store, responses, opened.autoconfiguration, stack)
        core = Core(settings, responses.metrics, responses, background, share, workers_folder)
        served = await open_features(features, core, stack)
        yield Parts(
            settings,
            responses.metrics,
            pool,
            pools,
            responses.store,
            responses.live,
            responses.in_flight,
            responses,
            background,
            opened.autoconfiguration,
            opened.accounts,
            served.routes,
            served.questions,
        )


async def try_parts(settings: Settings) -> None:
    """Open what `open_parts` opens, and close it, because much of the settings can be checked only by using it: extras, stores,
    tokenizers. Nothing is begun: no backend is asked, and no response of another process is taken over. Raise the same."""
    async with AsyncExitStack() as stack:
        opened = await _open_responses(settings, ALL, stack)
        core = Core(settings, opened.responses.metrics, opened.responses, None, ALL, None, trial=True)
        await open_features(FEATURES, core, stack)


class _Opened(NamedTuple):
    """What makes responses, before anything is begun."""

    responses: Responses
    accounts: Accounts
    autoconfiguration: Autoconfiguration


async def _open_responses(settings: Settings, share: Share, stack: AsyncExitStack) -> _Opened:
    metrics = _open_metrics(stack)
    tokenizer = None
    if settings.tokenizer:
        tokenizer = await load_tokenizer(settings.tokenizer, os.environ, trust_remote_code=settings.trust_remote_code)
    choice = await _parser_choice(settings, tokenizer)
    recorder = _open_recorder(settings, stack)
    store = await _open_store(settings, metrics, stack)
    accounts = _open_accounts(settings, store, metrics, stack)
    encryption = Encryption(await content_secret(settings, store))
    key_secret = await client_key_secret(settings, store)
    sealing = None if key_secret is None else Encryption(key_secret)  # no key of a client is kept otherwise
    pool = _open_pool(settings, choice, metrics, share, stack)
    live = LiveSettings(settings, choice.with_names(pool.own_name), pool.watch.identify)
    repair = InputRepair(pool, metrics)
    stack.callback(repair.close)
    autoconfiguration = Autoconfiguration(settings, pool, live.use, choice.known_models)
    stack.push_async_callback(autoconfiguration.close)
    reports = _open_reports(settings, metrics, accounts.usage, stack)
    additions = Additions()
    document_reader = await _document_reader(settings)
    known = KnownInputs(settings.known_history_bytes)
    preparation = Preparation(pool, store, encryption, tokenizer, additions.toolboxes, document_reader, sealing, known)
    responses = Responses(preparation, live, reports, recorder, InFlight(), repair, accounts.ledger, additions)
    return _Opened(responses, accounts, autoconfiguration)


def _open_pool(settings: Settings, choice: ParserChoice, metrics: Metrics, share: Share, stack: AsyncExitStack) -> Pool:
    options = pool_options(settings, identify=InForce(settings, choice).identifies_backends, share=share)
    pool = Pool(specs_of(settings), options, PoolMetrics(metrics))
    stack.push_async_callback(pool.close)
    return pool


def _open_metrics(stack: AsyncExitStack) -> Metrics:
    metrics = Metrics()
    metrics.declare(METRICS)
    metrics.set(BUILD_INFO, 1, __version__, commit())
    stack.callback(logs.flush)
    stack.callback(metrics.flush)  # the metrics of a worker are read after its end
    return metrics


def _open_reports(settings: Settings, metrics: Metrics, usage: TokenUsage, stack: AsyncExitStack) -> RequestReports:
    history = RecentRequests() if settings.ui != "off" else None
    tracing = None
    if settings.otel_endpoint is not None:
        tracing = Tracing(settings.otel_endpoint, __version__)
        stack.push_async_callback(tracing.close)
    gen_ai = _gen_ai_metrics(settings, metrics, stack)
    reports = RequestReports(metrics, usage, history, tracing, gen_ai, logs_lines=settings.access_log)
    stack.callback(reports.flush)
    return reports


async def _parser_choice(settings: Settings, tokenizer: ModelTokenizer | None) -> ParserChoice:
    check_tokenizer(settings)
    vllm_parsers = await asyncio.to_thread(load_vllm_parsers, settings)
    policy = translation_policy(settings)
    return ParserChoice(settings, policy, tokenizer=tokenizer, vllm_parsers=vllm_parsers)


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


def _open_accounts(settings: Settings, store: Store | None, metrics: Metrics, stack: AsyncExitStack) -> Accounts:
    usage = TokenUsage(metrics, None if store is None else UsageTable(store.database))
    stack.push_async_callback(usage.close)
    counters = fleet_counters(settings)
    if counters is not None:
        stack.push_async_callback(counters.close)
    ledger = _open_ledger(settings, store, stack)
    sources = open_sources(settings)
    if sources.tokens is not None:
        stack.push_async_callback(sources.tokens.close)
    return Accounts(sources, counters, ledger, usage)


def _open_ledger(settings: Settings, store: Store | None, stack: AsyncExitStack) -> Ledger | None:
    """Return what quotas are charged with; None where nobody can have one."""
    counters = quota_counters(settings, store) if settings.identifies_clients else None
    if counters is None:
        return None
    ledger = Ledger(counters, time.time)
    stack.push_async_callback(ledger.close)
    return ledger


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


async def _open_store(settings: Settings, metrics: Metrics, stack: AsyncExitStack) -> Store | None:
    store = await open_store(settings)
    if store is not None:
        stack.push_async_callback(store.close)
        upkeep = keep_going(partial(keep_up, store.upkeep, metrics), metrics.report)
        stack.push_async_callback(end_tasks, asyncio.create_task(upkeep))
    return store


def _open_background(
    store: Store | None, responses: Responses, autoconfiguration: Autoconfiguration, stack: AsyncExitStack
) -> Background | None:
    if store is None:
        return None
    background = Background(store, responses, autoconfiguration)
    stack.push_async_callback(background.close)
    return background


def _open_recorder(settings: Settings, stack: AsyncExitStack) -> Recorder | None:
    """Return what records exchanges; None where nobody could see them."""
    if settings.record is None and settings.ui == "off":
        return None
    recorder = Recorder(settings)
    if settings.ui == "open" and not recorder.always:
        with suppress(OSError):  # of a file system that cannot be written
            recorder.record_for(math.inf)
    stack.push_async_callback(asyncio.to_thread, recorder.close)
    return recorder


def _start_timer(settings: Settings, responses: Responses, stack: AsyncExitStack) -> None:
    in_flight = responses.in_flight
    metrics = responses.metrics

    history = responses.reports.history

    def sample() -> None:
        """Note how much runs, for the plots."""
        if history is not None:
            activities = in_flight.activities
            history.sample(len(activities), sum(activity.chunks for activity in activities))

    timer = in_flight.run_timer(_tick_interval(settings), metrics.report, metrics.flush, logs.flush, sample)
    stack.push_async_callback(end_tasks, asyncio.create_task(timer))


async def _document_reader(settings: Settings) -> DocumentReader | None:
    """Return what reads documents, if the settings want it. Say if no PDF can be read here, because a library is missing."""
    if settings.file_inputs != "text":
        return None
    obstacle = await asyncio.to_thread(pdf_obstacle)
    if obstacle:
        logs.logger().warning("no PDFs are read", extra=logs.fields(reason=obstacle, advice=how_to_install("pdf")))
    return DocumentReader(_DOCUMENT_SECONDS)


def _tick_interval(settings: Settings) -> float:
    """Return the seconds between two ticks, by which keep-alives and time limits are exact enough."""
    limits = [settings.keepalive_comment, settings.keepalive_event, settings.idle_timeout]
    return min(_LONGEST_TICK, min(limit for limit in limits if limit > 0) / _TICKS_PER_LIMIT)
