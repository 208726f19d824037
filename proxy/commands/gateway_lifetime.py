"""A gateway that several `responses-proxy codex` use at a time: the first one starts it, the last one to leave stops it.

Three files in a folder of theirs, all of them for their locks, which vanish with the processes that hold them:

- `.turn`: held by who is about to come or to leave, so that only one is;
- `.users`: shared by all who use the gateway, so that nobody else holds it when the last one leaves;
- `.pid`: held by the gateway itself, so that the number in it is that of a gateway and of nothing else.
"""

from __future__ import annotations

import fcntl
import os
import signal
import subprocess
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import IO

_STOP_TIMEOUT, _INTERVAL = 10.0, 0.05

#: Starts a program with these file descriptors left open for it, and returns when it serves.
Start = Callable[[tuple[int, ...]], subprocess.Popen[bytes]]


@contextmanager
def shared_gateway(place: Path, answers: Callable[[], bool], start: Start) -> Iterator[None]:
    """A gateway while the block runs: one that `answers` already, or one that is started. `place` is the path of the files,
    without their suffixes. What `answers` and `start` raise is raised."""
    with ExitStack() as stack:
        users = stack.enter_context(_opened(place, ".users"))
        with _turn(place):
            fcntl.flock(users, fcntl.LOCK_SH)
            process = None if answers() else _start(place, start)
        try:
            yield
        finally:
            with _turn(place):
                if _is_held(users):  # by others: the lock of this process does not count
                    users.close()
                else:
                    _stop_gateway(place)
                    if process is not None:
                        process.kill()  # in case somebody has deleted the files
                        process.wait()


def _start(place: Path, start: Start) -> subprocess.Popen[bytes]:
    _stop_gateway(place)  # it does not answer: whoever started it was killed
    with _opened(place, ".pid") as file:
        if _is_held(file):
            raise OSError(f"a gateway that was started before neither answers nor ends: {file.name} is locked")
        process = start((file.fileno(),))  # the lock is the gateway's from now on
        file.truncate(0)
        file.write(str(process.pid))
    return process


def _stop_gateway(place: Path) -> None:
    """Stop the one that was started by any of the users, if it still runs: in good order if it can."""
    with _opened(place, ".pid") as file:
        file.seek(0)
        pid = file.read()  # nothing if who started it was killed at once
        for number in (signal.SIGTERM, signal.SIGKILL):
            if not pid or not _is_held(file):
                return
            with suppress(ProcessLookupError):
                os.kill(int(pid), number)
            deadline = time.monotonic() + _STOP_TIMEOUT
            while _is_held(file) and time.monotonic() < deadline:
                time.sleep(_INTERVAL)


def _opened(place: Path, suffix: str) -> IO[str]:
    return place.with_name(place.name + suffix).open("a+", encoding="ascii")


@contextmanager
def _turn(place: Path) -> Iterator[None]:
    with _opened(place, ".turn") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield


def _is_held(file: IO[str]) -> bool:
    """By somebody else than who has opened this file."""
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    return False
