"""A stream that is checked against the rules of its protocol after its end."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable
from typing import TypeAlias

from responses_gateway.conformance.levels import Violation
from responses_gateway.server.generation.request_log.metrics import SAMPLED, VIOLATIONS
from responses_gateway.stream.translator import Translator
from responses_gateway.telemetry import logs
from responses_gateway.telemetry.metrics import Metrics

_LIMIT = 4 * 1024 * 1024  # a longer stream is not checked, in bytes
# Finds what is wrong with a stream.
Rules: TypeAlias = Callable[[bytes], Iterable[Violation]]


class StreamSample:
    """A copy of the events for the client."""

    def __init__(self) -> None:
        self._events: list[bytes] = []
        self._size = 0

    def add(self, events: bytes) -> bool:
        """Take events. Return False if the stream is too long to be checked."""
        self._events.append(events)
        self._size += len(events)
        return self._size <= _LIMIT

    def check(self, rules: Rules, translator: Translator, metrics: Metrics, request_id: str) -> None:
        """Check the events and the terminal one, in a thread: that takes longer than translating, and no stream may wait."""
        stream = b"".join([*self._events, translator.terminal()])
        asyncio.get_running_loop().run_in_executor(None, _check, rules, stream, metrics, request_id)


def _check(rules: Rules, stream: bytes, metrics: Metrics, request_id: str) -> None:
    for violation in rules(stream):
        metrics.child(VIOLATIONS, violation.rule).inc()  # in a thread: at once
        fields = logs.fields(request_id=request_id, rule=violation.rule, detail=violation.detail)
        logs.logger().error("invariant violated", extra=fields)
    metrics.child(SAMPLED).inc()
