"""Calls of a history that repeat earlier ones are found from its end, and no further than calls repeat."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from responses_gateway.request.repeated_calls import (
    NOTICE,
    Repeats,
    calls_to_tell,
    last_calls,
    repeats_in,
    with_notices,
)
from tests.thoroughness import examples

Items = list[dict[str, Any]]


def ran(number: int, *, output: Any = "x", name: str = "read", asked: str = "{}") -> Items:
    return [
        {"type": "function_call", "call_id": f"c{number}", "name": name, "arguments": asked},
        {"type": "function_call_output", "call_id": f"c{number}", "output": output},
    ]


def found(*parts: Items) -> list[str]:
    """Return the ids of the calls behind whose outputs the model is told, of all parts in order."""
    items = [item for part in parts for item in part]
    return [call.call_id for call in calls_to_tell(last_calls(reversed(items)))]


def counted(*parts: Items) -> Repeats:
    return repeats_in(last_calls(reversed([item for part in parts for item in part])))


def test_parallel_calls_are_new_together() -> None:
    calls = [ran(number) for number in range(3)]
    together = [*(call[0] for call in calls), *(call[1] for call in calls)]
    assert counted(ran(9), together) == Repeats(3, 0)
    assert counted(ran(9), together, [{"type": "reasoning"}]) == Repeats()  # the model has spoken since


def test_other_kinds_of_calls_and_what_is_no_item() -> None:
    shell = {"type": "local_shell_call", "call_id": "s", "action": {"command": ["ls"]}}
    output = {"type": "local_shell_call_output", "call_id": "s", "output": "x"}
    custom = {"type": "custom_tool_call", "call_id": "k", "name": "wait_agent", "input": "1"}
    ended = {"type": "custom_tool_call_output", "call_id": "k", "output": ""}
    assert counted([shell, output, {"type": "reasoning"}, shell, output]) == Repeats(1, 0)
    assert counted([custom, ended, custom, ended]) == Repeats(0, 1)
    assert counted(["no item"], [{"type": 3}], ran(1)) == Repeats()  # type: ignore[list-item]
    assert counted([output], [output]) == Repeats()  # outputs of no calls


@pytest.mark.parametrize("rounds", [4, 5, 6, 40])
@pytest.mark.parametrize("circle", [1, 2, 3, 4])
def test_a_circle_is_told_at_the_fifth_round_of_each_call(circle: int, rounds: int) -> None:
    steps = [ran(number, asked=str(number % circle)) for number in range(circle * rounds)]
    expected = [f"c{number}" for number in range(4 * circle, 5 * circle)] if rounds >= 5 else []
    if circle * rounds * 2 <= 256:
        assert found(*steps) == expected
    else:
        assert len(found(*steps)) == circle  # once each, wherever the looking began


def test_a_long_history_is_not_walked_through() -> None:
    seen = 0

    def backwards() -> Any:
        nonlocal seen
        for number in range(5_000):
            for item in reversed(ran(number, asked=str(number))):
                seen += 1
                yield item

    last_calls(backwards())
    assert seen < 20


@settings(derandomize=True, max_examples=examples(200), deadline=None)
@given(st.lists(st.tuples(st.sampled_from("ab"), st.sampled_from("xy")), max_size=30))
def test_only_a_call_with_five_equals_is_told(history: list[tuple[str, str]]) -> None:
    steps = [ran(number, asked=asked, output=output) for number, (asked, output) in enumerate(history)]
    for call_id in found(*steps):
        place = int(call_id[1:])
        assert history[: place + 1].count(history[place]) >= 5


def test_the_notice_stands_behind_the_output_whatever_that_is() -> None:
    calls = last_calls(reversed([item for number in range(5) for item in ran(number)]))
    told = calls_to_tell(calls)
    for content, expected in (("x", f"x\n\n{NOTICE}"), ([], [{"type": "text", "text": NOTICE}])):
        messages: Items = [{"role": "tool", "tool_call_id": f"c{number}", "content": content} for number in range(5)]
        noticed = with_notices(messages, told)
        assert noticed[:4] == messages[:4]
        assert noticed[4]["content"] == expected
    assert with_notices(messages, []) == messages
