"""Pieces of calls that come without what would tell whose they are: where there is one way to read them, that is the call;
where there are two, no call is handed over as complete, because a client would run it."""

from __future__ import annotations

from typing import Any

import pytest

from tests.stream.stream_player import finish, play
from tests.stream.test_reported_styles import TOOLS, calls, entry

ARGUMENTS = '{"command":"ls"}'


@pytest.mark.parametrize(
    ("chunks", "said"),
    [
        ([[entry(None, " ")], [entry("now")]], [("call", "now", " {}")]),
        ([[entry("sh", "")], [entry(None, "{}", index=0)]], [("call", "sh", "{}")]),
        ([[entry("Ba", " ")], [entry("Bash")]], [("call", "Bash", " {}")]),
        ([[entry("Bash", '{"comm')], [entry(None, 'and":"ls"}', index=0)]], [("call", "Bash", ARGUMENTS)]),
        ([[entry('Bash{"command":"ls"}', "", index=0, id="a")]], [("call", "Bash", ARGUMENTS)]),
        (
            [
                [entry("Bash", "", index=0, id="a")],
                *([entry(None, ARGUMENTS[at : at + 4], index=1 + at)] for at in range(0, 16, 4)),
            ],
            [("call", "Bash", ARGUMENTS)],
        ),
        (
            [
                [entry("Bash", '{"comm', index=0, id="a"), entry("now", "", index=1, id="b")],
                [entry(None, 'and":"ls"}', index=2)],
            ],
            [("call", "Bash", ARGUMENTS), ("call", "now", "{}")],
        ),
    ],
    ids=[
        "arguments, then a name",
        "a name, then arguments at an index",
        "a name, then all of it",
        "pieces",
        "in the name",
        "another index for each piece",
        "an end beside a call that has nothing",
    ],
)
def test_what_can_only_be_one_call_is_it(chunks: list[list[Any]], said: list[Any]) -> None:
    assert play(*[calls(*entries) for entries in chunks], finish("tool_calls"), tools=TOOLS).said == said


@pytest.mark.parametrize(
    "chunks",
    [
        [[entry("now", "", id="a"), entry(None, "{}", index=1)], [entry("now", "{}", id="a")]],
        [[entry("Ba", "{}")], [entry("Ba", '{"comm')]],
        [[entry(None, '{"comm', index=0, id="b"), entry("Ba", "", index=0, id="a")]],
        [[entry(None, '{"comm', id="a")], [entry("read", "{}", index=0, id="a")]],
        [
            [entry("Bash", "{}", id="b")],
            [entry("read", "{}", index=2, id="b")],
            [entry(None, ARGUMENTS, index=0, id="b")],
        ],
        [[entry("Bash", "", index=0), entry(None, '{"comm', index=2)], [entry(None, None), entry(None, '{"path":"a"}')]],
        [[entry(None, "")], [entry(None, 'and":"ls"}', index=2)], [entry("Bash", " ", index=2)]],
        [[entry("now", "{}", index=0)], [entry("sh", " ")], [entry(None, "{}", index=1)]],
        [[entry(None, "{}")], [entry("Bash", "{}", index=0), entry(None, '{"comm', index=0)]],
        [[entry("Ba", "")], [entry(None, '{"comm', index=1)]],
    ],
    ids=[
        "an id and an index",
        "a name twice",
        "an index with two ids",
        "an id with two objects",
        "one id for two calls",
        "entries that tell their place alone",
        "arguments before and behind the name",
        "an index that nobody had",
        "arguments before the name and at its index",
        "a beginning of a name, and of arguments",
    ],
)
def test_what_may_be_either_of_two_calls_is_neither(chunks: list[list[Any]]) -> None:
    said = play(*[calls(*entries) for entries in chunks], finish("tool_calls"), tools=TOOLS).said
    assert said
    assert [one for one in said if one[0] == "call" and len(one) == 3 and one[2] in ("{}", ARGUMENTS)] == []
