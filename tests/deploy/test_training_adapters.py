"""The adapters for trainers, on a rollout of the simulator, and against the frameworks' own types where these are installed."""

from __future__ import annotations

import asyncio
import importlib.util
import json
from pathlib import Path
from types import ModuleType
from typing import Any

import aiohttp
import pytest

from tests.server.running_gateway import run, simulated
from tests.trainers.checks import FRAMEWORKS, Framework, check, episode, python_of

FOLDER = Path(__file__).parents[2] / "deploy" / "training"


def adapter(name: str) -> ModuleType:
    spec = importlib.util.spec_from_file_location(f"training_{name}", FOLDER / f"{name}.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def rollout() -> tuple[list[dict[str, Any]], str]:
    """Return the calls of a rollout of two turns as `fetch` reads them, and the id of its last response."""
    read: list[tuple[list[dict[str, Any]], str]] = []

    async def test() -> None:
        async with simulated(store="memory") as served, aiohttp.ClientSession() as session:
            previous = None
            for text in ("hi", "go on"):
                body = {"model": "simulator", "input": text, "previous_response_id": previous}
                async with session.post(f"{served.url}/rollouts/ep1/v1/responses", json=body) as answer:
                    previous = (await answer.json())["id"]
            calls = await asyncio.to_thread(adapter("nemo_gym").fetch, served.url, "ep1")
            read.append((calls, str(previous)))

    run(test())
    return read[0]


def test_nemo_gym_gets_one_chain_of_records() -> None:
    calls, last = rollout()
    nemo_gym = adapter("nemo_gym")
    entries = nemo_gym.entries(calls, "ep1")
    assert [entry["generation_token_ids"] for entry in entries] == [call["generation_token_ids"] for call in calls]
    assert [entry["model_call_id"] for entry in entries][-1] == last
    # What begins with other tokens than its parent is the root of a chain.
    other = {**calls[1], "prompt_token_ids": [1, 2, 3]}
    roots = [entry["parent_resolution"] for entry in nemo_gym.entries([calls[0], other], "ep1")]
    assert roots == ["root", "root"]
    # A call that its agent has left, and asked again, is no part of any.
    left = {**calls[0], "id": "left", "generation_log_probs": None, "reason": "client_left"}
    assert nemo_gym.entries([left, *calls], "ep1") == entries
    with pytest.raises(ValueError, match="no_token_ids"):
        nemo_gym.entries([{**calls[0], "generation_log_probs": None, "reason": "no_token_ids"}], "ep1")


def test_verifiers_gets_the_tokens_of_turns() -> None:
    calls, _ = rollout()
    verifiers = adapter("verifiers")
    turns = verifiers.turns([*calls, {**calls[0], "id": "title", "kind": "title"}])
    assert list(turns) == [call["id"] for call in calls]
    [first, second] = turns.values()
    assert first["prompt_ids"] == calls[0]["prompt_token_ids"]
    assert len(second["completion_logprobs"]) == len(second["completion_ids"])
    assert verifiers.turn_tokens({**calls[0], "generation_log_probs": None}) is None


def test_rllm_gets_traces() -> None:
    calls, last = rollout()
    traces = adapter("rllm").traces(calls, "ep1")
    assert [trace["trace_id"] for trace in traces] == [call["id"] for call in calls]
    assert traces[-1]["trace_id"] == last
    assert traces[-1]["metadata"]["parent"] == traces[0]["trace_id"]


@pytest.mark.parametrize("framework", FRAMEWORKS, ids=lambda framework: framework.package)
def test_the_frameworks_own_types_take_what_the_adapters_give(framework: Framework, tmp_path: Path) -> None:
    if not python_of(framework).exists():
        pytest.skip(f"{framework.package} is not installed: `make trainers` does that")
    file = tmp_path / "episode.json"
    file.write_text(json.dumps(episode()), encoding="utf-8")
    _, problem = check(framework, file)
    assert problem == ""


def test_the_adapters_are_short() -> None:
    for path in FOLDER.glob("*.py"):
        assert len(path.read_text(encoding="utf-8").splitlines()) <= 50, path
