"""The load harness works and its arithmetic is right; nothing here is timed."""

from __future__ import annotations

import json
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from tests.waiting import PATIENCE

ROOT = Path(__file__).parents[2]
sys.path.insert(0, str(ROOT))

from bench import first_token, programs  # noqa: E402
from bench.processes import free_port, target, upstream  # noqa: E402
from bench.programs import HarnessError, Latency, Load, Outcome  # noqa: E402
from bench.report import Measured, Round, summary, tables, verdicts  # noqa: E402
from bench.scenarios import SCENARIOS  # noqa: E402


@pytest.fixture(scope="module")
def client() -> Path:
    """Build the load generator, and the upstream with it."""
    if not sys.platform.startswith("linux") or programs.compiler() is None:
        pytest.skip("the load harness needs Linux and a C compiler")
    programs.build("upstream")
    return programs.build("client")


def outcome(name: str = "gateway", **changes: Any) -> Outcome:
    values: dict[str, Any] = {
        "answers": 64,
        "deltas": 12800,
        "reads": 13000,
        "pace": 1.0,
        "latency": Latency(100, 400, 900),
        "first_delta": Latency(1000, 2000, 3000),
        "errors": {},
    }
    return Outcome(name=name, **(values | changes))


def one_round(relay_us: float, gateway_us: float, **changes: Any) -> Round:
    """Return a round of paced64 with so much CPU per chunk; `changes` are the gateway's."""
    relay = Measured(outcome("relay"), relay_us * 12800)
    gateway = Measured(outcome(**changes), gateway_us * 12800)
    return Round(SCENARIOS["paced64"], relay, gateway, Latency(30, 100, 200))


def test_a_run_counts_every_token_and_gives_a_report(client: Path, tmp_path: Path) -> None:
    load = [
        "--rounds",
        "1",
        "--streams",
        "4",
        "--seconds",
        "0.5",
        "--scenario",
        "paced64",
        "--scenario",
        "request",
        "--scenario",
        "raw64",
    ]
    file = tmp_path / "figures.json"
    run = subprocess.run(
        [sys.executable, "-m", "bench.run", "--self-check", *load, "--json", str(file)],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=PATIENCE,
        check=False,
    )
    assert run.returncode == 0, run.stderr
    result = json.loads(file.read_text())

    paced, request, raw = result["summaries"]
    assert (paced["scenario"], paced["chunks"]) == ("paced64", 4 * 25)
    assert (request["scenario"], request["chunks"]) == ("request", 5 * 4 * 60)
    assert (raw["scenario"], raw["chunks"], raw["beside"]) == ("raw64", 4 * 25, "gateway")
    for one in result["rounds"]:
        for name in ("relay", "gateway"):
            assert one[name]["outcome"]["errors"] == {}
            assert one[name]["cpu_us"] > 0
    paced_round = result["rounds"][0]
    assert paced_round["relay"]["outcome"]["deltas"] == 4 * 25
    latency = paced_round["relay"]["outcome"]["latency"]
    assert 0 < latency["p50"] <= latency["p99"]
    # On a busy machine the latency may be disturbed, and then there is no verdict on it.
    assert {one["figure"] for one in result["verdicts"]} - {"added_p99/paced64"} == {"cpu/paced64", "cpu/request", "cpu/raw64"}
    assert "| paced64" in run.stdout
    assert "| raw64 (beside the gateway)" in run.stdout


@pytest.mark.parametrize("model", ["burst:300", "paced:30:1ms", "mix:50:1ms", "burst:1"])
def test_the_client_accepts_what_the_upstream_sends(client: Path, model: str) -> None:
    with upstream(programs.build("upstream")) as port:
        found = programs.drive(client, model, [Load("direct", "chat", port, 3)], repeats=2)["direct"]
    tokens = int(model.split(":")[1])
    assert (found.answers, found.deltas, found.errors) == (6, 6 * tokens, {})


@pytest.mark.parametrize("model", ["burst:300", "mix:50:1ms"])
def test_the_client_accepts_what_the_gateway_answers_at_both_doors(client: Path, model: str) -> None:
    with upstream(programs.build("upstream")) as port:
        serve = ["-m", "responses_gateway", "serve", "--no-adapt", "--store", "none", "--backend", f"http://127.0.0.1:{port}"]
        own = free_port()
        with target("both doors", "responses", [sys.executable, *serve, "--port", str(own)], own):
            loads = [Load(door, door, own, 2) for door in ("responses", "messages")]
            found = programs.drive(client, model, loads, repeats=2)
    tokens = int(model.split(":")[1])
    for one in found.values():
        assert (one.answers, one.errors) == (4, {})
        assert 0 < one.deltas <= 4 * tokens


def test_the_client_notices_a_wrong_text(client: Path, capfd: pytest.CaptureFixture[str]) -> None:
    with upstream(programs.build("upstream")) as port:
        # It expects ten tokens, and asks for ten; the one that speaks Responses gets a chat stream.
        found = programs.drive(client, "burst:10", [Load("odd", "responses", port, 2)])["odd"]
    assert (found.answers, found.errors) == (0, {"failed": 2})
    assert "odd: failed" in capfd.readouterr().err


def test_the_client_notices_an_answer_that_is_no_stream(client: Path, capfd: pytest.CaptureFixture[str]) -> None:
    with upstream(programs.build("upstream")) as port:
        wrong = programs.request_body("chat", "nothing")
        command = [str(client), "burst:10", "1", "0", "5", "direct", "chat", str(port), "1", wrong]
        run = subprocess.run(command, capture_output=True, text=True, timeout=PATIENCE, check=True)
    assert json.loads(run.stdout.splitlines()[-1])["groups"][0]["errors"]["http"] == 1
    assert "400 Bad Request" in run.stderr
    capfd.readouterr()


def test_the_table_of_turns_is_printed() -> None:
    one = {"turns": 50, "rows": 200, "kilobytes": 120.0, "read_ms": 1.234, "cpu_ms": 4.5}
    assert "| 50 " in (table := tables([], None, [one]))
    assert "1.23" in table


def test_without_a_compiler_the_harness_says_so(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(programs, "BUILD", tmp_path)
    monkeypatch.setattr(programs, "compiler", lambda: None)
    with pytest.raises(HarnessError, match=r"compiler|Linux"):
        programs.build("client")


def test_the_ratio_is_the_median_of_clean_rounds() -> None:
    rounds = [one_round(50, 40), one_round(50, 45), one_round(100, 90), one_round(50, 10, pace=0.5)]
    figures = summary(rounds)
    assert figures["ratio"] == pytest.approx(0.9)
    assert (figures["ratio_min"], figures["ratio_max"]) == (pytest.approx(0.8), pytest.approx(0.9))
    assert (figures["clean_rounds"], figures["rounds"]) == (3, 4)
    assert figures["flaws"] == ["gateway: 0.50 of real time"]


def test_tokens_that_arrive_in_lumps_make_a_round_unclean() -> None:
    assert one_round(50, 10, reads=6400).flaws == ["gateway: 0.50 reads per chunk"]


def test_wrong_answers_are_named() -> None:
    assert one_round(50, 40, errors={"text": 3}).flaws == ["gateway: {'text': 3}"]


def test_added_latency_leaves_out_what_the_machine_takes() -> None:
    figures = summary([one_round(50, 40, latency=Latency(100, 700, 900))])
    assert figures["added_p99_ratio"] == pytest.approx(2.0)  # (700 - 100) / (400 - 100)


def test_a_disturbed_measure_of_the_direct_way_gives_no_verdict() -> None:
    disturbed = replace(one_round(50, 40), direct=Latency(30, 46000, 50000))
    figures = summary([disturbed])
    assert figures["added_p99_ratio"] is None
    assert {one["figure"] for one in verdicts([figures], None)} == {"cpu/paced64"}
    assert "disturbed" in tables([figures], None)


def test_a_promise_is_kept_or_missed() -> None:
    memory = {"gateway_kb": 61.0, "relay_kb": 20.0, "streams": 200.0, "relay_idle_mb": 30.0, "gateway_idle_mb": 50.0}
    summaries = [summary([one_round(50, 40)])]
    kept = {one["figure"]: one["kept"] for one in verdicts(summaries, memory)}
    assert kept == {"cpu/paced64": True, "added_p99/paced64": True, "memory": False}
    report = tables(summaries, memory)
    assert "0.80x" in report
    assert "missed" in report


# The first token


def test_the_first_token_is_measured_on_every_way(client: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert first_token.main(["--requests", "3"]) == 0
    rows = [line.split(" | ") for line in capsys.readouterr().out.splitlines()[2:]]
    assert [row[0].removeprefix("| ") for row in rows] == ["straight to the backend", "a plain relay", "the gateway"]
    assert all(float(row[1]) > 0 for row in rows)


def test_what_is_added_is_counted_from_the_first_row() -> None:
    shown = first_token.table({"direct": [1.0, 1.0, 9.0], "gateway": [3.0, 2.5, 2.5]})
    assert [line.split(" | ")[-1] for line in shown.splitlines()[2:]] == ["0.00 |", "1.50 |"]
