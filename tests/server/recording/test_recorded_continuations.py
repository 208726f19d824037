"""A recorded exchange is like any other: when its answer breaks off another backend goes on with it, and the record replays."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from responses_gateway.server.recording.recorder import PATTERN, Recorder
from responses_gateway.stream.continuation import join as rejoining
from tests.commands.test_replay import run as replay
from tests.server.fleet_of_simulators import READINGS, ask, fleet, said
from tests.server.generation.test_takeover import ended, streamed, stuck, two
from tests.server.hosted.test_continued_turns import research, scene
from tests.server.hosted.test_continued_turns import said as research_said
from tests.server.running_gateway import events_of, run
from tests.server.window.looking import KEY, bearer, look

NEVER = "drop=5,times=0"
TURNS_NEVER = "drop=000,times=0,step=0"


def calls_of(path: Path) -> list[str]:
    lines = [json.loads(line) for line in path.read_text().splitlines()]
    return [line["call"] for line in lines if "call" in line]


@pytest.mark.parametrize("personality", list(READINGS))
def test_it_continues_at_another_backend_and_replays(
    personality: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    async def test() -> None:
        async with fleet(personality, record=tmp_path) as served:
            whole = said(await ask(served, "demo", NEVER))
            step = 3 if personality == "vllm-interval" else 17
            for position in range(1, 6 * step, step):
                assert said(await ask(served, "demo", f"drop={position},times=1")) == whole, position
            assert served.metric("continuations_total", outcome="continued", reason="broke") >= 4
            assert served.metric("continuations_total", outcome="impossible", reason="recorded") == 0

    run(test())
    records = sorted(tmp_path.glob(PATTERN))
    assert len(records) == 7
    assert sum("resume" in calls_of(path) for path in records) >= 3
    assert replay(tmp_path) == 0, capsys.readouterr().out


@pytest.mark.parametrize(("fault", "cause"), [("eof=text", "eof"), ("abort=call", "abort"), ("error=reasoning", "engine")])
def test_however_it_broke_off(fault: str, cause: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    async def test() -> None:
        async with fleet("vllm", record=tmp_path) as served:
            whole = said(await ask(served, "demo", NEVER))
            assert said(await ask(served, "demo", f"{fault},times=1")) == whole
            assert served.metric("continuations_total", outcome="continued", reason=cause) == 1

    run(test())
    assert replay(tmp_path) == 0, capsys.readouterr().out


def test_an_answer_that_began_anew_replays(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Only ids have come, and nothing that the client could have seen."""

    async def test() -> None:
        async with fleet("vllm", record=tmp_path) as served:
            whole = said(await ask(served, "demo", NEVER))
            for position in (1, 2):
                assert said(await ask(served, "demo", f"drop={position},times=1")) == whole

    run(test())
    assert [calls_of(path).count("restart") for path in sorted(tmp_path.glob(PATTERN))] == [0, 1, 1]
    assert replay(tmp_path) == 0, capsys.readouterr().out


@pytest.mark.slow
@pytest.mark.parametrize("personality", ["vllm", "vllm-raw"])
def test_so_does_one_in_which_hosted_tools_are_used(
    personality: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    async def test() -> None:
        async with scene(personality, record=tmp_path) as (served, _):
            whole = research_said(await research(served, TURNS_NEVER))
            for turn in range(3):
                assert research_said(await research(served, f"drop=020,times=1,step={turn}")) == whole
            assert served.metric("continuations_total", outcome="continued", reason="broke") >= 2

    run(test())
    assert replay(tmp_path) == 0, capsys.readouterr().out


def test_a_second_reading_that_this_version_cannot_repeat_is_a_difference(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    async def test() -> None:
        async with fleet("vllm", record=tmp_path) as served:
            assert said(await ask(served, "demo", "drop=60,times=1"))["status"] == "completed"

    def failing(*_: Any) -> None:
        raise rejoining.Diverged

    run(test())
    monkeypatch.setattr(rejoining.CatchUp, "take", failing)
    assert replay(tmp_path) == 1
    out = capsys.readouterr().out
    assert "different (calls, events)" in out
    assert "resume failed: Unplayable" in out


# ---- while recording was asked for in the window -------------------------------------------------------------------------


def test_a_click_on_record_leaves_continuation_on() -> None:
    async def test() -> None:
        async with fleet("vllm", admin_key=KEY) as served:
            whole = said(await ask(served, "demo", NEVER))
            clicked = await look(served, "recording", "POST", json={"minutes": 5}, headers=bearer())
            assert clicked.json["until"] > 0
            assert said(await ask(served, "demo", "drop=60,times=1")) == whole
            assert served.metric("continuations_total", outcome="continued", reason="broke") == 1

    run(test())


def test_it_leaves_takeover_on(tmp_path: Path) -> None:
    async def test() -> None:
        async with two(tmp_path) as (one, other):
            for served in (one, other):
                recorder = served.parts.responses.recorder
                assert isinstance(recorder, Recorder)
                recorder.record_for(300)  # as the click does
            name = await stuck(one)
            response = await ended(other, name)
            assert response["status"] == "completed"
            events = events_of(await streamed(other, name))
            assert [event["sequence_number"] for event in events] == list(range(len(events)))
            assert other.metric("continuations_total", outcome="continued", reason="restart") == 1
            await one.parts.pool.close()

    run(test())


def test_the_record_of_a_response_that_was_taken_over_has_all_of_it(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    async def test() -> None:
        async with two(tmp_path, record=tmp_path / "kept") as (one, other):
            name = await stuck(one, include=["reasoning.encrypted_content"])
            assert (await ended(other, name))["status"] == "completed"
            await one.parts.pool.close()

    run(test())
    (path,) = (tmp_path / "kept").glob(PATTERN)
    assert calls_of(path).count("resume") == 1
    assert replay(path) == 0, capsys.readouterr().out
