"""The load with failing backends: a whole run, and what its judge notices."""

from __future__ import annotations

import importlib.util
import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from bench.crowd import Ask, judge
from bench.figures import fairness
from responses_gateway.settings import Settings, flag
from responses_gateway.simulator import create_app, serving
from tests.server.running_gateway import RawClient, Served, gateway, run
from tests.server.scripted_backend import HEAD, Connection, backend, chunk
from tests.waiting import PATIENCE

ROOT = Path(__file__).parents[2]
TOKENS = 6
# A pool soon tries again what failed.
IMPATIENT = [f"--gateway={flag(name)}=0.2" for name in ("breaker_time", "health_interval") if name in Settings.model_fields]


def load(*arguments: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "bench.load", "--streams", "8", "--tokens", "5", "--judged", "1", *arguments]
    return subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=PATIENCE, check=False)


def test_a_backend_that_dies_and_comes_back(tmp_path: Path) -> None:
    file = tmp_path / "figures.json"
    steps = ["--step", "1:kill:0", "--step", "1.5:start:0"]
    done = load("--seconds", "8", "--tokens-per-second", "20", *steps, "--json", str(file), *IMPATIENT)
    assert done.returncode == 0, done.stdout + done.stderr
    figures = json.loads(file.read_text(encoding="utf-8"))
    assert [phase["phase"] for phase in figures["phases"]] == ["start", "kill 0", "start 0"]
    before, without, after = (phase["verdicts"] for phase in figures["phases"])
    assert set(before) == {"completed"}
    assert without.get("refused")
    assert after.get("completed")
    assert figures["total"]["never"] == 0
    assert "| kill 0 |" in done.stdout


def test_with_a_pool_the_other_backend_takes_over(tmp_path: Path) -> None:
    if importlib.util.find_spec("responses_gateway.backend.pool") is None:
        pytest.skip("this gateway has no pool of backends")
    file = tmp_path / "figures.json"
    done = load("--seconds", "3", "--tokens-per-second", "20", "--backends", "2", "--scenario", "kill", "--json", str(file))
    assert done.returncode == 0, done.stdout + done.stderr
    figures = json.loads(file.read_text(encoding="utf-8"))
    assert set(figures["total"]["verdicts"]) <= {"completed", "failed"}  # what ran there fails and says so, nothing is refused
    assert figures["total"]["verdicts"]["completed"] > figures["total"]["verdicts"].get("failed", 0)


def test_where_answers_go_on_elsewhere_none_is_lost(tmp_path: Path) -> None:
    file = tmp_path / "figures.json"
    scenario = ["--seconds", "6", "--tokens-per-second", "20", "--tokens", "20", "--backends", "2", "--scenario", "continued"]
    done = load(*scenario, "--json", str(file))
    assert done.returncode == 0, done.stdout + done.stderr
    figures = json.loads(file.read_text(encoding="utf-8"))
    assert set(figures["total"]["verdicts"]) == {"completed"}


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["--step", "1:explode:0"], "SECOND:ACTION:BACKEND"),
        (["--step", "1:kill:3"], "SECOND:ACTION:BACKEND"),
        (["--step", "soon:kill:0"], "SECOND:ACTION:BACKEND"),
    ],
)
def test_a_step_that_makes_no_sense_is_refused(arguments: list[str], said: str) -> None:
    done = load("--seconds", "1", *arguments)
    assert done.returncode == 2
    assert said in done.stderr


def test_several_backends_need_a_pool() -> None:
    if importlib.util.find_spec("responses_gateway.backend.pool") is not None:
        pytest.skip("there is a pool")
    done = load("--seconds", "1", "--backends", "2")
    assert done.returncode == 2
    assert "no pool of backends yet" in done.stderr


# The judge


def answer_of(tokens: int = TOKENS) -> bytes:
    """Return a whole HTTP answer of the gateway."""
    found: list[bytes] = []

    async def test() -> None:
        async with serving(create_app()) as url, gateway(url) as served:
            found.append(await ask(served, tokens))

    run(test())
    return found[0]


async def ask(served: Served, tokens: int) -> bytes:
    client = await RawClient.connect(served)
    await client.send(Ask("127.0.0.1", served.port, tokens).request(2))  # the second has the usual length
    while not client.received.endswith(b"0\r\n\r\n") and await client.read():
        pass
    client.close()
    return client.received


def verdict(received: bytes, tokens: int = TOKENS) -> str:
    return judge(received, tokens, every_event=True).verdict


def test_a_whole_answer_is_completed() -> None:
    answer = answer_of()
    assert verdict(answer) == "completed"
    assert verdict(answer, TOKENS + 1) == "wrong"  # too short


def test_what_is_missing_or_wrong_is_noticed() -> None:
    answer = answer_of()
    assert verdict(answer[: len(answer) // 2]) == "cut"
    assert verdict(b"") == "cut"
    assert verdict(answer.replace(b"data: [DONE]", b"data: [GONE]")) == "cut"
    assert verdict(answer.replace(b"Once", b"Twig")) == "wrong"
    assert verdict(answer.replace(b'"sequence_number":3', b'"sequence_number":4')) == "unlawful"
    assert verdict(b"HTTP/1.1 502 Bad Gateway\r\n\r\n") == "refused"


def test_a_failure_that_says_so_is_no_lie() -> None:
    async def die(connection: Connection) -> None:
        connection.write(HEAD)
        connection.send(chunk({"content": "Once"}))
        connection.close()

    async def test() -> None:
        async with backend(die) as behind, gateway(behind.url) as served:
            found: Any = judge(await ask(served, TOKENS), TOKENS, every_event=True)
            assert (found.verdict, found.tokens) == ("failed", 1)

    run(test())


def test_fairness_is_one_if_all_get_the_same() -> None:
    assert fairness([5, 5, 5, 5]) == pytest.approx(1)
    assert fairness([20, 0, 0, 0]) == pytest.approx(1 / 4)
    assert fairness([]) == 1
