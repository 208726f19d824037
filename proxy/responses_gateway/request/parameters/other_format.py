"""Another format of the answer, for a server that has refused the one that was asked for: LM Studio knows no `json_object`,
DeepSeek, llama-cpp-python and some models of Groq no `json_schema`, Groq and Google no format beside tools."""

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
_TEXT: Object = {"type": "text"}
_WORDS = "Answer with a JSON object alone. It has to match this JSON Schema: "
# "This response_format type is unavailable now", "'response_format.type' must be 'json_schema' or 'text'", "This model does not
# support response format `json_schema`", and pydantic's `["body","response_format","type"]`, "Input should be 'text' or …". Not
# "Invalid schema for response_format", which the client can mend. `tools`: "json mode cannot be combined with tool/function
# calling", "Function calling with a response mime type", "only function calls […] instead of populating 'response_mime_type'".
_REFUSED = re.compile(
    r"response[_ ]format\W{0,8}type\b.{0,60}(?:\bunavailable\b|\b(?:must|should) be\b|\bnot supported\b)"
    r"|\bnot support (?:the )?\W?response[_ ]format\b.{0,20}json_"
    r"|(?P<tools>\bjson mode cannot be combined with tool|\bfunction call(?:s|ing)\b.{0,160}\bresponse[_ ]mime[_ ]type\b)",
    re.IGNORECASE | re.DOTALL,
)


def other_format(refusal: bytes, body: Mapping[str, Any]) -> Object:
    """Return the fields of a refused request with another format, if the refusal is about the type of the one that it has; else
    nothing. Servers want the word JSON in the messages where they get no schema, and the model has to be told what it was."""
    response_format = body.get("response_format")
    text = searched_text(refusal)
    refused = _REFUSED.search(text)
    if refused is None or response_format in (None, _ANY_OBJECT, _TEXT):
        return {}
    if response_format["type"] == "json_object" and not refused["tools"]:
        return {"response_format": _ANY_OBJECT} if "json_schema" in text else {}
    schema = json_text(response_format.get("json_schema", _ANY_OBJECT["json_schema"])["schema"])
    other, first = (_TEXT, "Call functions as usual. ") if refused["tools"] else ({"type": "json_object"}, "")
    return {"response_format": other, "messages": _with_words(body["messages"], first + _WORDS + schema)}


def losses_of_format(body: Mapping[str, Any], sent: Mapping[str, Any]) -> list[Loss]:
    """Return what a client is told of a request whose format was given another form."""
    response_format = body.get("response_format")
    return [TOLD] if response_format and sent.get("response_format") not in (response_format, _ANY_OBJECT) else []


def _with_words(messages: Sequence[Object], words: str) -> list[Object]:
    """Return messages with more words at the end of the first system message, or in front of all."""
    first = messages[0]
    if first["role"] == "system" and isinstance(first["content"], str):
        return [{**first, "content": f"{first['content']}\n\n{words}"}, *messages[1:]]
    return [{"role": "system", "content": words}, *messages]
