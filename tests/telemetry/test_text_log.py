"""The log in the text style: one line for each record, whose values cannot pass for fields."""

from __future__ import annotations

import io
import logging
from datetime import UTC, datetime, timedelta

from responses_gateway.telemetry import logs


def test_routine_lines_wait_and_stand_before_later_ones() -> None:
    before = logs.logger().level, logs.logger().handlers, logs.logger().propagate
    output = io.StringIO()
    try:
        logs.configure("text", "info")
        (handler,) = logs.logger().handlers
        assert isinstance(handler, logging.StreamHandler)
        handler.setStream(output)
        values = {
            "model": "m",
            "path": '/a b="c"',
            "empty": "",
            "escape": "\x1b[2J",
            "word": "é",
            "stream": True,
            "seconds": 0.5,
        }
        logs.routine(logging.INFO, "response", values)
        logs.routine(logging.DEBUG, "response", values)
        for odd in ("m status=200", "", "m=", 'say"so"', "m\tn"):  # beside values that need no quotes
            logs.routine(logging.INFO, "response", {"model": odd, "stream": True, "code": 7})
        assert output.getvalue() == ""
        logs.logger().warning("the end", extra=logs.fields(reason=None, code=7))
    finally:
        logs.logger().level, logs.logger().handlers, logs.logger().propagate = before
    first, *odd_ones, second = output.getvalue().splitlines()
    time, _, rest = first.partition(" ")
    assert abs(datetime.now(UTC) - datetime.fromisoformat(time)) < timedelta(minutes=5)
    assert rest == 'info    response model=m path="/a b=\\"c\\"" empty="" escape="\\u001b[2J" word=é stream=True seconds=0.5'
    assert [line.partition("model=")[2] for line in odd_ones] == [
        '"m status=200" stream=True code=7',
        '"" stream=True code=7',
        '"m=" stream=True code=7',
        '"say\\"so\\"" stream=True code=7',
        '"m\\tn" stream=True code=7',
    ]
    assert second.partition(" ")[2] == "warning the end code=7"
