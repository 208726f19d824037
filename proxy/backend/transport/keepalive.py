"""Sockets that notice when the machine at the other end is gone.

A process that dies closes its connections. A machine that loses power, or a network in between, says nothing: the kernel would
wait two hours for an idle connection, and a quarter of an hour for what was sent and not confirmed. Options of the
socket make that shorter; they ask the other kernel, not the program, so a model that thinks for long is not disturbed.
"""

from __future__ import annotations

import socket
from typing import Any

#: Seconds without a sign of a backend's machine after which its connections are broken.
VANISHED = 60.0
#: Times within such a limit that an idle connection is asked for a sign.
_PROBES = 4
_LONGEST_MS = 2**31 - 1


def open_socket(address: tuple[Any, ...]) -> socket.socket:
    """A socket for a connection to a backend; `address` is one of those that `getaddrinfo` gives."""
    family, kind, protocol = address[:3]
    opened = socket.socket(family, kind, protocol)
    notice_vanished(opened, VANISHED)
    return opened


def notice_vanished(connection: socket.socket, seconds: float) -> None:
    """Break a TCP connection whose other end gives no sign, or takes nothing of what is there for it, for so long. What a
    listening socket accepts inherits it. Where the system has no such options, nothing changes."""
    pause = max(1, min(int(seconds / _PROBES), 32_767))  # the kernel's limit
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
