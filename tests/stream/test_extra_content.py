"""What a server wants back with a call stands in the call's item, and in its block."""

from __future__ import annotations

from typing import Any

import pytest

from responses_gateway.stream.items.text_items import sealed_members
from responses_gateway.stream.writer.messages import MessageOptions
from responses_gateway.wire.messages import details_in
from tests.stream.message_player import play_message
from tests.stream.stream_player import arguments, call, chunk, finish, play, tool
from tests.stream.test_hosted_calls import play_turns

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


def late(index: int = 0, extra: Any = SIGNED, **fields: Any) -> bytes:
    return chunk({"tool_calls": [{"index": index, "extra_content": extra, **fields}]})


def test_it_may_come_before_the_name_is_whole() -> None:
    played = play(late(id="c"), call(0, "c", "weather", "{}"), finish())
    assert played.response["output"][0]["extra_content"] == SIGNED


@pytest.mark.parametrize("name", ["weather", "patch", "shell", "web_search"])
@pytest.mark.parametrize("again", [SIGNED, {}, None, {"google": {}}])
def test_it_may_come_while_the_arguments_come_or_behind_them(name: str, again: Any) -> None:
    written = {"patch": '{"input":"x"}', "shell": '{"commands":["ls"]}'}.get(name, '{"a":1}')
    for at in range(1, len(written) + 1):
        pieces = [arguments(0, written[:at]), late(extra=again), late(), arguments(0, written[at:] or " ")]
        played = play(call(0, "c", name), *pieces, finish("tool_calls"))
        assert played.response["output"][0]["extra_content"] == SIGNED
        assert played.said == play(call(0, "c", name, written), finish("tool_calls")).said
        assert "extra_content_dropped" not in played.translator.repairs


@pytest.mark.parametrize("where", [{}, {"id": "c"}, {"index": None}, {"index": None, "id": "c"}])
def test_it_may_come_behind_the_end(where: dict[str, Any]) -> None:
    ended = chunk({"tool_calls": [{"index": 0, "extra_content": SIGNED, **where}]}, "tool_calls")
    behind = late(**where)
    for pieces in ([ended], [finish("tool_calls"), behind], [behind, finish("tool_calls")]):
        played = play(call(0, "c", "weather", '{"a":1}'), *pieces)
        assert played.response["output"][0]["extra_content"] == SIGNED


def test_a_call_that_waits_for_another_one_has_it() -> None:
    both = [call(0, "c", "weather", '{"a"'), call(1, "d", "clock", "{}"), late(1), arguments(0, ":1}")]
    assert [item.get("extra_content") for item in play(*both, finish()).response["output"]] == [None, SIGNED]


def test_that_of_a_call_which_is_done_is_counted_or_in_the_encrypted_reasoning() -> None:
    pieces = [call(0, "c", "weather", '{"a":1}'), call(1, "d", "clock", "{}"), late(0), late(1), finish("tool_calls")]
    dropped = play(*pieces)
    assert [item.get("extra_content") for item in dropped.response["output"]] == [None, SIGNED]
    assert dropped.translator.repairs["extra_content_dropped"] == 1
    *calls, thought = play(*pieces, seal=lambda sealed: sealed).response["output"]
    assert [item["type"] for item in calls] == ["function_call", "function_call"]
    assert sealed_members(thought["encrypted_content"]) == {"content": [], "extra_content": {"c": SIGNED, "d": SIGNED}}


@pytest.mark.parametrize("first", [[signed("web_search", None)], [call(0, "c", "web_search"), late()]])
def test_that_of_a_call_that_the_gateway_runs_is_sealed_with_the_id_of_its_item(first: list[bytes]) -> None:
    """Because that is the only id of it that a client keeps."""
    pieces = [*first, arguments(0, '{"query": "x"}'), call(1, "d", "docs__delete"), arguments(1, "{}"), late(1)]
    played = play_turns([*pieces, finish("tool_calls")], seal=lambda sealed: sealed)
    output = played.response["output"]
    made = [item["id"] for item in output if item["type"] in ("web_search_call", "mcp_approval_request")]
    sealed = [sealed_members(item["encrypted_content"])["extra_content"] for item in output if item["type"] == "reasoning"]
    assert {key: extra for members in sealed for key, extra in members.items()} == dict.fromkeys(made, SIGNED)


def test_that_of_a_call_which_is_not_permitted_means_nothing() -> None:
    played = play(call(0, "c", "weather", "{"), late(), arguments(0, "}"), finish(), allowed=frozenset())
    assert (played.said, played.translator.repairs.get("extra_content_dropped")) == ([], None)


@pytest.mark.parametrize("thinking", ["shown", "empty", "hidden"])
def test_what_comes_late_is_in_the_signature_of_a_thought_of_the_messages_api(thinking: Any) -> None:
    pieces = [call(0, "c", "weather", '{"a":1}'), late(), finish("tool_calls")]
    message = play_message(*pieces, options=MessageOptions(thinking=thinking))
    tool, *thoughts = message.blocks
    assert "extra_content" not in tool
    if thinking == "hidden":
        assert (thoughts, message.translator.repairs["extra_content_dropped"]) == ([], 1)
    else:
        assert details_in(thoughts[0]["signature"]) == {"extra_content": {tool["id"]: SIGNED}}


def test_a_block_of_the_messages_api_has_it() -> None:
    message = play_message(signed("weather", '{"a":1}'), finish("tool_calls"))
    starts = [event["content_block"] for event in message.events if event["type"] == "content_block_start"]
    assert starts[0]["extra_content"] == SIGNED
