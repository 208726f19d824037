"""A folder in which several processes write their metrics, so that any of them can show the sum.

Each process writes under the name of its place, not of its process id: the successor of a worker that died continues to count
in the same files. So a sum never falls, and files do not accumulate."""

from __future__ import annotations

import os
import shutil
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path

from prometheus_client import CollectorRegistry, Counter
from prometheus_client.multiprocess import mark_process_dead

from responses_gateway import folder_lock
from responses_gateway.telemetry.metrics import FOLDER_VARIABLE, name_files

# In memory if possible: the files are mapped, and each request writes to them.
PLACES = ("/dev/shm", None)
_PREFIX = "responses-gateway-metrics-"
# Seconds in which a folder without a lock may belong to a process that is about to lock it.
_NEW = 60


class Folder:
    """The folder of all workers. Raises `OSError` if none can be written.

    Its maker keeps a lock on it. The folder of a process that was killed has no lock, and is removed with the next one."""

    def __init__(self, places: Sequence[str | None] = PLACES) -> None:
        self.path = _new_folder(places)
        self.lock = folder_lock.lock(self.path)
        for other in self.path.parent.glob(f"{_PREFIX}*"):
            if _is_abandoned(other):
                shutil.rmtree(other, ignore_errors=True)

    def remove(self) -> None:
        """Delete the folder."""
        shutil.rmtree(self.path, ignore_errors=True)
        os.close(self.lock)


def _new_folder(places: Sequence[str | None]) -> Path:
    refused = OSError()
    for place in places:
        try:
            return Path(tempfile.mkdtemp(prefix=_PREFIX, dir=place))
        except OSError as error:
            refused = error
    raise OSError(refused.errno, "no folder can be written for the metrics of several workers: set TMPDIR")


def _is_abandoned(folder: Path) -> bool:
    """Tell whether the process that made a folder is dead."""
    try:
        return time.time() - folder.stat().st_mtime >= _NEW and not folder_lock.is_locked(folder)
    except OSError:  # of another user, or deleted meanwhile
        return False


def share(folder: Path, place: str) -> None:
    """Write the metrics of this process, and of those that it starts, to the folder. Call it before any metric is made. No two
    living processes may have the same place."""
    os.environ.update(environment(folder))
    name_files(place)


def environment(folder: Path) -> dict[str, str]:
    """Return the variables of a process that is to write to the folder."""
    return {FOLDER_VARIABLE: str(folder)}


def forget(folder: Path, place: str) -> None:
    """Remove the gauges of a process that has ended; its counters stay."""
    mark_process_dead(place, str(folder))  # type: ignore[no-untyped-call]


def count_deaths() -> Counter:
    """Return the metric that the parent of the workers writes."""
    text = "Workers that ended without being asked to."
    return Counter("responses_gateway_worker_deaths_total", text, registry=CollectorRegistry())
