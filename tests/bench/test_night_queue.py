"""The day of `bench/night_queue.py`, with a shorter queue."""

from __future__ import annotations

from bench.night_queue import Day, simulate


def test_a_night_queue_keeps_its_windows_and_nobody_waits_for_it() -> None:
    without = simulate(Day(0, begins=20, hours=7))
    beside = simulate(Day(1_500, begins=20, hours=7))
    assert (beside.night, beside.missed) == (1_500, 0)
    assert beside.interactive == without.interactive
    assert beside.p99 - without.p99 < 0.02
