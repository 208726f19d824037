"""A last delta, or one behind it, that has all calls of the answer once more: a client would run them twice."""

from __future__ import annotations

import json
from typing import Any

import pytest

from tests.stream.stream_player import arguments, call, chunk, event, finish, play, usage

ONE = [call(0, "a", "weather"), arguments(0, '{"a": '), arguments(0, "1}")]
TWO = [*ONE, call(1, "b", "weather"), arguments(1, '{"a": 2}')]


def again(*values: int, ids: str = "", index: bool = False, **more: Any) -> dict[str, Any]:
    """Return a delta with calls that have these arguments."""
    entries = [
        {
            "function": {"name": "weather", "arguments": f'{{"a":{value}}}'},
            **({"id": f"{ids}{at}"} if ids else {}),
            **({"index": at} if index else {}),
            **more,
        }
        for at, value in enumerate(values)
    ]
    return {"tool_calls": entries}


@pytest.mark.parametrize("index", [False, True])
@pytest.mark.parametrize("ids", ["", "new"])
def test_several_calls_do_not_come_twice(ids: str, index: bool) -> None:
    played = play(*TWO, chunk(again(1, 2, ids=ids, index=index), finish="tool_calls"))
    assert played.said == [("call", "weather", '{"a": 1}'), ("call", "weather", '{"a": 2}')]
    assert played.translator.repairs["message_repeated"] == 1


@pytest.mark.parametrize("end", [usage(prompt_tokens=9, completion_tokens=9), b""])
@pytest.mark.parametrize("ids", ["", "new"])
def test_nor_do_they_behind_the_reason(ids: str, end: bytes) -> None:
    played = play(*TWO, finish("tool_calls"), chunk(again(1, 2, ids=ids)), end)
    assert played.said == [("call", "weather", '{"a": 1}'), ("call", "weather", '{"a": 2}')]


@pytest.mark.parametrize("begun", ["{}", ""])
@pytest.mark.parametrize("ids", ["", "new"])
@pytest.mark.parametrize("end", ["tool_calls", None])
def test_nor_does_one_without_arguments_among_others(begun: str, ids: str, end: str | None) -> None:
    last = again(1, ids=ids)
    last["tool_calls"].append({"id": f"{ids}1" if ids else None, "function": {"name": "clock", "arguments": "{}"}})
    before = [] if end else [finish("tool_calls")]
    played = play(*ONE, call(1, "b", "clock", begun), *before, chunk(last, finish=end))
    assert played.said == [("call", "weather", '{"a": 1}'), ("call", "clock", "{}")]


@pytest.mark.parametrize("call_id", ["b", "new", None])
def test_a_last_message_repeats_a_call_without_arguments(call_id: str | None) -> None:
    made = [call(0, "b", "clock", "{"), call(0, "b", "clock", "}")]
    message = {"tool_calls": [{"index": 0, "id": call_id, "function": {"name": "clock", "arguments": "{}"}}]}
    end = event({"choices": [{"index": 0, "message": message, "finish_reason": "tool_calls"}]})
    assert play(*made, end).said == [("call", "clock", "{}")]


def test_nor_does_one_that_has_lost_its_id() -> None:
    played = play(*ONE, chunk(again(1), finish="tool_calls"))
    assert played.said == [("call", "weather", '{"a": 1}')]
    assert played.translator.status == "completed"


@pytest.mark.parametrize("name", ["weather", None])
@pytest.mark.parametrize("last", [{"finish": "tool_calls"}, {}])
def test_nor_does_one_whose_arguments_are_encoded_twice(name: str | None, last: dict[str, str]) -> None:
    summary = {"index": 0, "id": "a", "function": {"name": name, "arguments": json.dumps('{"a": 1}')}}
    played = play(*ONE, chunk({"tool_calls": [summary]}, **last), finish("tool_calls"))
    assert played.said == [("call", "weather", '{"a": 1}')]
    assert played.translator.status == "completed"


def test_what_the_last_delta_tells_besides_is_kept() -> None:
    signed = {"google": {"thought_signature": "c2lnbmVk"}}
    played = play(*ONE, chunk(again(1, extra_content=signed), finish="tool_calls"))
    (item,) = played.response["output"]
    assert item["extra_content"] == signed


@pytest.mark.parametrize(
    "last",
    [
        again(1, 3, ids="new"),
        again(2, 1, ids="new"),
        again(1, ids="new"),  # one call may be made twice
        again(1, 2, 3, ids="new"),
    ],
)
def test_other_calls_are_calls(last: dict[str, Any]) -> None:
    whole, other = play(*TWO, chunk(last), finish("tool_calls")), play(*TWO, chunk(last, finish="tool_calls"))
    assert other.said == whole.said
    assert "message_repeated" not in other.translator.repairs
