"""Clients that hold on and give nothing: they cost little memory, nobody else's time, and in the end their place."""

from __future__ import annotations

import asyncio

from tests.chaos.faults import ask, resident, shows
from tests.server.gateway_process import program
from tests.server.running_gateway import RawClient, run, until
from tests.server.scripted_backend import HEAD as HEAD_OF_STREAM
from tests.server.scripted_backend import Connection, backend, chunk

MEGABYTE = 1024 * 1024
# What a client that does not read may cost: the text that the kernel took for it (up to 4 MB), and a buffer of ours.
PER_CLIENT = 6 * MEGABYTE
HEAD = b"POST /v1/responses HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\n"


async def endless(connection: Connection) -> None:
    """Send as much text as is taken."""
    connection.write(HEAD_OF_STREAM)
    while not connection.lost.done():
        connection.send(*[chunk({"content": "x" * 1000})] * 20)
        await asyncio.sleep(0)
        await connection.writable.wait()


def test_clients_that_never_read() -> None:
    crowd = 20

    async def test() -> None:
        flags = ("--no-adapt", "--store", "none", "--idle-timeout", "1.5")
        async with backend(endless) as behind_us, program("--backend", behind_us.url, *flags) as running:
            before = resident(running)
            clients = [await RawClient.connect(running, receive_buffer=4096) for _ in range(crowd)]
            for client in clients:
                await client.post()
            connections = behind_us.connections
            await until(lambda: sum(one.has_waited for one in connections) == crowd, "the backend has waited for each")
            assert resident(running) - before < crowd * PER_CLIENT
            await until(lambda: all(one.lost.done() for one in connections), "all were dropped")
            await running.says("delivery=client_left", times=crowd)
            line = f'responses_gateway_client_disconnects_total{{phase="stream"}} {crowd}.0'
            await shows(running, lambda text: text == line)
            for client in clients:
                client.close()

    run(test())


def test_clients_that_send_slowly() -> None:
    """Hundreds of heads and bodies that do not end: others are answered meanwhile, and the bodies are given up."""
    crowd = 150

    async def test() -> None:
        async with program("--simulator", "--store", "none", "--no-adapt", "--body-timeout", "1") as running:
            assert (await ask(running, input="tps: 2000")).final["status"] == "completed"
            before = resident(running)
            heads = [await RawClient.connect(running) for _ in range(crowd)]
            bodies = [await RawClient.connect(running) for _ in range(crowd)]
            for client in heads:
                await client.send(HEAD)
            for client in bodies:
                await client.send(HEAD + b'Content-Length: 1000\r\n\r\n{"model"')
            assert (await ask(running, input="tps: 2000")).final["status"] == "completed"
            assert resident(running) - before < 2 * crowd * 64 * 1024
            for client in bodies:
                assert (await client.read_all()).startswith(b"HTTP/1.1 408 ")
                client.close()
            for client in heads:
                client.close()
            await shows(running, lambda line: line == "responses_gateway_requests_in_flight 0.0")
            assert "Traceback" not in running.said

    run(test())
