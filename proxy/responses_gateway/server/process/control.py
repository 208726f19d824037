"""The control socket: orders of `responses-gateway reload` and `stop` to a gateway of the same user on this machine.

Each gateway listens on a Unix socket of its own in a folder that only its user can open. It introduces itself to who connects,
with one line of JSON, and takes one order, a line of text. A connection with the order to stop is closed by the end of the
process: who has sent it knows then that it has ended."""

from __future__ import annotations

import asyncio
import os
import secrets
import signal
import stat
from collections.abc import Awaitable, Callable, Mapping
from contextlib import suppress
from pathlib import Path

import msgspec

from responses_gateway.server.process.signals import Reload, StopSignals, reload_at_hangup, stop_with_terminal
from responses_gateway.server.process.sockets import Listeners, url_of
from responses_gateway.settings import Settings
from responses_gateway.settings.reloading import Reloaded
from responses_gateway.telemetry import logs

RELOAD = "reload"  # answered with the reason why nothing has changed, or with the last three fields of `Reloaded`
STOP = "stop"
STOP_NOW = "stop_now"  # do not wait for running responses


class Introduction(msgspec.Struct, frozen=True):
    """What a gateway says of itself."""

    pid: int
    url: str
    stop_timeout: float  # seconds that it takes at most to stop


class Control:
    """What a process that has no parent obeys: its control socket, and SIGHUP."""

    def __init__(self, settings: Settings, reload: Reload | None) -> None:
        """`reload` is None without a settings file."""
        self.reload = reload
        self.hung_up = asyncio.Event()  # set by a SIGHUP that came before `handle`
        self._settings = settings
        self._introduction = b""
        self._stop_signals: StopSignals | None = None
        self._read: Callable[[], Awaitable[Reloaded | str]] | None = None
        self._path: Path | None = None
        self._server: asyncio.Server | None = None

    def handle(self, use: Callable[[Settings], Reloaded], stop_signals: StopSignals) -> None:
        """Put settings in force with `use`, at SIGHUP and by order. Without a file SIGHUP may stop the process."""
        self._stop_signals = stop_signals
        if self.reload is None:
            stop_with_terminal(stop_signals)
        else:
            self._read = reload_at_hangup(self.reload, use)
            if self.hung_up.is_set():
                signal.raise_signal(signal.SIGHUP)

    async def open(self, listeners: Listeners) -> None:
        """Take orders, unless the folder of the sockets cannot be used: signals work without it."""
        url = ",".join(url_of(listener, self._settings.tls_cert is not None) for listener in listeners.clients)
        stop_timeout = self._settings.drain_delay + self._settings.drain_timeout
        self._introduction = msgspec.json.encode(Introduction(os.getpid(), url, stop_timeout)) + b"\n"
        try:
            # Not the process id alone, because the first process of each container has the same one.
            path = control_folder(os.environ) / f"{os.getpid()}-{secrets.token_hex(4)}.sock"
            self._server = await asyncio.start_unix_server(self._obey, path)
            self._path = path
        except OSError as error:
            logs.logger().debug("no control socket", extra=logs.fields(error=str(error)))

    def close(self) -> None:
        """Delete the file. The socket and its connections end with the process."""
        if self._path is not None:
            self._path.unlink(missing_ok=True)

    async def _obey(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with suppress(OSError, ValueError):  # it has gone away, or sent no line
            writer.write(self._introduction)
            order = (await reader.readline()).decode("ascii", "replace").strip()
            if order == RELOAD:
                writer.write(msgspec.json.encode(await self._reloaded()) + b"\n")
                await writer.drain()
            elif order in (STOP, STOP_NOW):
                self._stop(now=order == STOP_NOW)
                with suppress(asyncio.CancelledError):  # at the end of this process, which Python 3.11 would report
                    await reader.read()  # until the end of either process
                return
        writer.close()

    def _stop(self, *, now: bool) -> None:
        """Do as at SIGTERM, of which a second one ends the wait for running responses."""
        if self._stop_signals is None or not self._stop_signals.stop.is_set():
            signal.raise_signal(signal.SIGTERM)
        if now:
            signal.raise_signal(signal.SIGTERM)

    async def _reloaded(self) -> str | tuple[list[str], list[str], list[str]]:
        if self.reload is None:
            return "it was started without a settings file (--config)"
        result = "it is starting" if self._read is None else await self._read()
        return result if isinstance(result, str) else result[1:]


def control_folder(environ: Mapping[str, str]) -> Path:
    """Return the folder with the control sockets of this user's gateways, which only that user can open. Raise `OSError`."""
    folder = Path(environ.get("TMPDIR") or "/tmp") / f"responses-gateway-{os.getuid()}"
    folder.mkdir(mode=0o700, exist_ok=True)
    status = folder.lstat()
    if not stat.S_ISDIR(status.st_mode) or status.st_uid != os.getuid() or status.st_mode & 0o077:
        raise PermissionError(f"{folder} is not a folder that only this user can open")
    return folder
