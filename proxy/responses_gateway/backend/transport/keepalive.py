"""TCP options by which a connection breaks when the machine at its other end has disappeared.

A process that dies closes its connections. A machine that loses power, or a network in between, says nothing: the kernel would
wait two hours for an idle connection, and a quarter of an hour for data that is not acknowledged. These options make that
shorter. They ask the other kernel, not the program, so a model that thinks for long is not disturbed."""

from __future__ import annotations

import socket
from typing import Any

# Seconds without a sign of life from a backend's machine after which its connections are broken.
VANISHED = 60.0
_PROBES = 4  # keep-alive probes within such a time
# The kernel's limits.
_LONGEST_PAUSE = 32_767
_LONGEST_MS = 2**31 - 1


def open_socket(address: tuple[Any, ...]) -> socket.socket:
    """Open a socket for a connection to a backend; `address` is an entry of `getaddrinfo`."""
    family, kind, protocol = address[:3]
    opened = socket.socket(family, kind, protocol)
    notice_vanished(opened, VANISHED)
    return opened


def notice_vanished(connection: socket.socket, seconds: float) -> None:
    """Break a TCP connection whose other end gives no sign of life, or takes no data, for so long. Sockets that a listening
    socket accepts inherit it. Options that the system does not have are left out."""
    pause = max(1, min(int(seconds / _PROBES), _LONGEST_PAUSE))
    connection.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    options = {
        "TCP_KEEPIDLE": pause,
        "TCP_KEEPINTVL": pause,
        "TCP_KEEPCNT": _PROBES,
        "TCP_USER_TIMEOUT": min(int(seconds * 1000), _LONGEST_MS),
    }
    for name, value in options.items():
        if hasattr(socket, name):
            connection.setsockopt(socket.IPPROTO_TCP, getattr(socket, name), value)
