"""The log in the text style: one line for each record, whose values cannot pass for fields."""

from __future__ import annotations

import io
import logging
import sys
from datetime import UTC, datetime, timedelta

import pytest

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


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def test_a_terminal_gets_one_short_line_for_a_request(monkeypatch: pytest.MonkeyPatch) -> None:
    before = logs.logger().level, logs.logger().handlers, logs.logger().propagate
    terminal = Terminal()
    monkeypatch.setattr(sys, "stderr", terminal)
    request = {"request_id": "req_1", "method": "POST", "path": "/v1/responses", "model": "qwen3\x1b[2J", "status": 200}
    refused = {**request, "status": 400, "model": "m", "seconds": 0.01, "outcome": "rejected", "code": "invalid_type"}
    try:
        logs.configure("auto", "info")
        values = {**request, "input_tokens": 9120, "output_tokens": 402, "seconds": 4.213, "client": "10.0.3.7"}
        logs.routine(logging.INFO, "response", values)
        logs.routine(logging.WARNING, "response", refused)
        logs.logger().info("listening", extra=logs.fields(url="http://127.0.0.1:9000"))
    finally:
        logs.logger().level, logs.logger().handlers, logs.logger().propagate = before
    assert [line.partition(" ")[2] for line in terminal.getvalue().splitlines()] == [
        'POST /v1/responses "qwen3\\u001b[2J" 200 · 9120 → 402 tokens · 4.2 s',
        "warning POST /v1/responses m 400 · 0.0 s outcome=rejected code=invalid_type request_id=req_1",
        "listening url=http://127.0.0.1:9000",
    ]
