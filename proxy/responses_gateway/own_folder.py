"""A new folder that a process has for its time. The process holds a lock in it, which ends with the process, however that
ends: so that the next one can remove what a killed one has left."""

from __future__ import annotations

import fcntl
import os
import shutil
import tempfile
from contextlib import suppress
from pathlib import Path

_LOCK = "lock"


class OwnFolder:
    """A folder that no other user can open. What killed processes have left is removed before."""

    def __init__(self, prefix: str, place: str | None = None) -> None:
        """Make a folder whose name begins with `prefix`, where temporary files are if no `place` is given. Raise `OSError`."""
        remove_abandoned(prefix, place)
        self.path = Path(tempfile.mkdtemp(prefix=prefix, dir=place))
        self.lock = os.open(self.path / "new", os.O_CREAT | os.O_RDWR, 0o600)
        fcntl.flock(self.lock, fcntl.LOCK_EX)
        os.rename(self.path / "new", self.path / _LOCK)  # locked before others see it

    def remove(self) -> None:
        """Delete the folder."""
        shutil.rmtree(self.path, ignore_errors=True)
        os.close(self.lock)


def remove_abandoned(prefix: str, place: str | None = None) -> None:
    """Delete the folders of processes of this user that were killed."""
    for path in Path(place or tempfile.gettempdir()).glob(f"{prefix}*"):
        with suppress(OSError):  # it has no lock yet, or was deleted meanwhile
            if not path.is_symlink() and path.stat().st_uid == os.getuid() and not is_locked(path):
                shutil.rmtree(path, ignore_errors=True)


def is_locked(folder: Path) -> bool:
    """Tell whether the process that made a folder still runs. Raise `OSError` if the folder has no lock."""
    descriptor = os.open(folder / _LOCK, os.O_RDONLY | os.O_NOFOLLOW)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    finally:
        os.close(descriptor)
    return False
