"""The limits on the items and tools of a request."""

from __future__ import annotations

from typing import Any

import pytest

from responses_gateway.request import Policy, translate
from responses_gateway.wire.errors import ApiError
from responses_gateway.wire.requests import parse_request

FEW = Policy(max_input_items=3, max_tools=3)


def item(**fields: Any) -> dict[str, Any]:
    return {"type": "message", "role": "user", "content": "x", **fields}


def function(number: int) -> dict[str, Any]:
    return {"type": "function", "name": f"f{number}", "parameters": {}}


def refusal(history: Any = (), **fields: Any) -> ApiError:
    with pytest.raises(ApiError) as caught:
        translate(parse_request({"model": "m", "input": "x", **fields}), FEW, None, history)
    assert (caught.value.status, caught.value.code) == (400, "array_above_max_length")
    return caught.value


def test_too_many_items() -> None:
    error = refusal(input=[item()] * 4)
    assert error.param == "input"
    assert "at most 3 items, but got 4" in error.message
    assert translate(parse_request({"model": "m", "input": [item()] * 3}), FEW).body["messages"]


def test_the_history_counts() -> None:
    assert "got 4" in refusal([item()] * 3).message


@pytest.mark.parametrize(
    "fields",
    [
        {"tools": [function(number) for number in range(4)]},
        {"tools": [{"type": "namespace", "name": "n", "tools": [function(number) for number in range(3)]}]},
        {
            "tools": [function(0), function(1)],
            "input": [item(), {"type": "additional_tools", "tools": [function(2), function(3)]}],
        },
    ],
)
def test_too_many_tools_wherever_they_stand(fields: dict[str, Any]) -> None:
    error = refusal(**fields)
    assert error.param == "tools"
    assert "at most 3 tools, but got 4" in error.message


def test_as_many_tools_as_are_allowed() -> None:
    request = parse_request({"model": "m", "input": "x", "tools": [function(number) for number in range(3)]})
    assert len(translate(request, FEW).body["tools"]) == 3
