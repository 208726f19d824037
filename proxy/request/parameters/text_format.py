"""Translate `text.format`, the required format of the answer."""

from __future__ import annotations

import re

from proxy.request.fields import Object, optional_flag, optional_text, quote, required_object, text
from proxy.wire.errors import invalid_request

PATH = "text.format"
_NAME = re.compile(r"[a-zA-Z0-9_-]{1,64}")
DEFAULT_NAME = "response"


def response_format(layout: Object, path: str = PATH) -> Object | None:
    """Return the chat request's `response_format` for the format at `path`, or None for plain text. Raises `ApiError` 400."""
    kind = text(layout, "type", path)
    if kind == "text":
        return None
    if kind == "json_object":
        return {"type": "json_object"}
    if kind == "json_schema":
        return {"type": "json_schema", "json_schema": _json_schema(layout, path)}
    message = f"Invalid value: {quote(kind)}. Supported values are: 'text', 'json_object', 'json_schema'."
    raise invalid_request(message, f"{path}.type", "invalid_value")


def _json_schema(layout: Object, path: str) -> Object:
    """Nest the fields, which are flat in Responses, and add the name that Chat requires."""
    schema: Object = {"name": format_name(layout, path)}
    description = optional_text(layout, "description", path)
    if description is not None:
        schema["description"] = description
    schema["schema"] = required_object(layout, "schema", path)
    strict = optional_flag(layout, "strict", path)
    if strict is not None:
        schema["strict"] = strict
    return schema


def format_name(layout: Object, path: str = PATH) -> str:
    """Return the name of a JSON schema format."""
    name = optional_text(layout, "name", path)
    if name is None:
        return DEFAULT_NAME
    if not _NAME.fullmatch(name):
        message = "The name of a format must consist of 1 to 64 letters, digits, underscores and dashes."
        raise invalid_request(message, f"{path}.name", "invalid_value")
    return name
