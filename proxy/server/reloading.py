"""SIGHUP: the backends of the settings as they are now."""

from __future__ import annotations

import asyncio
import signal
from collections.abc import Callable

from proxy.server.backends import specs_of
from proxy.server.gateway import Gateway
from proxy.server.notices import RELOADED, Notice
from proxy.settings import Settings, SettingsError
from proxy.telemetry import logs

#: Reads the settings anew. Raises `SettingsError`.
Reload = Callable[[], Settings]


def reload_on_hangup(gateway: Gateway, reload: Reload) -> None:
    """Take the backends from the settings at each SIGHUP. Settings that are wrong change nothing."""
    loop = asyncio.get_running_loop()
    reloading: set[asyncio.Task[None]] = set()

    async def read() -> None:
        try:
            settings = await asyncio.to_thread(reload)
            gateway.pool.members.apply(specs_of(settings))
            gateway.post(Notice(RELOADED))
        except SettingsError as error:
            logs.logger().error("settings not read again: nothing is changed", extra=logs.fields(error=str(error)))
        else:
            logs.logger().info("backends read again", extra=logs.fields(backends=len(gateway.pool.members.by_name)))

    def hung_up() -> None:
        task = asyncio.create_task(read())
        reloading.add(task)
        task.add_done_callback(reloading.discard)

    loop.add_signal_handler(signal.SIGHUP, hung_up)
