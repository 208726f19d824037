"""The processes under load: starting them, and what they cost."""

from __future__ import annotations

import os
import socket
import subprocess
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import psutil

from bench.programs import BUILD, HERE, HarnessError

START_SECONDS = 60.0
STOP_SECONDS = 5.0


@dataclass(frozen=True)
class Target:
    """A server under load and the root of its process tree."""

    name: str
    protocol: str
    port: int
    pid: int

    def cpu_us(self) -> float:
        """CPU time (user and system) of the process and all its children so far, in microseconds.

        Read from the scheduler's clock of each process: exact to the nanosecond, where /proc counts in ticks of 10 ms.
        """
        return sum(time.clock_gettime_ns((~pid << 3) | 2) for pid in self._pids()) / 1000

    def rss_kb(self) -> float:
        """Resident memory of the process and all its children, in KB."""
        return sum(psutil.Process(pid).memory_info().rss for pid in self._pids()) / 1024

    def _pids(self) -> list[int]:
        return [self.pid, *(child.pid for child in psutil.Process(self.pid).children(recursive=True))]


def free_port() -> int:
    """A port of the loopback interface that nobody listens on."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


@contextmanager
def upstream(program: Path, port: int = 0, models: Sequence[str] = ()) -> Iterator[int]:
    """The chat server behind all targets; gives its port. With `models` it is a vLLM that has those.

    Raises `HarnessError` if it did not live to the end.
    """
    with subprocess.Popen([str(program), str(port), *models], stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        try:
            line = process.stdout.readline().split()
            if len(line) != 2:
                raise HarnessError(f"the upstream did not start on port {port}")
            yield int(line[1])
            if process.poll() is not None:
                raise HarnessError(f"the upstream ended in the middle of the run (status {process.returncode})")
        finally:
            process.terminate()


@contextmanager
def target(
    name: str, protocol: str, command: list[str], port: int, environment: Mapping[str, str] | None = None
) -> Iterator[Target]:
    """Start `command` from the checkout, wait until it listens on `port`, and stop it at the end. `environment` is added to
    that of this process.

    Its output goes to `.cache/bench/<name>.log`. Raises `HarnessError` if it does not come up.
    """
    BUILD.mkdir(parents=True, exist_ok=True)
    log = BUILD / f"{name}.log"
    with log.open("w") as output:
        process = subprocess.Popen(
            command, stdout=output, stderr=subprocess.STDOUT, cwd=HERE.parent, env={**os.environ, **(environment or {})}
        )
    try:
        _wait_for(process, port, log)
        yield Target(name, protocol, port, process.pid)
    finally:
        process.terminate()
        try:
            process.wait(STOP_SECONDS)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()


def running(name: str, protocol: str, port: int) -> Target:
    """The target that somebody else has started on a local port. Raises `HarnessError` if its process is not found."""
    for connection in psutil.net_connections("tcp"):
        address = connection.laddr
        if connection.status == psutil.CONN_LISTEN and connection.pid and address and address.port == port:
            return Target(name, protocol, port, connection.pid)
    raise HarnessError(f"no process of this user listens on port {port}: CPU and memory could not be read")


def _wait_for(process: subprocess.Popen[bytes], port: int, log: Path) -> None:
    deadline = time.monotonic() + START_SECONDS
    while time.monotonic() < deadline:
        if process.poll() is not None:
            raise HarnessError(f"{' '.join(process.args)} ended at once:\n{log.read_text()[-2000:]}")  # type: ignore[arg-type]
        try:
            socket.create_connection(("127.0.0.1", port), timeout=1).close()
        except OSError:
            time.sleep(0.05)
        else:
            return
    raise HarnessError(f"nothing listens on port {port} after {START_SECONDS:.0f} s; see {log.name}")
