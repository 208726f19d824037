"""A client that reads more slowly than the model writes: the backend waits for it, memory stays bounded, no byte is lost."""

from __future__ import annotations

import asyncio
import json

import pytest

from tests.server.running_gateway import (
    LOOPS,
    LOOPS_OF_LONG_TESTS,
    QUESTION,
    RawClient,
    Served,
    body_of,
    final_of,
    gateway,
    post,
    run,
    simulated,
    until,
)
from tests.server.scripted_backend import HEAD, Backend, Connection, backend, chunk, chunked, text_stream

SMALL = 4096
# Bytes that may wait between the backend and a client that does not read, in the buffers of the gateway and of the kernel,
# because a connection on Linux may hold 4 MiB that are written and 6 MiB that are not read.
PILE = 12 * 1024 * 1024


async def stalled(served: Served) -> None:
    """Wait until the gateway knows that a client is slow."""
    await until(lambda: any(one.slow for one in served.parts.in_flight.activities), "slow")


def buffered(served: Served) -> int:
    """Return how many bytes the gateway keeps for its clients."""
    assert served.runner is not None
    assert served.runner.server is not None
    transports = [connection.transport for connection in served.runner.server.connections]
    return sum(transport.get_write_buffer_size() for transport in transports if transport)


@pytest.mark.slow
@pytest.mark.parametrize("head", [HEAD, b"HTTP/1.0 200 OK\r\nContent-Type: text/event-stream\r\n\r\n"], ids=["pushed", "read"])
@pytest.mark.parametrize("loop", LOOPS_OF_LONG_TESTS)
def test_the_backend_waits_for_the_client(loop: str, head: bytes) -> None:
    pieces = text_stream(*(f"{number:07d} " * 1000 for number in range(1800)))

    async def play(connection: Connection) -> None:
        connection.write(head)
        for piece in pieces:
            connection.write(chunked(piece) if head is HEAD else piece)
            await connection.writable.wait()
        if head is HEAD:
            connection.end()
        connection.close()

    async def test() -> None:
        async with backend(play) as behind, gateway(behind.url, send_buffer=SMALL) as served:
            client = await RawClient.connect(served, receive_buffer=SMALL)
            await client.post()
            await stalled(served)
            await until(lambda: not behind.connections[0].writable.is_set(), "the backend waits")
            assert behind.connections[0].sent < PILE
            assert 0 < buffered(served) < 2 * 1024 * 1024
            seen = b""
            size = 0
            while b"data: [DONE]" not in seen:
                data = await client.read_past(1 << 20)
                assert data
                size += len(data)
                seen = seen[-100:] + data
            assert size > sum(map(len, pieces)) * 4  # deltas, and the whole text three more times
            client.close()

    run(test(), loop)


@pytest.mark.parametrize("loop", LOOPS)
def test_a_slow_reader_gets_every_byte(loop: str) -> None:
    async def test() -> None:
        async with simulated(send_buffer=SMALL) as served:
            client = await RawClient.connect(served, receive_buffer=SMALL)
            await client.post(input="tokens: 5000")
            await stalled(served)
            while not client.received.endswith(b"\r\n0\r\n\r\n"):
                await client.read(3000)
            client.close()
            text = final_of(body_of(client.received))["output"][0]["content"][0]["text"]
            assert len(text.split()) == 5000

    run(test(), loop)


@pytest.mark.parametrize("loop", LOOPS)
def test_a_client_that_never_reads_is_dropped(loop: str) -> None:
    async def play(connection: Connection) -> None:
        connection.write(HEAD)
        while not connection.lost.done():
            connection.send(chunk({"content": "x" * 1000}))
            await asyncio.sleep(0)
            await connection.writable.wait()

    async def test() -> None:
        async with backend(play) as behind, gateway(behind.url, send_buffer=SMALL, idle_timeout=0.5) as served:
            client = await RawClient.connect(served, receive_buffer=SMALL)
            await client.post()
            await stalled(served)
            await until(lambda: not served.parts.in_flight.activities)
            assert served.metric("client_disconnects_total", phase="stream") == 1
            await behind.connections[0].lost
            client.close()

    run(test(), loop)


@pytest.mark.slow
@pytest.mark.parametrize("loop", LOOPS_OF_LONG_TESTS)
@pytest.mark.parametrize("buffer", [SMALL, None], ids=["here", "in the kernel"])
def test_a_client_that_reads_one_large_event_slowly_gets_all_of_it(loop: str, buffer: int | None) -> None:
    """Progress is bytes that left, not an empty buffer: reading takes several times `idle_timeout`."""
    text = "x" * 1_000_000
    limit = 2.0  # a busy machine may stand still for a second

    async def play(connection: Connection) -> None:
        connection.write(HEAD)
        connection.send(*text_stream(text))
        connection.end()

    async def test() -> None:
        async with backend(play) as behind, gateway(behind.url, send_buffer=buffer, idle_timeout=limit) as served:
            client = await RawClient.connect(served, receive_buffer=SMALL)
            await client.post()
            began = asyncio.get_running_loop().time()
            while not client.received.endswith(b"\r\n0\r\n\r\n"):
                slow = asyncio.get_running_loop().time() < began + 2.5 * limit
                assert await client.read(2000 if slow else 1 << 20), "dropped"
                await asyncio.sleep(0.002 if slow else 0)
            client.close()
            assert final_of(body_of(client.received))["output"][0]["content"][0]["text"] == text

    run(test(), loop)


HANDSHAKE = (
    b"GET /v1/responses HTTP/1.1\r\nHost: x\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n"
    b"Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n\r\n"
)


def masked(text: str) -> bytes:
    """Return a text frame of a client, masked with zeros."""
    return b"\x81" + bytes([0x80 | 126]) + len(text).to_bytes(2, "big") + bytes(4) + text.encode()


@pytest.mark.slow
def test_over_a_websocket_too() -> None:
    """More is sent than the client can have read by the end: what comes after the text is silence."""
    limit = 2.0  # a busy machine may stand still for a second

    async def play(connection: Connection) -> None:
        connection.write(HEAD)
        connection.send(chunk({"content": "x" * 6_000_000}))
        await connection.lost

    async def test() -> None:
        async with backend(play) as behind, gateway(behind.url, send_buffer=SMALL, idle_timeout=limit) as served:
            client = await RawClient.connect(served, receive_buffer=SMALL)
            await client.send(HANDSHAKE)
            await client.read_until(b"\r\n\r\n")
            question = json.dumps({"type": "response.create", "model": "m", "input": "x" * 200})
            await client.send(masked(question))
            end = asyncio.get_running_loop().time() + 2.5 * limit
            while asyncio.get_running_loop().time() < end:
                assert await client.read(2000), "dropped"
                await asyncio.sleep(0.002)
            assert served.parts.in_flight.activities
            client.close()

    run(test())


def whole(connection: Connection) -> None:
    """Send a complete answer in one write, whose translation does not fit into the buffers."""
    connection.write(HEAD)
    connection.send(b"".join(text_stream("x" * 100_000)))
    connection.end()


@pytest.mark.parametrize("loop", LOOPS)
def test_a_client_that_never_reads_the_end_is_dropped(loop: str) -> None:
    async def play(connection: Connection) -> None:
        whole(connection)

    async def test() -> None:
        async with backend(play) as behind, gateway(behind.url, send_buffer=SMALL, idle_timeout=0.2) as served:
            client = await RawClient.connect(served, receive_buffer=SMALL)
            await client.post()
            await until(lambda: behind.requests)
            await until(lambda: not served.parts.in_flight.activities, "dropped")
            client.close()

    run(test(), loop)


@pytest.mark.parametrize("loop", LOOPS)
def test_a_client_that_never_reads_the_beginning_is_dropped(loop: str) -> None:
    """Send long instructions, which `response.created` repeats: the first events alone may be more than the buffers hold."""

    async def play(connection: Connection) -> None:
        connection.write(HEAD)
        await connection.lost

    async def test() -> None:
        async with backend(play) as behind, gateway(behind.url, send_buffer=SMALL, idle_timeout=0.2) as served:
            client = await RawClient.connect(served, receive_buffer=SMALL)
            await client.post(instructions="x" * 1_000_000)
            await until(lambda: behind.requests)
            await until(lambda: not served.parts.in_flight.activities, "dropped")
            client.close()

    run(test(), loop)


@pytest.mark.parametrize("loop", LOOPS)
def test_a_shutdown_reaches_a_client_that_is_still_reading_the_beginning(loop: str) -> None:
    async def play(connection: Connection) -> None:
        connection.write(HEAD)
        await connection.lost

    async def test() -> None:
        async with backend(play) as behind, gateway(behind.url, send_buffer=SMALL) as served:
            client = await RawClient.connect(served, receive_buffer=SMALL)
            await client.post(instructions="x" * 1_000_000)
            await until(lambda: behind.requests)
            await client.read_until(b"response.created")
            for exchange in served.parts.in_flight.activities:
                exchange.shut_down()
            while not client.received.endswith(b"\r\n0\r\n\r\n"):
                assert await client.read(1 << 20)
            client.close()
            assert final_of(body_of(client.received))["status"] == "failed"

    run(test(), loop)


@pytest.mark.parametrize("loop", LOOPS)
def test_a_stalled_client_does_not_stall_the_connection_it_used(loop: str) -> None:
    """See that a connection goes back to the pool when the answer is complete, though its client has not read it yet."""

    async def play(connection: Connection) -> None:
        whole(connection)

    async def test() -> None:
        async with backend(play) as behind, gateway(behind.url, send_buffer=SMALL) as served:
            client = await RawClient.connect(served, receive_buffer=SMALL)
            await client.post()
            await stalled(served)
            assert (await post(served, **QUESTION)).final["status"] == "completed"
            assert len(behind.connections) == 1, "the pooled connection was used again"
            while not client.received.endswith(b"\r\n0\r\n\r\n"):
                assert await client.read(1 << 20)
            client.close()
            assert final_of(body_of(client.received))["status"] == "completed"

    run(test(), loop)


@pytest.mark.parametrize("loop", LOOPS)
def test_keep_alives_to_a_client_that_does_not_read_do_not_pile_up(loop: str) -> None:
    async def play(connection: Connection) -> None:
        await connection.lost

    async def test() -> None:
        settings = {"header_grace": 0, "keepalive_event": 0.005, "keepalive_comment": 0.005, "idle_timeout": 0.5}
        async with backend(play) as behind, gateway(behind.url, send_buffer=SMALL, **settings) as served:
            client = await RawClient.connect(served, receive_buffer=SMALL)
            await client.post(instructions="x" * 30_000)
            await until(lambda: behind.requests)
            await stalled(served)
            assert buffered(served) < 1024 * 1024
            await until(lambda: not served.parts.in_flight.activities, "dropped")
            client.close()

    run(test(), loop)


def idle(behind: Backend) -> bool:
    return all(connection.writable.is_set() for connection in behind.connections)


@pytest.mark.parametrize("loop", LOOPS)
def test_slow_before_the_backend_has_answered(loop: str) -> None:
    """Back-pressure that begins while the status is still awaited holds once the answer comes."""
    pieces = text_stream(*("x" * 10_000 for _ in range(3000)))
    released: list[asyncio.Event] = []

    async def play(connection: Connection) -> None:
        released.append(asyncio.Event())
        await released[0].wait()
        connection.write(HEAD)
        for piece in pieces:
            connection.send(piece)
            await connection.writable.wait()
        connection.end()

    async def test() -> None:
        async with backend(play) as behind, gateway(behind.url, header_grace=0, send_buffer=SMALL) as served:
            client = await RawClient.connect(served, receive_buffer=SMALL)
            await client.post(instructions="x" * 300_000)
            await until(lambda: released)
            await stalled(served)
            released[0].set()
            await until(lambda: not idle(behind), "the backend waits")
            assert behind.connections[0].sent < PILE
            client.close()

    run(test(), loop)
