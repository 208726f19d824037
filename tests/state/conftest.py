"""The stores that the contract is held against; the PostgreSQL server is a real one, started for the session."""

from __future__ import annotations

import os
import pwd
import shutil
import subprocess
import tempfile
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from pathlib import Path

import pytest

from proxy.state import Database, Sqlite, Store

_USER = "postgres"


class Clock:
    """A clock that a test sets."""

    def __init__(self) -> None:
        self.now = 1_000_000.0

    def __call__(self) -> float:
        return self.now


Opened = tuple[Store, Database, Clock]
Opening = Callable[[], AbstractAsyncContextManager[Opened]]


@pytest.fixture(scope="session")
def postgres_server() -> Iterator[str]:
    """The folder of the socket of a server with nothing in it."""
    if shutil.which("initdb") is None or shutil.which("pg_ctl") is None:
        pytest.skip("PostgreSQL is not installed")
    pytest.importorskip("psycopg", reason="the PostgreSQL driver is not installed")
    folder = Path(tempfile.mkdtemp(prefix="pg-"))  # short: the name of a socket has few letters
    user = _USER if os.geteuid() == 0 else None  # the server refuses to run as root
    if user is not None:
        try:
            os.chown(folder, pwd.getpwnam(user).pw_uid, -1)
        except KeyError:
            pytest.skip(f"PostgreSQL does not run as root, and there is no user {user}")

    def command(*words: str) -> None:
        subprocess.run(words, check=True, user=user, cwd=folder, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)

    command("initdb", "-D", str(folder / "data"), "-A", "trust", "-U", _USER, "--no-sync", "--encoding=UTF8", "--locale=C")
    options = f"-c listen_addresses= -c fsync=off -k {folder}"
    command("pg_ctl", "-D", str(folder / "data"), "-o", options, "-l", str(folder / "log"), "-w", "start")
    yield str(folder)
    command("pg_ctl", "-D", str(folder / "data"), "-m", "immediate", "-w", "stop")
    shutil.rmtree(folder)


@pytest.fixture
def postgres_url(postgres_server: str) -> str:
    """A database with nothing in it."""
    import psycopg  # noqa: PLC0415  (an extra)

    admin = f"postgresql:///postgres?host={postgres_server}&user={_USER}"
    with psycopg.connect(admin, autocommit=True) as connection:
        connection.execute("DROP DATABASE IF EXISTS store")
        connection.execute("CREATE DATABASE store")
    return f"postgresql:///store?host={postgres_server}&user={_USER}"


@pytest.fixture(params=["file", "memory", "postgres"])
def new_database(request: pytest.FixtureRequest, tmp_path: Path) -> Callable[[], Database]:
    """Makes the database, not opened yet: again and again the same one, except for memory."""
    if request.param == "postgres":
        url = request.getfixturevalue("postgres_url")
        from proxy.state.postgres import Postgres  # noqa: PLC0415  (its driver is an extra)

        return lambda: Postgres(url)
    path = tmp_path / "state" / "responses.sqlite3" if request.param == "file" else None
    return lambda: Sqlite(path)


@pytest.fixture
def opening(new_database: Callable[[], Database]) -> Opening:
    """Opens the store."""

    @asynccontextmanager
    async def opened() -> AsyncIterator[Opened]:
        clock, database = Clock(), new_database()
        store = Store(database, 1000.0, clock)
        await store.open()
        try:
            yield store, database, clock
        finally:
            await store.close()

    return opened
