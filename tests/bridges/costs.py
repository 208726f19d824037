"""What this gateway and LiteLLM cost beside a plain relay, in one run: the table of costs in docs/comparison.md.

A client asks for one answer after the other over one connection; the CPU time is that of the whole process. The time that a
client waits is the shortest of many, because other programs of the machine only lengthen it."""

from __future__ import annotations

import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from statistics import median
from typing import NamedTuple
from urllib.parse import urlsplit

from bench import processes
from bench.agent import FIRST, Client, Way, cpu_of_one
from bench.agent_requests import body, history
from bench.processes import Target
from bench.programs import build, request_body
from scripts.generated_section import updated
from tests.bridges.bridges import BRIDGES, OURS, ROOT, Bridge, started
from tests.bridges.document import row

_DOCUMENT = ROOT / "docs" / "comparison.md"
BEGIN = "<!-- costs: written by `python -m tests.bridges.costs` -->"
END = "<!-- /costs -->"
_ROUNDS = 3
_REQUESTS = 30
_CHUNKS = 1000
# Items and characters of an agent's history.
_HISTORY = (150, 600_000)
_CPU = ("a request for one token", "a chunk of text among many", "an agent's request of 600 KB")
_SMALL = 10


class Cost(NamedTuple):
    """What one server costs."""

    cpu: list[float]  # of what `_CPU` names, in microseconds
    waiting: float  # in seconds
    idle: float  # memory in KB
    loaded: float


@contextmanager
def _running(bridge: Bridge, backend: str, folder: Path) -> Iterator[Target]:
    with started(bridge, backend, folder) as url:
        port = urlsplit(url).port
        assert port is not None
        yield processes.running(bridge.name, "responses", port)


def _round(way: Way, number: int) -> list[float]:
    """Return the CPU time of what `_CPU` names, in microseconds."""
    one = cpu_of_one(way, [request_body(way.protocol, "burst:1").encode()] * (FIRST + _REQUESTS))
    many = cpu_of_one(way, [request_body(way.protocol, f"burst:{_CHUNKS}").encode()] * (FIRST + _REQUESTS // 3))
    seeds = range(number * 1000, number * 1000 + FIRST + _REQUESTS // 3)
    turn = cpu_of_one(way, [body("responses", history(*_HISTORY, seed), seed) for seed in seeds])
    return [one, (many - one) / _CHUNKS, turn]


def _shortest(way: Way) -> float:
    """Return the shortest time in which a client has had an answer of one token, in seconds."""
    client = Client(way)
    request = request_body(way.protocol, "burst:1").encode()
    times = []
    for _ in range(_ROUNDS * _REQUESTS):
        began = time.perf_counter()
        client.ask(request)
        times.append(time.perf_counter() - began)
    return min(times)


def _measured(way: Way) -> Cost:
    idle = way.target.rss_kb()
    rounds = [_round(way, number) for number in range(_ROUNDS)]
    cpu = [median(column) for column in zip(*rounds, strict=True)]
    return Cost(cpu, _shortest(way), idle, way.target.rss_kb())


def section(costs: dict[str, Cost], day: str) -> str:
    """Return the markdown between the two marker comments, both included."""
    relay = costs["relay"].cpu
    lines = [BEGIN, "", f"Measured on {day}.", "", row(["", *costs]), "|---|" + "---|" * len(costs)]
    for index, what in enumerate(_CPU):
        used = [cost.cpu[index] for cost in costs.values()]
        cells = [f"{each:,.{_digits(each)}f} µs ({each / relay[index]:.1f})" for each in used]
        lines.append(row([f"CPU of {what} (relay = 1)", *cells]))
    every = list(costs.values())
    lines += [
        row(["shortest wait for an answer of one token", *(f"{cost.waiting * 1000:.1f} ms" for cost in every)]),
        row(["memory when idle", *(f"{cost.idle / 1024:.0f} MB" for cost in every)]),
        row(["memory after these requests", *(f"{cost.loaded / 1024:.0f} MB" for cost in every)]),
    ]
    return "\n".join([*lines, "", END])


def _digits(number: float) -> int:
    return 1 if number < _SMALL else 0


def main() -> int:
    """Measure, and write the table. Returns 1 if LiteLLM is not installed."""
    litellm = next(bridge for bridge in BRIDGES if bridge.package == "litellm")
    if not litellm.python.exists():
        print("LiteLLM is not installed: `make bridges` does it")
        return 1
    words = [word.replace("litellm.yaml", "litellm_any_model.yaml") for word in litellm.command]
    litellm = replace(litellm, command=words, config="litellm_any_model.yaml")
    ours = next(bridge for bridge in BRIDGES if bridge.name == OURS)
    costs: dict[str, Cost] = {}
    with processes.upstream(build("upstream")) as upstream, tempfile.TemporaryDirectory(prefix="costs-") as folder:
        backend = f"http://127.0.0.1:{upstream}"
        port = processes.free_port()
        relay = [sys.executable, "-m", "bench.relay", "--backend", backend, "--port", str(port)]
        with (
            processes.target("relay", "chat", relay, port) as beside,
            _running(ours, backend, Path(folder) / "ours") as gateway,
            _running(litellm, backend, Path(folder) / "litellm") as other,
        ):
            names = {f"{OURS} {ours.version}": gateway, f"LiteLLM {litellm.version}": other}
            ways = {"relay": Way("relay", beside, "chat")} | {name: Way(name, it, "responses") for name, it in names.items()}
            for name, way in ways.items():
                costs[name] = _measured(way)
                print(name, costs[name], flush=True)
    text = section(costs, datetime.now(UTC).date().isoformat())
    _DOCUMENT.write_text(updated(_DOCUMENT.read_text(encoding="utf-8"), text), encoding="utf-8")
    print(text)
    return 0


if __name__ == "__main__":
    sys.exit(main())
