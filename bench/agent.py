"""Measure what an agent's turn costs: a request that carries the whole history.

    python -m bench.agent                        all, three rounds: some minutes
    python -m bench.agent --only turn600 --rounds 1
    python -m bench.agent --only session --picture docs/images/agent.svg

    turn600, turn900   600 KB in 150 items; 750 KB in 900. Each request has another history from its first item on, so that
                       nothing can be kept from the last one
    session            43 turns of one agent that grow to 600 KB, each with all before it
    chain              the same turns by `previous_response_id`: each has what is new alone; the gateway stores them

The targets are loaded in turn, one request at a time: the relay, the gateway at both doors, and a gateway that stores what it
answers in a SQLite file. The unit is the CPU time of the whole process for a request, and the ratio to that of the relay in the
same round."""

from __future__ import annotations

import argparse
import re
import socket
import sys
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from functools import partial
from pathlib import Path
from statistics import mean, median
from tempfile import TemporaryDirectory
from typing import NamedTuple, TypeAlias

from bench import processes
from bench.agent_requests import Door, Object, body, history
from bench.growth_picture import picture
from bench.processes import Target
from bench.programs import HarnessError, build

TURNS = 43
SIZES = {"turn600": (150, 600_000), "turn900": (900, 750_000)}
# The items of a task and of as many steps as there are turns: a request ends with the result of a call.
SESSION = (1 + 4 * TURNS, 600_000)
NAMES = (*SIZES, "session", "chain")
# Requests of one load of a turn, and those before it that fill the caches.
_REQUESTS = 30
FIRST = 5
_PATHS = {"chat": "/v1/chat/completions", "responses": "/v1/responses", "messages": "/v1/messages"}
_ENDS = {"chat": b"[DONE]", "responses": b"response.completed", "messages": b"message_stop"}
_ID = re.compile(rb'"response":\{"id":"([^"]+)"')
_TITLE = "CPU time of each turn of an agent that sends its whole history, ms"
_SERVE = ["responses_gateway", "serve", "--no-adapt"]


# The CPU time of a request, or of each turn of a session, in microseconds.
Cost: TypeAlias = float | list[float]


class Way(NamedTuple):
    """A target at one of its doors; the relay passes on what is meant for Responses."""

    name: str
    target: Target
    protocol: str

    @property
    def door(self) -> Door:
        """The form of the requests."""
        return "messages" if self.protocol == "messages" else "responses"

    @property
    def stores(self) -> bool:
        """Whether the answers are to be stored."""
        return self.name == "stored"


class Client:
    """Sends one request after the other over one connection."""

    def __init__(self, way: Way) -> None:
        self._way = way
        self._socket = socket.create_connection(("127.0.0.1", way.target.port), timeout=60)
        self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)

    def ask(self, request: bytes) -> bytes:
        """Send a request; return the answer. Raise `HarnessError` if it is not whole."""
        head = f"POST {_PATHS[self._way.protocol]} HTTP/1.1\r\nHost: bench\r\nContent-Type: application/json\r\n"
        self._socket.sendall(f"{head}Content-Length: {len(request)}\r\n\r\n".encode() + request)
        pieces: list[bytes] = []
        while not pieces or not (pieces[-1].endswith(b"0\r\n\r\n") or b"".join(pieces[-2:]).endswith(b"0\r\n\r\n")):
            piece = self._socket.recv(1 << 18)
            if not piece:
                raise HarnessError(f"{self._way.name}: the connection was closed: {b''.join(pieces)[:300]!r}")
            pieces.append(piece)
        answer = b"".join(pieces)
        if _ENDS[self._way.protocol] not in answer:
            raise HarnessError(f"{self._way.name}: {answer[:300]!r}")
        return answer


def turn(name: str, way: Way, number: int) -> float:
    """Return the CPU time of one request with a history of its own, in microseconds."""
    items, size = SIZES[name]
    seeds = range(number * 1000, number * 1000 + FIRST + _REQUESTS)
    requests = [body(way.door, history(items, size, seed), seed, store=way.stores) for seed in seeds]
    return cpu_of_one(way, requests)


def cpu_of_one(way: Way, requests: Sequence[bytes]) -> float:
    """Return the CPU time of one of these requests, in microseconds; the first `FIRST` of them fill the caches."""
    client = Client(way)
    for request in requests[:FIRST]:
        client.ask(request)
    before = way.target.cpu_us()
    for request in requests[FIRST:]:
        client.ask(request)
    return (way.target.cpu_us() - before) / (len(requests) - FIRST)


def session(way: Way, number: int) -> list[float]:
    """Return the CPU time of each turn of an agent."""
    items = history(*SESSION, seed=number)
    return _each_turn(way, [body(way.door, part, number, store=way.stores) for part in growing(items)])


def chain(way: Way, number: int) -> list[float]:
    """Return the CPU time of each turn of an agent that names its last response."""
    items = history(*SESSION, seed=number + 500_000)
    ends = [len(part) for part in growing(items)]
    client = Client(way)
    previous = None
    used: list[float] = []
    for begin, end in zip([0, *ends], ends, strict=False):
        request = body("responses", items[begin:end], number, store=True, previous=previous)
        before = way.target.cpu_us()
        answer = client.ask(request)
        used.append(way.target.cpu_us() - before)
        found = _ID.search(answer)
        previous = found[1].decode() if found is not None else None
    return used


def growing(items: list[Object]) -> list[list[Object]]:
    """Return what of a history each turn of its session sends."""
    return [items[: 1 + (len(items) - 1) * turn // TURNS] for turn in range(1, TURNS + 1)]


def _each_turn(way: Way, requests: Sequence[bytes]) -> list[float]:
    client = Client(way)
    client.ask(requests[0])
    used: list[float] = []
    for request in requests:
        before = way.target.cpu_us()
        client.ask(request)
        used.append(way.target.cpu_us() - before)
    return used


def measured(name: str, ways: Sequence[Way], number: int) -> dict[str, Cost]:
    """Run one round of a load; return the CPU time of a request of each target, or of each turn."""
    costs: dict[str, Cost] = {}
    for way in ways:
        if name == "chain" and way.protocol != "chat" and not way.stores:
            continue
        loads: dict[str, Callable[[Way, int], Cost]] = {"session": session, "chain": chain}
        costs[way.name] = loads.get(name, partial(turn, name))(way, number)
    return costs


def table(name: str, costs: Mapping[str, Cost]) -> list[str]:
    """Return the rows of a load, with the ratios to the first target, which is the relay."""
    relay = 0.0
    rows: list[str] = []
    for target, used in costs.items():
        cpu = mean(used) if isinstance(used, list) else used
        relay = relay or cpu
        growth = f"{median(used[:5]) / 1000:.2f} to {median(used[-5:]) / 1000:.2f}" if isinstance(used, list) else ""
        rows.append(f"| {name} | {target} | {cpu / 1000:.2f} | {cpu / relay:.2f} | {growth} |")
    return rows


def growth(rounds: Sequence[Mapping[str, Cost]]) -> dict[str, list[float]]:
    """Return the median cost of each turn of a session in several rounds, in milliseconds."""
    lines: dict[str, list[float]] = {}
    for target in rounds[0]:
        turns = zip(*(costs[target] for costs in rounds), strict=True)
        lines[target] = [median(turn) / 1000 for turn in turns]
    return lines


def main() -> None:
    """Print the tables, one for each round."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", nargs="+", choices=NAMES, default=NAMES, help="these loads")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--picture", type=Path, metavar="FILE", help="draw the turns of the sessions as SVG")
    options = parser.parse_args()
    sessions: list[dict[str, Cost]] = []
    try:
        with ExitStack() as stack:
            upstream = stack.enter_context(processes.upstream(build("upstream")))
            folder = stack.enter_context(TemporaryDirectory())

            def start(name: str, *module: str) -> Target:
                port = processes.free_port()
                flags = ["--backend", f"http://127.0.0.1:{upstream}", "--port", str(port)]
                return stack.enter_context(processes.target(name, name, [sys.executable, "-m", *module, *flags], port))

            gateway = start("gateway", *_SERVE, "--store", "none")
            ways = [
                Way("relay", start("relay", "bench.relay"), "chat"),
                Way("responses", gateway, "responses"),
                Way("messages", gateway, "messages"),
                Way("stored", start("stored", *_SERVE, "--store", f"{folder}/store.sqlite3"), "responses"),
            ]
            for number in range(options.rounds):
                print("| load | target | CPU of a request, ms | ratio | first to last turns, ms |\n|---|---|---|---|---|")
                for name in options.only:
                    costs = measured(name, ways, number)
                    print("\n".join(table(name, costs)), flush=True)
                    if name == "session":
                        sessions.append(costs)
        if options.picture is not None and sessions:
            options.picture.write_text(picture(growth(sessions), _TITLE), "utf-8")
    except HarnessError as error:
        sys.exit(f"bench: {error}")


if __name__ == "__main__":
    main()
