"""The Open Responses document (OpenAPI 3.1, JSON Schema 2020-12) as a judge of events and response objects.

The document has slips, and OpenAI's API has more than it. `_mended` and `_within_document` are all that is forgiven.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from functools import cache, lru_cache
from typing import Any

from jsonschema import Draft202012Validator, ValidationError

from tests.data_folder import CARRIED

_FILE = CARRIED / "openresponses" / "openapi.json"

# OpenAI's name -> the document's
_EVENT_NAMES = {
    "response.reasoning_text.delta": "response.reasoning.delta",
    "response.reasoning_text.done": "response.reasoning.done",
}


def _mended(document: dict[str, Any]) -> dict[str, Any]:
    schemas = document["components"]["schemas"]
    # The echo of a JSON schema may only be null there; OpenAI echoes the schema.
    schemas["JsonSchemaResponseFormat"]["properties"]["schema"] = {"type": ["object", "null"]}
    # Described, but missing from the list.
    schemas["ReasoningEffortEnum"]["enum"].append("minimal")
    return document


DOCUMENT: dict[str, Any] = _mended(json.loads(_FILE.read_bytes()))


def openapi_errors(event: dict[str, Any]) -> list[str]:
    """Return how an event or a response object (`object: "response"`) violates the document.

    Empty also for what the document does not know: events and items of OpenAI's own (custom tools, hosted tools), the flat
    `error` event.
    """
    event = _within_document(event)
    kind = str(event.get("type", event.get("object")))
    validator = _validators().get(kind)
    if validator is None or _is_valid(kind, json.dumps(without_free_values(event))):
        return []
    return [
        f"{'.'.join(map(str, error.absolute_path)) or 'event'}: {error.message[:200]}"
        for found in validator.iter_errors(event)
        for error in _causes(found)
    ]


@lru_cache(maxsize=50_000)
def _is_valid(kind: str, event: str) -> bool:
    """Tell whether an event (JSON) keeps to the document. Events that differ in free values alone are asked about once: the
    validator takes a millisecond for each response object, and the tests make hundreds of thousands of them."""
    return bool(_validators()[kind].is_valid(json.loads(event)))


def without_free_values(value: Any) -> Any:
    """Return the value with the same text or number wherever the document allows any."""
    if isinstance(value, list):
        return [without_free_values(entry) for entry in value]
    if not isinstance(value, dict):
        return value
    texts, numbers = _free_fields()
    changed: dict[str, Any] = {}
    for name, entry in value.items():
        shortest, longest = texts.get(name, (1, 0))
        if isinstance(entry, str) and shortest <= len(entry) <= longest:
            changed[name] = "x" * shortest
        elif type(entry) is int and name in numbers:
            changed[name] = 0
        else:
            changed[name] = entry if name == "metadata" else without_free_values(entry)
    return changed


@cache
def _free_fields() -> tuple[dict[str, tuple[int, int]], set[str]]:
    """Return the fields whose text is free within a length, and those whose number is free, wherever the document has a field
    of that name."""
    found: dict[str, list[dict[str, Any]]] = {}
    for name, field in _fields(DOCUMENT["components"]["schemas"]):
        found.setdefault(name, []).extend(_alternatives(field))
    texts = {
        name: (max(one.get("minLength", 0) for one in schemas), min(one.get("maxLength", 2**31) for one in schemas))
        for name, schemas in found.items()
        if not any(one.keys() & {"enum", "pattern"} for one in schemas)
    }
    return texts, {name for name, schemas in found.items() if not any(one.keys() & {"enum", "minimum"} for one in schemas)}


def _fields(schema: Any) -> Iterator[tuple[str, dict[str, Any]]]:
    """Yield the properties in a schema, at any depth."""
    if isinstance(schema, list):
        for entry in schema:
            yield from _fields(entry)
    elif isinstance(schema, dict):
        properties = schema.get("properties")
        if isinstance(properties, dict):
            yield from properties.items()
        for entry in schema.values():
            yield from _fields(entry)


def _alternatives(schema: dict[str, Any]) -> Iterator[dict[str, Any]]:
    """Yield a schema and those that stand in its place."""
    yield schema
    if "$ref" in schema:
        yield from _alternatives(DOCUMENT["components"]["schemas"][schema["$ref"].rpartition("/")[2]])
    for entry in (*schema.get("anyOf", ()), *schema.get("oneOf", ()), *schema.get("allOf", ())):
        yield from _alternatives(entry)


def _within_document(event: dict[str, Any]) -> dict[str, Any]:
    """Return the event without what the document does not know."""
    event = _known_annotations(event)
    kind = event.get("type")
    if kind == "response.output_text.annotation.added" and event.get("annotation") is None:
        return {}
    if kind is None and event.get("object") == "response":
        return _known_response(event)
    if kind in _EVENT_NAMES:
        return {**event, "type": _EVENT_NAMES[str(kind)]}
    if isinstance(event.get("response"), dict):
        return {**event, "response": _known_response(event["response"])}
    if isinstance(event.get("item"), dict) and not _is_known_item(event["item"]):
        return {**event, "item": None}
    if kind == "error" and "error" not in event:
        return {}
    return event


def _known_annotations(value: Any) -> Any:
    """Return the value without citations of files, at any depth: the document has those of web pages alone."""
    if isinstance(value, list):
        return [_known_annotations(entry) for entry in value if _type_of(entry) != "file_citation"]
    if isinstance(value, dict):
        return {
            name: None if _type_of(entry) == "file_citation" else _known_annotations(entry) for name, entry in value.items()
        }
    return value


def _known_response(response: dict[str, Any]) -> dict[str, Any]:
    response = dict(response)
    if isinstance(response.get("output"), list):
        response["output"] = [item for item in response["output"] if _is_known_item(item)]
    if isinstance(response.get("tools"), list):
        response["tools"] = [tool for tool in response["tools"] if _type_of(tool) in {None, "function"}]
    choice = response.get("tool_choice")
    if isinstance(choice, dict) and _type_of(choice) not in {None, "function", "allowed_tools"}:
        response["tool_choice"] = "auto"
    if isinstance(choice, dict) and isinstance(choice.get("tools"), list):
        tools = [tool for tool in choice["tools"] if _type_of(tool) in {None, "function"}]
        response["tool_choice"] = {**choice, "tools": tools}
    return response


def _is_known_item(item: object) -> bool:
    return _type_of(item) in {None, *_item_types()}


def _type_of(value: object) -> Any:
    return value.get("type") if isinstance(value, dict) else None


@cache
def _item_types() -> frozenset[str]:
    schemas = DOCUMENT["components"]["schemas"]
    members = [member["$ref"].rpartition("/")[2] for member in schemas["ItemField"]["oneOf"]]
    return frozenset(schemas[name]["properties"]["type"]["enum"][0] for name in members)


@cache
def _validators() -> dict[str, Draft202012Validator]:
    """Return the validators by event type; under `response` the one for a response object."""
    schemas = DOCUMENT["components"]["schemas"]
    names = {
        schema["properties"]["type"]["enum"][0]: name for name, schema in schemas.items() if name.endswith("StreamingEvent")
    }
    names["response"] = "ResponseResource"
    return {
        kind: Draft202012Validator({"$ref": f"#/components/schemas/{name}", "components": DOCUMENT["components"]})
        for kind, name in names.items()
    }


def _causes(error: ValidationError) -> Iterator[ValidationError]:
    """Return the errors behind "not valid under any of": those of the member that has the right `type`."""
    if not error.context:
        yield error
        return
    members: dict[Any, list[ValidationError]] = {}
    for inner in error.context:
        members.setdefault(inner.schema_path[0], []).append(inner)
    best = [errors for errors in members.values() if not any(_is_type_error(inner) for inner in errors)]
    for errors in best[:1]:
        for inner in errors:
            yield from _causes(inner)
    if not best:
        yield error


def _is_type_error(error: ValidationError) -> bool:
    """Tell whether a member of a union is out of the question: another `type` of object, or another JSON type."""
    return list(error.relative_path) == ["type"] or (error.validator == "type" and not error.relative_path)
