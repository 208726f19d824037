"""The gateway on a loopback port, inside the test's own event loop, and what every test of it must leave behind: nothing.

`run(coroutine)` drives a test on asyncio or uvloop and fails it if the loop had to report an exception nobody fetched.
`gateway(backend_url)` serves the gateway; when its block ends, no exchange, no task and no defect may be left.
"""

from __future__ import annotations

import asyncio
import json
import logging
import socket
import struct
from collections.abc import AsyncIterator, Callable, Coroutine, Iterator, Sequence
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass
from typing import Any, Protocol

import aiohttp
import uvloop
from aiohttp import web
from aiohttp.http_exceptions import HttpProcessingError

from responses_gateway.conformance.checker import frames
from responses_gateway.server.app import create_app
from responses_gateway.server.features.feature import Feature
from responses_gateway.server.features.standard import FEATURES
from responses_gateway.server.http.connections import Runner, body_limit
from responses_gateway.server.lifespan import open_parts
from responses_gateway.server.parts import Parts
from responses_gateway.settings import Settings
from responses_gateway.simulator import SimulatorOptions, serving
from responses_gateway.simulator import create_app as create_simulator
from tests.judges import judge_stream
from tests.thoroughness import THOROUGH
from tests.waiting import PATIENCE, until

LOOPS: dict[str, Callable[[], asyncio.AbstractEventLoop]] = {"asyncio": asyncio.new_event_loop, "uvloop": uvloop.new_event_loop}
# Of tests that take seconds: a brief run has the loop that gateways take.
LOOPS_OF_LONG_TESTS = list(LOOPS) if THOROUGH else ["uvloop"]
TERMINALS = {"response.completed", "response.incomplete", "response.failed"}
QUESTION: dict[str, Any] = {"model": "simulator", "input": "hi", "stream": True}

# What aiohttp logs as an error though the client made it.
_CLIENTS_FAULT = (HttpProcessingError, web.RequestPayloadError)
# What the SDK's model has against the code of a prompt that is too long, on which clients act.
_CODES = "SDK: response.error.code"
Event = dict[str, Any]
# One for each gateway that runs in this process.
_gateways: list[object] = []


def run(test: Coroutine[Any, Any, None], loop: str = "asyncio") -> None:
    """Run a test to its end. Fails if an exception was left to the loop's handler."""
    complaints: list[str] = []

    async def watched() -> None:
        asyncio.get_running_loop().set_exception_handler(lambda _, context: complaints.append(_told(context)))
        await asyncio.wait_for(test, 3 * PATIENCE)

    with asyncio.Runner(loop_factory=LOOPS[loop]) as runner:
        runner.run(watched())
    assert complaints == []


def _told(context: dict[str, Any]) -> str:
    return f"{context.get('message')}: {context.get('exception')!r}"


@dataclass
class Served:
    """A running gateway."""

    url: str
    parts: Parts
    runner: Runner | None = None

    @property
    def port(self) -> int:
        return int(self.url.rpartition(":")[2])

    def metric(self, name: str, **labels: str) -> float:
        """Return the value of a sample; 0 if there is none yet."""
        self.parts.metrics.flush()
        return self.parts.metrics.registry.get_sample_value(f"responses_gateway_{name}", labels) or 0.0


@asynccontextmanager
async def gateway(
    *backends: str, send_buffer: int | None = None, features: Sequence[Feature] = FEATURES, **settings: Any
) -> AsyncIterator[Served]:
    """Serve the gateway in front of backends. `send_buffer`: bytes that the kernel buffers for a client, if not its default."""
    before = asyncio.all_tasks()
    wanted = Settings(backend=list(backends), **{"access_log": False, "store": "none", "invariant_sampling": 0.0, **settings})
    with _running_now(), defects() as found:
        async with open_parts(wanted, features=features) as parts, _running(create_app(parts)) as runner:
            listening = socket.create_server(("127.0.0.1", 0))
            if send_buffer is not None:  # accepted sockets inherit it
                listening.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, send_buffer)
            await web.SockSite(runner, listening, backlog=4096).start()
            served = Served(f"http://127.0.0.1:{listening.getsockname()[1]}", parts, runner)
            async with body_limit(runner, served.parts.settings.body_timeout, parts.metrics.report):
                yield served
            await until(lambda: not served.parts.in_flight.activities, "no exchange is left")
            assert served.metric("requests_in_flight") == 0
    if not _gateways:  # the idle connections of the others are tasks, too: the last one counts all
        await until(lambda: not (asyncio.all_tasks() - before - {asyncio.current_task()}), "no task is left")
    assert found == []


@contextmanager
def _running_now() -> Iterator[None]:
    mark = object()
    _gateways.append(mark)
    try:
        yield
    finally:
        _gateways.remove(mark)


@asynccontextmanager
async def _running(app: web.Application) -> AsyncIterator[Runner]:
    runner = Runner(app)
    await runner.setup()
    try:
        yield runner
    finally:
        await runner.cleanup()


@asynccontextmanager
async def simulated(simulator: SimulatorOptions | None = None, **settings: Any) -> AsyncIterator[Served]:
    """Serve the gateway in front of a simulator."""
    async with serving(create_simulator(simulator)) as backend, gateway(backend, **settings) as served:
        yield served


@contextmanager
def defects() -> Iterator[list[str]]:
    """Log records of failures of the gateway itself."""
    found: list[str] = []

    class Collector(logging.Handler):
        def emit(self, record: logging.LogRecord) -> None:
            error = record.exc_info[1] if record.exc_info else None
            if record.levelno >= logging.ERROR and not isinstance(error, _CLIENTS_FAULT):
                found.append(f"{record.getMessage()}: {error!r} {getattr(record, 'fields', '')}")

    handler = Collector()
    watched = [logging.getLogger(name) for name in ("responses_gateway", "aiohttp.server", "asyncio")]
    for logger in watched:
        logger.addHandler(handler)
    try:
        yield found
    finally:
        for logger in watched:
            logger.removeHandler(handler)


@dataclass
class Answer:
    """A whole answer."""

    status: int
    headers: dict[str, str]
    body: bytes

    @property
    def json(self) -> Any:
        return json.loads(self.body)

    @property
    def events(self) -> list[Event]:
        return events_of(self.body)

    @property
    def final(self) -> Event:
        """The response in the only terminal event."""
        return final_of(self.body)


def events_of(body: bytes) -> list[Event]:
    """Return the events of a stream, without its comments."""
    return [json.loads(frame.data) for frame in frames(body) if frame.data != "[DONE]"]


def final_of(body: bytes) -> Event:
    """Return the response of the only terminal event, after all judges have accepted the stream."""
    complaints = judge_stream(body, unfinished_allowed=True)
    assert [complaint for complaint in complaints if _CODES not in complaint] == []
    terminal = [event for event in events_of(body) if event["type"] in TERMINALS]
    assert len(terminal) == 1
    assert body.endswith(b"data: [DONE]\n\n")
    response: Event = terminal[0]["response"]
    return response


class Reachable(Protocol):
    @property
    def url(self) -> str: ...


async def post(served: Reachable, body: dict[str, Any] | None = None, **fields: Any) -> Answer:
    """Send `POST /v1/responses` and read the whole answer; fields go into the body, `headers` into the request."""
    headers = fields.pop("headers", None)
    return await ask(served, "POST", "/v1/responses", json={**QUESTION, **(body or {}), **fields}, headers=headers)


class Listening(Protocol):
    """Something with a port on this machine."""

    @property
    def port(self) -> int: ...


class RawClient:
    """A client that one drives by hand: it reads only when told to."""

    def __init__(self, connection: socket.socket) -> None:
        self.socket = connection
        self._loop = asyncio.get_running_loop()
        self.received = b""

    def __del__(self) -> None:
        self.socket.close()  # also where a test ends before it does so

    @classmethod
    async def connect(cls, served: Listening, receive_buffer: int | None = None) -> RawClient:
        connection = socket.socket()
        connection.setblocking(False)
        if receive_buffer is not None:
            connection.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, receive_buffer)
        try:
            await asyncio.get_running_loop().sock_connect(connection, ("127.0.0.1", served.port))
        except OSError:
            connection.close()
            raise
        return cls(connection)

    async def send(self, data: bytes) -> None:
        await self._loop.sock_sendall(self.socket, data)

    async def post(self, body: dict[str, Any] | None = None, version: str = "1.1", **fields: Any) -> None:
        """Send a `POST /v1/responses`."""
        data = json.dumps({**QUESTION, **(body or {}), **fields}).encode()
        await self.send(f"POST /v1/responses HTTP/{version}\r\nHost: x\r\nContent-Length: {len(data)}\r\n\r\n".encode() + data)

    async def read(self, size: int = 1 << 16) -> bytes:
        """Read what has arrived; nothing at the end of the connection."""
        data = await self.read_past(size)
        self.received += data
        return data

    async def read_past(self, size: int) -> bytes:
        """Read what has arrived, and do not keep it."""
        return await self._loop.sock_recv(self.socket, size)

    async def read_until(self, text: bytes) -> None:
        while text not in self.received:
            assert await self.read(), f"the connection ended before {text!r}"

    async def read_all(self) -> bytes:
        while await self.read():
            pass
        return self.received

    def close(self) -> None:
        self.socket.close()

    def reset(self) -> None:
        self.socket.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        self.socket.close()


def body_of(answer: bytes) -> bytes:
    """Return the body of a raw answer, without its HTTP chunks."""
    head, _, rest = answer.partition(b"\r\n\r\n")
    if b"transfer-encoding: chunked" not in head.lower():
        return rest
    body = b""
    while rest:
        size, _, rest = rest.partition(b"\r\n")
        if not int(size, 16):
            break
        body = body + rest[: int(size, 16)]
        rest = rest[int(size, 16) + 2 :]
    return body


async def ask(served: Reachable, method: str, path: str, **request: Any) -> Answer:
    """Send any request on a connection of its own."""
    async with (
        aiohttp.ClientSession(auto_decompress=False) as session,
        session.request(method, served.url + path, **request) as answer,
    ):
        return Answer(answer.status, {name.lower(): value for name, value in answer.headers.items()}, await answer.read())


def assert_error(answer: Answer, status: int, code: str | None = None) -> str:
    """Expect an HTTP error in OpenAI's shape, and return its message."""
    assert answer.status == status, answer.body
    assert answer.headers["content-type"].startswith("application/json")
    assert answer.headers["x-request-id"]
    assert set(answer.json) == {"error"}
    error = answer.json["error"]
    assert set(error) == {"message", "type", "param", "code"}
    assert isinstance(error["message"], str)
    assert error["message"]
    assert isinstance(error["type"], str)
    assert error["code"] is None or isinstance(error["code"], str)
    if code is not None:
        assert error["code"] == code
    return str(error["message"])
