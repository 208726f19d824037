"""What a gateway in the process of the test writes to its log."""

from __future__ import annotations

import io
import json
import logging
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from responses_gateway.telemetry import logs

Line = dict[str, Any]


@contextmanager
def log_lines(level: str = "info") -> Iterator[Callable[[str], list[Line]]]:
    """Write the log as JSON, and yield a function that returns the lines with a message that were written so far."""
    before = logs.logger().level, logs.logger().handlers, logs.logger().propagate
    logs.configure("json", level)
    output = io.StringIO()
    (handler,) = logs.logger().handlers
    assert isinstance(handler, logging.StreamHandler)
    handler.setStream(output)

    def written(message: str) -> list[Line]:
        logs.flush()
        found: list[Line] = [json.loads(line) for line in output.getvalue().splitlines()]
        return [line for line in found if line["message"] == message]

    try:
        yield written
    finally:
        logs.logger().level, logs.logger().handlers, logs.logger().propagate = before
