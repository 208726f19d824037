"""`responses-gateway doctor` on slow servers: an answer that goes on is not broken, and the speed is reported."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Callable
from typing import Any

import pytest
from aiohttp import web

from responses_gateway.probing import prober
from responses_gateway.probing.diagnosis import findings
from responses_gateway.probing.profile import Profile, Times
from tests.commands.doctor_report import report

_CALL = {"index": 0, "id": "call_1", "function": {"name": "get_weather", "arguments": '{"city": "'}}
_MORE = {"index": 0, "function": {"arguments": "x"}}


def _chunk(call: dict[str, Any]) -> bytes:
    return f"data: {json.dumps({'choices': [{'index': 0, 'delta': {'tool_calls': [call]}}]})}\n\n".encode()


async def _endless_call() -> AsyncIterator[bytes]:
    yield _chunk(_CALL)
    while True:
        yield _chunk(_MORE)
        await asyncio.sleep(0.01)


async def _call_that_stops() -> AsyncIterator[bytes]:
    yield _chunk(_CALL)
    await asyncio.Event().wait()


async def _endless_comments() -> AsyncIterator[bytes]:
    while True:
        yield b": still working\n\n"
        await asyncio.sleep(0.01)


def _first_call(make: Callable[[], AsyncIterator[bytes]]) -> Callable[[dict[str, Any]], web.Response | None]:
    """Answer the first question that needs a tool in this way."""
    answered: list[bool] = []

    def change(body: dict[str, Any]) -> web.Response | None:
        if not body.get("stream") or "tools" not in body or answered:
            return None
        answered.append(True)
        return web.Response(body=make(), content_type="text/event-stream")

    return change


def test_a_server_that_takes_longer_than_the_timeout_is_slow_and_works() -> None:
    def change(body: dict[str, Any]) -> None:
        if "five words" in body["messages"][0]["content"]:  # only this answer is slow, so that the test is not
            body["messages"][0]["content"] = "tokens: 13, tps: 3"

    found = report("--timeout", "3", change=change)
    assert (found.status, found.verdict) == (0, "works")
    assert found.said("error") == ""
    assert found.said("warning").startswith("slow: ")
    assert 1 < found.profile["times"]["tokens_per_second"] < 6
    assert found.profile["times"]["prompt_tokens_per_second"] > 0


def test_a_fast_server_is_not_called_slow() -> None:
    assert "slow" not in report().said("warning")


def test_an_endless_answer_is_cut_and_that_is_not_the_server_s_fault(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(prober, "WHOLE_ANSWER", 0.05)
    found = report("--timeout", "30", change=_first_call(_endless_call))
    assert (found.status, found.verdict) == (0, "works")
    assert found.profile["times"]["unfinished"] == ["calls"]
    assert found.profile["calls"] == "parsed"
    assert "cut off answers that were still coming: calls." in found.said("note")
    assert found.said("warning") == ""  # not of the arguments that were cut, either


def test_comments_alone_are_no_answer(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(prober, "WHOLE_ANSWER", 0.05)
    found = report("--timeout", "30", change=_first_call(_endless_comments))
    assert found.status == 1
    assert "nothing came within 1.5 seconds (calls)" in found.said("error")


def test_an_answer_that_stops_in_the_middle_is_broken_and_its_arguments_are_not_judged() -> None:
    found = report("--timeout", "1", change=_first_call(_call_that_stops))
    assert found.status == 1
    assert "nothing came within 1 seconds (calls)" in found.said("error")
    assert "JSON object" not in found.said("warning")


@pytest.mark.parametrize(
    ("reading", "said"),
    [
        (
            50.0,
            "Codex's first prompt (10,000 tokens) about 3 minutes, Claude Code's first prompt (16,000 tokens) about 5 minutes",
        ),
        (200.0, "Codex's first prompt (10,000 tokens) about 50 seconds"),
        (10_000.0, "Coding agents need"),
        (None, "Coding agents need"),
    ],
)
def test_a_slow_server_s_warning_tells_how_long_agents_will_wait(reading: float | None, said: str) -> None:
    profile = Profile("http://b/v1", times=Times(tokens_per_second=6.04, prompt_tokens_per_second=reading))
    (slow,) = (finding for finding in findings(profile) if finding.text == "slow: 6 tokens/s.")
    assert slow.level == "warning"
    assert said in slow.advice
    assert ("first prompt" in slow.advice) is ("first prompt" in said)
