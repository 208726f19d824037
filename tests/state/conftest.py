"""The stores that the contract is held against; the PostgreSQL server is a real one, started for the session."""

from __future__ import annotations

import logging
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from pathlib import Path

import pytest

from proxy.state import Database, Sqlite, Store
from tests.state.servers import PostgresServer, RedisServer, postgres_running, redis_running


class Clock:
    """A clock that a test sets."""

    def __init__(self) -> None:
        self.now = 1_000_000.0

    def __call__(self) -> float:
        return self.now


Opened = tuple[Store, Database, Clock]
Opening = Callable[[], AbstractAsyncContextManager[Opened]]


@pytest.fixture(scope="session")
def postgres_server() -> Iterator[PostgresServer]:
    """A running server that tests share."""
    with postgres_running() as server:
        yield server


@pytest.fixture
def postgres_url(postgres_server: PostgresServer) -> str:
    """A database with nothing in it."""
    return postgres_server.fresh_database()


@pytest.fixture
def own_postgres() -> Iterator[PostgresServer]:
    """A running server that a test may stop."""
    with postgres_running() as server:
        yield server


@pytest.fixture
def redis_server() -> Iterator[RedisServer]:
    """A running server with nothing in it."""
    with redis_running() as server:
        yield server


@pytest.fixture(params=["file", "memory", "postgres", "file and redis", "postgres and redis"])
def kind(request: pytest.FixtureRequest) -> str:
    """What the store is made of."""
    return str(request.param)


@pytest.fixture
def new_database(kind: str, request: pytest.FixtureRequest, tmp_path: Path) -> Callable[[], Database]:
    """Makes the database, not opened yet: again and again the same one, except for memory."""
    if kind.startswith("postgres"):
        url = request.getfixturevalue("postgres_url")
        from proxy.state.postgres import Postgres  # noqa: PLC0415  (its driver is an extra)

        return lambda: Postgres(url)
    path = tmp_path / "state" / "responses.sqlite3" if kind.startswith("file") else None
    return lambda: Sqlite(path)


@pytest.fixture
def opening(kind: str, new_database: Callable[[], Database], request: pytest.FixtureRequest) -> Opening:
    """Opens the store."""
    redis = request.getfixturevalue("redis_server") if "redis" in kind else None

    @asynccontextmanager
    async def opened() -> AsyncIterator[Opened]:
        clock, database = Clock(), new_database()
        store = Store(database, 1000.0, clock, redis.log() if redis is not None else None)
        await store.open()
        try:
            yield store, database, clock
        finally:
            await store.close()

    return opened


@pytest.fixture
def quiet_store() -> Iterator[None]:
    """What a test provokes is logged as an error, and is no defect."""
    logger = logging.getLogger("responses_proxy")
    told = ("store", "not stored")
    logger.addFilter(expected := lambda record: record.getMessage() not in told)
    yield
    logger.removeFilter(expected)
