"""The gateway keeps its store within its limits, and tells how large and how old it is."""

from __future__ import annotations

import asyncio

from prometheus_client import generate_latest

from responses_gateway.ended_tasks import end_tasks
from responses_gateway.server.setup.store import keep_up
from responses_gateway.state import Sqlite, Store
from responses_gateway.telemetry.metrics import Metrics
from tests.server.running_gateway import until
from tests.state.conftest import Clock
from tests.state.test_retention import MIB, fill


def stored_bytes(metrics: Metrics) -> float:
    return metrics.registry.get_sample_value("responses_gateway_store_bytes") or 0.0


def test_old_responses_leave_and_the_metrics_say_so() -> None:
    async def test() -> None:
        clock = Clock()
        store = Store(Sqlite(None), 1000.0, clock, max_bytes=2 * MIB)
        await store.open()
        await fill(store, clock, 10)
        clock.now += 2000
        await fill(store, clock, 300, first=10)
        metrics = Metrics()
        upkeep = asyncio.create_task(keep_up(store.upkeep, metrics))
        await until(lambda: stored_bytes(metrics))
        assert await store.upkeep.size() <= 2 * MIB
        assert await store.responses.get("a", "resp_309") is not None
        await end_tasks(upkeep)
        metrics.flush()
        told = generate_latest(metrics.registry).decode()
        assert 'responses_gateway_store_deleted_total{reason="expired"} 10.0' in told
        early = float(told.partition('store_deleted_total{reason="no_room"} ')[2].partition("\n")[0])
        assert 50 < early < 300
        assert 0 < stored_bytes(metrics) <= 2 * MIB
        await store.close()

    asyncio.run(test())
