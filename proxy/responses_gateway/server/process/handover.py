"""A rolling restart of a process that serves alone: it becomes the parent of its successor.

The successor is a worker that gets the listening sockets. Once it is ready, this process takes no new connections and ends
its streams; from then on it is the parent of one worker, as in `supervisor.py`, so that the service's process stays."""

from __future__ import annotations

import asyncio
import signal
from collections.abc import Callable
from contextlib import ExitStack

from responses_gateway.server.process.control import Control
from responses_gateway.server.process.signals import StopSignals
from responses_gateway.server.process.sockets import Listeners
from responses_gateway.server.process.supervisor import Parent, Prepare, shared_folder
from responses_gateway.settings import Settings, SettingsError
from responses_gateway.telemetry import logs


class Handover:
    """Waits for SIGUSR2. `begun` tells whether a successor has taken over; then `end` waits for the end of the parent."""

    def __init__(
        self, settings: Settings, prepare: Prepare | None, control: Control, listeners: Listeners, stop_signals: StopSignals
    ) -> None:
        """`stop_signals` are those of the server in this process. Without `prepare` there is no successor."""
        self.begun = False
        self._settings = settings
        self._prepare = prepare
        self._control = control
        self._listeners = listeners
        self._own = stop_signals
        self._handle_hangup: Callable[[], None] = lambda: None
        self._task: asyncio.Task[int] | None = None
        self._passing: asyncio.Task[None] | None = None

    def handle(self, handle_hangup: Callable[[], None]) -> None:
        """Handle SIGUSR2. `handle_hangup` handles SIGHUP, as a parent does in another way."""
        self._handle_hangup = handle_hangup
        asyncio.get_running_loop().add_signal_handler(signal.SIGUSR2, self._restart)

    async def end(self) -> int:
        """Wait until nothing is left to do; return the exit code."""
        return 0 if self._task is None else await self._task

    def _restart(self) -> None:
        if self._prepare is None or self._settings.store == "memory":
            logs.logger().warning("no rolling restart: the responses are in the memory of this process (store)")
        elif self._own.any.is_set() or (self._task is not None and not self._task.done()):
            logs.logger().warning("no rolling restart: the gateway is already restarting or stopping")
        else:
            self._task = asyncio.create_task(self._become_parent(self._prepare))

    async def _become_parent(self, prepare: Prepare) -> int:
        logs.logger().info("rolling restart", extra=logs.fields(workers=1))
        signals = StopSignals()
        self._passing = asyncio.create_task(_pass_on(self._own, signals))
        reason = "the new process could not start"
        code = 0
        try:
            with ExitStack() as stack:
                listeners = stack.enter_context(self._listeners.copy())
                folder = shared_folder(stack, self._settings.workers)
                parent = Parent(self._settings, prepare, self._control, listeners, folder, signals)
                code = await parent.run(lambda _: self._switch(signals))
        except (SettingsError, OSError) as error:
            reason = str(error)
        finally:
            self._passing.cancel()
        if not self.begun and not self._own.stop.is_set():
            logs.logger().error("the rolling restart is abandoned, this process continues", extra=logs.fields(reason=reason))
            self._handle_hangup()
            self.handle(self._handle_hangup)
        return code if self.begun else 0

    def _switch(self, signals: StopSignals) -> None:
        """Let the successor serve."""
        self.begun = True
        if self._passing is not None:
            self._passing.cancel()
        signals.handle(worker=False)
        self._passing = asyncio.create_task(_pass_on(signals, self._own))
        self._own.give("retire")
        logs.logger().info("rolled", extra=logs.fields(workers=1, retiring=1))


async def _pass_on(signals: StopSignals, to: StopSignals) -> None:
    await signals.stop.wait()
    to.give("stop")
    await signals.stop_now.wait()
    to.give("stop_now")
