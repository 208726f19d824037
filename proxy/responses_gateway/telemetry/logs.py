"""Logs on standard error: one record per line, as text or as JSON. No prompt, header or key is ever logged."""

from __future__ import annotations

import json
import logging
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, nullcontext
from functools import lru_cache
from logging.handlers import BufferingHandler
from typing import Any, Literal, Protocol

_LOGGER = logging.getLogger("responses_gateway")
# The status of a request whose client closed the connection before the answer was complete, as in nginx.
CLIENT_LEFT = 499
# The statuses of errors that a client gets.
REFUSALS = frozenset(range(400, 1000)) - {CLIENT_LEFT}
_BATCH = 256  # so many routine records at most are held back
# The characters of values that need no quotes: visible ASCII without `"` and `=`.
_PLAIN = bytes(code for code in range(0x21, 0x7F) if chr(code) not in '"=')


def logger() -> logging.Logger:
    """Return the gateway's logger. Fields go into `extra={"fields": {...}}`."""
    return _LOGGER


def fields(**values: Any) -> dict[str, Any]:
    """Return `extra` for a log call, without the fields that are None."""
    return {"fields": present(values)}


def present(values: Mapping[str, Any]) -> dict[str, Any]:
    """Leave out the fields that are None."""
    return {name: value for name, value in values.items() if value is not None}


class LoggedExchange(Protocol):
    """What a response has to do with the HTTP request that it answers. `has_log`: a response is made, whose log reports a
    refusal, too. `report` is set once that has ended: it takes the fields of the exchange, so that one line tells all."""

    has_log: bool
    report: Callable[[Mapping[str, Any]], None] | None


class _Formatter(logging.Formatter):
    """Writes a record as one line, followed by its stack trace in the text style."""

    def format(self, record: logging.LogRecord) -> str:
        fields = getattr(record, "fields", {})
        exception = None if record.exc_info is None else self.formatException(record.exc_info)
        return self.line(record.created, record.levelno, record.getMessage(), fields, exception)

    def line(self, created: float, level: int, message: str, fields: Mapping[str, Any], exception: str | None = None) -> str:
        """Return the line. `created` is a Unix time in seconds."""
        line = f"{_timestamp(created)} {_level_name(level):7} {message}"
        if fields:
            line += " " + _written(fields)
        return line if exception is None else f"{line}\n{exception}"


class _JsonFormatter(_Formatter):
    """Writes a record as one JSON object."""

    def line(self, created: float, level: int, message: str, fields: Mapping[str, Any], exception: str | None = None) -> str:
        entry = {"time": _timestamp(created), "level": _level_name(level), "message": message, **fields}
        if exception is not None:
            entry["exception"] = exception
        return json.dumps(entry, default=str)


class _TerminalFormatter(_Formatter):
    """Writes for people: the local time, of a request its method, path, model, status, tokens and seconds alone, and the level
    only if it is not `info`. Where a request was refused or failed, its id and the reason stand beside it."""

    def line(self, created: float, level: int, message: str, fields: Mapping[str, Any], exception: str | None = None) -> str:
        text = message
        if message in _REQUESTS:
            text = _summary(fields)
            fields = {} if level < logging.WARNING else {name: fields[name] for name in _REASONS if name in fields}
        if fields:
            text += " " + _written(fields)
        if level != logging.INFO:
            text = f"{_level_name(level)} {text}"
        line = f"{time.strftime('%H:%M:%S', time.localtime(created))} {text}"
        return line if exception is None else f"{line}\n{exception}"


# The records of requests, and what a terminal shows of one that was refused or has failed.
_REQUESTS = frozenset({"request", "response"})
_REASONS = ("outcome", "code", "param", "reason", "error", "request_id", "key")


def _summary(fields: Mapping[str, Any]) -> str:
    """Return a request in short: `POST /v1/responses qwen3 200 · 1200 → 80 tokens · 1.6 s`."""
    exchange = [_plain(fields[name]) for name in ("method", "path", "model", "status") if name in fields]
    parts = [" ".join(exchange)]
    if "output_tokens" in fields:
        parts.append(f"{fields.get('input_tokens', 0)} → {fields['output_tokens']} tokens")
    if "seconds" in fields:
        parts.append(f"{fields['seconds']:.1f} s")
    return " · ".join(filter(None, parts))


def configure(style: Literal["auto", "text", "json"], level: str) -> None:
    """Send the gateway's records to standard error, as text or JSON; `auto`: for people if that is a terminal, else text."""
    formatter = _Formatter()
    if style == "json":
        formatter = _JsonFormatter()
    elif style == "auto" and sys.stderr.isatty():
        formatter = _TerminalFormatter()
    handler = _BatchHandler(formatter)
    target = logger()
    target.handlers = [handler]
    target.propagate = False
    target.setLevel(level.upper())
    # No line shows these, and finding them out costs time for each record.
    logging.logThreads = logging.logProcesses = logging.logMultiprocessing = False
    # For malformed HTTP, aiohttp would log a traceback with bytes of the request, which may contain keys.
    logging.getLogger("aiohttp.server").setLevel(logging.CRITICAL)
    # And the protocols that the client of a WebSocket names: pages put their keys there.
    logging.getLogger("aiohttp.websocket").setLevel(logging.CRITICAL)
    # The library for MCP servers would do so for what these send.
    logging.getLogger("mcp").setLevel(logging.CRITICAL)


@contextmanager
def collected_warnings() -> Iterator[list[str]]:
    """Collect the warnings of what runs meanwhile, for a command that prints them in its form. Libraries log nothing."""
    handler = BufferingHandler(_BATCH)
    handler.setLevel(logging.WARNING)
    logging.getLogger().addHandler(handler)
    warnings: list[str] = []
    try:
        yield warnings
    finally:
        logging.getLogger().removeHandler(handler)
        for record in (record for record in handler.buffer if record.name == _LOGGER.name):
            warnings.append(": ".join([record.getMessage(), *map(str, getattr(record, "fields", {}).values())]))


def routine(level: int, message: str, values: dict[str, Any], at: float | None = None) -> None:
    """Log an event that every request has: a warning at once, all others with the next `flush`. `at` is the Unix time of the
    event, if it is over. Unless `configure` was not called, no `LogRecord` is made: it would cost more than its line."""
    target = logger()
    if not target.isEnabledFor(level):
        return
    if target.propagate:
        target.handle(target.makeRecord(target.name, level, "", 0, message, (), None, extra={"fields": values}))
    for handler in target.handlers:
        if isinstance(handler, _BatchHandler):
            handler.hold(time.time() if at is None else at, level, message, values)


def flush() -> None:
    """Write the records that were held back. Called about once a second."""
    for handler in logger().handlers:
        handler.flush()


class _BatchHandler(logging.StreamHandler[Any]):
    """Writes a record at once, and holds routine lines back until `flush`, because a write for each would be expensive."""

    def __init__(self, formatter: _Formatter) -> None:
        super().__init__()
        self.setFormatter(formatter)
        self._line = formatter.line
        self._lines: list[str] = []
        self.lost = 0  # lines that could not be written

    def hold(self, created: float, level: int, message: str, values: Mapping[str, Any]) -> None:
        """Write a line with the next `flush`, or at once if somebody may have to do something."""
        self._lines.append(self._line(created, level, message, values))
        if len(self._lines) >= _BATCH or level >= logging.WARNING:
            self.flush()

    def emit(self, record: logging.LogRecord) -> None:
        self._lines.append(self.format(record))
        self.flush()

    def flush(self) -> None:
        with self.lock or nullcontext():
            lines = self._lines
            self._lines = []
        count = len(lines)
        try:
            if lines and self.lost:
                lines.append(self.format(_lost_record(self.lost)))
            if lines:
                self.stream.write("\n".join(lines) + "\n")
            super().flush()
        except OSError:  # a full disk, or a reader that has ended: no request must fail because of it
            self.lost += count
        else:
            self.lost = 0 if lines else self.lost


def _lost_record(lines: int) -> logging.LogRecord:
    """Return the record to write once the log can be written again."""
    record = logging.LogRecord(_LOGGER.name, logging.WARNING, __file__, 0, "log lines lost", None, None)
    record.fields = {"lines": lines}
    return record


def _timestamp(created: float) -> str:
    second = int(created)
    return f"{_date_and_time(second)}.{int((created - second) * 1000):03}+00:00"


@lru_cache(maxsize=2)
def _date_and_time(second: int) -> str:
    return time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(second))


@lru_cache
def _level_name(level: int) -> str:
    return logging.getLevelName(level).lower()


def _written(fields: Mapping[str, Any]) -> str:
    """Return `name=value` for each field, with quotes where a value needs them: hardly ever."""
    text = " ".join([f"{name}={value}" for name, value in fields.items()])
    if text.isascii() and "= " not in text and text[-1] != "=":  # no value is empty
        between = text.encode().translate(None, _PLAIN)
        if between == b"= " * (len(fields) - 1) + b"=":  # and none has a space, a quote or a control character
            return text
    return " ".join([f"{name}={_quoted(value)}" for name, value in fields.items()])


def _plain(value: Any) -> str:
    """Return a value that stands alone, without what could write control characters to a terminal."""
    text = str(value)
    return text if text.isprintable() else json.dumps(text)


def _quoted(value: Any) -> str:
    text = str(value)
    # Values come from clients and backends: they must not write control characters to a terminal.
    return text if text and text.isprintable() and not set(text) & set(' "=') else json.dumps(text)
