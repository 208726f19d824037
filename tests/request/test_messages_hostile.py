"""Bodies of the Messages API with wrong values anywhere: each is accepted, or refused by the name of the client's field."""

from __future__ import annotations

import copy
import random
from collections.abc import Iterator
from typing import Any

import pytest

from responses_gateway.request import Policy, translate
from responses_gateway.request.tools.hosted_tools import HostedTools
from responses_gateway.wire.errors import ApiError
from responses_gateway.wire.messages import error_of
from tests.request.chat_rules import complaints
from tests.request.messages_bodies import (
    PNG,
    TOOL,
    Fields,
    assistant,
    body_of,
    call,
    reading_of,
    result,
    system,
    text,
    thought,
    user,
)

VALUES: list[Any] = [
    None,
    True,
    0,
    -1,
    1.5,
    "",
    "x",
    "a" * 70,
    [],
    {},
    [None],
    [{}],
    {"type": "text"},
    {"type": 1},
    "tool_result",
]
POLICIES = [Policy(), Policy(late_developer="system"), Policy(strict=True), Policy(url_inputs="public")]
CAN_SEARCH = HostedTools(frozenset({"web_search"}))
DOCUMENT: Fields = {"type": "document", "title": "t", "source": {"type": "text", "data": "d"}}
FOUND: Fields = {"type": "search_result", "title": "a", "source": "b", "content": [text("c")]}
ASKED: Fields = {"type": "server_tool_use", "id": "s", "name": "web_search", "input": {"query": "q"}}
SHOWN: Fields = {"type": "web_search_result", "url": "u", "title": "t", "encrypted_content": "eA=="}
BODY = body_of(
    user(text("hi", cache_control={"type": "ephemeral"}), DOCUMENT, FOUND, PNG),
    system([text("late")]),
    assistant(thought("so"), "well", call("a", x=1), call("b")),
    user(
        result("b", [text("B"), PNG, {"type": "tool_reference", "tool_name": "Later"}]), result("a", is_error=True), text("on")
    ),
    system("again"),
    assistant(ASKED, {"type": "web_search_tool_result", "tool_use_id": "s", "content": [SHOWN]}, "found"),
    user("z"),
    system=[text("x-anthropic-billing-header: y"), text("You help.")],
    tools=[
        TOOL,
        {**TOOL, "name": "Later", "defer_loading": True},
        {"type": "web_search_1", "name": "web_search", "max_uses": 2},
    ],
    tool_choice={"type": "tool", "name": "Bash", "disable_parallel_tool_use": True},
    thinking={"type": "enabled", "budget_tokens": 5, "display": "omitted"},
    output_config={"effort": "low", "format": {"type": "json_schema", "schema": {}}},
    stop_sequences=["x"],
    top_k=3,
    metadata={"user_id": "u"},
    context_management={"edits": [{"type": "clear_thinking_20251015"}]},
)


def places(value: Any, path: tuple[str | int, ...] = ()) -> Iterator[tuple[str | int, ...]]:
    if path:
        yield path
    entries = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for name, entry in entries:
        yield from places(entry, (*path, name))


def garbled(chance: random.Random) -> Fields:
    """Return the body with up to three values replaced, or taken out."""
    body = copy.deepcopy(BODY)
    for _ in range(chance.choice([1, 1, 2, 3])):
        *parents, last = chance.choice(list(places(body)))
        owner: Any = body
        for parent in parents:
            owner = owner[parent]
        if chance.random() < 0.2:
            del owner[last]
        else:
            owner[last] = copy.deepcopy(chance.choice(VALUES))
    return body


@pytest.mark.parametrize("seed", range(4))
def test_a_garbled_body_is_accepted_or_refused_in_the_words_of_the_client(seed: int) -> None:
    chance = random.Random(seed)
    accepted = 0
    for _ in range(300):
        policy = chance.choice(POLICIES)
        reading = None
        try:
            reading = reading_of(garbled(chance), policy, CAN_SEARCH.kinds)
            chat = translate(reading.request, reading.policy, hosted=CAN_SEARCH).body
        except ApiError as error:
            told = error if reading is None else reading.places.error(error)
            assert told.status == 400
            assert "input[" not in error_of(told)[2]
            continue
        assert complaints(chat) == []
        accepted += 1
    assert accepted > 20


def test_a_long_row_of_results_and_system_messages_takes_no_longer_than_its_length() -> None:
    """Look at each result once: ten thousand of each would take minutes otherwise."""
    many = 4000
    calls = [call(f"c{number}") for number in range(many)]
    results = [result(f"c{number}") for number in range(many)]
    body = body_of(user("x"), assistant(*calls), user(*results), *[system("s")] * many)
    reading = reading_of(body)
    assert len(reading.request.input or ()) == 2 * many + 1
    last = reading.request.input[-1]
    assert isinstance(last, dict)
    assert len(last["output"]) == many + 1


def test_a_place_that_no_body_has_is_named_as_a_backend_names_it() -> None:
    for param in (f"tools[{'9' * 5000}]", f"input[0].content[{'9' * 5000}]"):
        said = reading_of(BODY).places.error(ApiError(400, "No.", param=param, quoted=True)).param or ""
        assert said.endswith(f"[{'9' * 5000}]")
