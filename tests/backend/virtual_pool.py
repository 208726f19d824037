"""A pool in virtual time, without sockets: backends are up or down by a schedule, and sleeping takes no time."""

from __future__ import annotations

import asyncio
import selectors
from collections.abc import Awaitable, Callable, Iterable
from typing import Any, cast

import pytest
from yarl import URL

from responses_gateway.backend import member as member_module
from responses_gateway.backend import watch as watch_module
from responses_gateway.backend.policies.health import HealthReport
from responses_gateway.backend.pool import Pool
from responses_gateway.backend.pool_options import PoolObserver, PoolOptions
from responses_gateway.backend.served_models import BackendSpec, Listing, Route
from responses_gateway.backend.transport.client import ChatStream, Unreachable
from responses_gateway.wire.errors import ApiError


class _Skipping(selectors.DefaultSelector):
    """Advances a clock instead of waiting."""

    now = 0.0

    def select(self, timeout: float | None = None) -> list[tuple[selectors.SelectorKey, int]]:
        assert timeout is not None, "everything waits for ever"
        self.now += max(0.0, timeout)
        return super().select(0)


class _VirtualLoop(asyncio.SelectorEventLoop):
    def __init__(self) -> None:
        self._skipping = _Skipping()
        super().__init__(self._skipping)

    def time(self) -> float:
        return self._skipping.now


def run_virtually(test: Awaitable[None]) -> None:
    """Run a test whose sleeps take no time."""

    async def whole() -> None:
        await test

    with asyncio.Runner(loop_factory=_VirtualLoop) as runner:
        runner.run(whole())


def now() -> float:
    return asyncio.get_running_loop().time()


class Chat:
    """An answer that takes a while; the pool sets `on_end`."""

    def __init__(self, status: int) -> None:
        self.status = status
        self.backend = ""
        self.on_end: Callable[[int, str | None], None] = lambda status, failure: None

    def close(self) -> None:
        pass

    async def early_refusal(self) -> bytes:
        return b""

    def header(self, name: str) -> str:
        return ""


class Server:
    """A backend that is up while `is_up` says so. `answers` is what it does then: a status, or "hangs"."""

    def __init__(self, name: str, is_up: Callable[[], bool] = lambda: True) -> None:
        self.spec = BackendSpec(name=name, url=f"http://{name}/v1", api_key=None)
        self.url = URL(self.spec.url)
        self.is_up = is_up
        self.answers: int | str = 200
        self.refuses_in = 0.001  # seconds until a connection fails while it is down
        self.health_ok: bool | None = None  # what checks find, whatever it does; None: whether it is up
        self.came: list[float] = []  # when requests came
        self.active = 0

    async def open_chat(self, body: bytes, headers: Any, model: str, added: Any) -> Chat:
        self.came.append(now())
        self.active += 1
        try:
            await asyncio.sleep(0.001 if self.is_up() else self.refuses_in)
            if not self.is_up():
                raise Unreachable("connect" if self.refuses_in < 1 else "connect_timeout", "down")
            if self.answers == "hangs":
                await asyncio.sleep(60)
                raise Unreachable("silent", "hung", 504)
        finally:
            self.active -= 1
        return Chat(cast(int, self.answers))

    async def check(self) -> HealthReport:
        await asyncio.sleep(0.002 if self.is_up() else 2 * self.refuses_in)
        well = self.is_up() if self.health_ok is None else self.health_ok
        return HealthReport(listed=Listing({"m": "vllm"})) if well else HealthReport("down")

    async def close(self) -> None:
        pass


class Observer(PoolObserver):
    """Keeps the log."""

    def __init__(self) -> None:
        self.lines: list[tuple[str, str]] = []

    def log(self, message: str, backend: str, **fields: Any) -> None:
        self.lines.append((message, backend))

    def warn(self, message: str, backend: str, **fields: Any) -> None:
        self.log(message, backend, **fields)


class VirtualPool:
    """A pool of servers, and what became of the requests."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, servers: Iterable[Server], **options: Any) -> None:
        by_url = {server.spec.url: server for server in servers}
        monkeypatch.setattr(member_module, "Backend", lambda url, **_: by_url[url])
        monkeypatch.setattr(watch_module, "check_health", lambda backend, within: backend.check())
        self.servers = {server.spec.name: server for server in by_url.values()}
        self.observer = Observer()
        self.pool = Pool([server.spec for server in by_url.values()], PoolOptions(**options), self.observer)
        self.outcomes: list[tuple[float, str]] = []  # when, and the backend that answered or the status of the error

    async def ask(self, seconds: float = 0.2) -> str:
        """Send a request whose answer takes so long; return the name of the backend, the status, or `broke`."""
        outcome = await self._ask(seconds)
        self.outcomes.append((now(), outcome))
        return outcome

    async def _ask(self, seconds: float) -> str:
        route = Route("m")
        while True:
            try:
                chat: ChatStream = await self.pool.open_chat(b"{}", lambda name, url: {}, route)
            except ApiError as error:
                return str(error.status)
            assert chat.on_end is not None
            if chat.status != 200:
                chat.on_end(chat.status, None)
                return str(chat.status)
            server = self.servers[chat.backend]
            await asyncio.sleep(seconds / 2)
            silent = not server.is_up()
            if not silent:
                await asyncio.sleep(seconds / 2)
                if server.is_up():
                    chat.on_end(chat.status, None)
                    return chat.backend
            chat.on_end(chat.status, "broke")
            if not silent:
                return "broke"  # the client has seen something of it
            following = self.pool.retry_route(route, chat.backend, "broke")
            if following is None:
                return "502"
            route = following

    async def traffic(self, per_second: float, seconds: float) -> list[str]:
        """Send requests at a steady rate and return what became of them."""
        tasks = []
        for _ in range(int(per_second * seconds)):
            tasks.append(asyncio.create_task(self.ask()))
            await asyncio.sleep(1 / per_second)
        return await asyncio.gather(*tasks)
