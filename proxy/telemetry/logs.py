"""Logs on standard error: one record a line, as text or as JSON. No prompt, header or key is ever logged."""

from __future__ import annotations

import json
import logging
from datetime import UTC, datetime
from typing import Any, Literal

_LOGGER = "responses_proxy"


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
    handler = logging.StreamHandler()
    handler.setFormatter(_JsonFormatter() if style == "json" else _TextFormatter())
    target = logger()
    target.handlers = [handler]
    target.propagate = False
    target.setLevel(level.upper())
    # What is left to aiohttp is broken HTTP; it would log a traceback with bytes of the request in it, keys perhaps.
    logging.getLogger("aiohttp.server").setLevel(logging.CRITICAL)


def _timestamp(record: logging.LogRecord) -> str:
    return datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds")


def _bare(value: Any) -> str:
    text = str(value)
    return json.dumps(text) if not text or any(c in text for c in ' "\n\r\t=') else text
