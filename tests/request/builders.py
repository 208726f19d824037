"""Build items and translate requests, for tests of the translation."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from responses_gateway.request import ChatRequest, Policy, support, translate
from responses_gateway.wire.errors import ApiError
from responses_gateway.wire.requests import parse_request
from tests.request.chat_rules import complaints

Item = dict[str, Any]
_SUPPORTED = {(loss.kind, loss.name, loss.outcome) for loss in support()}


def chat_request(
    *items: Item,
    policy: Policy | None = None,
    resolve_item: Callable[[str], Item | None] | None = None,
    **parameters: Any,
) -> ChatRequest:
    """Translate a request with these input items, and check the result against the rules of chat servers and our own table."""
    body = {"model": "m", "input": list(items) or "hi", **parameters}
    result = translate(parse_request(body), policy or Policy(), resolve_item)
    assert complaints(result.body) == []
    assert [loss for loss in result.losses if (loss.kind, loss.name, loss.outcome) not in _SUPPORTED] == []
    return result


def messages(*items: Item, policy: Policy | None = None, **parameters: Any) -> list[Item]:
    """Return the chat messages for these input items."""
    found: list[Item] = chat_request(*items, policy=policy, **parameters).body["messages"]
    return found


def refusal(*items: Item, policy: Policy | None = None, **parameters: Any) -> ApiError:
    """Return the 400 for these input items."""
    with pytest.raises(ApiError) as caught:
        chat_request(*items, policy=policy, **parameters)
    assert caught.value.status == 400
    return caught.value


def outcomes(result: ChatRequest) -> set[str]:
    """Return the loss report in short form, `tool web_search ignored`, without messages, which every request has."""
    return {f"{loss.kind} {loss.name} {loss.outcome}" for loss in result.losses if loss.name != "message"}


def response_with(echo: dict[str, Any]) -> dict[str, Any]:
    """Return a response object with the echo and the fields that the stream adds."""
    return echo | {
        "id": "resp_1",
        "object": "response",
        "created_at": 1,
        "completed_at": 2,
        "status": "completed",
        "model": "m",
        "output": [],
        "usage": None,
        "error": None,
        "incomplete_details": None,
    }


def user(text: str = "hi") -> Item:
    return {"type": "message", "role": "user", "content": [{"type": "input_text", "text": text}]}


def developer(text: str) -> Item:
    return {"type": "message", "role": "developer", "content": [{"type": "input_text", "text": text}]}


def assistant(text: str) -> Item:
    part = {"type": "output_text", "text": text, "annotations": []}
    return {"type": "message", "role": "assistant", "status": "completed", "content": [part]}


def call(call_id: str, name: str = "f", arguments: str = "{}") -> Item:
    return {"type": "function_call", "call_id": call_id, "name": name, "arguments": arguments}


def output(call_id: str, text: Any = "ok") -> Item:
    return {"type": "function_call_output", "call_id": call_id, "output": text}


def reasoning(text: str) -> Item:
    return {"type": "reasoning", "id": "rs", "summary": [], "content": [{"type": "reasoning_text", "text": text}]}


def function(name: str = "f", **fields: Any) -> Item:
    parameters = {"type": "object", "properties": {}}
    return {"type": "function", "name": name, "description": "d", "parameters": parameters, **fields}


def image(url: str = "data:image/png;base64,AAAA", **fields: Any) -> Item:
    return {"type": "input_image", "image_url": url, **fields}
