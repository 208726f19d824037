"""The number of bytes that a client has not taken yet."""

from __future__ import annotations

import asyncio
import struct
import sys

if sys.platform != "win32":
    import fcntl
    import termios


def unsent(transport: asyncio.Transport | None) -> int:
    """Return how many bytes wait for a client: in this process, and in the kernel until the client has acknowledged them.

    The kernel accepts megabytes at once, and reports room again when a third of that was sent, which can take minutes over a
    slow line. So its own count is read, where the platform has one."""
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
