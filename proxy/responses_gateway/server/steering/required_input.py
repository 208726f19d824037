"""What a response waits for before it can be continued: the outputs of the calls that its client makes, and approvals."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

Item = Mapping[str, Any]
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
