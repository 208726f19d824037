"""What a server wants back with a call stands in the call's item, and in its block."""

from __future__ import annotations

from typing import Any

import pytest

from tests.stream.message_player import play_message
from tests.stream.stream_player import arguments, call, chunk, finish, play, tool

SIGNED = {"google": {"thought_signature": "U2ln"}}


def signed(name: str, written: Any = "{}", extra: Any = SIGNED, index: int = 0) -> bytes:
    return chunk({"tool_calls": [{**tool(index, f"c{index}", name, written), "extra_content": extra}]})


@pytest.mark.parametrize(
    ("name", "written"),
    [("weather", '{"a":1}'), ("patch", '{"input":"x"}'), ("shell", '{"commands":["ls"]}'), ("shell", '{"no":1}')],
)
def test_the_item_of_a_call_has_it_from_the_beginning(name: str, written: str) -> None:
    played = play(signed(name, written), finish("tool_calls"))
    assert played.response["output"][0]["extra_content"] == SIGNED
    added = next(event["item"] for event in played.events if event["type"] == "response.output_item.added")
    assert added["extra_content"] == SIGNED


def test_of_several_calls_each_has_its_own() -> None:
    played = play(signed("weather", '{"a"'), call(1, "d", "clock", "{}"), arguments(0, ":1}"), finish("tool_calls"))
    assert [item.get("extra_content") for item in played.response["output"]] == [SIGNED, None]


@pytest.mark.parametrize("extra", [None, {}, "text", 1, ["list"]])
def test_what_is_no_object_is_left_out(extra: Any) -> None:
    played = play(signed("weather", "{}", extra), finish("tool_calls"))
    assert (played.said, "extra_content" in played.response["output"][0]) == ([("call", "weather", "{}")], False)


def test_it_may_come_before_the_name_is_whole_but_not_behind_the_beginning_of_the_call() -> None:
    early = chunk({"tool_calls": [{"index": 0, "id": "c", "extra_content": SIGNED}]})
    assert play(early, call(0, "c", "weather", "{}"), finish()).response["output"][0]["extra_content"] == SIGNED
    late = play(call(0, "c", "weather", "{"), early, arguments(0, "}"), finish())
    assert late.said == [("call", "weather", "{}")]
    assert late.translator.repairs["extra_content_dropped"] == 1


def test_a_block_of_the_messages_api_has_it() -> None:
    message = play_message(signed("weather", '{"a":1}'), finish("tool_calls"))
    starts = [event["content_block"] for event in message.events if event["type"] == "content_block_start"]
    assert starts[0]["extra_content"] == SIGNED
