"""Running the gateway: event loop, socket, signals, and a stop that cuts nobody off."""

from __future__ import annotations

import asyncio
import gc
import signal

from aiohttp import web

from proxy.backend.tokenizers import TokenizerError
from proxy.server.app import create_app
from proxy.server.gateway import GATEWAY
from proxy.settings import Settings
from proxy.state import StoreUnavailable
from proxy.stream.vllm_parser import VllmMissing
from proxy.telemetry import logs

#: Longest keep-alive of an idle client connection, in seconds; longer than a reverse proxy's.
_KEEP_ALIVE = 75
#: A stream makes few cycles and many lists: the collector's defaults would run it every few milliseconds for nothing.
_GC_THRESHOLDS = (20_000, 20, 20)


def serve(settings: Settings) -> int:
    """Serve until SIGINT or SIGTERM; a second one ends the draining. Returns the exit code."""
    logs.configure(settings.log_format, settings.log_level)
    try:
        with asyncio.Runner(loop_factory=_loop_factory(settings)) as runner:
            runner.run(_serve(settings))
    except (TokenizerError, VllmMissing, ValueError) as error:  # a setting that only its use could try
        logs.logger().error(str(error))
        return 2
    except StoreUnavailable as error:
        logs.logger().error("no store", extra=logs.fields(store=settings.store.rpartition("@")[2], error=str(error)))
        return 1
    except OSError as error:
        logs.logger().error("cannot listen", extra=logs.fields(address=_address(settings), error=error.strerror))
        return 1
    return 0


async def _serve(settings: Settings) -> None:
    stop, hurry = _signals()
    app = create_app(settings)
    runner = web.AppRunner(app, handler_cancellation=True, access_log=None, keepalive_timeout=_KEEP_ALIVE, shutdown_timeout=1)
    await runner.setup()
    try:
        site = web.TCPSite(runner, settings.host, settings.port, backlog=2048)
        await site.start()
        port = runner.addresses[0][1]
        # What lives now lives for ever: the collector need not look at it again.
        gc.collect()
        gc.freeze()
        gc.set_threshold(*_GC_THRESHOLDS)
        logs.logger().info("listening", extra=logs.fields(url=f"http://{settings.host}:{port}", backend=settings.backend[0]))
        await stop.wait()
        logs.logger().info("draining", extra=logs.fields(in_flight=len(app[GATEWAY].exchanges)))
        await site.stop()
        await app[GATEWAY].drain(hurry)
    finally:
        await runner.cleanup()
        logs.logger().info("stopped")


def _signals() -> tuple[asyncio.Event, asyncio.Event]:
    """Set by the first signal to stop, and by the second."""
    first, second = asyncio.Event(), asyncio.Event()
    loop = asyncio.get_running_loop()

    def received() -> None:
        (second if first.is_set() else first).set()

    for number in (signal.SIGINT, signal.SIGTERM):
        loop.add_signal_handler(number, received)
    return first, second


def _loop_factory(settings: Settings) -> type[asyncio.AbstractEventLoop] | None:
    if not settings.uvloop:
        return None
    try:
        import uvloop  # noqa: PLC0415  (optional: absent on some platforms)
    except ImportError:
        return None
    return uvloop.Loop


def _address(settings: Settings) -> str:
    return f"{settings.host}:{settings.port}"
