"""A call that is only shown, in quotes or code, is no call, however the text is cut."""

from __future__ import annotations

import pytest

from responses_gateway.parsers import marked_call, parser
from responses_gateway.wire.deltas import Reasoning, Text, ToolCall

CALL = '<tool_call>{"name": "run", "arguments": {"cmd": "rm -r x"}}</tool_call>'


@pytest.mark.parametrize(
    ("text", "calls"),
    [
        (f"It writes `{CALL}` for that.", 0),
        (f'It writes "{CALL}" for that.', 0),
        (f"It writes ('{CALL}').", 0),
        (f"> {CALL}\n\nThat is the log.", 0),
        (f"```\n{CALL}\n```\nThat is it.", 0),
        (f"`a` and `{CALL}`", 0),
        (f"````\n```\n{CALL}\n```\n````\nThat is it.", 0),
        (f"~~~\n```\n{CALL}\n```\n~~~\nThat is it.", 0),
        (f"- ````md\n  ```\n{CALL}\n  ````", 0),
        (f"```npm install```\n{CALL}", 1),
        (f"1. ```a``` and `b`\n{CALL}", 1),
        (f"````md\n```\nx\n````\n{CALL}", 1),
        (f"```sh\n~~~\n```\n{CALL}", 1),
        (f"```md\n```py\nx\n```\n```\n{CALL}", 1),
        (f"I use `ls`{CALL}", 1),
        (f'I say "ls"{CALL}', 1),
        (f"It's time.{CALL}", 1),
        (f"> so it says\n{CALL}", 1),
        (CALL, 1),
    ],
)
@pytest.mark.parametrize("thinking", [False, True])
@pytest.mark.parametrize("size", [1, 3, 1000])
def test_quoted_calls(text: str, calls: int, thinking: bool, size: int) -> None:
    reading = parser("qwen3", "hermes", schemas={"run": {}}, thinking_open=thinking)
    deltas = [delta for at in range(0, len(text), size) for delta in reading.feed(text[at : at + size])]
    deltas += reading.finish("stop")
    assert sum(type(delta) is ToolCall for delta in deltas) == calls
    if not calls:
        assert "".join(delta.text for delta in deltas if isinstance(delta, Text | Reasoning)) == text


FUNCTION = "<function=run>\n<parameter=cmd>\nrm -r x\n</parameter>\n</function>"
BLOCK = f"<tool_call>\n{FUNCTION}\n</tool_call>"


@pytest.mark.parametrize("shown", [FUNCTION, BLOCK, f"{BLOCK}\n{BLOCK}"])
@pytest.mark.parametrize(
    ("before", "behind"), ["``", '""', "''", "“”", ("``` ", " ```"), ("\n```xml\n", "\n```"), ("- ```\n", "\n```")]
)
@pytest.mark.parametrize("size", [1, 3, 1000])
def test_quoted_functions(shown: str, before: str, behind: str, size: int) -> None:
    text = f"It writes {before}{shown}{behind} then.\n" if before != "- ```\n" else f"{before}{shown}{behind}\n"
    for follows, calls in ((text, 0), (text + BLOCK, 1)):
        reading = parser(None, "qwen3_coder", schemas={"run": {}})
        deltas = [delta for at in range(0, len(follows), size) for delta in reading.feed(follows[at : at + size])]
        deltas += reading.finish("stop")
        assert "".join(delta.text for delta in deltas if isinstance(delta, Text)) == text
        assert sum(type(delta) is ToolCall for delta in deltas) == calls


@pytest.mark.parametrize(
    ("text", "found"),
    [
        (f"So:\n{CALL}", "whole"),
        (f"So:\n{CALL}\n", "whole"),
        (f"So: `{CALL}`", "none"),
        (f"So:\n{CALL}\nand then?", "none"),
        ("So:\n" + CALL.replace("run", "other"), "none"),
        ("So:\n" + CALL[:50], "cut"),
        ("So: <tool_call>", "cut"),
        ("So: <function=run>\n<parameter=cmd>\nls\n</parameter>\n</function>", "whole"),
        ("Nothing.", "none"),
    ],
)
def test_a_text_that_ends_with_a_call(text: str, found: str) -> None:
    assert marked_call(text, {"run"}) == found
