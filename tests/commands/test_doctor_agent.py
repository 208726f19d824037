"""`responses-gateway doctor --agent`: how well a model behaves in its turns, and servers that ignore tools."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from responses_gateway.commands.agent_tasks import TASKS
from responses_gateway.commands.agent_trial import play_tasks
from responses_gateway.simulator import WeakModel
from tests.commands.doctor_report import examine, report, server


@pytest.mark.slow
def test_a_weak_model_is_told_what_helps(capsys: pytest.CaptureFixture[str]) -> None:
    assert examine("--agent", weak=WeakModel(3, {"finish_without_call": 40, "stringified": 60})) == 0
    shown = capsys.readouterr()
    assert "How well does this model behave?" in shown.out
    assert "finish_without_call" in shown.out
    assert "continue_early_ends: certain" in shown.out
    assert "repair_calls: safe" in shown.out
    assert shown.err.count("testing: task ") == len(TASKS) == 20


@pytest.mark.slow
def test_a_server_that_ignores_tools_is_named() -> None:
    def change(body: dict[str, Any]) -> None:
        body.pop("tools", None)
        body.pop("tool_choice", None)

    found = report("--agent", change=change)
    assert found.status == 1
    assert "The server ignores tools" in found.said("error")
    assert "The server ignores tool_choice: required, a named function." in found.said("warning")


def test_a_model_that_is_too_slow_is_told() -> None:
    async def test() -> None:
        async with server(first_token_seconds=60) as url:
            settings = {"backend": [url]}
            outcomes = await play_tasks(settings, model="m", api_key=None, answer_timeout=0.001, tell=lambda _: None)
        assert [outcome.problem for outcome in outcomes] == [f"{task.name}: TimeoutError" for task in TASKS]

    asyncio.run(test())


def test_it_needs_a_backend(capsys: pytest.CaptureFixture[str]) -> None:
    assert examine("--agent", "--config", "none.yaml") == 2
    assert "--agent examines a backend: leave out --gateway and --config" in capsys.readouterr().err
