"""Styles of servers that public reports tell of, and neighbours of these: what a client sees of the answer."""

from __future__ import annotations

from typing import Any

import pytest

from responses_gateway.wire.tools import ToolTarget
from tests.stream.stream_player import chunk, event, finish, play, text, think, tool, usage

A = '{"command":"ls"}'
B = '{"path":"a"}'
BASH = ("call", "Bash", A)
READ = ("call", "read", B)
TOOLS = {name: ToolTarget("function", name) for name in ("Bash", "read", "now")}


def entry(name: str | None = None, arguments: Any = None, **told: Any) -> dict[str, Any]:
    return {**told, "function": {"name": name, "arguments": arguments}}


def calls(*entries: Any, **delta: Any) -> bytes:
    return chunk({"tool_calls": list(entries), **delta})


@pytest.mark.parametrize(
    ("pieces", "said"),
    [
        ([calls(entry("Bash", {"command": "ls"}, index=0, id="c"))], [BASH]),
        ([calls(entry("Bash", A, index="0", id="c"))], [BASH]),
        ([calls(entry("Bash", A, index=-1, id="c"))], [BASH]),
        ([calls(entry("Bash", A, index=1000, id="c"))], [BASH]),
        ([calls(entry("Bash", A, index=1, id="c")), calls(entry("read", B, index=2, id="d"))], [BASH, READ]),
        ([calls(entry("Bash", A, index=0, id="c"), entry("read", B, index=0, id="d"))], [BASH, READ]),
        ([calls(entry("Bash", A, index=0, id="c"), entry("read", B, index=1, id="c"))], [BASH, READ]),
        ([calls(entry("Bash", A, index=0, id="")), calls(entry("read", B, index=1, id=""))], [BASH, READ]),
        ([calls(entry("Bash", A, id="c"), entry("read", B, id="d"))], [BASH, READ]),
        ([calls(entry("Bash", "", index=0, id="c")), calls(entry(None, '{"comm')), calls(entry(None, 'and":"ls"}'))], [BASH]),
        ([calls(entry("Bash", '{"comm', index=0, id="c")), calls(entry("Bash", 'and":"ls"}', index=0, id="c"))], [BASH]),
        ([calls(entry("Bash", '{"comm', index=0)), calls(entry(None, 'and":"ls"}', index=0, id="c"))], [BASH]),
        ([calls(entry("Bash", '{"comm', index=0.0, id="c")), calls(entry(None, 'and":"ls"}', index=0.0))], [BASH]),
        ([calls(entry("Bash", A, index=0, id="c")), calls(entry("Bash", A, index=0, id="c"))], [BASH]),
        (
            [
                calls(entry(None, "", index=0, id="c")),
                calls(entry("Bash", "", index=0, id="c")),
                calls(entry(None, A, index=0)),
            ],
            [BASH],
        ),
        ([calls(entry("Ba", "", index=0, id="c")), calls(entry("sh", "", index=0)), calls(entry(None, A, index=0))], [BASH]),
        ([calls({"index": 0, "id": "c", "type": "function"}), calls(entry("Bash", A, index=0))], [BASH]),
        ([calls({"index": 0, "id": "c", "function": None}), calls(entry("Bash", A, index=0))], [BASH]),
        ([calls({}, entry("Bash", A, index=0, id="c"))], [BASH]),
        ([calls(None, entry("Bash", A, index=0, id="c"))], [BASH]),
        ([calls(entry("Bash", '{"comm', index=0, id="c")), text("\n"), calls(entry(None, 'and":"ls"}', index=0))], [BASH]),
        ([calls(entry("Bash", A + "}", index=0, id="c"))], [BASH]),
        ([calls(entry("Bash", A, index=0, id="c"), function_call={"name": "Bash", "arguments": A})], [BASH]),
    ],
)
def test_calls(pieces: list[bytes], said: list[Any]) -> None:
    assert play(*pieces, finish("tool_calls"), tools=TOOLS).said == said


@pytest.mark.parametrize(
    "name",
    [
        "functions.Bash:0",
        "bash",
        "default_api.Bash",
        '"Bash"',
        "Bash()",
        "</think>Bash",
        "<tool_call>\nBash",
        "Bash</tool_call>",
    ],
)
def test_names(name: str) -> None:
    assert play(calls(entry(name, A, index=0, id="c")), finish("tool_calls"), tools=TOOLS).said == [BASH]


LONG = "It is sunny in Rome."


@pytest.mark.parametrize(
    ("pieces", "whole"),
    [
        ([text("It is sunny"), text(" in Rome."), chunk({"content": LONG}, "stop")], LONG),
        ([text(LONG), chunk({"content": ""}, "stop"), event({"choices": [{"index": 0, "message": {"content": LONG}}]})], LONG),
        ([text(LONG), finish(), finish()], LONG),
        ([text("It is sunny"), text(" in Rome."), finish(), text(LONG)], LONG),
        ([text(LONG), finish(), text(" More.")], LONG + " More."),
        ([chunk({"content": LONG}, "stop")], LONG),
        ([text("ha"), chunk({"content": "ha"}, "stop")], "haha"),
        ([text(LONG), text(LONG), finish()], 2 * LONG),
        ([text(LONG), chunk({"content": LONG + LONG}, "stop")], 3 * LONG),
    ],
)
def test_a_text_that_comes_again_with_the_end_is_not_said_twice(pieces: list[bytes], whole: str) -> None:
    assert play(*pieces, usage()).said == [("text", whole)]


@pytest.mark.parametrize("end", [finish("tool_calls"), chunk({"content": LONG}, "stop")])
def test_a_text_that_comes_again_with_a_call_is_not_said_twice(end: bytes) -> None:
    made = chunk({"content": LONG, "tool_calls": [tool(0, "a", "clock", "{}")]})
    assert play(text("It is sunny"), text(" in Rome."), made, end).said == [("text", LONG), ("call", "clock", "{}")]


def test_nor_is_one_while_a_call_waits_for_one_without_arguments() -> None:
    made = [tool(0, "a", "clock", "{}"), tool(1, "b", "weather", B)]
    played = play(think(LONG), text(LONG), chunk({"tool_calls": made}), chunk({"reasoning": LONG, "content": LONG}, "stop"))
    assert played.said == [("reasoning", LONG), ("text", LONG), ("call", "clock", "{}"), ("call", "weather", B)]


def test_what_waits_is_not_said_already() -> None:
    made = chunk({"tool_calls": [tool(0, "a", "clock", "{}")]})
    played = play(text(LONG), made, text(" More."), chunk({"content": LONG}, "stop"))
    assert played.said == [("text", LONG), ("call", "clock", "{}"), ("text", " More." + LONG)]


def test_a_text_behind_another_thought_is_said_again() -> None:
    played = play(text(LONG), think("hm"), chunk({"content": LONG}, "stop"))
    assert played.said == [("text", LONG), ("reasoning", "hm"), ("text", LONG)]


@pytest.mark.parametrize(
    "sign",
    [
        b"data: \n\n", b"data: null\n\n", b"data: {}\n\n", b"data: []\n\n", b"data: true\n\n", b'data: ""\n\n', b"id: 5\n\n",
        b": x\n\n", b"retry: 100\n\n", b"data: ping\n\n", b"data: [KEEPALIVE]\n\n", b"data: OPENROUTER PROCESSING\n\n",
        b'event: ping\ndata: {"type":"ping"}\n\n', b'data: {"choices":null}\n\n', b'data: {"choices":[null]}\n\n',
        b'data: {"choices":[{}]}\n\n', b'data: {"choices":[{"delta":null}]}\n\n', b'data: {"error":null}\n\n',
        b'data: {"error":""}\n\n', b'data: {"status":"processing"}\n\n', b'data: {"message":"warming up"}\n\n',
        b'data: {"code":0,"msg":"ok"}\n\n', b'data: {"prompt_progress":{"total":5,"processed":2}}\n\n',
        b'data: {"object":"prompt.progress","progress":0.5}\n\n', b'data: {"choices":[],"prompt_filter_results":[{}]}\n\n',
    ],
)  # fmt: skip
def test_events_that_hold_nothing(sign: bytes) -> None:
    played = play(sign, text("It"), sign, text(" is."), finish(), sign, usage())
    assert (played.said, played.response["status"]) == ([("text", "It is.")], "completed")
