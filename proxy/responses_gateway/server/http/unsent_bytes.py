"""The bytes that a client has not received yet."""

from __future__ import annotations

import asyncio
import struct
import sys

if sys.platform != "win32":
    import fcntl
    import termios


def unsent_bytes(transport: asyncio.Transport | None) -> int:
    """Return how many bytes are not sent yet: in this process, and in the kernel until the client has acknowledged them.

    The kernel takes megabytes at once, and reports the socket as writable again when a third of that has left, which can take
    minutes over a slow line. So its queue is measured, where the system allows that."""
    if transport is None or transport.is_closing():
        return 0
    return transport.get_write_buffer_size() + _in_kernel(transport)


def _in_kernel(transport: asyncio.Transport) -> int:
    connection = transport.get_extra_info("socket")
    if sys.platform == "win32" or connection is None:
        return 0
    try:
        found = fcntl.ioctl(connection.fileno(), termios.TIOCOUTQ, bytes(4))
    except (OSError, ValueError):
        return 0
    size: int = struct.unpack("i", found)[0]
    return size
