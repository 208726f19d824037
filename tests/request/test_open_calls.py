"""Which asynchronous calls of a history wait for an output: a compaction leaves them where they are."""

from __future__ import annotations

from typing import Any

from responses_gateway.request.input.call_matching import open_items


def call(call_id: object, **fields: Any) -> dict[str, Any]:
    return {"type": "function_call", "call_id": call_id, "name": "f", "arguments": "{}", "async": True, **fields}


def test_a_call_waits_until_there_is_an_output() -> None:
    items = [
        call("a"),
        call("b"),
        call("c", **{"async": False}),
        {"type": "custom_tool_call", "call_id": "d", "name": "g", "input": "x", "async": True},
        {"type": "function_call_output", "call_id": "b", "output": "done"},
        {"type": "function_call_output", "call_id": "nobody", "output": "done"},
    ]
    assert open_items(items) == {0, 3}


def test_anything_may_be_in_a_history() -> None:
    assert open_items([5, None, {"type": []}, {"type": "function_call"}, call(7), call(None), {}]) == set()
