"""Serves in this process: event loop, sockets, signals, graceful stop."""

from __future__ import annotations

import asyncio
import faulthandler
import gc
import os
import select
import signal
import socket
import ssl
from collections.abc import Callable
from functools import partial
from pathlib import Path

from aiohttp import web

from responses_gateway.backend.pool_options import ALL, Share
from responses_gateway.backend.tokenizer.conversion import TokenizerError
from responses_gateway.ended_tasks import becomes_true, wait_at_most
from responses_gateway.parsers.vllm import VllmMissing
from responses_gateway.server.access.counter_table import Table
from responses_gateway.server.app import create_app, create_operations_app
from responses_gateway.server.generation.in_flight import State
from responses_gateway.server.http.aiohttp_internals import awaits_request
from responses_gateway.server.http.connections import Runner, body_limit
from responses_gateway.server.lifespan import open_parts, try_parts
from responses_gateway.server.metrics import CERTIFICATE_EXPIRY, WORKERS
from responses_gateway.server.parts import Parts
from responses_gateway.server.process.announcement import announce, show_waiting
from responses_gateway.server.process.backend_sync import WorkerSync
from responses_gateway.server.process.control import Control
from responses_gateway.server.process.handover import Handover
from responses_gateway.server.process.reloading import Reloading
from responses_gateway.server.process.signals import Reload, StopSignals
from responses_gateway.server.process.sockets import (
    BACKLOG,
    Listeners,
    certificate_expiry,
    open_listeners,
    renew_certificate,
    tls_context,
)
from responses_gateway.server.process.supervisor import Prepare
from responses_gateway.server.process.worker_link import READY, WorkerLink
from responses_gateway.server.resources.admin import OnChange
from responses_gateway.server.setup.backend_specs import specs_of
from responses_gateway.server.setup.store import without_new_file
from responses_gateway.settings import Settings, SettingsError
from responses_gateway.settings.reloading import Reloaded
from responses_gateway.settings.section import without_user
from responses_gateway.settings.serving import UNIX
from responses_gateway.state import EventsUnavailable, StoreUnavailable
from responses_gateway.telemetry import logs
from responses_gateway.telemetry.tracing import TracingMissing
from responses_gateway.version import version_line

# A stream makes few cycles and many lists: the collector's defaults would run it every few milliseconds for nothing.
_GC_THRESHOLDS = (20_000, 20, 20)
# Seconds in which connections are accepted whose handshake was under way when the gateway stopped listening.
_LAST_HANDSHAKES = 0.02
# Seconds for requests that were under way on a connection when the gateway stopped listening. The first one on it is answered.
_LAST_REQUESTS = 0.25
# Seconds until connections that a leaving process takes are accepted, and listed if it retires: those with TLS shake hands.
_LAST_ACCEPTED = 1.0
# Seconds for closing the parts: a store that hangs would keep the process. The parent of workers watches those that retire.
_LONGEST_CLOSE = 10.0
# Errors of settings that can be checked only by using them.
_WRONG_SETTINGS = (TokenizerError, VllmMissing, TracingMissing, SettingsError, ValueError)


def serve(
    settings: Settings, reload: Reload | None = None, link: WorkerLink | None = None, prepare: Prepare | None = None
) -> int:
    """Serve until SIGINT or SIGTERM; a second one ends the draining. A worker has a link to its parent, which stops it. With
    `reload` SIGHUP puts settings in force that it reads; with `prepare` SIGUSR2 starts a successor. Returns the exit code."""
    logs.configure(settings.log_format, settings.log_level)
    control = Control(settings, reload)
    try:
        tls = tls_context(settings)
        with asyncio.Runner(loop_factory=_loop_factory()) as runner:
            return runner.run(_serve(settings, tls, control, link, prepare))
    except _WRONG_SETTINGS as error:
        logs.logger().error(str(error))
        return 2
    except StoreUnavailable as error:
        logs.logger().error("no store", extra=logs.fields(store=without_user(settings.store), error=str(error)))
        return 1
    except OSError as error:
        logs.logger().error("cannot listen", extra=logs.fields(address=error.filename, error=error.strerror))
        return 1
    finally:
        control.close()


def check(settings: Settings) -> None:
    """Try what a start opens, and close it. Raise `SettingsError` where a start would fail, except for a port that is taken,
    because it is while the gateway runs that these settings are for."""
    try:
        if not settings.host.startswith(UNIX):
            ports = {"port": 0, "operations_port": None if settings.operations_port is None else 0}
            open_listeners(settings.model_copy(update=ports)).close()
        asyncio.run(try_parts(without_new_file(settings)))
    except EventsUnavailable as error:
        raise SettingsError(f"events: {without_user(settings.events)}: {error}") from None
    except StoreUnavailable as error:
        raise SettingsError(f"store: {without_user(settings.store)}: {error}") from None
    except OSError as error:
        raise SettingsError(f"cannot listen at {str(error.filename).removesuffix(':0')}: {error.strerror}") from None
    except _WRONG_SETTINGS as error:
        raise SettingsError(str(error)) from None


async def _serve(
    settings: Settings, tls: ssl.SSLContext | None, control: Control, link: WorkerLink | None, prepare: Prepare | None
) -> int:
    stop_signals = StopSignals()
    stop_signals.handle(worker=link is not None)  # before anything listens: who can connect may also stop this process
    if link is None:
        warn = partial(logs.logger().warning, "no rolling restart: the gateway is starting")
        asyncio.get_running_loop().add_signal_handler(signal.SIGUSR2, warn)
        if control.reload is not None:  # without a handler it ends the process, which may wait for its backends
            asyncio.get_running_loop().add_signal_handler(signal.SIGHUP, control.hung_up.set)
    handover: Handover | None = None
    with open_listeners(settings) if link is None else link.listeners() as listeners:
        share = ALL if link is None else Share(int(link.config.place), settings.workers)
        async with open_parts(settings, share, None if link is None else link.folder) as parts:
            show = partial(show_waiting, seconds=settings.drain_timeout) if link is None else link.send_left
            server = _Server(parts, tls, stop_signals, show)
            try:
                if link is not None:
                    await _serve_as_worker(server, parts, link, listeners, control.reload)
                else:
                    handover = Handover(settings, prepare, control, listeners, stop_signals)
                    await _serve_alone(server, parts, control, listeners, handover)
            finally:
                await server.close()
        faulthandler.cancel_dump_traceback_later()
        if handover is not None:
            code = await handover.end()
            if handover.begun:
                return code
    if link is not None:
        await link.close()
    else:
        logs.logger().info("stopped", extra=logs.fields(pid=os.getpid()))
    return 0


async def _serve_alone(server: _Server, parts: Parts, control: Control, listeners: Listeners, handover: Handover) -> None:
    def handle_hangup() -> None:
        control.handle(partial(_use, parts, Reloading(parts, server.renew_certificate)), server.stop_signals)

    handle_hangup()
    await control.open(listeners)
    await server.listen(listeners)
    handover.handle(handle_hangup)
    announce(parts.settings, listeners)
    parts.autoconfiguration.begin()
    await server.serve()


async def _serve_as_worker(
    server: _Server, parts: Parts, link: WorkerLink, listeners: Listeners, reload: Reload | None
) -> None:
    sync = WorkerSync(parts, link.send, reload, server.renew_certificate)
    sync.receive(link.config.state.encode())
    await parts.pool.watch.first_checks()
    await link.open(server.stop_signals, sync.receive, parts.metrics.report)
    await server.listen(listeners, link.table(), sync.report_change, link.folder)
    link.send(READY)
    logs.logger().info("worker ready", extra=logs.fields(pid=os.getpid(), version=version_line()))
    await server.serve()


class _Server:
    """The applications of this process, for clients and for operators, and how they stop."""

    def __init__(
        self, parts: Parts, tls: ssl.SSLContext | None, stop_signals: StopSignals, show_left: Callable[[int], None]
    ) -> None:
        """`show_left` is called with the number of responses that a stopping process waits for."""
        self.stop_signals = stop_signals
        self._show_left = show_left
        self._parts = parts
        self._tls = tls
        self._runners: list[Runner] = []  # for clients, and for operators
        self._sites: list[web.SockSite] = []  # for clients

    async def listen(
        self, listeners: Listeners, table: Table | None = None, on_change: OnChange | None = None, folder: Path | None = None
    ) -> None:
        """Take connections. `table`, `on_change` and `folder` are as for `create_app`."""
        self._sites = await self._start(create_app(self._parts, table, on_change, folder), listeners.clients)
        if listeners.operators:
            await self._start(create_operations_app(self._parts, on_change, folder), listeners.operators)
        self._parts.metrics.set(WORKERS, 1)
        self._show_certificate()
        tune_collector()

    def renew_certificate(self) -> None:
        """Read the files of the certificate again. Raise `SettingsError` and change nothing if they are wrong."""
        if self._tls is not None:
            renew_certificate(self._tls, self._parts.settings)
            self._show_certificate()

    async def serve(self) -> None:
        """Serve until a signal to stop, then stop in good order."""
        if self._parts.settings.adapt:
            self._parts.pool.watch.find_routers()
        async with body_limit(self._runners[0], self._parts.settings.body_timeout, self._parts.metrics.report):
            await self.stop_signals.any.wait()
            if self.stop_signals.retire.is_set() and not self.stop_signals.stop.is_set():
                await self._retire()
        await self._stop()

    async def close(self) -> None:
        """Close all connections."""
        for runner in reversed(self._runners):
            await runner.cleanup()
        self._parts.in_flight.enter(State.STOPPED)
        logs.flush()
        if not self.stop_signals.retire.is_set():  # else this process may have become the parent of its successors
            faulthandler.dump_traceback_later(_LONGEST_CLOSE, exit=True)

    def _show_certificate(self) -> None:
        file = self._parts.settings.tls_cert
        if file is None:
            return
        try:
            self._parts.metrics.set(CERTIFICATE_EXPIRY, certificate_expiry(file), str(file))
        except (OSError, ValueError) as error:  # what OpenSSL serves may still not follow the standard to the letter
            logs.logger().warning("the certificate's expiry is unknown", extra=logs.fields(file=file, error=str(error)))

    async def _start(self, app: web.Application, listeners: list[socket.socket]) -> list[web.SockSite]:
        runner = Runner(app)
        self._runners.append(runner)
        await runner.setup()
        sites = [web.SockSite(runner, listener, ssl_context=self._tls, backlog=BACKLOG) for listener in listeners]
        for site in sites:
            await site.start()
        return sites

    async def _retire(self) -> None:
        """Leave new connections to the successors. Close old ones with their next answers, or at `drain_timeout`."""
        in_flight = self._parts.in_flight
        stop_signals = self.stop_signals
        in_flight.enter(State.RETIRING)
        logs.logger().info("retiring", extra=logs.fields(in_flight=len(in_flight.activities), pid=os.getpid()))
        while self._sites:
            await self._sites.pop().stop()
        await wait_at_most(stop_signals.stop, _LAST_ACCEPTED)
        limit = self._parts.settings.drain_timeout
        await becomes_true(lambda: stop_signals.stop.is_set() or not (self._connections or in_flight.activities), limit)
        if not stop_signals.stop.is_set():
            stop_signals.stop_now.set()  # the time limit has passed

    async def _stop(self) -> None:
        """Answer `/ready` with 503, then stop listening, then let requests under way end."""
        in_flight = self._parts.in_flight
        stop_signals = self.stop_signals
        logs.logger().info("draining", extra=logs.fields(in_flight=len(in_flight.activities), pid=os.getpid()))
        in_flight.enter(State.LEAVING)
        if not stop_signals.stop_now.is_set():
            self._show_left(len(in_flight.activities))
        if not stop_signals.retire.is_set() and not stop_signals.stop_now.is_set():
            await wait_at_most(stop_signals.stop_now, self._parts.settings.drain_delay)
        await self._stop_listening()
        stopped_at = asyncio.get_running_loop().time()
        # Who has just connected may not know of the end: a proxy in front would not send its request again.
        await becomes_true(lambda: not awaits_request(self._connections), _LAST_REQUESTS)
        await in_flight.drain(stop_signals.stop_now, self._parts.settings.drain_timeout)
        left = _LAST_REQUESTS - (asyncio.get_running_loop().time() - stopped_at)
        # Handshakes of TLS are in no list of connections.
        await becomes_true(lambda: self._tls is None and not self._connections, left)

    async def _stop_listening(self) -> None:
        """Close the sockets once their queues are empty, since the kernel resets connections that wait there. With a queue of
        length 0 few new connections are taken up, and all others are refused when they try again."""
        waiting = select.poll()
        for site in self._sites:
            site._sock.listen(0)
            waiting.register(site._sock, select.POLLIN)
        await asyncio.sleep(_LAST_HANDSHAKES)
        await becomes_true(lambda: not waiting.poll(0), _LAST_ACCEPTED)
        while self._sites:
            await self._sites.pop().stop()
        await asyncio.sleep(0)  # a connection is in the list in the round of the event loop after that which accepts it

    @property
    def _connections(self) -> list[web.RequestHandler]:
        server = self._runners[0].server
        return [] if server is None else server.connections


def _use(parts: Parts, reloading: Reloading, settings: Settings) -> Reloaded:
    result = reloading.apply(settings)
    assert parts.pools is not None  # this process is alone
    parts.pools.replace(result.settings)
    discovered = parts.pools.found()
    parts.pool.members.apply([*specs_of(result.settings), *discovered.specs], discovered.pools)
    return result


def tune_collector() -> None:
    """Take what lives now, as long as the process does, out of what the garbage collector examines, and have that run less.
    Nothing is collected before: a start leaves little garbage, and looking for it would take a tenth of the start."""
    gc.freeze()
    gc.set_threshold(*_GC_THRESHOLDS)


def _loop_factory() -> type[asyncio.AbstractEventLoop] | None:
    try:
        import uvloop  # noqa: PLC0415  (optional: absent on some platforms)
    except ImportError:
        return None
    return uvloop.Loop
