"""The books of one exchange: what its metrics and its log line will say."""

from __future__ import annotations

import asyncio
import random
from array import array
from bisect import bisect_left
from collections.abc import Iterable
from typing import Literal

from proxy.request import Loss
from proxy.stream.invariants import check_stream
from proxy.stream.translator import Translator
from proxy.telemetry import logs
from proxy.telemetry.metrics import INTER_TOKEN_BUCKETS, Metrics
from proxy.wire.errors import ApiError

Phase = Literal["request", "backend", "stream"]

#: A sampled stream longer than this is not checked, in bytes.
_SAMPLE_LIMIT = 4 * 1024 * 1024


class Books:
    """Counts while an exchange runs (cheaply: plain numbers), and tells metrics and log when it ends."""

    def __init__(self, metrics: Metrics, request_id: str, now: float, *, sampling: float, log: bool) -> None:
        """`now` is the loop's time in seconds; `sampling` the fraction of streams to check against their laws."""
        self.phase: Phase = "request"
        self._metrics = metrics
        self._request_id = request_id
        self._log = log
        self._began = now
        self._model = ""
        self._streamed = False
        self._error: ApiError | None = None
        self._client_left = False
        self.reads = array("d")  # when reads of the backend brought events; `fold` counts them
        self.visible_at: float | None = None  # when the first text, refusal or call began
        self._first: float | None = None
        self._last = now
        self._gaps = [0] * (len(INTER_TOKEN_BUCKETS) + 1)
        self._gap_sum = 0.0
        self._sample: list[bytes] | None = [] if random.random() < sampling else None
        self._sample_size = 0
        metrics.in_flight.inc()

    def request(self, model: str, *, streamed: bool) -> None:
        """The request was understood."""
        self._model, self._streamed = model, streamed

    def losses(self, losses: Iterable[Loss]) -> None:
        """What of it could not be carried as it was."""
        for loss in losses:
            if loss.outcome != "preserved":
                self._metrics.of(self._metrics.losses, loss.kind, loss.name, loss.outcome).inc()
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
        self.reads = array("d")

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
        self._metrics.of(self._metrics.keep_alives, kind).inc()

    def refused(self, error: ApiError) -> None:
        """The answer is an HTTP error."""
        self._error = error

    def client_left(self) -> None:
        """The client closed the connection before the end."""
        self._client_left = True
        self._metrics.of(self._metrics.disconnects, self.phase).inc()

    def close(self, translator: Translator | None, now: float) -> str:
        """The exchange is over; returns how it ended, in the word of the metrics."""
        self.fold()
        metrics = self._metrics
        metrics.in_flight.dec()
        error = self._error or (translator.error if translator is not None else None)
        if error is not None and self.phase != "request":
            metrics.of(metrics.backend_errors, error.code or error.type).inc()
        # A name that no backend answered for is not worth a time series of its own: clients make names up.
        answered = translator is not None and translator.chunks > 0
        model = metrics.model(self._model) if answered else "unknown"
        outcome = self._outcome(translator)
        metrics.of(metrics.requests, model, outcome, "true" if self._streamed else "false").inc()
        metrics.of(metrics.duration, model).observe(now - self._began)
        if translator is not None:
            self._book_stream(translator, model)
        if self._log:
            self._write_log(translator, outcome, error, now)
        return outcome

    def _outcome(self, translator: Translator | None) -> str:
        if self._client_left:
            return "client_disconnected"
        if self._error is not None:
            return "rejected" if self._error.status < 500 else "failed"
        return translator.status if translator is not None else "failed"

    def _book_stream(self, translator: Translator, model: str) -> None:
        metrics, lifecycle = self._metrics, translator.lifecycle
        if self._first is not None:
            metrics.of(metrics.first_token, model).observe(self._first - self._began)
            metrics.observe_gaps(model, self._gaps, self._gap_sum)
        if self.visible_at is not None:
            metrics.of(metrics.first_visible, model).observe(self.visible_at - self._began)
        if translator.ended:
            reason = translator.incomplete_reason or (translator.error.code if translator.error else None) or "none"
            metrics.of(metrics.terminals, translator.status, reason).inc()
        if lifecycle.usage is not None:
            for kind in ("input", "cached", "output"):
                metrics.of(metrics.tokens, model, kind).inc(getattr(lifecycle.usage, kind) or 0)
        for kind, tokens in translator.accounts.by_kind().items():
            metrics.of(metrics.tokens, model, kind).inc(tokens)
        if translator.accounts.disagrees:
            metrics.of(metrics.disagreements, model).inc()
        metrics.add_all(metrics.items, lifecycle.pen.items)
        metrics.add_all(metrics.events, lifecycle.pen.deltas)
        metrics.add_all(metrics.repairs, translator.repairs)
        metrics.malformed.inc(translator.malformed)
        if translator.defect is not None:
            metrics.defects.inc()
            logs.logger().error("defect", exc_info=translator.defect, extra=logs.fields(request_id=self._request_id))
        if self._sample is not None and translator.ended:
            # In a thread: judging takes longer than translating, and no other stream may wait for it.
            asyncio.get_running_loop().run_in_executor(None, self._check, b"".join(self._sample))

    def _check(self, stream: bytes) -> None:
        self._metrics.sampled.inc()
        for violation in check_stream(stream, unfinished_allowed=True):
            self._metrics.of(self._metrics.violations, violation.rule).inc()
            logs.logger().error(
                "invariant violated",
                extra=logs.fields(request_id=self._request_id, rule=violation.rule, detail=violation.detail),
            )

    def _write_log(self, translator: Translator | None, outcome: str, error: ApiError | None, now: float) -> None:
        usage = translator.lifecycle.usage if translator is not None else None
        values = logs.fields(
            request_id=self._request_id,
            response_id=translator.response_id if translator is not None else None,
            model=self._model or None,
            outcome=outcome,
            phase=self.phase if self._client_left else None,
            stream=self._streamed,
            seconds=round(now - self._began, 3),
            first_token=None if self._first is None else round(self._first - self._began, 3),
            input_tokens=usage.input if usage is not None else None,
            output_tokens=usage.output if usage is not None else None,
            status=self._error.status if self._error is not None else None,
            code=error.code if error is not None else None,
            # What the backend says about a wrong request may quote it.
            error=error.message[:200] if error is not None and error.status >= 500 else None,
            param=error.param if error is not None else None,
        )
        logs.logger().log(30 if error is not None else 20, "response", extra={**values, "routine": True})
