"""The books of one exchange: what its metrics and its log line will say."""

from __future__ import annotations

import asyncio
import logging
import random
from bisect import bisect_left
from collections.abc import Iterable, Mapping
from functools import partial
from typing import Any, Literal

from yarl import URL

from proxy.conformance.checker import check_stream
from proxy.request import Loss
from proxy.server.access.rate_limits import Claim
from proxy.settings import Settings
from proxy.stream.translator import Translator
from proxy.telemetry import logs
from proxy.telemetry.metrics import INTER_TOKEN_BUCKETS, Metrics
from proxy.telemetry.tracing import Trace
from proxy.wire.errors import ApiError

Phase = Literal["request", "backend", "stream"]

#: A sampled stream longer than this is not checked, in bytes.
_SAMPLE_LIMIT = 4 * 1024 * 1024
#: In the place of a backend's own words.
_UNQUOTED = "The backend reported an error; with log_backend_errors its words are here."


class Books:
    """Counts while an exchange runs (cheaply: plain numbers), and tells metrics and log when it ends."""

    __slots__ = (
        "_backend", "_began", "_called", "_claim", "_client_left", "_error", "_first", "_gap_sum", "_gaps", "_kinds", "_last",
        "_log", "_metrics", "_model", "_quotes", "_request_id", "_sample", "_sample_size", "_streamed", "_trace", "detached",
        "phase", "reads", "visible_at",
    )  # fmt: skip

    def __init__(
        self,
        metrics: Metrics,
        settings: Settings,
        request_id: str,
        now: float,
        *,
        claim: Claim | None,
        trace: Trace | None,
        sampled: bool = True,
    ) -> None:
        """`now` is the loop's time in seconds; `claim` is what the request holds of its client's limits, and ends with the
        books, as `trace` does. What is not `sampled` is never held against the laws of a stream."""
        self.phase: Phase = "request"
        self.detached = False  # nobody waits for the answer: who fetches it is not in these books
        self._metrics = metrics
        self._request_id = request_id
        self._log = settings.access_log
        self._quotes = settings.log_backend_errors  # they may be logged in the backend's own words
        self._began = now
        self._model = ""
        self._streamed = False
        self._error: ApiError | None = None
        self._client_left = False
        self._trace = trace
        self._backend: str | None = None
        self._called: float | None = None
        self._kinds: dict[str, int] = {}  # output tokens
        self.reads: list[float] = []  # when reads of the backend brought events: appended to from outside, counted by `fold`
        self.visible_at: float | None = None  # when the first text, refusal or call began
        self._first: float | None = None
        self._last = now
        self._gaps = [0] * (len(INTER_TOKEN_BUCKETS) + 1)
        self._gap_sum = 0.0
        self._sample: list[bytes] | None = [] if sampled and random.random() < settings.invariant_sampling else None
        self._sample_size = 0
        self._claim = claim
        if claim is not None:
            claim.kept = True
        metrics.count(metrics.in_flight)

    def request(self, model: str, *, streamed: bool) -> None:
        """The request was understood."""
        self._model, self._streamed = model, streamed

    def calls(self, backend: str, url: URL, headers: Mapping[str, str], now: float) -> Mapping[str, str]:
        """A backend is about to be asked (again, perhaps: the last one counts). Returns the headers to send."""
        self._backend = backend
        self._called = now
        return headers if self._trace is None else {**headers, **self._trace.call(url.authority.rpartition("@")[2], now)}

    def losses(self, losses: Iterable[Loss]) -> None:
        """What of it could not be carried as it was."""
        for loss in losses:
            if loss.outcome != "preserved":
                self._metrics.count(self._metrics.losses, loss.kind, loss.name, loss.outcome)
                logs.logger().debug(
                    "loss",
                    extra=logs.fields(
                        request_id=self._request_id,
                        kind=loss.kind,
                        name=loss.name,
                        outcome=loss.outcome,
                        reason=loss.reason,
                    ),
                )

    def charge(self, translator: Translator) -> None:
        """Another answer was needed on the way, with books of its own: its tokens, too, are its client's."""
        if self._claim is not None:
            self._claim.charge(_tokens_of(translator))

    @property
    def sampling(self) -> bool:
        """The stream will be checked against its laws: `sent` wants to see all of it."""
        return self._sample is not None

    def fold(self) -> None:
        """Count the gaps between the reads so far, all at once: a number noted is cheaper than a number counted."""
        reads = self.reads
        if not reads:
            return
        if self._first is None:
            self._first = self._last = reads.pop(0)
        last = self._last
        for now in reads:
            self._gaps[bisect_left(INTER_TOKEN_BUCKETS, now - last)] += 1
            last = now
        self._gap_sum += last - self._last
        self._last = last
        del reads[:]

    def sent(self, events: bytes) -> None:
        """Events went to the client."""
        if self._sample is None:
            return
        self._sample.append(events)
        self._sample_size += len(events)
        if self._sample_size > _SAMPLE_LIMIT:
            self._sample = None

    def kept_alive(self, kind: Literal["comment", "event"]) -> None:
        """A keep-alive was sent."""
        self._metrics.count(self._metrics.keep_alives, kind)

    def refused(self, error: ApiError) -> None:
        """The answer is an HTTP error."""
        self._error = error

    def client_left(self) -> None:
        """The client closed the connection before the end."""
        self._client_left = True
        self._metrics.count(self._metrics.disconnects, self.phase)

    def close(self, translator: Translator | None, now: float) -> str:
        """The exchange is over; returns how it ended, in the word of the metrics, which hear of it a little later."""
        if self._claim is not None:
            self._claim.end(_tokens_of(translator))
        self._metrics.count(self._metrics.in_flight, amount=-1)
        error = self._error or (translator.error if translator is not None else None)
        outcome = self._outcome(translator)
        self._metrics.put_off(partial(self._tell, translator, error, outcome, now))
        return outcome

    def _tell(self, translator: Translator | None, error: ApiError | None, outcome: str, now: float) -> None:
        """Metrics, log and trace, of a response that ended at `now`."""
        self.fold()
        metrics = self._metrics
        if error is not None and self.phase != "request":
            metrics.count(metrics.backend_errors, error.code or error.type)
        # A name that no backend answered for is not worth a time series of its own: clients make names up.
        answered = translator is not None and translator.chunks > 0
        model = metrics.model(self._model) if answered else "unknown"
        metrics.count(metrics.requests, model, outcome, "true" if self._streamed else "false")
        metrics.observe(metrics.duration, now - self._began, model)
        if translator is not None:
            self._book_stream(translator, model)
        if self._log or self._trace is not None:
            line = logs.present(self._line(translator, error, now))
            if self._log:
                logs.routine(logging.INFO if error is None else logging.WARNING, "response", line)
            if self._trace is not None:
                self._trace.end(line, now, self._first, self.visible_at)

    def _outcome(self, translator: Translator | None) -> str:
        if self._client_left:
            return "client_disconnected"
        if self._error is not None:
            return "rejected" if self._error.status < 500 else "failed"
        return translator.status if translator is not None else "failed"

    def _book_stream(self, translator: Translator, model: str) -> None:
        metrics, lifecycle = self._metrics, translator.lifecycle
        if self._first is not None:
            metrics.observe(metrics.first_token, self._first - self._began, model)
            metrics.observe_gaps(model, self._gaps, self._gap_sum)
        if self.visible_at is not None:
            metrics.observe(metrics.first_visible, self.visible_at - self._began, model)
        if translator.ended:
            reason = translator.incomplete_reason or (translator.error.code if translator.error else None) or "none"
            metrics.count(metrics.terminals, translator.status, reason)
        if lifecycle.usage is not None:
            for kind in ("input", "cached", "output"):
                metrics.count(metrics.tokens, model, kind, amount=getattr(lifecycle.usage, kind) or 0)
        self._kinds = translator.accounts.by_kind()
        for kind, tokens in self._kinds.items():
            metrics.count(metrics.tokens, model, kind, amount=tokens)
        if translator.accounts.disagrees:
            metrics.count(metrics.disagreements, model)
        metrics.count_all(metrics.items, lifecycle.pen.items)
        metrics.count_all(metrics.events, lifecycle.pen.deltas)
        metrics.count_all(metrics.repairs, translator.repairs)
        if translator.malformed:
            metrics.count(metrics.malformed, amount=translator.malformed)
        if translator.defect is not None:
            metrics.defects.inc()
            logs.logger().error("defect", exc_info=translator.defect, extra=logs.fields(request_id=self._request_id))
        if self._sample is not None and translator.ended:
            # In a thread: judging takes longer than translating, and no other stream may wait for it.
            asyncio.get_running_loop().run_in_executor(None, self._check, b"".join(self._sample))

    def _check(self, stream: bytes) -> None:
        self._metrics.sampled.inc()
        for violation in check_stream(stream, unfinished_allowed=True):
            self._metrics.of(self._metrics.violations, violation.rule).inc()  # in a thread: at once
            logs.logger().error(
                "invariant violated",
                extra=logs.fields(request_id=self._request_id, rule=violation.rule, detail=violation.detail),
            )

    def _line(self, translator: Translator | None, error: ApiError | None, now: float) -> dict[str, Any]:
        """The fields of the log line, None for what there is not: docs/observability.md says what each of them means."""
        lifecycle = translator.lifecycle if translator is not None else None
        usage = lifecycle.usage if lifecycle is not None else None
        return {
            "request_id": self._request_id,
            "response_id": translator.response_id if translator is not None else None,
            "key": self._claim.key if self._claim is not None else None,
            "model": self._model[:200] or None,  # clients make names up
            "backend": self._backend,
            "stream": self._streamed,
            "outcome": self._executed(translator, error),
            "delivery": "client_left" if self._client_left else "detached" if self.detached else "complete",
            "phase": self.phase if self._client_left else None,
            "seconds": round(now - self._began, 3),
            "backend_called": self._moment(self._called),
            "first_token": self._moment(self._first),
            "first_visible": self._moment(self.visible_at),
            "input_tokens": usage.input if usage is not None else None,
            "cached_tokens": usage.cached if usage is not None else None,
            "output_tokens": usage.output if usage is not None else None,
            "reasoning_tokens": self._kinds.get("reasoning"),
            "finish_reason": lifecycle.finish_reason if lifecycle is not None else None,
            "items": sum(lifecycle.pen.items.values()) if lifecycle is not None else None,
            "repairs": sum(translator.repairs.values()) or None if translator is not None else None,
            "status": self._error.status if self._error is not None else None,
            "code": error.code or error.type if error is not None else None,
            "error": self._words(error) if error is not None and error.status >= 500 else None,
            "param": error.param if error is not None and not error.quoted else None,
        }

    def _words(self, error: ApiError) -> str:
        """What a log may have of an error: what a backend says may repeat the prompt."""
        return error.message[:200] if self._quotes or not error.quoted else _UNQUOTED

    def _executed(self, translator: Translator | None, error: ApiError | None) -> str:
        """What became of the response, whether or not anybody was there to get it."""
        if self._error is not None:
            return "rejected" if self._error.status < 500 else "failed"
        if translator is None:
            return "cancelled" if self._client_left else "failed"
        if not translator.ended or (error is not None and error.status == 499):
            return "cancelled"
        return translator.status

    def _moment(self, at: float | None) -> float | None:
        """Seconds since the request came."""
        return None if at is None else round(at - self._began, 3)


def _tokens_of(translator: Translator | None) -> int:
    """What a response took, input and output. Of one that was cut off, without a report, about what it had said."""
    if translator is None:
        return 0
    usage = translator.lifecycle.usage
    if usage is None or usage.output is None:
        return max(translator.chunks, sum(translator.accounts.by_kind().values()))
    return usage.output + (usage.input or 0)
