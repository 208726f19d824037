"""The attributes of spans that tell what was asked, named after the OpenTelemetry conventions for generative AI.

The values come from clients. The protocol of collectors has whole numbers of 64 bits and valid Unicode only: other numbers,
about which the exporter would warn, are left out here, and half surrogate pairs are replaced."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, TypeAlias

Attribute: TypeAlias = str | bool | int | float | list[str]
Attributes: TypeAlias = dict[str, Attribute]

# Members of a chat request -> attributes. Of several with the same attribute, the last one that is there counts.
_NUMBERS = {
    "temperature": "gen_ai.request.temperature",
    "top_p": "gen_ai.request.top_p",
    "top_k": "gen_ai.request.top_k",
    "max_tokens": "gen_ai.request.max_tokens",
    "max_completion_tokens": "gen_ai.request.max_tokens",
    "seed": "gen_ai.request.seed",
    "frequency_penalty": "gen_ai.request.frequency_penalty",
    "presence_penalty": "gen_ai.request.presence_penalty",
}
_OUTPUT_TYPES = {"text": "text", "json_object": "json", "json_schema": "json"}
_LONGEST = 256  # characters of a value
_MOST_STOPS = 16
_INT64 = 2**63


def response_attributes(
    *,
    conversation: str | None,
    previous: str | None = None,
    effort: str | None = None,
    service_tier: str | None = None,
    agent_id: str | None = None,
    agent_name: str | None = None,
) -> Attributes:
    """Return what a client asked of a response: the ids of the conversation and of the response that it continues, how much
    the model is to think, the service tier, and the agent that asks."""
    attributes: Attributes = {}
    _add_text(attributes, "gen_ai.conversation.id", conversation)
    _add_text(attributes, "gen_ai.agent.id", agent_id)
    _add_text(attributes, "gen_ai.agent.name", agent_name)
    _add_text(attributes, "gen_ai.request.previous_response.id", previous)
    _add_text(attributes, "gen_ai.request.reasoning.level", effort)
    _add_tier(attributes, service_tier)
    return attributes


def chat_attributes(body: Mapping[str, Any], served_as: str) -> Attributes:
    """Return what a chat request asks for. `served_as` is the backend's name of the model, `body` has the client's."""
    attributes: Attributes = {}
    _add_text(attributes, "gen_ai.request.model", body.get("model"))
    if served_as != body.get("model"):
        _add_text(attributes, "gen_ai.response.model", served_as)
    for member, attribute in _NUMBERS.items():
        value = body.get(member)
        if value is not None and _is_number(value):
            attributes[attribute] = value
    stops = body.get("stop")
    if stops:
        listed = stops if isinstance(stops, list) else [stops]
        attributes["gen_ai.request.stop_sequences"] = [_text(stop) for stop in listed[:_MOST_STOPS] if isinstance(stop, str)]
    _add_text(attributes, "gen_ai.request.reasoning.level", body.get("reasoning_effort"))
    output = body.get("response_format")
    kind = output.get("type") if isinstance(output, dict) else None
    if isinstance(kind, str) and kind in _OUTPUT_TYPES:
        attributes["gen_ai.output.type"] = _OUTPUT_TYPES[kind]
    _add_tier(attributes, body.get("service_tier"))
    return attributes


def _add_text(attributes: Attributes, name: str, value: Any) -> None:
    if isinstance(value, str) and value:
        attributes[name] = _text(value)


def _add_tier(attributes: Attributes, tier: Any) -> None:
    """Add the service tier that was asked for; by the conventions `auto` is none."""
    if tier != "auto":
        _add_text(attributes, "openai.request.service_tier", tier)


def _text(value: str) -> str:
    return value[:_LONGEST].encode("utf-8", "replace").decode()


def _is_number(value: Any) -> bool:
    if isinstance(value, bool):
        return False
    return isinstance(value, float) or (isinstance(value, int) and -_INT64 <= value < _INT64)
