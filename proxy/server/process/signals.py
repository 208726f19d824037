"""SIGHUP: the backends of the settings as they are now; where there is no file to read again, the end of the terminal."""

from __future__ import annotations

import asyncio
import os
import signal
from collections.abc import Callable

from proxy.server.lifespan import Parts
from proxy.server.process.notices import RELOADED, Notice
from proxy.server.setup.backends import specs_of
from proxy.settings import Settings, SettingsError
from proxy.telemetry import logs

#: Reads the settings anew. Raises `SettingsError`.
Reload = Callable[[], Settings]


def reload_on_hangup(parts: Parts, reload: Reload, post: Callable[[Notice], None] | None) -> None:
    """Take the backends from the settings at each SIGHUP. Settings that are wrong change nothing."""
    loop = asyncio.get_running_loop()
    reloading: set[asyncio.Task[None]] = set()

    async def read() -> None:
        try:
            settings = await asyncio.to_thread(reload)
            parts.pool.members.apply(specs_of(settings))
            if post is not None:
                post(Notice(RELOADED))
        except SettingsError as error:
            logs.logger().error("settings not read again: nothing is changed", extra=logs.fields(error=str(error)))
        else:
            logs.logger().info("backends read again", extra=logs.fields(backends=len(parts.pool.members.by_name)))

    def hung_up() -> None:
        task = asyncio.create_task(read())
        reloading.add(task)
        task.add_done_callback(reloading.discard)

    loop.add_signal_handler(signal.SIGHUP, hung_up)


def end_with_terminal(stop: Callable[[], None]) -> None:
    """Stop when the terminal from which this was started is closed. Any other SIGHUP is a mistake, and cuts nobody off."""
    had_terminal = _has_terminal()
    stopped = False

    def hung_up() -> None:
        nonlocal stopped
        if stopped:
            return  # the kernel says it, and the shell may as well: a second stop would be one in haste
        if had_terminal and not _has_terminal():
            stopped = True
            stop()
        else:
            logs.logger().warning("SIGHUP: there is no settings file to read again, nothing is changed")

    asyncio.get_running_loop().add_signal_handler(signal.SIGHUP, hung_up)


def _has_terminal() -> bool:
    try:
        os.close(os.open("/dev/tty", os.O_RDONLY | os.O_NOCTTY))
    except OSError:
        return False
    return True
