"""The soak: a short one against a real gateway, and what its judge notices."""

from __future__ import annotations

import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from xml.etree import ElementTree

import pytest

from bench.soak import Holding, Run, grown, picture, report
from tests.waiting import PATIENCE

ROOT = Path(__file__).parents[2]
HELD = Holding(memory_mb=80, descriptors=30, connections=0, tasks=4, threads=6, objects={"builtins.dict": 500})


def test_a_short_soak(tmp_path: Path) -> None:
    drawn = tmp_path / "memory.svg"
    arguments = ["--minutes", "0.25", "--clients", "6", "--seed", "1", "--picture", str(drawn)]
    command = [sys.executable, "-m", "bench.soak", *arguments]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=3 * PATIENCE, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    assert " 0 wrong" in done.stdout
    assert "seed 1" in done.stdout
    ElementTree.parse(drawn)


@pytest.mark.parametrize(
    ("after", "said"),
    [
        ({"memory_mb": 150}, ["worker 1: memory_mb: 80 before, 150 after"]),
        ({"descriptors": 50}, ["worker 1: descriptors: 30 before, 50 after"]),
        ({"connections": 9}, ["worker 1: connections: 0 before, 9 after"]),
        ({"tasks": 40, "running": {"read": 40}}, ["worker 1: tasks: 4 before, 40 after: {'read': 40}"]),
        ({"threads": 30}, ["worker 1: threads: 6 before, 30 after"]),
        ({"objects": {"responses_gateway.Leak": 2000}}, ["worker 1: objects of responses_gateway.Leak: 0 before, 2000 after"]),
        ({"memory_mb": 90, "threads": 8, "objects": {"builtins.dict": 900}}, []),
    ],
)
def test_what_is_held_in_the_end_is_bounded(after: dict[str, object], said: list[str]) -> None:
    assert grown({1: HELD}, {1: replace(HELD, **after)}) == said  # type: ignore[arg-type]


def test_a_worker_that_died_is_noticed() -> None:
    assert grown({1: HELD, 2: HELD}, {1: HELD, 3: HELD}) == ["worker 2 died"]


def test_the_report_counts_what_was_wrong() -> None:
    run = Run(before={1: HELD}, after={1: HELD})
    run.note("stream", "")
    run.note("stream", "sequence: 5 after 3")
    assert run.wrong == ["stream: sequence: 5 after 3"]
    assert "2 exchanges, 1 wrong: stream 2" in report(run)
    assert "| 1 | at the end | 80 MB | 30 | 0 | 4 | 6 | 500 |" in report(run)


def test_a_picture_of_nothing_is_a_picture() -> None:
    ElementTree.fromstring(picture([]))
