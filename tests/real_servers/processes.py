"""Processes that are started for a while, each in a group of its own, and that always end with their group."""

from __future__ import annotations

import os
import signal
import subprocess
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

import httpx

# Seconds for a group to end when it is asked to.
_GRACE = 20.0
_INTERVAL = 0.1


class NotReady(Exception):
    """A process ended, or did not answer in time; the text has the end of its log."""


@dataclass(frozen=True)
class Process:
    """A running process and the file with all that it prints."""

    popen: subprocess.Popen[bytes]
    log: Path

    def printed(self) -> str:
        """Return what it has printed so far."""
        return self.log.read_text(encoding="utf-8", errors="replace")

    def wait_until(self, condition: Callable[[], bool], seconds: float) -> None:
        """Wait until the condition holds. Raise `NotReady` if the process ends before, or if it takes longer."""
        deadline = time.monotonic() + seconds
        while not condition():
            if self.popen.poll() is not None:
                raise NotReady(f"ended with status {self.popen.returncode}: {self.printed()[-2000:]}")
            if time.monotonic() > deadline:
                raise NotReady(f"not ready after {seconds:.0f} s: {self.printed()[-2000:]}")
            time.sleep(_INTERVAL)


@contextmanager
def running(command: Sequence[str], environment: Mapping[str, str], log: Path) -> Iterator[Process]:
    """Run a command while the block lasts; at its end the whole group is stopped, by force if it takes too long."""
    with log.open("wb") as file:
        popen = subprocess.Popen(
            command, env=environment, stdin=subprocess.DEVNULL, stdout=file, stderr=file, start_new_session=True
        )
    try:
        yield Process(popen, log)
    finally:
        _stop(popen)


def _stop(popen: subprocess.Popen[bytes]) -> None:
    try:
        with suppress(ProcessLookupError):
            os.killpg(popen.pid, signal.SIGTERM)
        with suppress(subprocess.TimeoutExpired):
            popen.wait(_GRACE)
    finally:  # also if a second signal interrupts the waiting
        with suppress(ProcessLookupError):
            os.killpg(popen.pid, signal.SIGKILL)
        popen.wait()


def responds(client: httpx.Client, url: str) -> bool:
    """Tell whether a URL answers with a status below 400."""
    try:
        return client.get(url).status_code < 400
    except httpx.HTTPError:
        return False


def plain_environment(home: Path) -> dict[str, str]:
    """Return an environment with nothing of the surroundings but the search path; `home` is for caches and state."""
    return {
        "PATH": os.environ["PATH"],
        "HOME": str(home),
        "LANG": "C.UTF-8",
        "XDG_STATE_HOME": str(home / "state"),
        "OMP_NUM_THREADS": "1",
        "TOKENIZERS_PARALLELISM": "false",
        "HF_HUB_OFFLINE": "1",
        "TRANSFORMERS_OFFLINE": "1",
        "DO_NOT_TRACK": "1",
    }
