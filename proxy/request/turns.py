"""The next turn of the model within one response: its own last turn, and the results of the calls that the gateway ran."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from proxy.request.fields import Object
from proxy.request.input.call_matching import match_calls
from proxy.request.input.calls import CallItemReader
from proxy.request.input.item_reader import ItemReader
from proxy.request.input.items import entries_at
from proxy.request.loss_report import LossReport
from proxy.request.policy import Policy
from proxy.request.tools.catalog import NO_TOOLS


def call_with_result(call_id: str, name: str, arguments: str, result: str) -> list[Object]:
    """Return the items of a call that was run, as the messages of the next turn are made of: `name` is the chat name."""
    return [
        {"type": "function_call", "call_id": call_id, "name": name, "arguments": arguments},
        {"type": "function_call_output", "call_id": call_id, "output": result},
    ]


def with_turn(body: Object, items: Sequence[Object], policy: Policy, *, may_call: bool = True) -> dict[str, Any]:
    """Return the chat request that asks for the next turn: `body`, and messages for the items of the last one (reasoning,
    messages, calls under their chat names, results). A tool that was forced in the last turn is not forced again; without
    `may_call` the model has to answer now."""
    report = LossReport()
    entries = entries_at(items, "output")
    calls = match_calls(entries, CallItemReader(NO_TOOLS, report), report)
    reader = ItemReader(policy, calls, report)
    messages = [*body["messages"], *reader.later_messages(entries)]
    following = {**body, "messages": messages}
    if "tools" in body:
        if not may_call:
            following["tool_choice"] = "none"
        elif body.get("tool_choice", "auto") not in ("auto", "none"):
            following["tool_choice"] = "auto"
    return following
