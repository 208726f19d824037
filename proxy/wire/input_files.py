"""Files that a client sends inside a message: the `input_file` parts with `file_data`."""

from __future__ import annotations

from typing import Any

# The name and the content of a part, as the client sent them.
SentFile = tuple[str, str]


def sent_file(part: Any) -> SentFile | None:
    """Return the file of a part, which may be anything; None if it contains none."""
    if not isinstance(part, dict) or part.get("type") != "input_file":
        return None
    filename = part.get("filename") or ""
    data = part.get("file_data")
    return (filename, data) if isinstance(filename, str) and isinstance(data, str) and data else None
