"""The official SDK's models as a judge. The SDK itself never validates a stream (`construct()`); here it must."""

from __future__ import annotations

from functools import cache
from typing import Any, get_args

from openai.types.responses import Response, ResponseStreamEvent
from pydantic import BaseModel, ValidationError

# The specification's name -> the SDK's
_EVENT_NAMES = {
    "response.reasoning.delta": "response.reasoning_text.delta",
    "response.reasoning.done": "response.reasoning_text.done",
}


def sdk_errors(event: dict[str, Any]) -> list[str]:
    """Return how an event or a response object (`object: "response"`) violates the SDK's model, without coercion."""
    kind = str(event.get("type", event.get("object")))
    kind = _EVENT_NAMES.get(kind, kind)
    model = _models().get(kind)
    if model is None:
        return [f"no model for {kind}"]
    item = event.get("item")
    if kind == "response.output_item.added" and isinstance(item, dict) and item.get("type") == "web_search_call":
        # OpenAI adds the item without the action, which the model demands.
        event = {**event, "item": {"action": {"type": "search", "query": ""}, **item}}
    try:
        model.model_validate({**event, "type": kind} if "type" in event else event, strict=True)
    except ValidationError as error:
        return _causes(error)
    return []


@cache
def _models() -> dict[str, type[BaseModel]]:
    """Return the models by event type; under `response` the model of a response object."""
    union = get_args(ResponseStreamEvent)[0]
    models = {get_args(model.model_fields["type"].annotation)[0]: model for model in get_args(union)}
    return {**models, "response": Response}


def _causes(failure: ValidationError) -> list[str]:
    """Return the errors without those of union members that have another `type`."""
    errors = failure.errors(include_url=False, include_input=False)
    others = {
        error["loc"][:-1]
        for error in errors
        if (error["type"] == "literal_error" and error["loc"][-1] == "type") or error["type"] == "model_type"
    }
    others |= {error["loc"] for error in errors if error["type"] == "model_type"}
    causes = [error for error in errors if not any(_is_under(error["loc"], other) for other in others if other)]
    return [f"{'.'.join(map(str, error['loc']))}: {error['msg']}" for error in causes or errors[:1]]


def _is_under(location: tuple[int | str, ...], other: tuple[int | str, ...]) -> bool:
    return location[: len(other)] == other
