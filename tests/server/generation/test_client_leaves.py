"""A client that leaves: the backend is told at once, whatever was going on, and nothing is left behind."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import pytest

from tests.server.running_gateway import LOOPS, RawClient, Served, gateway, run, until
from tests.server.scripted_backend import HEAD, PHASES, Backend, Connection, backend, chat_stream, chunk

# The longest that a GPU may go on for nobody, in seconds. Measured: a few milliseconds.
SOON = 10.0

# Phase -> what the client has seen by then.
SEEN = {
    "before the first token": b"response.in_progress",
    "role": b"response.in_progress",
    "reasoning": b"think.",
    "text": b"from here.",
    "arguments": b"Paris",
    "finished": b"Paris",
}
LEAVE: dict[str, Callable[[RawClient], None]] = {"closes": RawClient.close, "resets": RawClient.reset}


async def stops(behind: Backend, leave: Callable[[], None]) -> None:
    """Leave, and wait for the backend to notice."""
    loop = asyncio.get_running_loop()
    left = loop.time()
    leave()
    took = await asyncio.wait_for(behind.connections[0].lost, SOON) - left
    print(f"the backend was free after {took * 1000:.1f} ms")


async def gone(served: Served, phase: str) -> None:
    await until(lambda: not served.parts.in_flight.activities)
    assert served.metric("client_disconnects_total", phase=phase) == 1
    assert sum(sample.value for sample in _samples(served, "requests_total")) == 1


def _samples(served: Served, name: str) -> list[Any]:
    wanted = f"responses_gateway_{name}"
    served.parts.metrics.flush()
    return [one for metric in served.parts.metrics.registry.collect() for one in metric.samples if one.name == wanted]


@pytest.mark.parametrize("loop", LOOPS)
@pytest.mark.parametrize("way", LEAVE)
@pytest.mark.parametrize("phase", SEEN)
def test_in_the_middle_of_a_stream(phase: str, way: str, loop: str) -> None:
    async def play(connection: Connection) -> None:
        connection.write(HEAD)
        connection.send(*chat_stream()[: PHASES[phase]])
        await connection.lost

    async def test() -> None:
        async with backend(play) as behind, gateway(behind.url) as served:
            client = await RawClient.connect(served)
            await client.post()
            await client.read_until(SEEN[phase])
            await stops(behind, lambda: LEAVE[way](client))
            await gone(served, "stream")
            assert served.metric("client_disconnect_release_seconds_count") == 1
            assert 0 <= served.metric("client_disconnect_release_seconds_sum") < SOON

    run(test(), loop)


def test_the_tokens_until_then_are_counted() -> None:
    pieces = [{"index": 0, "delta": {"content": f"<{number}>"}, "token_ids": [number, number]} for number in range(20)]

    async def play(connection: Connection) -> None:
        connection.write(HEAD)
        connection.send(*(chunk(choices=[piece]) for piece in pieces))
        await connection.lost

    async def test() -> None:
        async with backend(play) as behind, gateway(behind.url) as served:
            client = await RawClient.connect(served)
            await client.post()
            await client.read_until(b"<19>")
            await stops(behind, client.close)
            await gone(served, "stream")
            assert sum(sample.value for sample in _samples(served, "tokens_total")) == 40

    run(test())


@pytest.mark.parametrize("loop", LOOPS)
@pytest.mark.parametrize("stream", [True, False])
@pytest.mark.parametrize("grace", [0, 5])
def test_while_the_backend_thinks_about_the_status(grace: float, stream: bool, loop: str) -> None:
    async def play(connection: Connection) -> None:
        await connection.lost

    async def test() -> None:
        async with backend(play) as behind, gateway(behind.url, header_grace=grace) as served:
            client = await RawClient.connect(served)
            await client.post(stream=stream)
            await until(lambda: behind.requests)
            await stops(behind, client.close)
            await gone(served, "backend")

    run(test(), loop)


@pytest.mark.parametrize("loop", LOOPS)
def test_while_a_whole_answer_is_collected(loop: str) -> None:
    async def play(connection: Connection) -> None:
        connection.write(HEAD)
        connection.send(chunk({"content": "x"}))
        await connection.lost

    async def test() -> None:
        async with backend(play) as behind, gateway(behind.url) as served:
            client = await RawClient.connect(served)
            await client.post(stream=False)
            await until(lambda: any(one.log.facts.phase == "stream" for one in served.parts.in_flight.activities))
            await stops(behind, client.close)
            await gone(served, "stream")

    run(test(), loop)


@pytest.mark.parametrize("loop", LOOPS)
def test_while_a_refusal_is_read(loop: str) -> None:
    async def play(connection: Connection) -> None:
        connection.write(b"HTTP/1.1 500 No\r\nContent-Length: 100\r\n\r\n")
        await connection.lost

    async def test() -> None:
        async with backend(play) as behind, gateway(behind.url) as served:
            client = await RawClient.connect(served)
            await client.post()
            await until(lambda: behind.requests)
            await stops(behind, client.close)
            await gone(served, "backend")

    run(test(), loop)


@pytest.mark.parametrize("loop", LOOPS)
def test_during_the_upload(loop: str) -> None:
    async def play(connection: Connection) -> None:
        raise AssertionError("the backend must not be asked")

    async def test() -> None:
        async with backend(play) as behind, gateway(behind.url) as served:
            client = await RawClient.connect(served)
            await client.send(b'POST /v1/responses HTTP/1.1\r\nHost: x\r\nContent-Length: 1000\r\n\r\n{"model": ')
            await until(lambda: served.parts.in_flight.activities)
            client.close()
            await gone(served, "request")
            assert behind.connections == []

    run(test(), loop)


@pytest.mark.parametrize("loop", LOOPS)
@pytest.mark.parametrize("way", LEAVE)
def test_while_it_does_not_read(way: str, loop: str) -> None:
    async def play(connection: Connection) -> None:
        connection.write(HEAD)
        while not connection.lost.done():
            connection.send(chunk({"content": "x" * 1000}))
            await asyncio.sleep(0)
            await connection.writable.wait()

    async def test() -> None:
        async with backend(play) as behind, gateway(behind.url, send_buffer=4096) as served:
            client = await RawClient.connect(served, receive_buffer=4096)
            await client.post()
            await until(lambda: any(one.slow for one in served.parts.in_flight.activities))
            await stops(behind, lambda: LEAVE[way](client))
            await gone(served, "stream")

    run(test(), loop)


@pytest.mark.parametrize("loop", LOOPS)
def test_many_at_once(loop: str) -> None:
    async def play(connection: Connection) -> None:
        connection.write(HEAD)
        connection.send(chunk({"content": "hello"}))
        await connection.lost

    async def test() -> None:
        async with backend(play) as behind, gateway(behind.url) as served:
            clients = [await RawClient.connect(served) for _ in range(100)]
            for client in clients:
                await client.post()
            for client in clients:
                await client.read_until(b"hello")
                client.close()
            await until(lambda: all(connection.lost.done() for connection in behind.connections))
            assert len(behind.connections) == 100

    run(test(), loop)


@pytest.mark.parametrize("loop", LOOPS)
def test_at_the_very_moment_of_the_answer(loop: str) -> None:
    """Close the connection in the same turn of the loop in which the backend's status arrives: no defect is logged."""

    async def play(connection: Connection) -> None:
        connection.write(HEAD)
        connection.send(*chat_stream())
        connection.end()

    async def test() -> None:
        async with backend(play) as behind, gateway(behind.url) as served:
            for turns in range(40):
                client = await RawClient.connect(served)
                await client.post(stream=bool(turns % 2))
                for _ in range(turns):
                    await asyncio.sleep(0)
                client.reset()

    run(test(), loop)
