"""What is noted of one request while it runs, and reported when it has ended."""

from __future__ import annotations

import logging
import random
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Literal

from yarl import URL

from responses_gateway.hosted.interface import HostedLoss
from responses_gateway.request import Loss
from responses_gateway.server.generation.request_log.facts import Account, RequestFacts, answer_facts, is_cancelled, outcome_of
from responses_gateway.server.generation.request_log.log_line import usage_fields
from responses_gateway.server.generation.request_log.metrics import CONTINUATIONS, DISCONNECTS, KEEP_ALIVES, LOSSES
from responses_gateway.server.generation.request_log.reports import RequestReports
from responses_gateway.server.generation.request_log.sampling import StreamSample
from responses_gateway.server.quotas.quota import Reservation
from responses_gateway.settings import Settings
from responses_gateway.stream.lifecycle.turn import output_of
from responses_gateway.stream.translator import Translator
from responses_gateway.telemetry import logs
from responses_gateway.telemetry.logs import LoggedExchange
from responses_gateway.telemetry.tracing import Trace
from responses_gateway.wire.deltas import Usage
from responses_gateway.wire.errors import ApiError
from responses_gateway.wire.hosted import MadeCall
from responses_gateway.wire.json_text import sendable

_ANONYMOUS = Account()
_LONGEST_NAME = 80  # characters of what a client calls itself


async def settle(reservation: Reservation | None, translator: Translator) -> None:
    """Charge a response to the quotas of its client, if there are any, before its terminal event is sent."""
    if reservation is not None and reservation.settles:
        await reservation.settle(_tokens_of(translator), translator.response_id)


class RequestLog:
    """Notes what is known of a request while it runs, and has it reported when it has ended. `trace` is there only where traces
    are turned on. `sample` gets a copy of the stream, if that is to be checked."""

    __slots__ = ("_exchange", "_reports", "_reservation", "facts", "for_compaction", "sample", "times", "trace")

    def __init__(
        self,
        facts: RequestFacts,
        reports: RequestReports,
        settings: Settings,
        *,
        reservation: Reservation | None,
        trace: Trace | None,
        exchange: LoggedExchange | None,
        for_compaction: bool,
    ) -> None:
        """`reservation` and `trace` end with the log. `exchange` is the HTTP request that is answered with the response.
        `for_compaction`: the response is needed to make another one, which reports the losses; it is never checked against the
        rules of a stream."""
        self.facts = facts
        self.times = facts.times
        self.trace = trace
        self.sample = None
        self._reports = reports
        self._reservation = reservation
        self._exchange = exchange
        self.for_compaction = for_compaction
        if not for_compaction and random.random() < settings.invariant_sampling:
            self.sample = StreamSample()
        if reservation is not None:
            reservation.kept = True
        if exchange is not None:
            exchange.has_log = True
        reports.running += 1

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
        self._reports.metrics.count(CONTINUATIONS, "continued", cause)
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
        self._reports.metrics.count(CONTINUATIONS, "failed" if possible else "impossible", reason)
        logs.logger().debug("not continued", extra=logs.fields(request_id=self.facts.request_id, cause=cause, reason=reason))

    def losses(self, losses: Sequence[Loss]) -> None:
        """Count what of the request could not be carried over as it was."""
        if self.for_compaction or not losses:
            return
        debug = logs.logger().isEnabledFor(logging.DEBUG)
        for loss in losses:
            self.facts.losses.append(loss)
            self._reports.metrics.counted[LOSSES, (loss.kind, loss.name, loss.outcome)] += 1
            if debug:
                loss_fields = {"kind": loss.kind, "name": loss.name, "outcome": loss.outcome, "reason": loss.reason}
                logs.logger().debug("loss", extra=logs.fields(request_id=self.facts.request_id, **loss_fields))

    def ran_tools(self, calls: Sequence[MadeCall], losses: Iterable[HostedLoss]) -> None:
        """Note the calls that the gateway made itself, some of which may still be ending, and what they could not honour."""
        self.facts.calls = calls
        self.losses([Loss("tool", loss.tool, "adapted", loss.reason) for loss in losses])

    def turn_ended(self, usage: Usage | None, now: float) -> None:
        """Note that the model waits for the results of calls: the next read begins another answer."""
        times = self.times
        times.count_gaps()
        if self.trace is not None:
            turn = logs.present({"model": self.facts.model, **usage_fields(usage)})
            self.trace.end_call(turn, now, times.turn_first, times.visible_at)
        self._reports.called(self.facts, usage, now)
        times.between_turns = True
        times.turn_first = None

    def charge(self, translator: Translator) -> None:
        """Charge the client for another answer that this one needed, such as a summary of the context."""
        if self._reservation is not None:
            self._reservation.charge(_tokens_of(translator))

    def sent(self, events: bytes) -> None:
        """Take a copy of events for the client, if this stream is sampled."""
        if self.sample is not None and not self.sample.add(events):
            self.sample = None

    def kept_alive(self, kind: Literal["comment", "event"]) -> None:
        """Count a keep-alive."""
        self._reports.metrics.count(KEEP_ALIVES, kind)

    def refused(self, error: ApiError) -> None:
        """Note the HTTP error that is the answer."""
        self.facts.refusal = error.copy()

    def client_left(self) -> None:
        """Note that the client closed the connection before the end."""
        self.facts.client_left = True
        self._reports.metrics.count(DISCONNECTS, self.facts.phase)

    def close(self, translator: Translator | None, now: float, record: str | None = None) -> str:
        """End the log; return the outcome as a label of the metrics. The request is reported a little later, unless it has
        failed, and with its HTTP exchange, unless it outlives that. `record` is the name of the recorded file."""
        facts = self.facts
        facts.times.count_gaps()
        facts.ended_at = now
        facts.record = record
        facts.error = facts.refusal
        if translator is not None:
            if not translator.ended:
                translator.answer.stop()  # because tokens whose ids wait for one another would not be counted
            facts.answer = answer_facts(translator)
            facts.tokens_by_kind = translator.tokens.by_kind()
            facts.unseen_tokens = translator.unseen_tokens
            facts.not_continued = facts.answer.diverged or facts.not_continued
            facts.error = facts.refusal or _error_of(translator)
            if translator.defect is not None:
                self._report_defect(translator.defect)
            if self.sample is not None and translator.ended:
                self.sample.check(facts.protocol.check, translator, self._reports.metrics, facts.request_id)
        facts.outcome = _outcome(facts)
        if self._reservation is not None:
            self._reservation.end(_tokens_of(translator), translator.response_id if translator is not None else None)
        self._reports.running -= 1
        if self._exchange is None or facts.detached:
            self._reports.add(facts, self.trace)
        else:
            self._exchange.report = self._report_with
        return facts.outcome

    def _report_with(self, exchange: Mapping[str, Any]) -> None:
        """Report the request together with its HTTP exchange."""
        self.facts.exchange = exchange
        self._reports.add(self.facts, self.trace)

    def _report_defect(self, defect: BaseException) -> None:
        self._reports.metrics.report(defect, request_id=self.facts.request_id)
        defect.__traceback__ = None  # its frames hold the request and this log

    def running(self, translator: Translator | None, now: float, record: str | None) -> RequestFacts:
        """Return how a request stands that has not ended, without any of its content."""
        facts = self.facts
        facts.times.count_gaps()
        facts.ended_at = now
        facts.record = record
        if translator is not None:
            facts.answer = answer_facts(translator)
        return facts


def account_of(reservation: Reservation | None) -> Account:
    """Return whose request it is."""
    return _ANONYMOUS if reservation is None else Account(reservation.key, reservation.team)


def client_name(headers: Mapping[str, str]) -> str:
    """Return what a client calls itself: Codex in `originator`, others in `User-Agent`. A header may have any bytes."""
    return sendable((headers.get("originator") or headers.get("User-Agent", ""))[:_LONGEST_NAME])


def _outcome(facts: RequestFacts) -> str:
    """Return the outcome as the client has seen it: a label of the metrics."""
    return "client_disconnected" if facts.client_left and not facts.handed_over else outcome_of(facts)


def _error_of(translator: Translator) -> ApiError | None:
    """Return the error of a response, or what a backend sent after the end of an answer, which does not change how that ended.
    It is a copy, because the facts of a request outlive all else of it. That the client wanted it to end is none."""
    if translator.error is not None:
        return None if is_cancelled(translator) else translator.error.copy()
    for answer in translator.answers:
        if answer.late_error is not None:
            return answer.late_error.copy()
    return None


def _tokens_of(translator: Translator | None) -> int:
    """Return the tokens of a response, input and output."""
    if translator is None:
        return 0
    usage = translator.usage
    output = output_of(translator.lifecycle.turns, usage, translator.chunks, translator.tokens.by_kind())
    return output + ((usage and usage.input) or 0)
