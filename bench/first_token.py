"""Measure how much later the first token comes through the gateway than straight from the backend.

    python -m bench.first_token               200 requests of each kind
    python -m bench.first_token --requests 50

One request at a time, on open connections, straight to the backend, through the plain relay and through the gateway in turn, so
that all see the same machine. The time is that from sending the request to reading the first text.
"""

from __future__ import annotations

import argparse
import socket
import statistics
import sys
import time
from contextlib import ExitStack
from typing import NamedTuple

from bench import processes
from bench.programs import HarnessError, build, request_body

# Short, and at once: what follows the first token is none of our business here.
_ANSWER = "burst:2"
# Before these the connections are new, and the gateway has not seen such a request.
_FIRST = 20


class Way(NamedTuple):
    """A way to the model: its name, the protocol and path, how the first text begins, and its port."""

    name: str
    protocol: str
    path: str
    sign: bytes
    port: int


def measured(ways: list[Way], requests: int) -> dict[str, list[float]]:
    """Return the milliseconds until the first text, by the name of the way."""
    times: dict[str, list[float]] = {way.name: [] for way in ways}
    with ExitStack() as stack:
        opened = [stack.enter_context(socket.create_connection(("127.0.0.1", way.port), timeout=60)) for way in ways]
        for connection in opened:
            connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        for number in range(_FIRST + requests):
            for way, connection in zip(ways, opened, strict=True):
                taken = _first_text(connection, way)
                if number >= _FIRST:
                    times[way.name].append(taken)
    return times


def _first_text(connection: socket.socket, way: Way) -> float:
    body = request_body(way.protocol, _ANSWER).encode()
    head = f"POST {way.path} HTTP/1.1\r\nHost: bench\r\nContent-Type: application/json\r\nContent-Length: {len(body)}\r\n\r\n"
    began = time.perf_counter()
    connection.sendall(head.encode() + body)
    answer = b""
    first = 0.0
    while not answer.endswith(b"0\r\n\r\n"):
        piece = connection.recv(65536)
        if not piece:
            raise HarnessError(f"{way.name}: the connection was closed: {answer[:200]!r}")
        answer += piece
        if not first and way.sign in answer:
            first = time.perf_counter()
    if not first:
        raise HarnessError(f"{way.name}: an answer without text: {answer[:200]!r}")
    return (first - began) * 1000


def table(times: dict[str, list[float]]) -> str:
    """Return the medians, and what is added to the first row."""
    direct = statistics.median(next(iter(times.values())))
    lines = ["| | first token, median ms | 95 % below | added, median ms |", "|---|---|---|---|"]
    for name, taken in times.items():
        median = statistics.median(taken)
        high = statistics.quantiles(taken, n=20)[-1]
        lines.append(f"| {name} | {median:.2f} | {high:.2f} | {median - direct:.2f} |")
    return "\n".join(lines)


def main(arguments: list[str]) -> int:
    """Print the table; 2 if it cannot be measured here."""
    parser = argparse.ArgumentParser(prog="python -m bench.first_token", description=__doc__.partition("\n")[0])
    parser.add_argument("--requests", type=int, default=200, help="of each kind (default: 200)")
    args = parser.parse_args(arguments)
    try:
        with ExitStack() as stack:
            backend = stack.enter_context(processes.upstream(build("upstream")))
            relay, gateway = processes.free_port(), processes.free_port()
            command = [sys.executable, "-m", "bench.relay", "--backend", f"http://127.0.0.1:{backend}", "--port", str(relay)]
            stack.enter_context(processes.target("relay", "chat", command, relay))
            command = [
                sys.executable,
                "-m",
                "responses_gateway",
                "serve",
                "--backend",
                f"http://127.0.0.1:{backend}",
                "--no-adapt",
            ]
            command += ["--port", str(gateway), "--store", "none"]
            stack.enter_context(processes.target("gateway", "responses", command, gateway))
            chat = ("chat", "/v1/chat/completions", b'"content":"The')
            ways = [
                Way("straight to the backend", *chat, backend),
                Way("a plain relay", *chat, relay),
                Way("the gateway", "responses", "/v1/responses", b'"delta":"The', gateway),
            ]
            print(table(measured(ways, args.requests)))
    except HarnessError as error:
        print(error, file=sys.stderr)
        return 2
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
