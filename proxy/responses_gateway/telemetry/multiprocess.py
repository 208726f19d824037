"""A folder in which several processes write their metrics, so that any of them can show the sum.

Each process writes under the name of its place, not of its process id: the successor of a worker that died continues to count
in the same files. So a sum never falls, and files do not accumulate."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path

from prometheus_client import CollectorRegistry, Counter
from prometheus_client.multiprocess import mark_process_dead

from responses_gateway.own_folder import OwnFolder
from responses_gateway.telemetry.metrics import FOLDER_VARIABLE, name_files

# In memory if possible: the files are mapped, and each request writes to them.
PLACES = ("/dev/shm", None)
_PREFIX = "responses-gateway-metrics-"


def new_folder(places: Sequence[str | None] = PLACES) -> OwnFolder:
    """Make the folder of all workers. Raise `OSError` if none can be written."""
    refused = OSError()
    for place in places:
        try:
            return OwnFolder(_PREFIX, place)
        except OSError as error:
            refused = error
    raise OSError(refused.errno, "no folder can be written for the metrics of several workers: set TMPDIR")


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
