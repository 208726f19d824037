"""A defect in what goes on beside the requests ends nothing for ever."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from pydantic import SecretStr

from responses_gateway import ended_tasks
from responses_gateway.backend import watch
from responses_gateway.backend.member import Member
from responses_gateway.server.http.connections import Runner
from responses_gateway.state.sessions import SessionTable
from responses_gateway.state.usage import UsageTable
from tests.backend.controlled_backends import replicas
from tests.backend.test_server_load import Busy
from tests.server.http.test_hostile_bodies import trickle
from tests.server.running_gateway import Reachable, ask, gateway, post, run, simulated
from tests.waiting import until

ADMIN = "the-admin-key-of-this-gateway"


@pytest.fixture(autouse=True)
def _quiet_defects() -> Iterator[None]:
    """Ignore the defects that a test provokes."""
    logger = logging.getLogger("responses_gateway")
    logger.addFilter(expected := lambda record: record.getMessage() != "defect")
    yield
    logger.removeFilter(expected)


class Faulty:
    """An activity whose ticks fail."""

    chunks = 0

    def tick(self, now: float) -> None:
        raise ZeroDivisionError(now)


async def kept(served: Reachable) -> tuple[int, int]:
    """Return how many requests the store has in the usage and in sessions."""
    headers = {"Authorization": f"Bearer {ADMIN}"}
    usage = (await ask(served, "GET", "/admin/usage", headers=headers)).json["data"]
    sessions = (await ask(served, "GET", "/admin/sessions", headers=headers)).json["data"]
    return sum(row["requests"] for row in usage), sum(row["requests"] for row in sessions)


def test_usage_sessions_and_keep_alives_go_on_after_a_defect(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ended_tasks, "AFTER_DEFECT", 0.02)
    settings: dict[str, Any] = {"store": str(tmp_path / "x.sqlite3"), "admin_key": SecretStr(ADMIN), "keepalive_comment": 0.1}
    asked: dict[str, Any] = {"store": False, "client_metadata": {"session_id": "s"}}

    async def test() -> None:
        async with simulated(**settings) as served:
            with monkeypatch.context() as failing:

                async def fail(*_: Any) -> None:
                    raise ZeroDivisionError

                failing.setattr(UsageTable, "add", fail)
                failing.setattr(SessionTable, "save", fail)
                await post(served, asked)
                await until(lambda: served.metric("defects_total") >= 3)  # of both of them
            faulty: Any = Faulty()
            served.parts.in_flight.activities.add(faulty)
            assert b"\n:" in (await post(served, asked, input="tokens: 5 tps: 4")).body
            served.parts.in_flight.activities.discard(faulty)
            async with simulated(**settings) as other:
                while await kept(other) != (2, 2):
                    pass

    run(test())


def test_backends_are_watched_after_a_defect(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ended_tasks, "AFTER_DEFECT", 0.02)

    async def fail(*_: Any) -> None:
        raise ZeroDivisionError

    async def test() -> None:
        a, b = Busy("A"), Busy("B")
        settings: dict[str, Any] = {"adapt": False, "load_interval": 0.02, "health_interval": 0.02}
        async with replicas(a, b), gateway(a.url, b.url, **settings) as served:
            member = served.parts.pool.members.by_name[a.place]
            with monkeypatch.context() as failing:
                failing.setattr(watch, "check_health", fail)
                failing.setattr(Member, "tells_load", property(lambda _: 1 / 0))
                await until(lambda: served.metric("defects_total") >= 6)
            a.requests = 7
            await until(lambda: member.reported.requests == 7)
            a.health = 503
            await until(lambda: not member.healthy)

    run(test())


def test_bodies_have_their_time_limit_after_a_defect(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ended_tasks, "AFTER_DEFECT", 0.02)

    async def test() -> None:
        async with simulated(body_timeout=0.3) as served:
            with monkeypatch.context() as failing:
                failing.setattr(Runner, "requests", property(lambda _: 1 / 0))
                await until(lambda: served.metric("defects_total") >= 2)
            await trickle(served, b"/v1/responses")

    run(test())
