"""Metrics of several processes, added up: each writes its own into files of one folder, whoever is asked reads them all.

A process writes under the name of its place, not of its process id: the successor of a worker that died goes on counting in
the same files. So a sum never falls, and files do not pile up.
"""

from __future__ import annotations

import fcntl
import os
import shutil
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path

from prometheus_client import CollectorRegistry, Counter, generate_latest, values
from prometheus_client.multiprocess import MultiProcessCollector, mark_process_dead

_FOLDER = "PROMETHEUS_MULTIPROC_DIR"  # the library reads it whenever a metric is made
#: Memory where there is such a place: the files are mapped, and written to for each request.
PLACES = ("/dev/shm", None)
_PREFIX = "responses-proxy-metrics-"
#: Seconds in which a folder without a lock may be one that is being made.
_NEW = 60


class Folder:
    """The files of all, in a new folder. Whoever made it holds a lock on it for as long as it lives: what was left by one that
    was killed is known by that, and removed by the next. Raises `OSError` where no folder can be written."""

    def __init__(self, places: Sequence[str | None] = PLACES) -> None:
        self.path = _new_folder(places)
        self._lock = os.open(self.path, os.O_RDONLY)
        fcntl.flock(self._lock, fcntl.LOCK_EX)
        for other in self.path.parent.glob(f"{_PREFIX}*"):
            if _is_left(other):
                remove_folder(other)

    def remove(self) -> None:
        """All that was counted."""
        remove_folder(self.path)
        os.close(self._lock)


def remove_folder(folder: Path) -> None:
    """Delete what is there, if anything is."""
    shutil.rmtree(folder, ignore_errors=True)


def _new_folder(places: Sequence[str | None]) -> Path:
    refused = OSError()
    for place in places:
        try:
            return Path(tempfile.mkdtemp(prefix=_PREFIX, dir=place))
        except OSError as error:
            refused = error
    raise OSError(refused.errno, "no folder can be written for the metrics of several workers: set TMPDIR")


def _is_left(folder: Path) -> bool:
    """Nobody who made it lives. A new one may not be locked yet."""
    try:
        if time.time() - folder.stat().st_mtime < _NEW:
            return False
        descriptor = os.open(folder, os.O_RDONLY)
    except OSError:  # somebody else's, or gone by now
        return False
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        return False
    finally:
        os.close(descriptor)
    return True


def share(folder: Path, place: str) -> None:
    """From now on the metrics of this process are written to the folder. Before any of them is made; no two processes that
    live may have the same place."""
    os.environ[_FOLDER] = str(folder)
    values.ValueClass = values.MultiProcessValue(lambda: place)  # type: ignore[no-untyped-call]


def shared() -> Path | None:
    """The folder, in a process that shares its metrics."""
    return Path(os.environ[_FOLDER]) if values.ValueClass is not values.MutexValue else None


def forget(folder: Path, place: str) -> None:
    """A process is gone: what it had under way is no longer counted, what it had done stays."""
    mark_process_dead(place, str(folder))  # type: ignore[no-untyped-call]


def sum_of(folder: Path) -> bytes:
    """The text that Prometheus scrapes, of all processes; what one of them has set to NaN is left out."""
    registry = CollectorRegistry()
    MultiProcessCollector(registry, str(folder))  # type: ignore[no-untyped-call]
    text = generate_latest(registry)
    return b"".join(line for line in text.splitlines(keepends=True) if not line.endswith(b" NaN\n"))


class ParentMetrics:
    """What only the parent of the workers knows."""

    def __init__(self) -> None:
        self.deaths = Counter(
            "responses_proxy_worker_deaths_total", "Workers that ended without being told to.", registry=CollectorRegistry()
        )
