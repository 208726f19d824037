"""Bodies of the Messages API for tests of their translation, and the recorded ones of Claude Code."""

from __future__ import annotations

import json
from collections.abc import Container
from typing import Any

import pytest

from responses_gateway.request import ChatRequest, Policy, support, translate
from responses_gateway.request.messages import MESSAGES_LOSSES, MessagesReading, read_messages
from responses_gateway.request.messages.reading import in_messages_words
from responses_gateway.request.tools.hosted_tools import NO_HOSTED_TOOLS, HostedTools
from responses_gateway.wire.errors import ApiError
from responses_gateway.wire.messages import parse_messages
from tests.request.chat_rules import complaints

Fields = dict[str, Any]
TOOL: Fields = {"name": "Bash", "description": "Runs.", "input_schema": {"$schema": "s", "type": "object", "properties": {}}}
PNG: Fields = {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": "AAAA"}}
_known = {(loss.kind, loss.name, loss.outcome) for loss in (*in_messages_words(support()), *MESSAGES_LOSSES)}


def user(*content: Any) -> Fields:
    return {"role": "user", "content": content[0] if content and isinstance(content[0], str) else list(content)}


def assistant(*content: Fields | str) -> Fields:
    return {"role": "assistant", "content": [text(block) if isinstance(block, str) else block for block in content]}


def system(content: Any) -> Fields:
    return {"role": "system", "content": content}


def text(words: str, **fields: Any) -> Fields:
    return {"type": "text", "text": words, **fields}


def call(call_id: str, name: str = "Bash", **arguments: Any) -> Fields:
    return {"type": "tool_use", "id": call_id, "name": name, "input": arguments}


def result(call_id: str, content: Any = "ok", **fields: Any) -> Fields:
    return {"type": "tool_result", "tool_use_id": call_id, "content": content, **fields}


def thought(words: str, signature: str = "s") -> Fields:
    return {"type": "thinking", "thinking": words, "signature": signature}


def body_of(*messages: Fields, **fields: Any) -> Fields:
    """Return a body; fields that are None are left out."""
    body = {"model": "m", "max_tokens": 100, "messages": list(messages) or [user("hi")], **fields}
    return {name: value for name, value in body.items() if value is not None}


def reading_of(body: Fields, policy: Policy | None = None, hosted: Container[str] = ()) -> MessagesReading:
    parsed = parse_messages(json.dumps(body).encode(), counts=True)
    return read_messages(parsed, parsed.model, policy or Policy(), hosted)


def translated(body: Fields, policy: Policy | None = None, hosted: HostedTools = NO_HOSTED_TOOLS) -> ChatRequest:
    """Translate a body; check the chat request against the rules of servers, and the losses against the table."""
    reading = reading_of(body, policy, hosted.kinds)
    found = translate(reading.request, reading.policy, hosted=hosted)
    assert complaints(found.body) == []
    losses = [*reading.losses, *in_messages_words(found.losses, says_effort=reading.says_effort)]
    assert [loss for loss in losses if (loss.kind, loss.name, loss.outcome) not in _known] == []
    return found


def chat_of(*messages: Fields, policy: Policy | None = None, **fields: Any) -> Fields:
    """Return the chat request for these messages."""
    return translated(body_of(*messages, **fields), policy).body


def messages_of(*messages: Fields, policy: Policy | None = None, **fields: Any) -> list[Fields]:
    """Return the chat messages for these messages."""
    found: list[Fields] = chat_of(*messages, policy=policy, **fields)["messages"]
    return found


def losses_of(*messages: Fields, policy: Policy | None = None, **fields: Any) -> set[str]:
    """Return what was not carried over as it was, in short: `content document ignored`."""
    body = body_of(*messages, **fields)
    reading = reading_of(body, policy)
    found = [*reading.losses, *in_messages_words(translated(body, policy).losses, says_effort=reading.says_effort)]
    return {f"{loss.kind} {loss.name} {loss.outcome}" for loss in found if loss.outcome != "preserved"}


def refusal_of(*messages: Fields, policy: Policy | None = None, **fields: Any) -> ApiError:
    """Return the 400 for a body, in the words of this API."""
    try:
        reading = reading_of(body_of(*messages, **fields), policy)
    except ApiError as error:
        return error
    with pytest.raises(ApiError) as caught:
        translate(reading.request, reading.policy)
    assert caught.value.status == 400
    return reading.places.error(caught.value)
