"""Another format of the answer, for a server that has refused the one that was asked for: LM Studio knows no `json_object`,
DeepSeek, llama-cpp-python and some models of Groq no `json_schema`."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any

from responses_gateway.request.fields import Object
from responses_gateway.request.loss_report import Loss
from responses_gateway.wire.errors import searched_text
from responses_gateway.wire.json_text import json_text

TOLD = Loss("parameter", "text.format", "adapted", "a JSON object, its schema in words, if the backend takes no schema")
# What `json_object` means, as a schema.
_ANY_OBJECT: Object = {"type": "json_schema", "json_schema": {"name": "object", "schema": {"type": "object"}}}
_WORDS = "Answer with a JSON object alone. It has to match this JSON Schema: "
# "This response_format type is unavailable now", "'response_format.type' must be 'json_schema' or 'text'", "This model does not
# support response format `json_schema`", and pydantic's `["body","response_format","type"]`, "Input should be 'text' or …". Not
# "Invalid schema for response_format", which the client can mend.
_REFUSED = re.compile(
    r"response[_ ]format\W{0,8}type\b.{0,60}(?:\bunavailable\b|\b(?:must|should) be\b|\bnot supported\b)"
    r"|\bnot support (?:the )?\W?response[_ ]format\b.{0,20}json_",
    re.IGNORECASE | re.DOTALL,
)


def other_format(refusal: bytes, body: Mapping[str, Any]) -> Object:
    """Return the fields of a refused request with another format, if the refusal is about the type of the one that it has; else
    nothing. Servers want the word JSON in the messages where they get no schema, and the model has to be told what it was."""
    format_asked = body.get("response_format")
    said = searched_text(refusal)
    if format_asked is None or format_asked == _ANY_OBJECT or not _REFUSED.search(said):
        return {}
    if format_asked["type"] == "json_object":
        return {"response_format": _ANY_OBJECT} if "json_schema" in said else {}
    schema = json_text(format_asked["json_schema"]["schema"])
    return {"response_format": {"type": "json_object"}, "messages": _with_words(body["messages"], _WORDS + schema)}


def losses_of_format(body: Mapping[str, Any], sent: Mapping[str, Any]) -> list[Loss]:
    """Return what a client is told of a request whose format was given another form."""
    asked = body.get("response_format")
    return [TOLD] if asked and asked["type"] == "json_schema" and sent.get("response_format") != asked else []


def _with_words(messages: Sequence[Object], words: str) -> list[Object]:
    """Return messages with more words at the end of the first system message, or in front of all."""
    first = messages[0]
    if first["role"] == "system" and isinstance(first["content"], str):
        return [{**first, "content": f"{first['content']}\n\n{words}"}, *messages[1:]]
    return [{"role": "system", "content": words}, *messages]
