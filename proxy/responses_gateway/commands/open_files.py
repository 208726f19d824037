"""The limit of open files of a process: each stream needs two, and shells allow 1,024 of them, on macOS 256."""

from __future__ import annotations

import resource
from contextlib import suppress

# What is enough for a process, and what macOS always allows.
_WANTED = (65_536, 10_240)


def allow_open_files() -> None:
    """Raise the limit as far as the system lets a user, because a connection that has no file is closed without a word."""
    allowed, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    for wanted in _WANTED:
        limit = wanted if most == resource.RLIM_INFINITY else min(wanted, most)
        if allowed == resource.RLIM_INFINITY or allowed >= limit:
            return
        with suppress(OSError, ValueError):
            resource.setrlimit(resource.RLIMIT_NOFILE, (limit, most))
            return
