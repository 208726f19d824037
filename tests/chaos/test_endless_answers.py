"""Backends that answer a small question without end, or stop in the middle: nobody waits for the rest, and little is kept."""

from __future__ import annotations

import asyncio

import pytest
from aiohttp import web
from aiohttp.typedefs import Handler

from responses_gateway.backend.policies.server_load import load_of
from tests.server.fleet_of_simulators import ask as ask_fleet
from tests.server.fleet_of_simulators import fleet
from tests.server.running_gateway import ask, gateway, run
from tests.server.scripted_backend import Connection, backend
from tests.waiting import PATIENCE, until

PIECE = b"1, " * 100_000
# More than is read of any of these answers, and than the buffers on the way take.
ENOUGH = 100_000_000
MESSAGE = {"model": "m", "max_tokens": 10, "messages": [{"role": "user", "content": "Hi"}]}


class Endless:
    """A backend that answers everything with a list that never ends. `sent`: how many bytes of it."""

    def __init__(self, status: int = 200) -> None:
        self.sent = 0
        self._status = status

    async def play(self, connection: Connection) -> None:
        connection.write(b'HTTP/1.1 %d X\r\nContent-Type: application/json\r\n\r\n{"tokens": [' % self._status)
        while not connection.lost.done():
            if connection.transport.get_write_buffer_size() == 0:
                connection.write(PIECE)
                self.sent += len(PIECE)
            await asyncio.sleep(0)


@pytest.mark.parametrize(
    ("method", "path", "body", "status"),
    [
        ("GET", "/v1/models", None, 502),
        ("POST", "/v1/responses/input_tokens", {"model": "m", "input": "Hi"}, 400),
        ("POST", "/v1/messages/count_tokens", MESSAGE, 200),  # an estimate
    ],
)
def test_an_answer_without_end_is_not_read_to_its_end(method: str, path: str, body: object, status: int) -> None:
    async def test() -> None:
        endless = Endless()
        async with (
            backend(endless.play) as behind,
            gateway(behind.url, connect_timeout=PATIENCE, idle_timeout=PATIENCE) as served,
        ):
            answer = await ask(served, method, path, json=body)
            assert answer.status == status, answer.body
            assert endless.sent < 2 * ENOUGH  # of two questions

    run(test())


def test_a_refusal_without_end_is_read_to_what_may_be_its_message() -> None:
    async def test() -> None:
        endless = Endless(400)
        async with backend(endless.play) as behind, gateway(behind.url, idle_timeout=PATIENCE) as served:
            answer = await ask(served, "POST", "/v1/messages/count_tokens", json=MESSAGE)
            assert answer.status == 400
            assert endless.sent < 30_000_000

    run(test())


def test_metrics_without_end_tell_nothing() -> None:
    async def test() -> None:
        endless = Endless()
        async with backend(endless.play) as behind, gateway(behind.url) as served:
            only = served.parts.pool.members.only
            assert only is not None
            assert await load_of(only.backend, PATIENCE) is None
            assert endless.sent < ENOUGH

    run(test())


async def never_ending(request: web.Request) -> web.StreamResponse:
    stream = web.StreamResponse()
    await stream.prepare(request)
    while True:
        await stream.write(PIECE)


async def breaking_off(request: web.Request) -> web.StreamResponse:
    stream = web.StreamResponse()
    await stream.prepare(request)
    await stream.write(b'{"prompt": "')
    assert request.transport is not None
    request.transport.abort()
    return stream


async def too_deep(request: web.Request) -> web.StreamResponse:
    return web.Response(text='{"prompt": ' + "[" * 100_000)


async def silent(request: web.Request) -> web.StreamResponse:
    await until(lambda: request.transport is None or request.transport.is_closing())
    return web.Response()


@pytest.mark.parametrize("answer", [never_ending, breaking_off, too_deep, silent])
def test_a_continuation_that_gets_no_text_fails_and_is_no_defect(answer: Handler) -> None:
    async def test() -> None:
        async with fleet("vllm", instead={"/detokenize": answer}, idle_timeout=0.3) as served:
            failed = await ask_fleet(served, "demo", "drop=text,times=1")
            assert failed.final["status"] == "failed"
            assert served.metric("continuations_total", outcome="failed", reason="no_text") == 1

    run(test())
