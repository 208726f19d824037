"""Which waiting responses begin, as the schedule decides it: no gateway, no clock. `bench/night_queue.py` has a whole day."""

from __future__ import annotations

import pytest

from responses_gateway.backend.idle import ModelLoad
from responses_gateway.server.features.completion_windows.schedule import (
    AT_ONCE,
    LATEST_START,
    MEMORY,
    SAFETY,
    ModelSchedule,
    Startable,
)
from responses_gateway.state.waiting import Due, Waiting

HOUR = 3600.0
LATER = 8 * HOUR


def due(number: int = 1, deadline: float = LATER) -> list[Due]:
    return [Due("m", "8h", deadline, number, 0.0)]


def waiting(name: str, tenant: str = "a", deadline: float = LATER, *, follow_up: bool = False) -> Waiting:
    return Waiting(name, tenant, "8h", follow_up, 0.0, deadline)


def test_the_busiest_moment_counts_for_a_while() -> None:
    schedule = ModelSchedule()
    assert schedule.places(ModelLoad(used=8, idle=8, free=8), due(9), 0.0).any == 0
    assert schedule.places(ModelLoad(used=0, idle=8, free=16), due(9), MEMORY / 2).any == 0
    assert schedule.places(ModelLoad(used=3, idle=8, free=13), due(9), MEMORY + 1) == Startable(idle=5)
    for _ in range(5):  # those that have waited are none of the others
        schedule.begun("a")
    assert schedule.places(ModelLoad(used=8, idle=8, free=8), due(4), MEMORY + 2).any == 0
    assert schedule.places(ModelLoad(used=5, idle=8, free=8), due(4), 2 * MEMORY + 3) == Startable(idle=3)


def test_a_clock_that_is_set_back_changes_nothing() -> None:
    schedule = ModelSchedule()
    day = 86_400.0
    assert schedule.places(ModelLoad(used=7, idle=8, free=1), due(9, 9 * day), 2 * day).any == 1
    assert schedule.places(ModelLoad(used=6, idle=8, free=2), due(9, 9 * day), day).any == 1  # the busiest moment
    assert schedule.places(ModelLoad(used=0, idle=8, free=9), due(9, 9 * day), day + MEMORY + 1) == Startable(idle=8)


@pytest.mark.parametrize(
    ("load", "number", "left", "begin"),
    [
        (ModelLoad(16, 8, 3), 1, HOUR, 0),
        (ModelLoad(16, 8, 3), 1, SAFETY, 1),
        (ModelLoad(16, 8, 0), 1, SAFETY, 0),  # nothing is free, and interactive requests wait, too
        (ModelLoad(16, 8, 3), 99, -HOUR, 3),  # a window that was missed
        (ModelLoad(16, 8, None), 99, SAFETY, AT_ONCE),
        (ModelLoad(16, 8, 9), 200, HOUR + SAFETY, 4),  # a minute each, and some doubt
        (ModelLoad(0, 0, 0), 1, 0.0, 0),  # no backend
        (ModelLoad(0, 0, 0), 99, -LATEST_START - 1, AT_ONCE),  # the pool tells why
    ],
)
def test_as_many_begin_as_a_deadline_needs(load: ModelLoad, number: int, left: float, begin: int) -> None:
    places = ModelSchedule().places(load, due(number, LATER), LATER - left)
    assert (places.idle, places.pressed) == (0, begin)


def test_keys_take_turns_and_follow_ups_come_first() -> None:
    schedule = ModelSchedule()
    schedule.begun("b")
    queue = [
        waiting("1"), waiting("2"), waiting("3", follow_up=True), waiting("4", deadline=LATER - 1),
        waiting("5", "b"), waiting("6", "b"), waiting("7", "c"),
    ]  # fmt: skip
    chosen = [each.response_id for each in schedule.choose(queue, Startable(idle=5))]
    assert chosen == ["3", "7", "4", "5", "1"]
    assert [each.response_id for each in schedule.choose(queue, Startable(pressed=1))] == ["4"]
