"""Finding out what the backends want, in the background, while requests are answered."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

from proxy.backend.pool import Pool
from proxy.probing.autoconfigure import Autoconfigure
from proxy.settings import Settings
from proxy.telemetry import logs

Report = Callable[["Autoconfiguration"], None]


class Autoconfiguration:
    """Probes the backends of a pool, and uses the settings that fit where none were given.

    With several workers one of them probes and reports, the others `take_over` what it found.
    """

    def __init__(self, settings: Settings, pool: Pool, use: Callable[[Settings], None], report: Report) -> None:
        """`use` is called with settings that fit; `report` whenever something was found out."""
        self.enabled = settings.adapt
        self.finished = False
        self._expected = False  # this process or another one probes
        self.task: asyncio.Task[None] | None = None  # under way, or done
        self._pool = pool
        self._use_settings = use
        self._report = report
        self._examination = Autoconfigure(settings, self._use, self._has_looked)

    @property
    def taken(self) -> dict[str, Any]:
        """The settings that were found to fit so far."""
        return self._examination.taken

    @property
    def looked(self) -> asyncio.Event:
        """Is set once each backend was probed for the first time, with whatever result."""
        return self._examination.looked

    @property
    def pending(self) -> bool:
        """Settings may still be found: an answer now may not be the best one."""
        return self._expected and not self.looked.is_set()

    def expect(self) -> None:
        """Note that another process probes, unless that is switched off."""
        self._expected = self.enabled

    def begin(self) -> None:
        """Probe the backends, unless that is switched off or has begun."""
        if not self.enabled or self.task is not None:
            return
        self._expected = True
        backends = [member.backend for member in self._pool.members.by_name.values()]
        self.task = asyncio.create_task(self._examination.run(backends))
        self.task.add_done_callback(self._done)

    def take_over(self, taken: dict[str, Any]) -> None:
        """Use the settings that another process has found."""
        self._use_settings(self._examination.take_over(taken))

    async def close(self) -> None:
        """Stop probing."""
        if self.task is not None:
            self.task.cancel()

    def _use(self, settings: Settings) -> None:
        self._use_settings(settings)
        self._report(self)

    def _has_looked(self) -> None:
        self._report(self)

    def _done(self, task: asyncio.Task[None]) -> None:
        if task.cancelled():
            return
        error = task.exception()
        if error is not None:
            logs.logger().error("a defect while probing the backends", exc_info=error)
        self.finished = True
        self._report(self)
