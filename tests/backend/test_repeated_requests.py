"""How often one request reaches a backend that closes connections: once, or twice if the first one was re-used."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest

from responses_gateway.backend.transport.aiohttp_internals import PushedAnswer
from tests.backend.controlled_backends import pool, text_of
from tests.server.running_gateway import Served, ask, assert_error, gateway, post, run
from tests.server.scripted_backend import HEAD, Backend, Connection, backend, text_stream

CHAT = {"model": "m", "messages": [{"role": "user", "content": "x"}]}


class Closing:
    """A backend that answers the first requests, and closes later connections when it `likes`."""

    def __init__(self, *, reused: str = "", fresh: str = "") -> None:
        self.fresh = fresh  # what is sent before a connection is closed that served no request before; empty: it is served
        self.reused = reused
        self.served: dict[Connection, int] = {}
        self.closes = False

    async def play(self, connection: Connection) -> None:
        before = self.served.get(connection, 0)
        self.served[connection] = before + 1
        act = self.reused if before else self.fresh
        if not self.closes or not act:
            connection.write(HEAD)
            connection.send(*text_stream("hello"))
            connection.end()
        elif act == "nothing":
            connection.close()
        elif act == "reset":
            connection.reset()
        else:
            connection.write(act.encode())
            connection.close()


@asynccontextmanager
async def closing(closes: Closing) -> AsyncIterator[tuple[Served, Backend]]:
    """Serve a gateway with an open, idle connection to the backend, which closes connections from now on."""
    async with backend(closes.play) as server, gateway(server.url, adapt=False) as served:
        assert (await post(served)).final["status"] == "completed"
        server.requests.clear()
        closes.closes = True
        yield served, server


def repeats(served: Served, server: Backend) -> float:
    name = server.url.removeprefix("http://")
    return served.metric("backend_retries_total", backend=name, reason="stale_connection")


@pytest.mark.parametrize("how", ["nothing", "reset"])
@pytest.mark.parametrize("large", [False, True])
def test_a_reused_connection_that_is_closed_is_replaced_once(how: str, large: bool) -> None:
    async def test() -> None:
        async with closing(Closing(reused=how)) as (served, server):
            answer = await post(served, input="x" * 600_000 if large else "hi")
            assert text_of(answer.final) == "hello"
            assert len(server.requests) == 2
            assert repeats(served, server) == 1
            assert len(server.connections) == 2

    run(test())


@pytest.mark.parametrize("how", ["nothing", "reset"])
def test_a_fresh_connection_that_is_closed_is_the_end(how: str) -> None:
    async def test() -> None:
        async with closing(Closing(reused=how, fresh=how)) as (served, server):
            assert_error(await post(served), 502)
            assert len(server.requests) == 2  # one on the idle connection, one on a fresh one
            assert repeats(served, server) == 1
            assert_error(await post(served), 502)
            assert len(server.requests) == 3  # no connection was left to re-use
            assert repeats(served, server) == 1

    run(test())


@pytest.mark.parametrize("stream", [True, False])
def test_many_idle_connections_are_not_tried_one_after_the_other(stream: bool) -> None:
    async def test() -> None:
        closes = Closing(reused="nothing", fresh="nothing")
        async with backend(closes.play) as server, gateway(server.url, adapt=False) as served:
            sender = served.parts.pool.members.only.backend.chats  # type: ignore[union-attr]
            answers = [await sender.post(b"{}", {}) for _ in range(5)]  # at the same time: five connections
            for answer in answers:
                assert isinstance(answer, PushedAnswer)
                await answer.attach(lambda data: None)
            assert len(server.connections) == 5
            server.requests.clear()
            closes.closes = True
            assert_error(await post(served, stream=stream), 502)
            assert len(server.requests) == 2

    run(test())


@pytest.mark.parametrize("sent", ["HTTP/1.1 200 OK\r\n", "HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\n{", "H"])
def test_what_began_to_be_answered_is_never_repeated(sent: str) -> None:
    async def test() -> None:
        async with closing(Closing(reused=sent)) as (served, server):
            assert_error(await post(served, stream=False), 502)
            assert len(server.requests) == 1
            assert repeats(served, server) == 0

    run(test())


def test_a_backend_that_accepts_and_closes_gets_no_request_twice() -> None:
    """Close connections before anything was read, as a proxy without a server behind it does."""

    async def test() -> None:
        connections = []

        async def never(connection: Connection) -> None:
            raise AssertionError("nothing is read")

        async with backend(never) as server, gateway(server.url, adapt=False) as served:
            made = Connection.connection_made

            def close_at_once(self: Connection, transport: object) -> None:
                made(self, transport)  # type: ignore[arg-type]
                connections.append(self)
                self.transport.abort()

            with pytest.MonkeyPatch.context() as patch:
                patch.setattr(Connection, "connection_made", close_at_once)
                assert_error(await post(served), 502)
            assert len(connections) == 1
            assert repeats(served, server) == 0

    run(test())


def test_a_relayed_post_is_sent_once_and_a_get_twice_at_most() -> None:
    async def test() -> None:
        closes = Closing(reused="nothing", fresh="nothing")
        closes.closes = True
        async with backend(closes.play) as server, gateway(server.url, adapt=False) as served:
            assert (await ask(served, "POST", "/v1/chat/completions", json=CHAT)).status == 502
            assert len(server.requests) == 1
            server.requests.clear()
            assert (await ask(served, "GET", "/v1/files")).status == 502
            assert len(server.requests) <= 2

    run(test())


def test_of_several_backends_each_repeats_at_most_once() -> None:
    async def test() -> None:
        async with pool("A", "B", health_interval=3600) as (served, a, b):
            for _ in range(4):
                assert (await post(served, model="m")).status == 200
            for one in (a, b):
                one.asked.clear()
                one.does = "drop"
            assert_error(await post(served, model="m"), 502)
            assert (len(a.asked), len(b.asked)) == (2, 2)

    run(test())
