"""What the metrics, the log line and the trace of one request will say."""

from __future__ import annotations

import asyncio
import logging
import random
import time
from bisect import bisect_left
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from functools import partial
from itertools import count
from typing import Any, Literal, Protocol

from yarl import URL

from proxy.conformance.checker import check_stream
from proxy.hosted.interface import HostedLoss, MadeCall
from proxy.request import Loss
from proxy.server.generation.recent_requests import RecentRequests, RequestSummary
from proxy.settings import Settings
from proxy.stream.translator import Translator
from proxy.telemetry import logs
from proxy.telemetry.metrics import INTER_TOKEN_BUCKETS, Metrics
from proxy.telemetry.tracing import Trace
from proxy.wire.deltas import Usage
from proxy.wire.errors import ApiError

Phase = Literal["request", "backend", "stream", "tools"]

# A sampled stream longer than this is not checked, in bytes.
_SAMPLE_LIMIT = 4 * 1024 * 1024
# Of the requests of this process.
_NUMBERS = count(1)
# Logged in place of a backend's own words.
_UNQUOTED = "The backend reported an error; log_backend_errors shows its message here."


class Reservation(Protocol):
    """What a request holds of its client's limits, until it ends."""

    # The name of the client's key, if it came with one.
    key: str | None
    # Set by whoever ends the reservation with the response, which may outlive its HTTP exchange.
    kept: bool

    def charge(self, tokens: int) -> None:
        """Count tokens that the request has used before its end."""

    def end(self, tokens: int = 0) -> None:
        """End the request, which has used so many tokens. Only the first call counts."""


class RequestLog:
    """Counts in plain numbers while a request runs, and reports to metrics, log and trace when it ends."""

    __slots__ = (
        "_backend", "_backend_called", "_began", "_between_turns", "_calls", "_client", "_client_left", "_continued",
        "_error", "_first", "_gap_sum", "_gaps", "_history", "_last", "_logs_line", "_losses", "_metrics", "_model",
        "_not_continued", "_quotes_backends", "_request_id", "_reservation", "_sample", "_sample_size", "_started",
        "_streamed", "_tokens_by_kind", "_trace", "_turn_first", "_unseen_tokens", "detached", "handed_over", "id",
        "phase", "reads", "visible_at",
    )  # fmt: skip

    def __init__(
        self,
        metrics: Metrics,
        settings: Settings,
        request_id: str,
        now: float,
        *,
        reservation: Reservation | None,
        trace: Trace | None,
        sampled: bool = True,
        history: RecentRequests | None = None,
        client: str = "",
    ) -> None:
        """`now` is the loop's time in seconds. `reservation` and `trace` end with the log. Unless `sampled`, the stream is
        never checked against the rules of a Responses stream. `history` is told of the end; `client` is the client's name
        of itself."""
        self.phase: Phase = "request"
        # The response goes on without its client: its delivery is logged by another request.
        self.detached = False
        # The response goes on in another gateway.
        self.handed_over = False
        # When reads of the backend brought events: appended to from outside, counted by `count_gaps`.
        self.reads: list[float] = []
        # When the first text, refusal or call began.
        self.visible_at: float | None = None
        self._metrics = metrics
        self._request_id = request_id
        self._logs_line = settings.access_log
        self._quotes_backends = settings.log_backend_errors
        self._began = now
        self._history = history
        self._client = client
        self._started = time.time()
        self._losses: list[Loss] = []
        # Unique among the requests of all workers, which the client's request id may not be; empty without a history.
        self.id = "" if history is None else f"{history.process}-{next(_NUMBERS)}"
        self._model = ""
        self._streamed = False
        self._error: ApiError | None = None
        self._client_left = False
        self._trace = trace
        self._backend: str | None = None
        self._backend_called: float | None = None
        self._continued = 0
        self._not_continued: str | None = None
        self._tokens_by_kind: dict[str, int] = {}
        self._unseen_tokens = 0
        self._first: float | None = None
        self._turn_first: float | None = None  # the first read of this turn of the model
        self._between_turns = False
        self._calls: Sequence[MadeCall] = ()
        self._last = now
        self._gaps = [0] * (len(INTER_TOKEN_BUCKETS) + 1)
        self._gap_sum = 0.0
        self._sample: list[bytes] | None = [] if sampled and random.random() < settings.invariant_sampling else None
        self._sample_size = 0
        self._reservation = reservation
        if reservation is not None:
            reservation.kept = True
        metrics.count(metrics.in_flight)

    def understood(self, model: str, *, streamed: bool) -> None:
        """Note what was asked for."""
        self._model = model
        self._streamed = streamed

    def calling(self, backend: str, url: URL, headers: Mapping[str, str], now: float) -> Mapping[str, str]:
        """Note that a backend is about to be asked; the last one counts. Return the headers to send."""
        self._backend = backend
        self._backend_called = now
        return headers if self._trace is None else {**headers, **self._trace.call(url.authority.rpartition("@")[2], now)}

    def continued(self, cause: str, failed: str, backend: str, kept: int, now: float) -> None:
        """Note that another backend goes on with an answer that broke off, of which it got so many tokens."""
        self._continued += 1
        self._metrics.count(self._metrics.continuations, "continued", cause)
        fields: dict[str, str | int] = {"cause": cause, "failed": failed, "backend": backend, "tokens": kept}
        if self._trace is not None:
            self._trace.event("continued", fields, now)
        logs.logger().info("answer continued at another backend", extra=logs.fields(request_id=self._request_id, **fields))

    def continuation_failed(self, backend: str, reason: str) -> None:
        """Note that a backend was asked in vain to go on with an answer that broke off; the name is empty if none could be."""
        fields = logs.fields(request_id=self._request_id, backend=backend or None, reason=reason)
        logs.logger().warning("continuation failed", extra=fields)

    def not_continued(self, cause: str, reason: str, *, possible: bool) -> None:
        """Note that an answer broke off, and why no other backend went on with it."""
        self._not_continued = reason
        self._metrics.count(self._metrics.continuations, "failed" if possible else "impossible", reason)
        logs.logger().debug("not continued", extra=logs.fields(request_id=self._request_id, cause=cause, reason=reason))

    def losses(self, losses: Iterable[Loss]) -> None:
        """Count what of the request could not be carried over as it was."""
        for loss in losses:
            if loss.outcome != "preserved":
                self._losses.append(loss)
                self._metrics.count(self._metrics.losses, loss.kind, loss.name, loss.outcome)
                said = {"kind": loss.kind, "name": loss.name, "outcome": loss.outcome, "reason": loss.reason}
                logs.logger().debug("loss", extra=logs.fields(request_id=self._request_id, **said))

    def ran_tools(self, calls: Sequence[MadeCall], losses: Iterable[HostedLoss]) -> None:
        """Note the calls that the gateway made itself, some of which may still be ending, and count what they could not
        honour."""
        self._calls = calls
        self.losses(Loss("tool", loss.tool, "adapted", loss.reason) for loss in losses)

    def turn_ended(self, usage: Usage | None, now: float) -> None:
        """Note that the model waits for the results of calls: the next read begins another answer."""
        self.count_gaps()
        if self._trace is not None:
            turn = logs.present({"model": self._model, **_usage_fields(usage)})
            self._trace.end_call(turn, now, self._turn_first, self.visible_at)
        self._between_turns = True
        self._turn_first = None

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
        reads = self.reads
        if not reads:
            return
        if self._first is None:
            self._first = reads.pop(0)
            self._turn_first = self._first
            self._last = self._first
        elif self._between_turns:
            self._turn_first = reads.pop(0)
            self._last = self._turn_first
            self._between_turns = False
        last = self._last
        for now in reads:
            self._gaps[bisect_left(INTER_TOKEN_BUCKETS, now - last)] += 1
            last = now
        self._gap_sum += last - self._last
        self._last = last
        del reads[:]

    def sent(self, events: bytes) -> None:
        """Take a copy of events for the client, if this stream is sampled."""
        if self._sample is None:
            return
        self._sample.append(events)
        self._sample_size += len(events)
        if self._sample_size > _SAMPLE_LIMIT:
            self._sample = None

    def kept_alive(self, kind: Literal["comment", "event"]) -> None:
        """Count a keep-alive."""
        self._metrics.count(self._metrics.keep_alives, kind)

    def refused(self, error: ApiError) -> None:
        """Note the HTTP error that is the answer."""
        self._error = error.copy()

    def client_left(self) -> None:
        """Note that the client closed the connection before the end."""
        self._client_left = True
        self._metrics.count(self._metrics.disconnects, self.phase)

    def close(self, translator: Translator | None, now: float, record: str | None = None) -> str:
        """End the log; return the outcome as a label of the metrics, which are updated a little later. `record` is the name of
        the file with the recorded exchange."""
        if self._reservation is not None:
            self._reservation.end(_tokens_of(translator))
        self._metrics.count(self._metrics.in_flight, amount=-1)
        error = self._error or (translator.error if translator is not None else None)
        outcome = self._outcome(translator)
        self._metrics.defer(partial(self._report, translator, error, outcome, now, record))
        return outcome

    def _report(
        self, translator: Translator | None, error: ApiError | None, outcome: str, now: float, record: str | None
    ) -> None:
        """Report a response that ended at `now` to metrics, log and trace."""
        self.count_gaps()
        metrics = self._metrics
        if error is not None and self.phase != "request":
            metrics.count(metrics.backend_errors, error.code or error.type)
        # Clients make names up: one that no backend answered for gets no time series of its own.
        answered = translator is not None and translator.chunks > 0
        model = metrics.model(self._model) if answered else "unknown"
        metrics.count(metrics.requests, model, outcome, "true" if self._streamed else "false")
        metrics.observe(metrics.duration, now - self._began, model)
        if self._reservation is not None and self._reservation.key is not None:
            metrics.observe(metrics.key_duration, now - self._began, self._reservation.key)
            if self._first is not None:
                metrics.observe(metrics.key_first_token, self._first - self._began, self._reservation.key)
        if translator is not None:
            self._count_stream(translator, model)
        if self._logs_line or self._trace is not None or self._history is not None:
            line = logs.present(self._line(translator, error, now))
            if self._logs_line:
                logs.routine(logging.INFO if error is None else logging.WARNING, "response", line)
            if self._trace is not None:
                for call in self._calls:
                    self._trace.tool_called(call, now)
                self._trace.end(line, now, self._turn_first, self.visible_at)
            if self._history is not None:
                summary = self._summary(translator, line, record)
                summary.ended = time.time()
                self._history.add(summary)

    def running(self, translator: Translator | None, now: float, record: str | None) -> RequestSummary:
        """Return how a request stands that has not ended, without any of its content."""
        self.count_gaps()
        line = logs.present(self._line(translator, None, now))
        summary = self._summary(translator, line, record)
        summary.phase = self.phase
        return summary

    def _summary(self, translator: Translator | None, line: dict[str, Any], record: str | None) -> RequestSummary:
        client = self._client
        summary = RequestSummary(self.id, line, self._started, client, self._losses, self._gaps, self._gap_sum, record)
        if translator is not None:
            summary.chunks = translator.chunks
            summary.produced = line.get("output_tokens", translator.chunks)
            summary.state = translator.lifecycle.state
            summary.spans = translator.writer.spans
            summary.repairs = translator.repairs
            summary.tokens = self._tokens_by_kind
            summary.events = translator.writer.deltas
        return summary

    def _outcome(self, translator: Translator | None) -> str:
        if self.handed_over:
            return "handed_over"
        if self._client_left:
            return "client_disconnected"
        if self._error is not None:
            return "rejected" if self._error.status < 500 else "failed"
        return translator.status if translator is not None else "failed"

    def _count_stream(self, translator: Translator, model: str) -> None:
        metrics = self._metrics
        if self._first is not None:
            metrics.observe(metrics.first_token, self._first - self._began, model)
            metrics.observe_many(metrics.inter_token, self._gaps, self._gap_sum, model)
        if self.visible_at is not None:
            metrics.observe(metrics.first_visible, self.visible_at - self._began, model)
        if translator.ended:
            reason = translator.incomplete_reason or (translator.error.code if translator.error else None) or "none"
            metrics.count(metrics.terminals, translator.status, reason)
        usage = translator.usage
        if usage is not None:
            for kind in ("input", "cached", "output"):
                metrics.count(metrics.tokens, model, kind, amount=getattr(usage, kind) or 0)
        self._tokens_by_kind = translator.tokens.by_kind()
        for kind, tokens in self._tokens_by_kind.items():
            metrics.count(metrics.tokens, model, kind, amount=tokens)
        self._unseen_tokens = translator.unseen_tokens
        if self._unseen_tokens:
            metrics.count(metrics.unseen_tokens, model, amount=self._unseen_tokens)
            self._warn_of_unseen_tokens(model)
        if translator.tokens.disagrees:
            metrics.count(metrics.disagreements, model)
        metrics.count_all(metrics.items, translator.writer.items)
        metrics.count_all(metrics.events, translator.writer.deltas)
        metrics.count_all(metrics.repairs, translator.repairs)
        if translator.answer.diverged:
            self._not_continued = translator.answer.diverged
            metrics.count(metrics.continuations, "failed", translator.answer.diverged)
        if translator.malformed:
            metrics.count(metrics.malformed, amount=translator.malformed)
        if translator.defect is not None:
            metrics.defects.inc()
            logs.logger().error("defect", exc_info=translator.defect, extra=logs.fields(request_id=self._request_id))
            translator.defect.__traceback__ = None  # its frames hold the request and this log
        if self._sample is not None and translator.ended:
            # In a thread, since checking takes longer than translating and no other stream may wait for it.
            asyncio.get_running_loop().run_in_executor(None, self._check, b"".join([*self._sample, translator.terminal()]))

    def _warn_of_unseen_tokens(self, model: str) -> None:
        """Warn once for each model."""
        warned = self._metrics.models_with_unseen_tokens
        if model in warned:
            return
        warned.add(model)
        fields = logs.fields(
            model=self._model[:200],
            backend=self._backend,
            unseen_tokens=self._unseen_tokens,
            request_id=self._request_id,
            advice="the server's tool parser may not fit the model: `responses-gateway doctor URL` names the one that does",
        )
        logs.logger().warning("the backend generated tokens that it did not show", extra=fields)

    def _check(self, stream: bytes) -> None:
        for violation in check_stream(stream, unfinished_allowed=True):
            self._metrics.child(self._metrics.violations, violation.rule).inc()  # in a thread: at once
            fields = logs.fields(request_id=self._request_id, rule=violation.rule, detail=violation.detail)
            logs.logger().error("invariant violated", extra=fields)
        self._metrics.sampled.inc()

    def _line(self, translator: Translator | None, error: ApiError | None, now: float) -> dict[str, Any]:
        """Return the fields of the log line, None for absent ones; docs/observability.md explains each of them."""
        lifecycle = translator.lifecycle if translator is not None else None
        usage = translator.usage if translator is not None else None
        return {
            "request_id": self._request_id,
            "response_id": translator.response_id if translator is not None else None,
            "key": self._reservation.key if self._reservation is not None else None,
            "model": self._model[:200] or None,  # clients make names up
            "backend": self._backend,
            "stream": self._streamed,
            "outcome": self._executed(translator, error),
            "delivery": "client_left" if self._client_left else "detached" if self.detached else "complete",
            "phase": self.phase if self._client_left else None,
            "seconds": round(now - self._began, 3),
            "backend_called": self._moment(self._backend_called),
            "first_token": self._moment(self._first),
            "first_visible": self._moment(self.visible_at),
            **_usage_fields(usage),
            "reasoning_tokens": self._reasoning_tokens(usage),
            "tokens_from": translator.tokens.reasoning_from if translator is not None else None,
            "unseen_tokens": self._unseen_tokens or None,
            **(self._hosted_fields(translator) if self._calls and translator is not None else {}),
            "finish_reason": lifecycle.turn.finish_reason if lifecycle is not None else None,
            "continued": self._continued or None,
            "not_continued": self._not_continued,
            "items": sum(translator.writer.items.values()) if translator is not None else None,
            "repairs": sum(translator.repairs.values()) or None if translator is not None else None,
            "status": self._error.status if self._error is not None else None,
            "code": error.code or error.type if error is not None else None,
            "error": self._words(error) if error is not None and error.status >= 500 else None,
            "param": error.param if error is not None and not error.quoted else None,
        }

    def _hosted_fields(self, translator: Translator) -> dict[str, Any]:
        """Return what only responses with hosted calls have in their lines."""
        return {
            "turns": len(translator.lifecycle.turns),
            "usage_by_turn": [logs.present(_usage_fields(turn.used)) for turn in translator.lifecycle.turns],
            "hosted_calls": Counter(call.target.kind for call in self._calls),
            "hosted_failures": sum(call.outcome != "completed" for call in self._calls) or None,
        }

    def _reasoning_tokens(self, usage: Usage | None) -> int | None:
        """Return what the client was told, or what was counted where it was told nothing; None without any reasoning."""
        told = usage.reasoning if usage is not None else None
        return told or self._tokens_by_kind.get("reasoning")

    def _words(self, error: ApiError) -> str:
        """Return what the log may say of an error: the words of a backend may repeat the prompt."""
        return error.message[:200] if self._quotes_backends or not error.quoted else _UNQUOTED

    def _executed(self, translator: Translator | None, error: ApiError | None) -> str:
        """Tell what became of the response, whether or not it was delivered."""
        if self._error is not None:
            return "rejected" if self._error.status < 500 else "failed"
        if translator is None:
            return "cancelled" if self._client_left else "failed"
        if self.handed_over:
            return "handed_over"
        if not translator.ended or (error is not None and error.status == 499):
            return "cancelled"
        return translator.status

    def _moment(self, at: float | None) -> float | None:
        """Return the seconds from the arrival of the request to a time."""
        return None if at is None else round(at - self._began, 3)


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


def _usage_fields(usage: Usage | None) -> dict[str, int | None]:
    """Return the fields of a log line for the usage that a backend reported."""
    if usage is None:
        return {}
    return {"input_tokens": usage.input, "cached_tokens": usage.cached, "output_tokens": usage.output}
