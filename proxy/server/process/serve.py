"""Running the gateway in one process: event loop, sockets, signals, and a stop that cuts nobody off."""

from __future__ import annotations

import asyncio
import gc
import signal
import socket
import ssl
from collections.abc import Callable
from typing import Any

from aiohttp import web

from proxy.backend.member import ALL, Share
from proxy.backend.tokenizer.tokenizers import TokenizerError
from proxy.parsers.vllm import VllmMissing
from proxy.server.app import create_app, create_operations_app
from proxy.server.generation.in_flight import State
from proxy.server.http.body_timeout import body_limit
from proxy.server.http.connections import Runner
from proxy.server.lifespan import Parts, open_parts
from proxy.server.process.colleagues import Colleagues
from proxy.server.process.notices import Notice
from proxy.server.process.signals import Reload, end_with_terminal, reload_on_hangup
from proxy.server.process.sockets import BACKLOG, Listeners, open_listeners, tls_context, url_of
from proxy.server.process.worker_link import Link, Orders
from proxy.server.resources.admin import OnChange
from proxy.server.setup.backends import specs_of
from proxy.settings import Settings, SettingsError
from proxy.state import StoreUnavailable
from proxy.telemetry import logs
from proxy.telemetry.tracing import TracingMissing
from proxy.version import version_line

#: A stream makes few cycles and many lists: the collector's defaults would run it every few milliseconds for nothing.
_GC_THRESHOLDS = (20_000, 20, 20)
#: Seconds in which connections are accepted whose handshake was under way when the gateway stopped listening.
_LAST_HANDSHAKES = 0.02
#: Seconds for requests that were under way on a connection when the gateway stopped listening.
_LAST_REQUESTS = 0.25
#: Seconds until a connection that a retiring process has accepted is in its list: those with TLS shake hands first.
_LAST_ACCEPTED = 1.0
#: Seconds in which the parent may tell a worker what a signal means.
_PARENT_FIRST = 0.5
#: Seconds between two looks at whether anything is left to do.
_LOOK = 0.02
#: What is raised for a setting that only its use could try.
_WRONG_SETTINGS = (TokenizerError, VllmMissing, TracingMissing, SettingsError, ValueError)


def serve(settings: Settings, reload: Reload | None = None, link: Link | None = None) -> int:
    """Serve until SIGINT or SIGTERM; a second one ends the draining. A worker has a link to its parent, and takes its orders
    from there. With `reload` SIGHUP reads the settings anew and takes the backends from them. Returns the exit code."""
    logs.configure(settings.log_format, settings.log_level)
    try:
        tls = tls_context(settings)
        listeners = open_listeners(settings) if link is None else link.listeners()
        try:
            with asyncio.Runner(loop_factory=_loop_factory(settings)) as runner:
                runner.run(_serve(settings, listeners, tls, reload, link))
        finally:
            if link is None:
                listeners.remove_file()
            listeners.close()
    except _WRONG_SETTINGS as error:
        logs.logger().error(str(error))
        return 2
    except StoreUnavailable as error:
        logs.logger().error("no store", extra=logs.fields(store=settings.store.rpartition("@")[2], error=str(error)))
        return 1
    except OSError as error:
        logs.logger().error("cannot listen", extra=logs.fields(address=error.filename, error=error.strerror))
        return 1
    return 0


async def _serve(
    settings: Settings, listeners: Listeners, tls: ssl.SSLContext | None, reload: Reload | None, link: Link | None
) -> None:
    orders = _orders(link)
    if reload is None and link is None:
        end_with_terminal(lambda: orders.give("stop"))
    share = ALL if link is None else Share(int(link.briefing.place), settings.workers)
    colleagues = None if link is None else Colleagues(link.post, one_examines=link.briefing.names_examiner)
    async with open_parts(settings, share, None if colleagues is None else colleagues.report) as parts:
        post = _no_change if link is None else _posting(link)
        app = create_app(parts, None if link is None else link.table(), post)
        runners = [Runner(app)]
        await runners[0].setup()
        try:
            if reload is not None:
                reload_on_hangup(parts, reload, None if link is None else link.post)
            if link is not None and colleagues is not None:
                colleagues.join(parts, link.briefing.notices)
            sites = [await _listen(runners[0], listener, tls) for listener in listeners.clients]
            if listeners.operators:
                runners.append(Runner(create_operations_app(parts, post)))
                await runners[1].setup()
                for listener in listeners.operators:
                    await _listen(runners[1], listener, tls)
            parts.metrics.workers.set(1)
            # What lives now lives for ever: the collector need not look at it again.
            gc.collect()
            gc.freeze()
            gc.set_threshold(*_GC_THRESHOLDS)
            if link is None or colleagues is None:
                announce(settings, listeners)
                parts.autoconfiguration.begin()
            else:
                await link.open(orders, colleagues.hear, colleagues.examine)
                colleagues.begin()
            async with body_limit(runners[0], settings.body_timeout):
                await orders.signalled.wait()
                if orders.retire.is_set() and not orders.stop.is_set():
                    await _retire(parts, runners[0], sites, orders)
            await _stop(parts, runners[0], sites, orders)
        finally:
            for runner in reversed(runners):
                await runner.cleanup()
            parts.in_flight.enter(State.STOPPED)
    if link is not None:
        await link.close()
    else:
        logs.logger().info("stopped")


def _posting(link: Link) -> OnChange:
    def post(done: str, name: str, fields: dict[str, Any]) -> None:
        link.post(Notice(done, name, fields))

    return post


def _no_change(_done: str, _name: str, _fields: dict[str, Any]) -> None:
    """Tell nobody: there are no other workers."""


def announce(settings: Settings, listeners: Listeners, **more: int) -> None:
    """Log that requests are answered, and where."""
    tls = settings.tls_cert is not None
    urls = [url_of(listener, tls) for listener in listeners.clients]
    operations = url_of(listeners.operators[0], tls) if listeners.operators else None
    backends, version = " ".join(spec.url for spec in specs_of(settings)), version_line()
    fields = logs.fields(url=",".join(urls), backend=backends, operations=operations, version=version, **more)
    logs.logger().info("listening", extra=fields)


async def _retire(parts: Parts, runner: web.AppRunner, sites: list[web.SockSite], orders: Orders) -> None:
    """Leave new connections to the successors. Answer what comes on those that are there, each of which ends with its next
    answer, until there are none, or as long as `drain_timeout` says."""
    parts.in_flight.enter(State.RETIRING)
    logs.logger().info("retiring", extra=logs.fields(in_flight=len(parts.in_flight.activities)))
    while sites:
        await sites.pop().stop()
    await _either(orders.stop, _LAST_ACCEPTED)
    await _until(
        lambda: orders.stop.is_set() or not (_connections(runner) or parts.in_flight.activities), parts.settings.drain_timeout
    )
    if not orders.stop.is_set():
        orders.hurry.set()  # they have had their time


async def _stop(parts: Parts, runner: web.AppRunner, sites: list[web.SockSite], orders: Orders) -> None:
    """Say that we are not ready, then stop listening, then let what is under way end."""
    logs.logger().info("draining", extra=logs.fields(in_flight=len(parts.in_flight.activities)))
    parts.in_flight.enter(State.LEAVING)
    if not orders.retire.is_set() and not orders.hurry.is_set():
        await _either(orders.hurry, parts.settings.drain_delay)
    await _stop_listening(sites)
    stopped_at = asyncio.get_running_loop().time()
    await parts.in_flight.drain(orders.hurry, parts.settings.drain_timeout)
    tls = parts.settings.tls_cert is not None  # its handshakes are in no list of connections
    left = _LAST_REQUESTS - (asyncio.get_running_loop().time() - stopped_at)
    await _until(lambda: not (tls or _connections(runner)), left)


def _connections(runner: web.AppRunner) -> int:
    return 0 if runner.server is None else len(runner.server.connections)


async def _until(condition: Callable[[], bool], seconds: float) -> None:
    """Wait until something holds, at most so long."""
    until = asyncio.get_running_loop().time() + seconds
    while not condition() and asyncio.get_running_loop().time() < until:  # noqa: ASYNC110 (nobody tells of ended connections)
        await asyncio.sleep(_LOOK)


async def _stop_listening(sites: list[web.SockSite]) -> None:
    """Close the sockets once their queues are empty: the kernel resets what waits there. With a queue of no length, new
    connections are not taken up, and see a refusal when they try again."""
    for site in sites:
        site._sock.listen(0)
    await asyncio.sleep(_LAST_HANDSHAKES)
    while sites:
        await sites.pop().stop()


async def _either(event: asyncio.Event, seconds: float) -> None:
    try:
        async with asyncio.timeout(seconds):
            await event.wait()
    except TimeoutError:
        return


async def _listen(runner: web.AppRunner, listener: socket.socket, tls: ssl.SSLContext | None) -> web.SockSite:
    site = web.SockSite(runner, listener, ssl_context=tls, backlog=BACKLOG)
    await site.start()
    return site


def _orders(link: Link | None) -> Orders:
    """Orders by signals: to stop, and to hurry with it. A worker that gets one leaves its work to the others, unless its parent
    got one as well and says what to do (a service manager may signal all processes)."""
    orders, loop = Orders(), asyncio.get_running_loop()

    def received() -> None:
        if link is None:
            orders.give("hurry" if orders.stop.is_set() else "stop")
        else:
            loop.call_later(_PARENT_FIRST, orders.give, "retire")

    for number in (signal.SIGINT, signal.SIGTERM):
        loop.add_signal_handler(number, received)
    if link is None:
        loop.add_signal_handler(signal.SIGUSR2, _no_rolling_restart)
    return orders


def _no_rolling_restart() -> None:
    logs.logger().warning("a rolling restart needs several workers")


def _loop_factory(settings: Settings) -> type[asyncio.AbstractEventLoop] | None:
    if not settings.uvloop:
        return None
    try:
        import uvloop  # noqa: PLC0415  (optional: absent on some platforms)
    except ImportError:
        return None
    return uvloop.Loop
