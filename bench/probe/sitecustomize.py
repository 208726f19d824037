"""Makes a Python process tell what it holds: on SIGRTMIN it writes `SOAK_PROBE/<pid>.json`.

Python imports this module at the start of each process whose PYTHONPATH has this folder. The soak puts it there for the
gateway, which knows nothing of it."""

from __future__ import annotations

import os
import signal
from types import FrameType

_FOLDER = os.environ.get("SOAK_PROBE")


def report(_number: int, _frame: FrameType | None) -> None:
    """Write the tasks, threads and objects of this process, after a collection of the garbage."""
    import asyncio
    import gc
    import json
    import threading
    from collections import Counter

    gc.collect()
    objects = gc.get_objects()
    kinds = Counter(f"{type(each).__module__}.{type(each).__qualname__}" for each in objects)
    tasks = Counter(
        getattr(each.get_coro(), "__qualname__", "?") for each in objects if isinstance(each, asyncio.Task) and not each.done()
    )
    del objects
    found = {"tasks": tasks, "threads": threading.active_count(), "objects": kinds}
    path = os.path.join(str(_FOLDER), f"{os.getpid()}.json")
    with open(f"{path}.part", "w") as file:
        json.dump(found, file)
    os.replace(f"{path}.part", path)


if _FOLDER:
    signal.signal(signal.SIGRTMIN, report)
