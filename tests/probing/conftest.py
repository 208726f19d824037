"""What tests of probing share."""

from __future__ import annotations

import logging
from collections.abc import Iterator

import pytest


@pytest.fixture
def lines(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[str]]:
    """Collect what the gateway logs: message and fields."""
    found: list[str] = []

    class Collector(logging.Handler):
        def emit(self, record: logging.LogRecord) -> None:
            values = {
                name: value for name, value in getattr(record, "fields", {}).items() if name not in ("seconds", "backend")
            }
            found.append(" ".join([record.getMessage(), *(f"{name}={value}" for name, value in values.items())]))

    logger = logging.getLogger("responses_gateway")
    monkeypatch.setattr(logger, "handlers", [Collector()])
    before = logger.level
    logger.setLevel(logging.INFO)  # not by the attribute: a logger caches its level
    yield found
    logger.setLevel(before)
