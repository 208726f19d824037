"""Anthropic's Python SDK: each test looks at the deed of its name in `anthropic_python.py`. Its accumulator reads recorded
streams as the gateway writes them."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from tests.clients.client_programs import ANTHROPIC, NOT_INSTALLED, Output, run
from tests.stream.message_player import Block, Message, comparable, message_bytes, read_message, translator_of
from tests.stream.stream_player import DONE, arguments, call, finish, text, think, usage
from tests.stream.test_recorded_streams import recordings

PROGRAM = "anthropic_python.py"
PLAIN = "A plain answer to “scenario: plain”."


def test_nothing_is_complained_about(output: Output) -> None:
    assert output.errors == []


def test_whole(got: Any) -> None:
    assert (got["text"], got["reason"]) == (PLAIN, "end_turn")
    assert got["request_id"].startswith("req_")


def test_stream(got: Any) -> None:
    assert {"message_start", "thinking", "signature", "text", "message_stop"} <= set(got["kinds"])
    assert "17 × 23" in got["thought"]
    assert (got["signed"], got["text"]) == (True, "The answer is **391**.")


def test_text_stream(got: Any) -> None:
    assert got["text"] == got["final"] == PLAIN


def test_no_thought(got: Any) -> None:
    assert got["kinds"] == ["text"]


def test_tools(got: Any) -> None:
    assert got["steps"] == [[["get_weather", {"city": "Rome"}], ["get_weather", {"city": "Lima"}]], []]
    assert got["ids"] == got["unique"] == 2
    assert "22 degrees" in got["text"]


def test_tool_runner(got: Any) -> None:
    assert got["calls"] == [["get_weather", {"city": "Rome"}], ["get_weather", {"city": "Lima"}]]
    assert "22 degrees in Rome" in got["text"]


def test_cut(got: Any) -> None:
    assert got["reason"] == "max_tokens"


def test_count(got: Any) -> None:
    assert got["counted"] == got["prompt"] > 0


def test_models(got: Any) -> None:
    assert (got["ids"], got["more"]) == (["simulator"], False)


def test_broken(got: Any) -> None:
    assert (got["raised"], got["type"]) == ("APIStatusError", "api_error")


def test_invalid(got: Any) -> None:
    assert (got["raised"], got["type"]) == ("BadRequestError", "invalid_request_error")


def test_busy(got: Any) -> None:
    assert (got["raised"], got["type"]) == ("OverloadedError", "overloaded_error")


def test_too_long(got: Any) -> None:
    assert "prompt is too long: 131073 tokens > 131072 maximum" in got["message"]


# ---- its accumulator ---------------------------------------------------------------------------------------------------


def streams() -> list[Message]:
    """Return every ninth recorded stream, and streams that are cut, that break, or whose calls overlap."""
    bodies = [[recording.data] for recording in recordings()[::9]]
    counts = usage(prompt_tokens=9, completion_tokens=5, prompt_tokens_details={"cached_tokens": 4})
    begun = [think("hm"), call(0, "call_0", "weather", '{"ci')]
    bodies += [
        [*begun, call(1, "call_0", "clock", "{}"), arguments(0, 'ty":"Oslo"}'), finish("tool_calls"), counts, DONE],
        [*begun, finish("length"), counts, DONE],
        [text("x"), finish("content_filter"), DONE],
        [finish(), DONE],
        begun,
        [text("half a sent")],
        [],
    ]
    return [read_message(message_bytes(body, tools={}), translator_of()) for body in bodies]


def seen(block: Block) -> tuple[Any, ...]:
    """Return what a user sees of a block; of the input of a cut call only the SDK knows what it makes."""
    if block["type"] == "tool_use":
        return block["id"], block["name"], block["input"] if isinstance(block["input"], dict) else None
    return block["type"], block.get("text", block.get("thinking")), block.get("signature")


def test_the_accumulator_makes_of_every_stream_what_it_says(tmp_path: Path) -> None:
    if not ANTHROPIC.exists():
        pytest.skip(NOT_INSTALLED)
    messages = streams()
    (tmp_path / "streams.json").write_text(json.dumps([message.data.decode() for message in messages]))
    read = json.loads(run("anthropic_accumulator.py", str(tmp_path / "streams.json")).text)
    assert sum(message.reason is None for message in messages) == 3
    for message, found in zip(messages, read, strict=True):
        if message.reason is None:
            assert found == {"raised": "APIStatusError", "type": "api_error"}
            continue
        expected = [seen(block) for block in comparable(message.blocks)]
        cut = message.reason == "max_tokens"
        got = [seen(block) for block in found["content"]]
        assert [(*block[:2], None) if cut else block for block in got] == [
            (*block[:2], None) if cut else block for block in expected
        ]
        told = message.ending["usage"]
        assert (found["stop_reason"], found["usage"]) == (message.reason, [told["input_tokens"], told["output_tokens"]])
