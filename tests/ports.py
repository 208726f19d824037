"""Free ports for servers that cannot choose one themselves (port 0)."""

from __future__ import annotations

import os
import random
import socket
import sys
from collections.abc import Iterator

# Below the range from which the kernel takes the ports of outgoing connections: none of those can take a port that a test has
# chosen and not opened yet. Each process of pytest-xdist has a slice of its own, as have runs with several Pythons at a time.
_FIRST = 18_000
_SLICE = 250
_SLICES = 13
_PYTHONS = 4


def free_port() -> int:
    """Return a port of the loopback interface that nobody listens on, a different one each time."""
    for port in _candidates:
        with socket.socket() as server:
            server.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            try:
                server.bind(("127.0.0.1", port))
            except OSError:
                continue
            return port
    raise AssertionError("no port is free")


def _slice() -> Iterator[int]:
    worker = int(os.environ.get("PYTEST_XDIST_WORKER", "gw0").removeprefix("gw"))
    first = _FIRST + (sys.version_info.minor % _PYTHONS * _SLICES + worker % _SLICES) * _SLICE
    start = random.SystemRandom().randrange(_SLICE)
    while True:
        for number in range(_SLICE):
            yield first + (start + number) % _SLICE


_candidates = _slice()
