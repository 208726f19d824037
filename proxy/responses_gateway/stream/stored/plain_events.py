"""Events made of plain data, for streams that are not written as the model speaks."""

from __future__ import annotations

from typing import Any

from responses_gateway.stream.writer import EventWriter, json_text

Object = dict[str, Any]

ANNOTATION = "response.output_text.annotation.added"
# Calls whose argument is one text: the item's type, the member that holds it, the events.
TEXT_CALLS = {
    "function_call": ("arguments", "response.function_call_arguments"),
    "custom_tool_call": ("input", "response.custom_tool_call_input"),
}


def write_event(writer: EventWriter, kind: str, fields: Object) -> None:
    """Append the next event with these fields."""
    writer.write(kind, members(fields))


def members(fields: Object) -> str:
    """Return the members of a JSON object, without its braces."""
    return ",".join(f'"{name}":{json_text(value)}' for name, value in fields.items())
