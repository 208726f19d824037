"""`responses-gateway demo`: what is shown of a stream, and the whole of it end to end."""

from __future__ import annotations

import argparse
import io
import json
from typing import Any

import pytest
from rich.console import Console

from responses_gateway.commands import demo
from responses_gateway.conformance.checker import Violation
from responses_gateway.simulator import DIALECTS


def shown(renderable: Any) -> str:
    console = Console(file=io.StringIO(), width=100)
    console.print(renderable)
    text: str = console.file.getvalue()  # type: ignore[attr-defined]
    return text


def transcript(*events: dict[str, Any]) -> demo.DemoTranscript:
    result = demo.DemoTranscript()
    for number, event in enumerate(events):
        result.take(event, number / 10)
    return result


EVENTS: list[dict[str, Any]] = [
    {"type": "response.created"},
    {"type": "response.output_item.added", "item": {"type": "reasoning"}},
    {"type": "response.reasoning_text.delta", "delta": "Thinking."},
    {"type": "response.reasoning_summary_text.delta", "delta": "Thinking."},
    {"type": "response.output_item.done", "item": {"type": "reasoning"}},
    {"type": "response.output_item.added", "item": {"type": "message"}},
    {"type": "response.output_text.delta", "delta": "Some **bold** words."},
    {"type": "response.output_item.done", "item": {"type": "message"}},
    {"type": "response.output_item.added", "item": {"type": "function_call", "name": "get_weather"}},
    {"type": "response.function_call_arguments.delta", "delta": '{"city":'},
    {"type": "response.function_call_arguments.delta", "delta": ' "Paris"}'},
]
USAGE = {"input_tokens": 10, "output_tokens": 20, "output_tokens_details": {"reasoning_tokens": 5}}
COMPLETED = {"type": "response.completed", "response": {"usage": USAGE}}


def test_reasoning_text_and_call_are_shown_in_their_order() -> None:
    text = shown(transcript(*EVENTS).render())
    assert text.count("Thinking.") == 1  # the summary mirrors it
    assert "Some bold words." in text
    assert '"city": "Paris"' in text
    assert text.index("Thinking") < text.index("bold") < text.index("get_weather")


def test_a_call_is_shown_while_it_is_still_on_its_way() -> None:
    assert '{"city":' in shown(transcript(*EVENTS[:-1]).render())


def test_the_summary_counts_tokens_times_and_events() -> None:
    text = " ".join(shown(transcript(*EVENTS, COMPLETED).summary([])).split())
    assert "10 tokens in, 20 out (5 reasoning) · first token 200 ms · 1.1 s · 12 events" in text
    assert text.endswith("response.completed · invariants: ok")


def test_the_summary_names_broken_laws_and_a_missing_end() -> None:
    text = " ".join(shown(transcript(*EVENTS).summary([Violation("sequence", 3, "4 after 2")])).split())
    assert text.endswith("no terminal event · invariants: sequence: 4 after 2")


# But those of servers that leave calls out, or leave their markup to clients that know nothing of it.
WITH_CALLS = [name for name, kind in DIALECTS.items() if not kind.swallows_calls and "calls" not in kind.unparsed]


@pytest.mark.parametrize("dialect", sorted(WITH_CALLS))
def test_the_demo_plays_through_the_gateway_and_ends_well(dialect: str, capsys: pytest.CaptureFixture[str]) -> None:
    pytest.importorskip("responses_gateway.server.app", reason="the gateway's application is not there yet")
    parser = argparse.ArgumentParser()
    demo.add_arguments(parser)
    status = demo.run(parser.parse_args(["--tokens-per-second", "0", "--dialect", dialect]))
    out = " ".join(capsys.readouterr().out.split())
    assert status == 0, out
    assert "invariants: ok" in out
    assert json.dumps("Paris") in out
    assert "get_weather" in out
