"""The requests of an agent that the benchmark sends."""

from __future__ import annotations

import itertools
import json
from xml.etree import ElementTree

import pytest

from bench.agent import SESSION, SIZES, TURNS, growing, growth
from bench.agent_requests import TOOLS, Door, body, history
from bench.growth_picture import picture
from responses_gateway.request import Policy, translate
from responses_gateway.request.messages import read_messages
from responses_gateway.wire.messages import parse_messages
from responses_gateway.wire.requests import parse_request


@pytest.mark.parametrize("name", SIZES)
@pytest.mark.parametrize("door", ["responses", "messages"])
def test_a_turn_is_as_large_as_it_is_called_and_is_translated_without_a_loss_of_items(name: str, door: Door) -> None:
    items, size = SIZES[name]
    request = body(door, history(items, size, 1), 1)
    assert 0.8 * size < len(request) < 1.1 * size
    read = read_messages(parse_messages(request), "m", Policy()).request if door == "messages" else parse_request(request)
    assert isinstance(read.input, list)
    assert len(read.input) == items
    chat = translate(read)
    assert len(chat.body["tools"]) == TOOLS
    assert not [loss for loss in chat.losses if loss.kind == "item" and loss.outcome != "preserved"]


def test_each_request_begins_with_something_else_but_a_session_is_one_that_grows() -> None:
    one = history(*SESSION, seed=1)
    assert one == history(*SESSION, seed=1)
    assert one[0] != history(*SESSION, seed=2)[0]
    turns = growing(one)
    assert len(turns) == TURNS
    assert turns[-1] == one
    assert all(later[: len(earlier)] == earlier for earlier, later in itertools.pairwise(turns))
    assert json.loads(body("responses", turns[3], 1))["input"] == turns[3]


def test_the_mark_for_the_cache_of_anthropic_moves_from_turn_to_turn() -> None:
    turns = [json.loads(body("messages", turn, 1))["messages"] for turn in growing(history(*SESSION, seed=1))]
    for earlier, later in itertools.pairwise(turns):
        assert [block["type"] for block in earlier[-1]["content"]] == ["tool_result"]
        marked = [message for message in later if any("cache_control" in block for block in message["content"])]
        assert marked == [later[-1]]
        assert later[: len(earlier) - 1] == earlier[:-1]
        assert later[len(earlier) - 1] != earlier[-1]


def test_the_picture_has_a_line_for_each_target_with_the_median_of_each_turn() -> None:
    lines = growth(
        [{"relay": [1000.0, 2000.0], "messages": [3000.0, 4000.0]}, {"relay": [3000.0, 2000.0], "messages": [5000.0, 4000.0]}]
    )
    assert lines == {"relay": [2.0, 2.0], "messages": [4.0, 4.0]}
    drawn = ElementTree.fromstring(picture(lines, "a < b"))
    shapes = [shape.tag.rpartition("}")[2] for shape in drawn]
    assert shapes.count("polyline") == 2
    assert {shape.text for shape in drawn} > {"a < b", "relay", "messages"}
