"""Events made of plain data, for streams that are not written as the model speaks."""

from __future__ import annotations

from typing import Any

from responses_gateway.stream.writer.responses import ResponsesWriter
from responses_gateway.wire.json_text import json_text

Object = dict[str, Any]

ANNOTATION = "response.output_text.annotation.added"


def write_event(writer: ResponsesWriter, kind: str, fields: Object) -> None:
    """Append the next event with these fields."""
    writer.write(kind, members(fields))


def members(fields: Object) -> str:
    """Return the members of a JSON object, without its braces."""
    return ",".join(f'"{name}":{json_text(value)}' for name, value in fields.items())
