"""The stores that the tests of the contract run on; PostgreSQL and Redis are real servers."""

from __future__ import annotations

import logging
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from pathlib import Path

import pytest

from responses_gateway.state import Database, Sqlite, Store
from tests.state.database_servers import PostgresServer, RedisServer, postgres_running, redis_running


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
    """Start a server that all tests share."""
    with postgres_running() as server:
        yield server


@pytest.fixture
def postgres_url(postgres_server: PostgresServer) -> str:
    """Create an empty database."""
    return postgres_server.fresh_database()


@pytest.fixture
def own_postgres() -> Iterator[PostgresServer]:
    """Start a server that the test may stop."""
    with postgres_running() as server:
        yield server


@pytest.fixture
def redis_server() -> Iterator[RedisServer]:
    """Start an empty server."""
    with redis_running() as server:
        yield server


@pytest.fixture(params=["file", "memory", "postgres", "file and redis", "postgres and redis"])
def kind(request: pytest.FixtureRequest) -> str:
    """Choose what the store consists of."""
    return str(request.param)


@pytest.fixture
def new_database(kind: str, request: pytest.FixtureRequest, tmp_path: Path) -> Callable[[], Database]:
    """Return a function that makes the database, not opened yet; always the same one, except for memory."""
    if kind.startswith("postgres"):
        url = request.getfixturevalue("postgres_url")
        from responses_gateway.state.postgres import Postgres  # noqa: PLC0415  (its driver is an extra)

        return lambda: Postgres(url)
    path = tmp_path / "state" / "responses.sqlite3" if kind.startswith("file") else None
    return lambda: Sqlite(path)


@pytest.fixture
def opening(kind: str, new_database: Callable[[], Database], request: pytest.FixtureRequest) -> Opening:
    """Return a context manager that opens the store."""
    redis = request.getfixturevalue("redis_server") if "redis" in kind else None

    @asynccontextmanager
    async def opened() -> AsyncIterator[Opened]:
        clock = Clock()
        database = new_database()
        store = Store(database, 1000.0, clock, redis.log() if redis is not None else None)
        await store.open()
        try:
            yield store, database, clock
        finally:
            await store.close()

    return opened


@pytest.fixture
def quiet_store() -> Iterator[None]:
    """Ignore the errors that a test provokes: they are not defects."""
    logger = logging.getLogger("responses_gateway")
    provoked = ("the store fails", "not stored")
    logger.addFilter(expected := lambda record: record.getMessage() not in provoked)
    yield
    logger.removeFilter(expected)
