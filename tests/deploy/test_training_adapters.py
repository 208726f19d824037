"""The adapters for trainers, on a rollout of the simulator, and against the frameworks' own types where these are installed."""

from __future__ import annotations

import asyncio
import importlib.util
from pathlib import Path
from types import ModuleType
from typing import Any

import aiohttp
import pytest

from tests.server.running_gateway import run, simulated

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
    records = nemo_gym.records(nemo_gym.chain_to(calls, last))
    assert [record["generation_token_ids"] for record in records] == [call["generation_token_ids"] for call in calls]
    with pytest.raises(ValueError, match="no_token_ids"):
        nemo_gym.records([{**calls[0], "generation_log_probs": None, "reason": "no_token_ids"}])


def test_verifiers_gets_the_tokens_of_steps() -> None:
    calls, _ = rollout()
    verifiers = adapter("verifiers")
    [first, second] = verifiers.steps([*calls, {**calls[0], "kind": "title"}])
    assert first["prompt_ids"] == calls[0]["prompt_token_ids"]
    assert len(second["completion_logprobs"]) == len(second["completion_ids"]) == len(second["completion_mask"])
    longest = len(calls[0]["prompt_token_ids"]) + 1
    cut = verifiers.step_tokens(calls[0], longest)
    assert (len(cut["completion_ids"]), cut["is_truncated"], cut["overlong_prompt"]) == (1, True, False)
    assert verifiers.step_tokens({**calls[0], "prompt_token_ids": None}) is None


def test_rllm_gets_traces() -> None:
    calls, last = rollout()
    traces = adapter("rllm").traces(calls, "ep1")
    assert [trace["trace_id"] for trace in traces] == [call["id"] for call in calls]
    assert traces[-1]["trace_id"] == last
    assert traces[-1]["metadata"]["parent"] == traces[0]["trace_id"]


@pytest.mark.parametrize(("package", "adapter_name"), [("verifiers", "verifiers"), ("nemo_gym", "nemo_gym"), ("rllm", "rllm")])
def test_the_frameworks_own_types_take_what_the_adapters_give(package: str, adapter_name: str) -> None:
    if importlib.util.find_spec(package) is None:
        pytest.skip(f"{package} is not installed: it is too large for the environment of these tests, or not in a registry")
    calls, _ = rollout()
    if package == "verifiers":
        types = importlib.import_module("verifiers.types")
        given = adapter(adapter_name).step_tokens(calls[0])
        assert set(types.TrajectoryStepTokens.__annotations__) <= given.keys()


def test_the_adapters_are_short() -> None:
    for path in FOLDER.glob("*.py"):
        assert len(path.read_text(encoding="utf-8").splitlines()) <= 50, path
