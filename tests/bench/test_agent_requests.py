"""The requests of an agent that the benchmark sends."""

from __future__ import annotations

import itertools
import json

import pytest

from bench.agent import SESSION, SIZES, TURNS, growing
from bench.agent_requests import TOOLS, Door, body, history
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
