"""Logs on standard error: one record a line, as text or as JSON. No prompt, header or key is ever logged."""

from __future__ import annotations

import json
import logging
from contextlib import nullcontext
from datetime import UTC, datetime
from typing import Any, Literal

_LOGGER = "responses_proxy"
#: Most records of routine that are held back.
_BATCH = 256


def logger() -> logging.Logger:
    """The gateway's logger. Fields go into `extra={"fields": {...}}`."""
    return logging.getLogger(_LOGGER)


def fields(**values: Any) -> dict[str, Any]:
    """`extra` for a log call: fields without a value are left out."""
    return {"fields": {name: value for name, value in values.items() if value is not None}}


class _TextFormatter(logging.Formatter):
    def format(self, record: logging.LogRecord) -> str:
        line = f"{_timestamp(record)} {record.levelname.lower():7} {record.getMessage()}"
        for name, value in getattr(record, "fields", {}).items():
            line += f" {name}={_bare(value)}"
        return line if record.exc_info is None else f"{line}\n{self.formatException(record.exc_info)}"


class _JsonFormatter(logging.Formatter):
    def format(self, record: logging.LogRecord) -> str:
        entry = {"time": _timestamp(record), "level": record.levelname.lower(), "message": record.getMessage()}
        entry.update(getattr(record, "fields", {}))
        if record.exc_info is not None:
            entry["exception"] = self.formatException(record.exc_info)
        return json.dumps(entry, default=str)


def configure(style: Literal["text", "json"], level: str) -> None:
    """Send our records to standard error."""
    handler = _BatchHandler()
    handler.setFormatter(_JsonFormatter() if style == "json" else _TextFormatter())
    target = logger()
    target.handlers = [handler]
    target.propagate = False
    target.setLevel(level.upper())
    # What is left to aiohttp is broken HTTP; it would log a traceback with bytes of the request in it, keys perhaps.
    logging.getLogger("aiohttp.server").setLevel(logging.CRITICAL)


def flush() -> None:
    """Write what was held back. Called about once a second."""
    for handler in logger().handlers:
        handler.flush()


class _BatchHandler(logging.StreamHandler[Any]):
    """Holds records of routine (one per request) back until `flush`: a write for each would cost more than its answer.

    Any other record is written at once, with what was held before it.
    """

    def __init__(self) -> None:
        super().__init__()
        self._lines: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        self._lines.append(self.format(record))
        if not getattr(record, "routine", False) or len(self._lines) >= _BATCH:
            self.flush()

    def flush(self) -> None:
        with self.lock or nullcontext():
            lines, self._lines = self._lines, []
        if lines:
            self.stream.write("\n".join(lines) + "\n")
        super().flush()


def _timestamp(record: logging.LogRecord) -> str:
    return datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds")


def _bare(value: Any) -> str:
    text = str(value)
    return json.dumps(text) if not text or any(c in text for c in ' "\n\r\t=') else text
