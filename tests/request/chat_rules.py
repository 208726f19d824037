"""Check chat requests against the rules of the strictest Chat Completions server, independently of the translation."""

from __future__ import annotations

import json
import re
from typing import Any

import msgspec
from openai.types.chat.completion_create_params import CompletionCreateParamsStreaming
from pydantic import TypeAdapter, ValidationError

NAME = re.compile(r"[a-zA-Z0-9_-]{1,64}")
ROLES = {"system", "user", "assistant", "tool"}
_sdk = TypeAdapter(CompletionCreateParamsStreaming)
# Fields that are missing in the SDK's type, or have narrower types than in chat servers.
_BEYOND_THE_SDK = {"logit_bias", "seed", "stop", "service_tier", "prompt_cache_retention", "prompt_cache_options", "moderation"}


def complaints(body: dict[str, Any]) -> list[str]:
    """Return all errors of a chat request; empty for a valid one."""
    found: list[str] = []
    if body.get("stream") is not True or body.get("stream_options") != {"include_usage": True}:
        found.append("not a stream with usage")
    if not isinstance(body.get("model"), str):
        found.append("no model")
    found += _messages(body["messages"])
    found += _tools(body)
    found += [f"null or empty: {key}" for key, value in body.items() if value is None or value == []]
    try:
        json.dumps(body, allow_nan=False).encode()
        msgspec.json.encode(body)
    except (ValueError, RecursionError) as error:
        found.append(f"not encodable: {error}")
    return found + _sdk_complaints(body)


def _messages(messages: list[dict[str, Any]]) -> list[str]:
    found: list[str] = []
    waiting: list[str] = []
    used: set[str] = set()
    if not messages:
        found.append("no messages")
    for index, message in enumerate(messages):
        role = message.get("role")
        if role not in ROLES:
            found.append(f"{index}: role {role!r}")
        if waiting and role != "tool":
            found.append(f"{index}: {waiting} not answered")
            waiting = []
        if role == "assistant":
            if index and messages[index - 1]["role"] == "assistant":
                found.append(f"{index}: two assistant messages in a row")
            calls = message.get("tool_calls")
            if calls == []:
                found.append(f"{index}: empty tool_calls")
            if not isinstance(message["content"], str) or not (message["content"] or calls):
                found.append(f"{index}: assistant content {message['content']!r}")
            for call in calls or []:
                waiting.append(call["id"])
                if call["id"] in used or not call["id"]:
                    found.append(f"{index}: id {call['id']!r} used twice or empty")
                used.add(call["id"])
                if call["type"] != "function" or not NAME.fullmatch(call["function"]["name"]):
                    found.append(f"{index}: call {call}")
                if not isinstance(json.loads(call["function"]["arguments"]), dict):
                    found.append(f"{index}: arguments {call['function']['arguments']!r}")
        elif role == "tool":
            if not waiting or message["tool_call_id"] != waiting.pop(0):
                found.append(f"{index}: tool message out of order")
            if not isinstance(message["content"], str):
                found.append(f"{index}: tool content is not a string")
        elif role == "system":
            if not isinstance(message["content"], str) or not message["content"]:
                found.append(f"{index}: system content")
        else:
            found += _user_content(index, message["content"])
    if waiting:
        found.append(f"end: {waiting} not answered")
    return found


def _user_content(index: int, content: object) -> list[str]:
    if isinstance(content, str):
        return []
    if not isinstance(content, list) or not content:
        return [f"{index}: user content {content!r}"]
    known = {"text", "image_url", "input_audio", "file", "video_url"}
    return [f"{index}: part {part['type']}" for part in content if part["type"] not in known or part["type"] not in part]


def _tools(body: dict[str, Any]) -> list[str]:
    tools = body.get("tools")
    if tools is None:
        return [f"{key} without tools" for key in ("tool_choice", "parallel_tool_calls") if key in body]
    names = [tool["function"]["name"] for tool in tools]
    found = [f"tool name {name!r}" for name in names if not NAME.fullmatch(name)]
    if len(set(names)) < len(names):
        found.append("a tool name twice")
    found += [f"{tool} has no schema" for tool in tools if not isinstance(tool["function"]["parameters"], dict)]
    choice = body.get("tool_choice")
    if isinstance(choice, dict) and choice["function"]["name"] not in names:
        found.append(f"choice of {choice}")
    return found


def _sdk_complaints(body: dict[str, Any]) -> list[str]:
    try:
        _sdk.validate_python({key: value for key, value in body.items() if key not in _BEYOND_THE_SDK})
    except ValidationError as error:
        # Unions are reported member by member; a video part is not a member.
        return [f"SDK: {found['loc']}: {found['msg']}" for found in error.errors() if "video_url" not in str(found["input"])]
    return []
