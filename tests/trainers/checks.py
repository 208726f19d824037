"""An episode of the simulator, and what the real types of each framework say of what its adapter makes of it."""

from __future__ import annotations

import subprocess
from pathlib import Path
from typing import Any, NamedTuple

import aiohttp

from tests.server.running_gateway import run, simulated

_ROOT = Path(__file__).parents[2]
_ENVIRONMENTS = _ROOT / ".cache" / "trainers"
_QUESTIONS = ("scenario: demo", "Go on.", "think")


class Framework(NamedTuple):
    """A framework: its package, our adapter, and what is checked."""

    package: str
    adapter: str
    checked: str


FRAMEWORKS = (
    Framework(
        "nemo-gym", "nemo_gym", "`NeMoGymResponse`, `extract_token_fields` read a response; `run_builder` makes one chain"
    ),
    Framework("verifiers", "verifiers", "`PendingTurn.commit` makes one branch of `TurnTokens`"),
    Framework("rllm-model-gateway", "rllm", "`TraceRecord` takes every member"),
)
_WEATHER = {
    "type": "function",
    "name": "get_weather",
    "parameters": {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]},
}


async def _played(url: str) -> dict[str, Any]:
    """Return an episode: what was asked in each turn, the responses with their tokens, and the record of the calls."""
    headers = {"X-Rollout-Id": "ep1", "X-Token-True": "1"}
    asked: list[list[dict[str, str]]] = []
    responses: list[dict[str, Any]] = []
    async with aiohttp.ClientSession(headers=headers) as session:
        for question in _QUESTIONS:
            calls = [item for item in responses[-1]["output"] if item["type"] == "function_call"] if responses else []
            results = [{"type": "function_call_output", "call_id": call["call_id"], "output": "sunny"} for call in calls]
            body = {
                "model": "simulator",
                "input": [*results, {"role": "user", "content": question}],
                "tools": [_WEATHER],
                "include": ["token_ids"],
                "previous_response_id": responses[-1]["id"] if responses else None,
            }
            async with session.post(f"{url}/v1/responses", json=body) as answer:
                responses.append(await answer.json())
            tools = [{"role": "tool", "tool_call_id": call["call_id"], "content": "sunny"} for call in calls]
            asked.append([*tools, {"role": "user", "content": question}])
        async with session.get(f"{url}/rollouts/ep1") as answer:
            return {"asked": asked, "responses": responses, "calls": (await answer.json())["calls"]}


def episode() -> dict[str, Any]:
    """Play an episode of the simulator."""
    found: list[dict[str, Any]] = []

    async def play() -> None:
        async with simulated(store="memory") as served:
            found.append(await _played(served.url))

    run(play())
    return found[0]


def python_of(framework: Framework) -> Path:
    """Return the interpreter that has a framework, if `make trainers` has installed it."""
    return _ENVIRONMENTS / framework.package / "bin" / "python"


def check(framework: Framework, file: Path) -> tuple[str, str]:
    """Return the version that is installed, and what its types say: empty if all fits."""
    python = python_of(framework)
    asked = f"import importlib.metadata as m; print(m.version({framework.package!r}))"
    version = subprocess.run([python, "-c", asked], capture_output=True, text=True, check=True).stdout.strip()
    program = Path(__file__).with_name(f"{framework.adapter}_check.py")
    adapter = _ROOT / "deploy" / "training" / f"{framework.adapter}.py"
    command = [python, program, file, adapter]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=300, cwd=file.parent)
    return version, "" if done.returncode == 0 else done.stderr.strip().splitlines()[-1]
