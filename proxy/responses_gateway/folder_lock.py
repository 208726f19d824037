"""The lock that the process of a gateway keeps on the folder of its workers: it ends with the process, however that ends."""

from __future__ import annotations

import fcntl
import os
from pathlib import Path


def lock(folder: Path) -> int:
    """Lock a folder until the descriptor that is returned is closed. Raise `OSError` if it cannot be opened."""
    descriptor = os.open(folder, os.O_RDONLY)
    fcntl.flock(descriptor, fcntl.LOCK_EX)
    return descriptor


def is_locked(folder: Path) -> bool:
    """Tell whether a process keeps the lock. Raise `OSError` if the folder cannot be opened."""
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    finally:
        os.close(descriptor)
    return False
