"""Items that a client adds to a conversation are checked as a later request will read them."""

from __future__ import annotations

from typing import Any

import pytest

from responses_gateway.request import Policy
from responses_gateway.request.translation import check_kept_items
from responses_gateway.wire.errors import ApiError

USER = {"type": "message", "role": "user", "content": "hi"}
CALL = {"type": "function_call", "call_id": "c", "name": "f", "arguments": "{}"}
OUTPUT = {"type": "function_call_output", "call_id": "c", "output": "1"}


def test_messages_calls_and_outputs_are_kept_in_any_order() -> None:
    check_kept_items([OUTPUT, CALL, USER], "items", Policy())
    check_kept_items([{"type": "function_call_output", "name": "automation_update", "output": "look"}], "items", Policy())


@pytest.mark.parametrize(
    ("items", "param"),
    [
        ([USER, {"type": "item_reference", "id": "x"}], "items[1].type"),
        ([{**OUTPUT, "call_id": None}], "items[0].call_id"),
        ([{**CALL, "name": 1}], "items[0].name"),
        (["x"], "items[0]"),
    ],
)
def test_others_are_refused(items: list[Any], param: str) -> None:
    with pytest.raises(ApiError) as refused:
        check_kept_items(items, "items", Policy())
    assert (refused.value.status, refused.value.param) == (400, param)
