"""The server-sent events of a Responses stream, read as a client reads them."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import NamedTuple


class Frame(NamedTuple):
    """One server-sent event: its `event:` name (None without that line), its data, whether a blank line ended it."""

    name: str | None
    data: str
    complete: bool


def frames(data: bytes) -> Iterator[Frame]:
    """Yield the server-sent events of a body, as the SSE standard reads them; events without data are skipped."""
    name: str | None = None
    lines: list[str] = []
    *whole, rest = re.split("\r\n|\n|\r", data.decode("utf-8", "replace").removeprefix("\ufeff"))
    for line in [*whole, rest] if rest else whole:
        field, _, value = line.partition(":")
        value = value.removeprefix(" ")
        if not line:
            if lines:
                yield Frame(name, "\n".join(lines), True)
            name = None
            lines = []
        elif field == "event":
            name = value
        elif field == "data":
            lines.append(value)
    if lines:
        yield Frame(name, "\n".join(lines), False)
