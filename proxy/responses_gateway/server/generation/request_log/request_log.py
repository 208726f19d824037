"""What the metrics, the log line and the trace of one request will say."""

from __future__ import annotations

import logging
import random
import time
from bisect import bisect_left
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from functools import partial
from typing import Any, Literal, Protocol

from yarl import URL

from responses_gateway.backend.transport.client import backend_request_id
from responses_gateway.hosted.interface import HostedLoss
from responses_gateway.request import Loss
from responses_gateway.server.generation.request_log.facts import Account, RequestFacts, StreamTimes
from responses_gateway.server.generation.request_log.metrics import (
    BACKEND_ERRORS,
    CONTINUATIONS,
    DISAGREEMENTS,
    DISCONNECTS,
    DURATION,
    EVENTS,
    FIRST_TOKEN,
    FIRST_VISIBLE,
    GAP_BUCKETS,
    IN_FLIGHT,
    INTER_TOKEN,
    ITEMS,
    KEEP_ALIVES,
    KEY_DURATION,
    KEY_FIRST_TOKEN,
    LOSSES,
    MALFORMED,
    REPAIRS,
    REQUESTS,
    TERMINALS,
    TOKENS,
    UNSEEN_TOKENS,
)
from responses_gateway.server.generation.request_log.recent_requests import RecentRequests, RequestSummary
from responses_gateway.server.generation.request_log.sampling import StreamSample
from responses_gateway.server.protocols.interface import ClientProtocol
from responses_gateway.server.protocols.responses import RESPONSES
from responses_gateway.settings import Settings
from responses_gateway.state.usage import AMOUNTS, DAY
from responses_gateway.stream.translator import Translator
from responses_gateway.telemetry import logs
from responses_gateway.telemetry.gen_ai import GenAiMetrics
from responses_gateway.telemetry.instruments import key_label
from responses_gateway.telemetry.metrics import Metrics
from responses_gateway.telemetry.tracing import Trace
from responses_gateway.wire.deltas import Usage
from responses_gateway.wire.errors import ApiError
from responses_gateway.wire.hosted import MadeCall

_ANONYMOUS = Account()
# Characters of what a client calls itself.
_LONGEST_NAME = 80
_NOTHING_USED = [0] * len(AMOUNTS)
# Logged in place of a backend's own words.
_UNQUOTED = "The backend reported an error; log_backend_errors shows its message here."
# Warnings about a backend, with advice.
_UNSEEN = (
    "the backend generated tokens that it did not show",
    "the server's tool parser may not fit the model: `responses-gateway doctor URL` names the one that does",
)
_CUT = (
    "an answer ended at a limit that the client did not ask for",
    "it is default_max_output_tokens, a full context, or a limit of the server's own: `responses-gateway doctor URL` says more",
)


class LimitReservation(Protocol):
    """What a request holds of its client's limits, until it ends."""

    # The name of the client's key, if it came with one, and the team to which it belongs.
    key: str | None
    team: str | None
    # Set by whoever ends the reservation with the response, which may outlive its HTTP exchange.
    kept: bool
    # Whose quotas are charged, and whether `settle` is to be called before the answer ends.
    owners: tuple[str, ...]
    settles: bool

    async def settle(self, tokens: int, response_id: str | None = None) -> None:
        """Write down the tokens of a response, before its client can know that it has ended."""

    def charge(self, tokens: int) -> None:
        """Count tokens that the request has used before its end."""

    def end(self, tokens: int = 0, response_id: str | None = None) -> None:
        """End the request, which has used so many tokens. Only the first call counts."""


async def settle(reservation: LimitReservation | None, translator: Translator) -> None:
    """Charge a response to the quotas of its client, if there are any, before its terminal event is sent."""
    if reservation is not None and reservation.settles:
        await reservation.settle(_tokens_of(translator), translator.response_id)


class RequestLog:
    """Notes what is known of a request while it runs, and reports to metrics, log, trace and window when it ends."""

    __slots__ = (
        "_for_compaction", "_history", "_logs_line", "_metrics", "_reservation", "_sample", "facts", "times", "trace",
    )  # fmt: skip

    def __init__(
        self,
        facts: RequestFacts,
        metrics: Metrics,
        settings: Settings,
        *,
        reservation: LimitReservation | None,
        trace: Trace | None,
        history: RecentRequests | None,
        for_compaction: bool,
    ) -> None:
        """`reservation` and `trace` end with the log; a trace is there only where traces are turned on. `history`
        gets a summary at the end. `for_compaction`: the response is needed to make another one, which reports the losses; it is
        never checked against the rules of a stream."""
        self.facts = facts
        self.times = facts.times
        self._metrics = metrics
        self._logs_line = settings.access_log
        self._reservation = reservation
        self.trace = trace
        self._history = history
        self._for_compaction = for_compaction
        self._sample: StreamSample | None = None
        if not for_compaction and random.random() < settings.invariant_sampling:
            self._sample = StreamSample()
        if reservation is not None:
            reservation.kept = True
        metrics.count(IN_FLIGHT)

    def understood(self, model: str, *, streamed: bool) -> None:
        """Note what was asked for."""
        self.facts.model = model
        self.facts.streamed = streamed

    def calling(self, backend: str, url: URL, headers: Mapping[str, str], now: float) -> Mapping[str, str]:
        """Note that a backend is about to be asked; the last one counts. Return the headers to send."""
        self.facts.backend = backend
        self.facts.backend_called = now
        return headers if self.trace is None else {**headers, **self.trace.call(url.authority.rpartition("@")[2], now)}

    def continued(self, cause: str, failed: str, backend: str, pod: str, kept: int, now: float) -> None:
        """Note that another backend continues an answer that broke off, of which it got so many tokens; or another server
        behind the same router, whose name is `pod` if it tells."""
        self.facts.continued += 1
        failed_pod = self.facts.pod
        self.facts.pod = pod or None
        self._metrics.count(CONTINUATIONS, "continued", cause)
        fields: dict[str, str | int] = {"cause": cause, "failed": failed, "backend": backend, "tokens": kept}
        if self.trace is not None:
            self.trace.event("continued", fields, now)
        fields["request_id"] = self.facts.request_id
        pods = {"failed_pod": failed_pod, "pod": pod or None}
        logs.logger().info("answer continued at another backend", extra=logs.fields(**fields, **pods))

    def continuation_failed(self, backend: str, reason: str) -> None:
        """Note that a backend did not continue an answer that broke off; the name is empty if none could be asked."""
        fields = logs.fields(request_id=self.facts.request_id, backend=backend or None, reason=reason)
        logs.logger().warning("continuation failed", extra=fields)

    def not_continued(self, cause: str, reason: str, *, possible: bool) -> None:
        """Note that an answer broke off, and why no other backend continued it."""
        self.facts.not_continued = reason
        self._metrics.count(CONTINUATIONS, "failed" if possible else "impossible", reason)
        logs.logger().debug("not continued", extra=logs.fields(request_id=self.facts.request_id, cause=cause, reason=reason))

    def losses(self, losses: Iterable[Loss]) -> None:
        """Count what of the request could not be carried over as it was."""
        if self._for_compaction:
            return
        debug = logs.logger().isEnabledFor(logging.DEBUG)
        for loss in losses:
            if loss.outcome != "preserved":
                self.facts.losses.append(loss)
                self._metrics.count(LOSSES, loss.kind, loss.name, loss.outcome)
                if debug:
                    loss_fields = {"kind": loss.kind, "name": loss.name, "outcome": loss.outcome, "reason": loss.reason}
                    logs.logger().debug("loss", extra=logs.fields(request_id=self.facts.request_id, **loss_fields))

    def ran_tools(self, calls: Sequence[MadeCall], losses: Iterable[HostedLoss]) -> None:
        """Note the calls that the gateway made itself, some of which may still be ending, and count what they could not
        honour."""
        self.facts.calls = calls
        self.losses(Loss("tool", loss.tool, "adapted", loss.reason) for loss in losses)

    def turn_ended(self, usage: Usage | None, now: float) -> None:
        """Note that the model waits for the results of calls: the next read begins another answer."""
        self.count_gaps()
        times = self.times
        if self.trace is not None:
            turn = logs.present({"model": self.facts.model, **_usage_fields(usage)})
            self.trace.end_call(turn, now, times.turn_first, times.visible_at)
        _observe_call(self._metrics, self.facts, usage, now)
        times.between_turns = True
        times.turn_first = None

    def charge(self, translator: Translator) -> None:
        """Charge the client for another answer that this one needed, such as a summary of the context."""
        if self._reservation is not None:
            self._reservation.charge(_tokens_of(translator))

    @property
    def sampling(self) -> bool:
        """The stream will be checked, so `sent` must get all of it."""
        return self._sample is not None

    def count_gaps(self) -> None:
        """Count the gaps between the reads so far. Counting them together is cheaper than one by one."""
        times = self.times
        reads = times.reads
        if not reads:
            return
        if times.first is None:
            times.first = reads.pop(0)
            times.turn_first = times.first
            times.last = times.first
        elif times.between_turns:
            times.turn_first = reads.pop(0)
            times.last = times.turn_first
            times.between_turns = False
        last = times.last
        for now in reads:
            times.gaps[bisect_left(GAP_BUCKETS, now - last)] += 1
            last = now
        times.gap_sum += last - times.last
        times.last = last
        del reads[:]

    def sent(self, events: bytes) -> None:
        """Take a copy of events for the client, if this stream is sampled."""
        if self._sample is not None and not self._sample.add(events):
            self._sample = None

    def kept_alive(self, kind: Literal["comment", "event"]) -> None:
        """Count a keep-alive."""
        self._metrics.count(KEEP_ALIVES, kind)

    def refused(self, error: ApiError) -> None:
        """Note the HTTP error that is the answer."""
        self.facts.error = error.copy()

    def client_left(self) -> None:
        """Note that the client closed the connection before the end."""
        self.facts.client_left = True
        self._metrics.count(DISCONNECTS, self.facts.phase)

    def close(self, translator: Translator | None, now: float, record: str | None = None) -> str:
        """End the log; return the outcome as a label of the metrics, which are updated a little later, unless it has failed.
        `record` is the name of the file with the recorded exchange."""
        if self._reservation is not None:
            self._reservation.end(_tokens_of(translator), translator.response_id if translator is not None else None)
        self._metrics.count(IN_FLIGHT, amount=-1)
        error = self.facts.error or (translator.error or _late_error(translator) if translator is not None else None)
        outcome = _outcome(self.facts, translator)
        report = partial(self._report, translator, error, outcome, now, time.time(), record)
        if error is None:
            self._metrics.defer(report)
        else:
            report()
        return outcome

    def _report(
        self, translator: Translator | None, error: ApiError | None, outcome: str, now: float, ended: float, record: str | None
    ) -> None:
        """Report a response that ended at `now`, by the loop's clock, and at the Unix time `ended`."""
        self.count_gaps()
        facts = self.facts
        if translator is not None:
            _note_answer(facts, translator)
            facts.tokens_by_kind = translator.tokens.by_kind()
            facts.unseen_tokens = translator.unseen_tokens
            facts.not_continued = translator.answer.diverged or facts.not_continued
        _count_request(self._metrics, facts, translator, error, outcome, now)
        _observe_call(self._metrics, facts, translator.lifecycle.turn.used if translator is not None else None, now, error)
        if self._metrics.gen_ai is not None:
            for call in facts.calls:
                _observe_tool(self._metrics.gen_ai, call, now)
        if translator is not None and translator.defect is not None:
            self._report_defect(translator.defect)
        if self._sample is not None and translator is not None and translator.ended:
            self._sample.check(facts.protocol.check, translator, self._metrics, facts.request_id)
        if not (self._logs_line or self.trace is not None or self._history is not None):
            return
        line = _line(facts, translator, error, now)
        if self._logs_line:
            logs.routine(logging.INFO if error is None else logging.WARNING, "response", line, ended)
        if self.trace is not None:
            for call in facts.calls:
                self.trace.tool_called(call, now)
            tier = None if translator is None else translator.options.echo.get("service_tier")
            self.trace.end(line, now, self.times.turn_first, self.times.visible_at, tier)
        if self._history is not None:
            summary = _summary(facts, translator, line, record)
            summary.ended = ended
            self._history.add(summary)

    def _report_defect(self, defect: BaseException) -> None:
        self._metrics.report(defect, request_id=self.facts.request_id)
        defect.__traceback__ = None  # its frames hold the request and this log

    def running(self, translator: Translator | None, now: float, record: str | None) -> RequestSummary:
        """Return how a request stands that has not ended, without any of its content."""
        self.count_gaps()
        if translator is not None:
            _note_answer(self.facts, translator)
        summary = _summary(self.facts, translator, _line(self.facts, translator, None, now), record)
        summary.phase = self.facts.phase
        return summary


def new_facts(
    request_id: str,
    headers: Mapping[str, str],
    settings: Settings,
    history: RecentRequests | None,
    reservation: LimitReservation | None,
    now: float,
    protocol: ClientProtocol = RESPONSES,
) -> RequestFacts:
    """Return what is known of a request with these headers that came `now`, in this protocol."""
    return RequestFacts(
        request_id=request_id,
        id="" if history is None else history.new_id(),
        client=client_name(headers),
        account=_ANONYMOUS if reservation is None else Account(reservation.key, reservation.team),
        quotes_backends=settings.log_backend_errors,
        began=now,
        started=time.time(),
        protocol=protocol,
        times=StreamTimes(now, gaps=[0] * (len(GAP_BUCKETS) + 1)),
    )


def client_name(headers: Mapping[str, str]) -> str:
    """Return what a client calls itself: Codex in `originator`, others in `User-Agent`."""
    return (headers.get("originator") or headers.get("User-Agent", ""))[:_LONGEST_NAME]


def _note_answer(facts: RequestFacts, translator: Translator) -> None:
    """Note what is known of the answer so far."""
    facts.chunks = translator.chunks
    facts.usage = translator.usage
    facts.repairs = translator.repairs


# ---- the outcome ------------------------------------------------------------------------------------------------------


def _outcome(facts: RequestFacts, translator: Translator | None) -> str:
    """Return the outcome as the client has seen it: a label of the metrics."""
    if facts.handed_over:
        return "handed_over"
    if facts.client_left:
        return "client_disconnected"
    if facts.error is not None:
        return "rejected" if facts.error.status < 500 else "failed"
    return translator.status if translator is not None else "failed"


def _execution(facts: RequestFacts, translator: Translator | None, error: ApiError | None) -> str:
    """Return the outcome whether or not the response was delivered."""
    if facts.error is not None:
        return "rejected" if facts.error.status < 500 else "failed"
    if facts.handed_over:
        return "handed_over"
    if translator is None:
        return "cancelled" if facts.client_left else "failed"
    if not translator.ended or (error is not None and error.status == 499):
        return "cancelled"
    return translator.status


def _late_error(translator: Translator) -> ApiError | None:
    """Return what a backend sent after the end of an answer; it does not change how the response ended."""
    return next(filter(None, [answer.late_error for answer in translator.answers]), None)


def _tokens_of(translator: Translator | None) -> int:
    """Return the tokens of a response, input and output; an estimate if it was cut off before the backend reported usage."""
    if translator is None:
        return 0
    usage = translator.usage
    if usage is None or usage.output is None:
        return _seen_tokens(translator)
    unreported = _seen_tokens(translator) if any(turn.used is None for turn in translator.lifecycle.turns) else 0
    return max(usage.output, unreported) + (usage.input or 0)


def _seen_tokens(translator: Translator) -> int:
    """Return about how many tokens the backends generated, by what was seen of them."""
    return max(translator.chunks, sum(translator.tokens.by_kind().values()))


# ---- metrics ----------------------------------------------------------------------------------------------------------


def _count_request(
    metrics: Metrics, facts: RequestFacts, translator: Translator | None, error: ApiError | None, outcome: str, now: float
) -> None:
    """Count a request that ended at `now`."""
    if error is not None and facts.phase != "request":
        metrics.count(BACKEND_ERRORS, error.reason or error.code or error.type)
    # Clients make names up: one that no backend answered for gets no time series of its own.
    answered = facts.chunks > 0
    model = metrics.model(facts.model) if answered else "unknown"
    metrics.count(REQUESTS, model, outcome, "true" if facts.streamed else "false", facts.protocol.name)
    metrics.observe(DURATION, now - facts.began, model)
    if facts.account.key is not None:
        metrics.observe(KEY_DURATION, now - facts.began, key_label(facts.account.key))
        if facts.times.first is not None:
            metrics.observe(KEY_FIRST_TOKEN, facts.times.first - facts.began, key_label(facts.account.key))
    if translator is not None:
        _count_stream(metrics, facts, translator, model)
        if answered:
            _count_usage(metrics, facts, model)


def _observe_call(
    metrics: Metrics, facts: RequestFacts, usage: Usage | None, now: float, error: ApiError | None = None
) -> None:
    """Observe the last request to a backend under the names of OpenTelemetry, if that is turned on."""
    called = facts.backend_called
    if metrics.gen_ai is None or called is None:
        return
    first = facts.times.turn_first
    model = metrics.model(facts.model) if first is not None else "unknown"
    failed = None if error is None else error.code or error.type
    metrics.gen_ai.called(model, now - called, None if first is None else first - called, usage, failed)


def _observe_tool(metrics: GenAiMetrics, call: MadeCall, now: float) -> None:
    """Observe a call of a hosted tool under the names of OpenTelemetry."""
    failed = None if call.outcome == "completed" else "tool_error" if call.tool_failed else call.outcome
    seconds = now - call.began if call.seconds is None else call.seconds
    metrics.tool_called(call.target.kind, seconds, failed, call.session.transport if call.session is not None else None)


def _count_stream(metrics: Metrics, facts: RequestFacts, translator: Translator, model: str) -> None:
    times = facts.times
    if times.first is not None:
        metrics.observe(FIRST_TOKEN, times.first - facts.began, model)
        metrics.observe_many(INTER_TOKEN, times.gaps, times.gap_sum, model)
    if times.visible_at is not None:
        metrics.observe(FIRST_VISIBLE, times.visible_at - facts.began, model)
    if translator.ended:
        reason = translator.incomplete_reason or (translator.error.code if translator.error else None) or "none"
        metrics.count(TERMINALS, translator.status, reason)
    usage = facts.usage
    if usage is not None:
        for kind, tokens in (("input", usage.input), ("cached", usage.cached), ("output", usage.output)):
            metrics.count(TOKENS, model, kind, amount=tokens or 0)
    for kind, tokens in facts.tokens_by_kind.items():
        metrics.count(TOKENS, model, kind, amount=tokens)
    if facts.unseen_tokens:
        metrics.count(UNSEEN_TOKENS, model, amount=facts.unseen_tokens)
        _warn_once(metrics, facts, model, *_UNSEEN, unseen_tokens=facts.unseen_tokens)
    if _cut_unasked(translator):
        _warn_once(metrics, facts, model, *_CUT, output_tokens=usage.output if usage is not None else None)
    if translator.tokens.disagrees:
        metrics.count(DISAGREEMENTS, model)
    metrics.count_all(ITEMS, translator.writer.items)
    metrics.count_all(EVENTS, translator.writer.deltas)
    metrics.count_all(REPAIRS, facts.repairs)
    if translator.answer.diverged:
        metrics.count(CONTINUATIONS, "failed", translator.answer.diverged)
    if translator.malformed:
        metrics.count(MALFORMED, amount=translator.malformed)


def _cut_unasked(translator: Translator) -> bool:
    """Tell whether the answer ended at a limit though the client asked for none."""
    return translator.lifecycle.turn.finish_reason == "length" and translator.options.echo.get("max_output_tokens") is None


def _count_usage(metrics: Metrics, facts: RequestFacts, model: str) -> None:
    """Count the `AMOUNTS` of one request; an estimate of the output if it was cut off before the backend reported usage."""
    usage = facts.usage or Usage(None, None)
    output = max(facts.chunks, sum(facts.tokens_by_kind.values())) if usage.output is None else usage.output
    reasoning = usage.reasoning or facts.tokens_by_kind.get("reasoning", 0)
    row = (int(time.time() // DAY), facts.account.key or "", facts.account.team or "", model)
    known = metrics.usage.get(row, _NOTHING_USED)
    amounts = (1, usage.input or 0, usage.cached or 0, output, reasoning)
    metrics.usage[row] = [one + more for one, more in zip(known, amounts, strict=True)]


def _warn_once(metrics: Metrics, facts: RequestFacts, model: str, message: str, advice: str, **figures: int | None) -> None:
    """Warn once for each model."""
    if (message, model) in metrics.warned:
        return
    metrics.warned.add((message, model))
    fields = logs.fields(model=facts.model[:200], backend=facts.backend, **figures, request_id=facts.request_id, advice=advice)
    logs.logger().warning(message, extra=fields)


# ---- the log line -----------------------------------------------------------------------------------------------------


def _line(facts: RequestFacts, translator: Translator | None, error: ApiError | None, now: float) -> dict[str, Any]:
    """Return the fields of the log line; docs/observability.md explains each of them."""
    fields: dict[str, Any] = {
        "request_id": facts.request_id,
        "response_id": translator.response_id if translator is not None else None,
        "door": facts.protocol.name,
        "key": facts.account.key,
        "team": facts.account.team,
        "model": facts.model[:200] or None,  # clients make names up
        "backend": facts.backend,
        "pod": facts.pod,
        "backend_request_id": backend_request_id(facts.request_id) if facts.backend is not None else None,
        "stream": facts.streamed,
        "outcome": _execution(facts, translator, error),
        "delivery": "client_left" if facts.client_left else "detached" if facts.detached else "complete",
        "phase": facts.phase if facts.client_left else None,
        "seconds": _since(facts.began, now),
        "backend_called": _since(facts.began, facts.backend_called),
        "first_token": _since(facts.began, facts.times.first),
        "first_visible": _since(facts.began, facts.times.visible_at),
    }
    if translator is not None:
        fields |= _answer_fields(facts, translator)
    fields["continued"] = facts.continued or None
    fields["not_continued"] = facts.not_continued
    if translator is not None:
        fields["items"] = sum(translator.writer.items.values())
        fields["repairs"] = sum(facts.repairs.values()) or None
    if facts.error is not None:
        fields["status"] = facts.error.status
    if error is not None:
        fields |= _error_fields(facts, error)
    return logs.present(fields)


def _answer_fields(facts: RequestFacts, translator: Translator) -> dict[str, Any]:
    usage = facts.usage
    reported = usage.reasoning if usage is not None else None
    return {
        **_usage_fields(usage),
        # The number in the client's usage, or else what was counted; absent without any reasoning.
        "reasoning_tokens": reported or facts.tokens_by_kind.get("reasoning"),
        "tokens_from": translator.tokens.reasoning_from,
        "unseen_tokens": facts.unseen_tokens or None,
        **(_hosted_fields(facts, translator) if facts.calls else {}),
        "finish_reason": translator.lifecycle.turn.finish_reason,
    }


def _hosted_fields(facts: RequestFacts, translator: Translator) -> dict[str, Any]:
    """Return what only responses with hosted calls have in their lines."""
    return {
        "turns": len(translator.lifecycle.turns),
        "usage_by_turn": [logs.present(_usage_fields(turn.used)) for turn in translator.lifecycle.turns],
        "hosted_calls": Counter(call.target.kind for call in facts.calls),
        "hosted_failures": sum(call.outcome != "completed" for call in facts.calls) or None,
    }


def _error_fields(facts: RequestFacts, error: ApiError) -> dict[str, Any]:
    """Return the fields of an error; the words of a backend may repeat the prompt."""
    words = error.message[:200] if facts.quotes_backends or not error.quoted else _UNQUOTED
    return {
        "code": error.code or error.type,
        "reason": error.reason,
        "error": words if error.status >= 500 else None,
        "param": error.param if not error.quoted else None,
    }


def _usage_fields(usage: Usage | None) -> dict[str, int | None]:
    """Return the fields of a log line for the usage that a backend reported."""
    if usage is None:
        return {}
    return {"input_tokens": usage.input, "cached_tokens": usage.cached, "output_tokens": usage.output}


def _since(began: float, at: float | None) -> float | None:
    """Return the seconds from the arrival of the request to a time."""
    return None if at is None else round((at - began) * 1000) / 1000  # `round` itself takes far longer with digits


# ---- the window -------------------------------------------------------------------------------------------------------


def _summary(facts: RequestFacts, translator: Translator | None, line: dict[str, Any], record: str | None) -> RequestSummary:
    """Return what the window shows, which has none of the content. `line` is that of the log, `record` the name of the file
    with the recorded exchange."""
    times = facts.times
    summary = RequestSummary(facts.id, line, facts.started, facts.client, facts.losses, times.gaps, times.gap_sum, record)
    if translator is not None:
        summary.chunks = facts.chunks
        summary.produced = line.get("output_tokens", facts.chunks)
        summary.state = translator.lifecycle.state
        summary.spans = translator.writer.spans
        summary.repairs = facts.repairs
        summary.tokens = facts.tokens_by_kind
        summary.events = translator.writer.deltas
    return summary
