"""Reports requests that have ended: to the metrics, the log, their traces, and the window.

What a request costs its client is noted while it runs; all else waits until the next `flush`, once a second, for many requests
together: that is cheaper than one by one."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TypeAlias

import msgspec

from responses_gateway.server.generation.request_log.facts import NO_GAPS, RequestFacts
from responses_gateway.server.generation.request_log.log_line import log_line
from responses_gateway.server.generation.request_log.metrics import (
    BACKEND_ERRORS,
    CONTINUATIONS,
    DISAGREEMENTS,
    DURATION,
    EVENTS,
    FIRST_TOKEN,
    FIRST_VISIBLE,
    IN_FLIGHT,
    INTER_TOKEN,
    ITEMS,
    KEY_DURATION,
    KEY_FIRST_TOKEN,
    MALFORMED,
    REPAIRS,
    REQUESTS,
    TERMINALS,
    TOKENS,
    UNSEEN_TOKENS,
)
from responses_gateway.server.generation.request_log.recent_requests import RecentRequests
from responses_gateway.server.generation.request_log.usage import Divide, TokenUsage
from responses_gateway.telemetry import logs
from responses_gateway.telemetry.gen_ai import CallTiming, GenAiMetrics
from responses_gateway.telemetry.instruments import key_label
from responses_gateway.telemetry.logs import REFUSALS
from responses_gateway.telemetry.metrics import Counted, Metrics
from responses_gateway.telemetry.tracing import Trace, Tracing
from responses_gateway.wire.deltas import Usage
from responses_gateway.wire.errors import ApiError

_MOST_WAITING = 100  # so many requests at most wait to be reported, because streams wait while they are
# A request that has ended, and the label of its model.
Labelled: TypeAlias = tuple[RequestFacts, str]
# Gets requests that were reported, several at a time.
Reader: TypeAlias = Callable[[Sequence[RequestFacts]], None]
# Warnings about a backend, with advice.
_UNSEEN = (
    "the backend generated tokens that it did not show",
    "the server's tool parser may not fit the model: `responses-gateway doctor URL` names the one that does",
)
_CUT = (
    "an answer ended at a limit that the client did not ask for",
    "it is default_max_output_tokens, a full context, or a limit of the server's own: `responses-gateway doctor URL` says more",
)


@dataclass(eq=False)
class RequestReports:
    """Reports the requests of one process. `metrics.flush` flushes them, too."""

    metrics: Metrics
    usage: TokenUsage  # counts tokens
    history: RecentRequests | None  # remembers requests for the window
    tracing: Tracing | None  # begins traces
    gen_ai: GenAiMetrics | None  # counts under the names of OpenTelemetry
    logs_lines: bool  # each request has a line in the log

    def __post_init__(self) -> None:
        self.running = 0  # requests
        self.relaying: dict[RequestFacts, Callable[[], Usage]] = {}  # those that are only relayed, with what each has used
        # Filled while the gateway opens, as `Additions` are: who gets the requests, and labels by which usage is divided, too.
        self.readers: list[Reader] = []
        self.divisions: dict[str, Divide] = {}
        self._ended: list[RequestFacts] = []
        self._warned: set[tuple[str, str]] = set()  # of what, for which model
        self.metrics.samplers.append(self.flush)

    def add(self, facts: RequestFacts, trace: Trace | None) -> None:
        """Take a request that has ended."""
        if trace is not None:
            for call in facts.calls:
                trace.tool_called(call, facts.ended_at)
            tier = None if facts.answer is None else facts.answer.service_tier
            times = facts.times
            trace.end(log_line(facts), facts.ended_at, times.turn_first, times.visible_at, tier)
        self._ended.append(facts)
        self.usage.ended.set()
        if _is_warning(facts) or len(self._ended) >= _MOST_WAITING:
            self.flush()

    def relayed(self) -> list[RequestFacts]:
        """Return the requests that are being relayed, as they stand."""
        now = time.monotonic()
        return [msgspec.structs.replace(facts, relayed=used(), ended_at=now) for facts, used in self.relaying.items()]

    def flush(self) -> None:
        """Report what has ended."""
        self.metrics.set(IN_FLIGHT, self.running)
        ended = self._ended
        self._ended = []
        try:
            self._report(ended)
        except Exception as defect:  # whoever ends a request must not fail because of its report
            self.metrics.report(defect)

    def _report(self, ended: Sequence[RequestFacts]) -> None:
        if not ended:
            return
        unix_time = time.time() - time.monotonic()  # when the clock of the loop was 0
        for facts in ended:
            facts.ended = facts.ended_at + unix_time
        labelled = _labelled(self.metrics, ended)
        _count_requests(self.metrics, labelled)
        _count_streams(self.metrics, labelled)
        _count_answers(self.metrics.counted, labelled)
        self.usage.count(labelled)
        if self.gen_ai is not None:
            for facts in ended:
                self._observe(self.gen_ai, facts)
        for facts, model in labelled:
            self._warn(facts, model)
        if self.logs_lines:
            self._log(ended)
        if self.history is not None:
            self.history.add(ended)
        for reader in self.readers:
            reader(ended)

    def _log(self, ended: Sequence[RequestFacts]) -> None:
        enabled = {level: logs.logger().isEnabledFor(level) for level in (logging.INFO, logging.WARNING)}
        for facts in ended:
            level = logging.WARNING if _is_warning(facts) else logging.INFO
            if enabled[level]:
                line = log_line(facts)
                if facts.exchange:
                    line.pop("status", None)  # because the client may have got another one, in the words of its protocol
                    line.update(facts.exchange)
                logs.routine(level, "response", line, facts.ended)

    def called(self, facts: RequestFacts, usage: Usage | None, now: float, error: ApiError | None = None) -> None:
        """Observe the last request to a backend under the names of OpenTelemetry, if that is turned on."""
        called = facts.backend_called
        if self.gen_ai is None or called is None:
            return
        first = facts.times.turn_first
        model = self.metrics.model(facts.model) if first is not None else "unknown"
        failed = None if error is None else error.code or error.type
        timing = CallTiming(now - called, None if first is None else first - called, facts.times.turn_gap)
        self.gen_ai.called(model, timing, usage, failed)

    def _observe(self, gen_ai: GenAiMetrics, facts: RequestFacts) -> None:
        """Observe what a request has called under the names of OpenTelemetry."""
        answer = facts.answer
        self.called(facts, None if answer is None else answer.turns[-1].used, facts.ended_at, facts.error)
        for call in facts.calls:
            failed = None if call.outcome == "completed" else "tool_error" if call.tool_failed else call.outcome
            seconds = facts.ended_at - call.began if call.seconds is None else call.seconds
            gen_ai.tool_called(call.target.kind, seconds, failed, None if call.session is None else call.session.transport)

    def _warn(self, facts: RequestFacts, model: str) -> None:
        """Warn of what looks like a wrong setting of a backend, once for each model."""
        answer = facts.answer
        if facts.unseen_tokens:
            self._warn_once(facts, model, *_UNSEEN, unseen_tokens=facts.unseen_tokens)
        if answer is not None and answer.cut_unasked:
            self._warn_once(facts, model, *_CUT, output_tokens=None if answer.usage is None else answer.usage.output)

    def _warn_once(self, facts: RequestFacts, model: str, message: str, advice: str, **seen: int | None) -> None:
        if (message, model) in self._warned:
            return
        self._warned.add((message, model))
        fields = logs.fields(model=facts.model[:200], backend=facts.backend, **seen, request_id=facts.request_id, advice=advice)
        logs.logger().warning(message, extra=fields)


def _is_warning(facts: RequestFacts) -> bool:
    """Tell whether somebody may have to do something about a request."""
    return facts.error is not None or ("status" in facts.exchange and facts.exchange["status"] in REFUSALS)


# ---- metrics ----------------------------------------------------------------------------------------------------------


def _labelled(metrics: Metrics, ended: Sequence[RequestFacts]) -> list[Labelled]:
    """Return requests with the labels of their models. Clients make names up: one that no backend answered for has no time
    series of its own."""
    answered = {facts.model for facts in ended if facts.answer is not None and facts.answer.chunks}
    labels = {name: metrics.model(name) for name in answered}
    return [(facts, labels[facts.model] if facts.answer is not None and facts.answer.chunks else "unknown") for facts in ended]


def _count_requests(metrics: Metrics, ended: Sequence[Labelled]) -> None:
    counted = metrics.counted
    for facts, model in ended:
        counted[REQUESTS, (model, facts.outcome, "true" if facts.streamed else "false", facts.protocol.name)] += 1
        error = facts.error
        if error is not None and facts.backend is not None:  # else no backend was asked
            counted[BACKEND_ERRORS, (error.reason or error.code or error.type,)] += 1
    metrics.observe_each(DURATION, [(model, facts.ended_at - facts.began) for facts, model in ended])
    keyed = [(key_label(facts.account.key), facts) for facts, _ in ended if facts.account.key is not None]
    if keyed:
        metrics.observe_each(KEY_DURATION, [(key, facts.ended_at - facts.began) for key, facts in keyed])
        first = [(key, facts.times.first - facts.began) for key, facts in keyed if facts.times.first is not None]
        metrics.observe_each(KEY_FIRST_TOKEN, first)


def _count_streams(metrics: Metrics, ended: Sequence[Labelled]) -> None:
    first = [(model, facts.times.first - facts.began) for facts, model in ended if facts.times.first is not None]
    metrics.observe_each(FIRST_TOKEN, first)
    visible = [(model, facts.times.visible_at - facts.began) for facts, model in ended if facts.times.visible_at is not None]
    metrics.observe_each(FIRST_VISIBLE, visible)
    for model in {model for model, _ in first}:
        gaps = [facts.times for facts, label in ended if label == model and facts.times.gap_count]
        sums = map(sum, zip(*(times.gaps for times in gaps), strict=True)) if gaps else NO_GAPS
        metrics.observe_many(INTER_TOKEN, list(sums), sum(times.gap_sum for times in gaps), model)


def _count_answers(counted: Counted, ended: Sequence[Labelled]) -> None:
    """Count what came of backends: into a dictionary, because a call for each number would cost more than all the rest."""
    for facts, model in ended:
        answer = facts.answer
        if answer is None:
            continue
        usage = answer.usage
        if usage is not None:
            counted[TOKENS, (model, "input")] += usage.input or 0
            counted[TOKENS, (model, "cached")] += usage.cached or 0
            counted[TOKENS, (model, "output")] += usage.output or 0
        for kind in facts.tokens_by_kind:
            counted[TOKENS, (model, kind)] += facts.tokens_by_kind[kind]
        if facts.unseen_tokens:
            counted[UNSEEN_TOKENS, (model,)] += facts.unseen_tokens
        if answer.disagrees:
            counted[DISAGREEMENTS, (model,)] += 1
        if answer.ended:
            counted[TERMINALS, (answer.status, answer.reason or "none")] += 1
        for metric, amounts in ((ITEMS, answer.items), (EVENTS, answer.events), (REPAIRS, answer.repairs)):
            for kind in amounts:
                counted[metric, (kind,)] += amounts[kind]
        if answer.diverged:
            counted[CONTINUATIONS, ("failed", answer.diverged)] += 1
        if answer.malformed:
            counted[MALFORMED, ()] += answer.malformed
