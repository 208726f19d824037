"""The signals of a process: to stop, and to read the settings again."""

from __future__ import annotations

import asyncio
import os
import signal
from collections.abc import Callable, Coroutine

from responses_gateway.ended_tasks import KeptTasks
from responses_gateway.settings import Settings, SettingsError
from responses_gateway.settings.reloading import Reloaded
from responses_gateway.telemetry import logs

# Reads the settings anew. Raises `SettingsError`.
Reload = Callable[[], Settings]

_PARENT_FIRST = 0.5  # seconds in which the parent may send an order to a worker that got the signal as well


class StopSignals:
    """Orders to end a process; each event is set at most once. Create it inside the running event loop."""

    def __init__(self) -> None:
        self.retire = asyncio.Event()  # take no new connections, and end with the last existing one
        self.stop = asyncio.Event()  # end within the limits of the settings
        self.stop_now = asyncio.Event()  # end now
        self.any = asyncio.Event()  # set with the first of them

    def give(self, name: str) -> bool:
        """Set the event `retire`, `stop` or `stop_now`. Returns False for any other name."""
        if name not in ("retire", "stop", "stop_now"):
            return False
        getattr(self, name).set()
        self.any.set()
        return True

    def handle(self, *, worker: bool) -> None:
        """Stop at the first SIGINT or SIGTERM, and at once at the next one. A worker retires instead, unless its parent got the
        signal as well and sends an order (a service manager may signal all processes)."""
        loop = asyncio.get_running_loop()

        def received() -> None:
            if worker:
                loop.call_later(_PARENT_FIRST, self.give, "retire")
            else:
                self.give("stop_now" if self.stop.is_set() else "stop")

        for number in (signal.SIGINT, signal.SIGTERM):
            loop.add_signal_handler(number, received)


def reload_at_hangup(
    reload: Reload, use: Callable[[Settings], Reloaded]
) -> Callable[[], Coroutine[None, None, Reloaded | str]]:
    """Read the settings at each SIGHUP, as what is returned does without the signal: see `reading`. Say what has changed."""
    tasks: KeptTasks[Reloaded | str] = KeptTasks()
    read = reading(reload, lambda settings: _logged(use(settings)))
    asyncio.get_running_loop().add_signal_handler(signal.SIGHUP, lambda: tasks.begin(read()))
    return read


def reading(reload: Reload, use: Callable[[Settings], Reloaded]) -> Callable[[], Coroutine[None, None, Reloaded | str]]:
    """Return what reads the settings anew, and has `use` apply them, which may raise `ValueError`. Wrong settings change
    nothing. Its result is what has changed, or what is wrong."""
    turn = asyncio.Lock()  # what was read first must not be put in force last

    async def read() -> Reloaded | str:
        try:
            async with turn:
                return use(await asyncio.to_thread(reload))
        except (SettingsError, ValueError) as error:
            logs.logger().error("settings not reloaded: nothing has changed", extra=logs.fields(error=str(error)))
            return str(error)

    return read


def _logged(result: Reloaded) -> Reloaded:
    """Say what has changed, and what has not yet."""
    backends = len(result.settings.backend) + len(result.settings.backends)
    logs.logger().info("settings reloaded", extra=logs.fields(backends=backends, changed=",".join(result.at_once) or None))
    if result.rolling:
        logs.logger().warning(f"changed settings need a rolling restart (SIGUSR2): {', '.join(result.rolling)}")
    if result.restart:
        logs.logger().warning(f"changed settings need a restart: {', '.join(result.restart)}")
    return result


def stop_with_terminal(stop_signals: StopSignals) -> None:
    """Stop at SIGHUP when the terminal that this was started from is closed. Any other SIGHUP only logs a warning."""
    had_terminal = _has_terminal()
    stopped = False

    def hung_up() -> None:
        nonlocal stopped
        if stopped:
            return  # the kernel sends it, and the shell may as well: a second stop would not wait for requests
        if had_terminal and not _has_terminal():
            stopped = True
            stop_signals.give("stop")
        else:
            logs.logger().warning("SIGHUP: there is no settings file to reload, nothing has changed")

    asyncio.get_running_loop().add_signal_handler(signal.SIGHUP, hung_up)


def _has_terminal() -> bool:
    try:
        os.close(os.open("/dev/tty", os.O_RDONLY | os.O_NOCTTY))
    except OSError:
        return False
    return True
