"""What a `response.steer` may hold: what the SDK's type takes; and what a response waits for before it can be continued: the
outputs of the calls that its client makes, and approvals."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from responses_gateway.wire.errors import ApiError, invalid_request
from responses_gateway.wire.requests import user_message

Item = dict[str, Any]
_MESSAGE_FIELDS = frozenset({"type", "previous_response_id", "input"})
# The fields of each item that may steer.
_FIELDS = {
    "message": frozenset({"type", "role", "content", "id", "status"}),
    "function_call_output": frozenset({"type", "call_id", "output", "id", "status", "name", "namespace", "caller"}),
}
_PARTS = frozenset({"input_text", "input_image", "input_file"})
# Items and parts of a steer together: each is looked at while all else waits.
_MOST = 1000
Stub = dict[str, Any]

# type of a call -> the type of its output
_OUTPUTS = {
    "function_call": "function_call_output",
    "custom_tool_call": "custom_tool_call_output",
    "computer_call": "computer_call_output",
    "shell_call": "shell_call_output",
    "local_shell_call": "local_shell_call_output",
    "apply_patch_call": "apply_patch_call_output",
    "tool_search_call": "tool_search_output",
}


def read_input(message: Mapping[str, Any]) -> list[Item]:
    """Return the input of a `response.steer` as items. Raise `ApiError` 400 that names the field."""
    for name in message:
        if name not in _MESSAGE_FIELDS:
            raise invalid_request(f"Unknown parameter: '{name[:100]}'.", name[:100], "unknown_parameter")
    content = message.get("input")
    if isinstance(content, str) and content:
        return [user_message(content)]
    if not isinstance(content, list) or not content:
        raise _invalid("input", "a text or a list of user messages is expected, which is not empty")
    if has_too_many(content):
        raise _invalid("input", f"at most {_MOST} items and parts are accepted")
    return [_item(item, f"input[{place}]") for place, item in enumerate(content)]


def has_too_many(entries: object) -> bool:
    """Tell whether an input has more items and parts than a steer may have."""
    if not isinstance(entries, list):
        return False
    if len(entries) > _MOST:
        return True
    contents = (item.get("content", item.get("output")) for item in entries if isinstance(item, dict))
    return len(entries) + sum(len(content) for content in contents if isinstance(content, list)) > _MOST


def _item(item: object, path: str) -> Item:
    if not isinstance(item, dict):
        raise _invalid(path, "an object is expected")
    kind = item.get("type", "message")
    fields = _FIELDS.get(kind) if isinstance(kind, str) else None
    if fields is None:
        raise _invalid(f"{path}.type", "messages steer, and outputs of functions")
    for name in item:
        if name not in fields:
            raise _invalid(f"{path}.{name[:100]}", "there is no such field")
    if kind == "message":
        _check_message(item, path)
    elif not isinstance(item.get("call_id"), str) or not isinstance(item.get("output"), str | list):
        raise _invalid(path, "an output has a 'call_id', and an 'output' that is a text or a list")
    return {"type": kind, **item}


def _check_message(message: Item, path: str) -> None:
    if message.get("role") != "user":
        raise _invalid(f"{path}.role", "only messages of the role 'user' steer")
    content = message.get("content")
    if isinstance(content, str) and content:
        return
    if not isinstance(content, list) or not content:
        raise _invalid(f"{path}.content", "a text or a list of parts is expected, which is not empty")
    for place, part in enumerate(content):
        kind = part.get("type") if isinstance(part, dict) else None
        if not isinstance(kind, str) or kind not in _PARTS:
            raise _invalid(f"{path}.content[{place}].type", "'input_text', 'input_image' or 'input_file' is expected")


def _invalid(path: str, problem: str) -> ApiError:
    return invalid_request(f"Invalid value for '{path}': {problem}.", path, "invalid_value")


def required_input(output: Iterable[Item]) -> list[Stub]:
    """Return what identifies each input that the items of a response ask for. Calls that were cut are not to be answered, and
    asynchronous ones may be answered later."""
    return [stub for item in output if (stub := _stub(item)) is not None]


def _stub(item: Item) -> Stub | None:
    kind = item["type"]
    if kind == "mcp_approval_request":
        return {"type": "mcp_approval_response", "approval_request_id": item["id"]}
    if kind not in _OUTPUTS or item.get("status") == "incomplete" or item.get("async") is True:
        return None
    stub: Stub = {"type": _OUTPUTS[kind], "call_id": item["call_id"]}
    if kind == "function_call":
        stub["name"] = item["name"]
    elif kind == "tool_search_call":
        stub["execution"] = "client"
    return stub
