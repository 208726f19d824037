"""The counters of quotas, in every kind of store and in Redis."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import UTC, datetime

import pytest

from responses_gateway.state.quotas import Charge, Period, QuotaCounters, QuotaTable, counter
from tests.state.conftest import Opening
from tests.state.database_servers import redis_running

# 5 February 2096, noon: nothing expires meanwhile.
NOW = datetime(2096, 2, 5, 12, tzinfo=UTC).timestamp()
DAY = counter("key alice", "day", NOW)
MONTH = counter("team red", "month", NOW)


@asynccontextmanager
async def in_redis() -> AsyncIterator[QuotaCounters]:
    module = pytest.importorskip("responses_gateway.state.redis_quotas", reason="the Redis driver is not installed")
    with redis_running() as server:
        counters: QuotaCounters = module.RedisQuotas(server.url)
        yield counters
        await counters.close()


@asynccontextmanager
async def in_a_store(opening: Opening) -> AsyncIterator[QuotaCounters]:
    async with opening() as (_, database, _clock):
        yield QuotaTable(database)


async def behaves(counters: QuotaCounters) -> None:
    assert await counters.read([DAY, MONTH], {}) == {DAY.name: 0, MONTH.name: 0}
    assert await counters.read([], {}) == {}
    both = Charge("resp_1", 10, (DAY, MONTH))
    assert await counters.charge([both, Charge("resp_2", 5, (DAY,))], {}, NOW) == {DAY.name: 15, MONTH.name: 10}
    assert await counters.charge([both], {}, NOW) == {DAY.name: 15, MONTH.name: 10}
    more = Charge("resp_1", 12, (DAY, MONTH))
    assert await counters.charge([more], {}, NOW) == {DAY.name: 17, MONTH.name: 12}
    await asyncio.gather(*(counters.charge([Charge(f"resp_x{n}", 1, (DAY,))], {}, NOW) for n in range(8)))
    assert await counters.read([DAY], {}) == {DAY.name: 25}


def test_a_charge_is_counted_once_however_often_it_is_made(opening: Opening) -> None:
    async def test() -> None:
        async with in_a_store(opening) as counters:
            await behaves(counters)

    asyncio.run(test())


def test_the_same_in_redis_to_which_each_process_tells_what_it_has_seen() -> None:
    async def test() -> None:
        async with in_redis() as counters:
            await behaves(counters)
            assert await counters.read([MONTH], {MONTH.name: 99}) == {MONTH.name: 99}
            assert await counters.charge([Charge("resp_3", 1, (MONTH,))], {MONTH.name: 5}, NOW) == {MONTH.name: 100}

    asyncio.run(test())


@pytest.mark.parametrize(
    ("period", "at", "name", "ends"),
    [
        ("day", "2026-12-31T23:59:59", "2026-12-31 x", "2027-01-01"),
        ("month", "2026-12-31T23:59:59", "2026-12 x", "2027-01-01"),
        ("month", "2028-02-01T00:00:00", "2028-02 x", "2028-03-01"),
        ("day", "2028-02-29T00:00:00", "2028-02-29 x", "2028-03-01"),
    ],
)
def test_days_and_months_are_those_of_utc(period: Period, at: str, name: str, ends: str) -> None:
    found = counter("x", period, datetime.fromisoformat(at).replace(tzinfo=UTC).timestamp())
    assert found.name == name
    assert found.ends == datetime.fromisoformat(ends).replace(tzinfo=UTC).timestamp()
