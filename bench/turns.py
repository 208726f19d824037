"""A conversation of many turns by `previous_response_id`, kept in a SQLite file: what it takes, and whether that stays flat.

The gateway is a process of its own in front of the upstream; each turn is one request of a client, over one connection.
"""

from __future__ import annotations

import http.client
import json
import sqlite3
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass
from pathlib import Path
from statistics import median

from bench import processes
from bench.processes import Target
from bench.programs import HarnessError

NAME = "turns"
TURNS = 200
#: After how many turns the figures are taken.
EVERY = 50
_MODEL = "burst:50"
_LOOKS = 25
_TABLES = ("responses", "items", "nodes")


@dataclass(frozen=True)
class Turns:
    """The store after so many turns: rows, bytes in use, milliseconds to read the last response and to store one turn more."""

    turns: int
    rows: int
    kilobytes: float
    read_ms: float
    cpu_ms: float


def measure(backend: str) -> list[Turns]:
    """Hold the conversation with a fresh gateway in front of `backend` (a URL). Raises `HarnessError` if a turn fails."""
    with tempfile.TemporaryDirectory() as folder, _gateway(backend, Path(folder) / "turns.sqlite3") as target:
        return list(_hold(target, Path(folder) / "turns.sqlite3"))


def _hold(target: Target, file: Path) -> Iterator[Turns]:
    with closing(http.client.HTTPConnection("127.0.0.1", target.port, timeout=60)) as client:
        last, before = None, target.cpu_us()
        for number in range(1, TURNS + 1):
            asked = {"model": _MODEL, "input": f"This is turn {number}. Go on.", "previous_response_id": last}
            last = _ask(client, "POST", "/v1/responses", json.dumps(asked))["id"]
            if number % EVERY == 0:
                cpu_ms = (target.cpu_us() - before) / EVERY / 1000
                rows, kilobytes = _size(file)
                yield Turns(number, rows, kilobytes, median(_read_ms(client, str(last)) for _ in range(_LOOKS)), cpu_ms)
                before = target.cpu_us()


def _ask(client: http.client.HTTPConnection, method: str, path: str, body: str | None = None) -> dict[str, object]:
    client.request(method, path, body, {"Content-Type": "application/json"})
    answer = client.getresponse()
    data = answer.read()
    if answer.status != 200:
        raise HarnessError(f"turns: {method} {path} was answered with {answer.status}: {data[:200]!r}")
    found: dict[str, object] = json.loads(data)
    return found


def _read_ms(client: http.client.HTTPConnection, response_id: str) -> float:
    began = time.perf_counter()
    _ask(client, "GET", f"/v1/responses/{response_id}")
    return (time.perf_counter() - began) * 1000


def _size(file: Path) -> tuple[int, float]:
    with closing(sqlite3.connect(f"file:{file}?mode=ro", uri=True)) as store:
        rows = sum(store.execute(f"SELECT count(*) FROM {table}").fetchone()[0] for table in _TABLES)
        pages, size = (store.execute(f"PRAGMA {name}").fetchone()[0] for name in ("page_count", "page_size"))
    return rows, pages * size / 1024


@contextmanager
def _gateway(backend: str, file: Path) -> Iterator[Target]:
    port = processes.free_port()
    command = [
        sys.executable,
        "-m",
        "responses_gateway",
        "serve",
        "--backend",
        backend,
        "--port",
        str(port),
        "--store",
        str(file),
    ]
    with processes.target("gateway", "responses", command, port) as target:
        yield target
