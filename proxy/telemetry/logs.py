"""Logs on standard error: one record per line, as text or as JSON. No prompt, header or key is ever logged."""

from __future__ import annotations

import json
import logging
from collections.abc import Mapping
from contextlib import nullcontext
from datetime import UTC, datetime
from typing import Any, Literal

_LOGGER = "responses_gateway"
# So many routine records at most are held back.
_BATCH = 256


def logger() -> logging.Logger:
    """Return the gateway's logger. Fields go into `extra={"fields": {...}}`."""
    return logging.getLogger(_LOGGER)


def fields(**values: Any) -> dict[str, Any]:
    """Return `extra` for a log call, without the fields that are None."""
    return {"fields": present(values)}


def present(values: Mapping[str, Any]) -> dict[str, Any]:
    """Leave out the fields that are None."""
    return {name: value for name, value in values.items() if value is not None}


class _TextFormatter(logging.Formatter):
    def format(self, record: logging.LogRecord) -> str:
        line = f"{_timestamp(record)} {record.levelname.lower():7} {record.getMessage()}"
        for name, value in getattr(record, "fields", {}).items():
            line += f" {name}={_quoted(value)}"
        return line if record.exc_info is None else f"{line}\n{self.formatException(record.exc_info)}"


class _JsonFormatter(logging.Formatter):
    def format(self, record: logging.LogRecord) -> str:
        entry = {"time": _timestamp(record), "level": record.levelname.lower(), "message": record.getMessage()}
        entry.update(getattr(record, "fields", {}))
        if record.exc_info is not None:
            entry["exception"] = self.formatException(record.exc_info)
        return json.dumps(entry, default=str)


def configure(style: Literal["text", "json"], level: str) -> None:
    """Send the gateway's records to standard error."""
    handler = _BatchHandler()
    handler.setFormatter(_JsonFormatter() if style == "json" else _TextFormatter())
    target = logger()
    target.handlers = [handler]
    target.propagate = False
    target.setLevel(level.upper())
    # No line shows these, and finding them out costs time for each record.
    logging.logThreads = logging.logProcesses = logging.logMultiprocessing = False
    # For malformed HTTP, aiohttp would log a traceback with bytes of the request, which may contain keys.
    logging.getLogger("aiohttp.server").setLevel(logging.CRITICAL)
    # The library for MCP servers would do so for what these send.
    logging.getLogger("mcp").setLevel(logging.CRITICAL)


def routine(level: int, message: str, values: dict[str, Any]) -> None:
    """Log an event that every request has, with the next `flush` and without the position in the code."""
    target = logger()
    if target.isEnabledFor(level):
        extra = {"fields": values, "routine": True}
        target.handle(target.makeRecord(_LOGGER, level, "", 0, message, (), None, extra=extra))


def flush() -> None:
    """Write the records that were held back. Called about once a second."""
    for handler in logger().handlers:
        handler.flush()


class _BatchHandler(logging.StreamHandler[Any]):
    """Holds routine records (one per request) back until `flush`, because a write for each would be expensive.

    Any other record is written at once, after those that were held back."""

    def __init__(self) -> None:
        super().__init__()
        self._lines: list[str] = []
        self.lost = 0  # lines that could not be written

    def emit(self, record: logging.LogRecord) -> None:
        self._lines.append(self.format(record))
        if not getattr(record, "routine", False) or len(self._lines) >= _BATCH:
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
        except OSError:  # a full disk, or a reader that is gone: no request must fail because of it
            self.lost += count
        else:
            self.lost = 0 if lines else self.lost


def _lost_record(lines: int) -> logging.LogRecord:
    """Return the record to write once the log can be written again."""
    record = logging.LogRecord(_LOGGER, logging.WARNING, __file__, 0, "log lines lost", None, None)
    record.fields = {"lines": lines}
    return record


def _timestamp(record: logging.LogRecord) -> str:
    return datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds")


def _quoted(value: Any) -> str:
    text = str(value)
    # Values come from clients and backends: they must not write control characters to a terminal.
    return text if text and text.isprintable() and not set(text) & set(' "=') else json.dumps(text)
