"""A machine is gone, or the way to it: nobody says so, no packet is answered."""

from __future__ import annotations

import asyncio
import socket
from typing import Any

import pytest

from tests.chaos.faults import IMPATIENT, ask, behind, key_for, need_socket_filters, shows, simulators, vanish
from tests.server.gateway_process import program
from tests.server.running_gateway import LOOPS, RawClient, assert_error, gateway, post, run, until
from tests.server.scripted_backend import HEAD, Backend, Connection, backend, chunk, text_stream


@pytest.fixture
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    """Notice a vanished backend within seconds; the kernel counts in whole ones."""
    need_socket_filters()
    monkeypatch.setattr("responses_gateway.backend.transport.keepalive.VANISHED", 2.0)


def gone(connection: Connection) -> None:
    vanish(connection.transport.get_extra_info("socket"))


async def speechless(connection: Connection) -> None:
    """Vanish in the middle of the text."""
    connection.write(HEAD)
    connection.send(chunk({"content": "Once upon"}))
    gone(connection)


async def answering(connection: Connection) -> None:
    connection.write(HEAD)
    connection.send(*text_stream("here ", "I am"))
    connection.end()


def key(first: Backend, second: Backend) -> str:
    """Return a cache key that sends a request to the first."""

    class Place:
        def __init__(self, url: str) -> None:
            self.place = url.removeprefix("http://")

    return key_for(Place(first.url), Place(second.url))


@pytest.mark.parametrize("loop", LOOPS)
@pytest.mark.usefixtures("quick")
def test_the_machine_of_a_backend_in_the_middle_of_an_answer(loop: str) -> None:
    """Expect the failure soon: the kernel's default would be a quarter of an hour, the idle limit is five minutes."""

    async def test() -> None:
        async with backend(speechless) as behind_us, gateway(behind_us.url) as served:
            final = (await post(served)).final
            assert final["status"] == "failed"
            assert "broke in the middle" in final["error"]["message"]
            assert final["output"][0]["content"][0]["text"] == "Once upon"

    run(test(), loop)


@pytest.mark.parametrize("loop", LOOPS)
@pytest.mark.usefixtures("quick")
def test_before_it_said_anything_another_one_answers(loop: str) -> None:
    dead = Backend("")

    async def silent(connection: Connection) -> None:
        if dead.requests[-1].startswith(b"POST"):
            gone(connection)
        else:  # it was well when it was looked at
            connection.write(b"HTTP/1.1 404 Not Found\r\nContent-Length: 0\r\n\r\n")

    async def test() -> None:
        nonlocal dead
        async with backend(silent) as dead, backend(answering) as other, gateway(dead.url, other.url) as served:
            answer = await post(served, prompt_cache_key=key(dead, other))
            assert answer.final["status"] == "completed"
            assert served.metric("backend_retries_total", backend=dead.url.removeprefix("http://"), reason="dropped") == 1

    run(test(), loop)


@pytest.mark.parametrize("loop", LOOPS)
@pytest.mark.usefixtures("quick")
def test_a_connection_that_was_kept_for_the_next_request(loop: str) -> None:
    """Expect a request that is never confirmed to be sent once more on a new connection."""

    async def test() -> None:
        async with backend(answering) as behind_us, gateway(behind_us.url) as served:
            assert (await post(served)).final["status"] == "completed"
            gone(behind_us.connections[-1])
            assert (await post(served)).final["status"] == "completed"
            assert len(behind_us.connections) > 1

    run(test(), loop)


def test_the_machine_of_a_client() -> None:
    """Expect the backend to be free after `idle_timeout`, and not only when the model has finished."""
    need_socket_filters()

    async def test() -> None:
        async with simulators() as (behind_us,), program(*behind(behind_us), "--idle-timeout", "12") as running:
            client = await RawClient.connect(running)
            await client.post(input="scenario: long tokens: 20000 tps: 50")
            await client.read_until(b"output_text.delta")
            vanish(client.socket)
            await until(lambda: behind_us.connections == 0, "the backend is free")
            await running.says("delivery=client_left")
            await shows(running, lambda line: line == 'responses_gateway_client_disconnects_total{phase="stream"} 1.0')
            client.close()

    run(test())


@pytest.mark.parametrize("failure", ["EAI_NONAME", "EAI_AGAIN"])
def test_the_name_of_a_backend_is_not_known_any_more(failure: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Expect what runs to go on, and what is new to fail within the connect timeout until the name resolves again; where it is
    the DNS that cannot be reached, to go on at the last addresses."""
    lookup = socket.getaddrinfo
    known = asyncio.Event()
    known.set()

    def getaddrinfo(host: Any, *rest: Any, **more: Any) -> Any:
        if host == "gpu.internal":
            if not known.is_set():
                raise socket.gaierror(getattr(socket, failure), "This is what the DNS says")
            host = "127.0.0.1"
        return lookup(host, *rest, **more)

    monkeypatch.setattr(socket, "getaddrinfo", getaddrinfo)

    async def test() -> None:
        async with simulators() as (behind_us,), gateway(f"http://gpu.internal:{behind_us.port}") as served:
            running = asyncio.create_task(post(served, input="tokens: 30 tps: 30"))
            await until(lambda: behind_us.connections)
            known.clear()
            (member,) = served.parts.pool.members.by_name.values()
            member.backend.chats.connector.clear_dns_cache()  # half a minute later
            answer = await post(served)
            if failure == "EAI_AGAIN":
                assert answer.final["status"] == "completed"
            else:
                assert "name cannot be resolved" in assert_error(answer, 502, "server_error")
            assert (await running).final["status"] == "completed"
            known.set()
            assert (await post(served)).final["status"] == "completed"

    run(test())


def test_a_backend_that_accepts_and_never_answers_before_a_full_line() -> None:
    """Halt the process, for which the kernel goes on accepting. Nobody waits longer than the limits say, and nothing is left
    of it when it wakes."""
    limits = ("--idle-timeout", "1.5", "--queue-timeout", "0.6", "--queue-size", "2", "--max-concurrency", "2")

    async def test() -> None:
        async with simulators() as (behind_us,), program(*behind(behind_us), *limits, *IMPATIENT) as running:
            behind_us.halt()
            held = [asyncio.create_task(ask(running, stream=False)) for _ in range(2)]
            await shows(running, lambda line: line.endswith("_in_flight 2.0"))
            waiting = [asyncio.create_task(ask(running, stream=False)) for _ in range(2)]
            await shows(running, lambda line: line == "responses_gateway_queued_requests 2.0")
            full = await ask(running)
            assert_error(full, 429, "rate_limit_exceeded")
            assert int(full.headers["retry-after"]) >= 1
            for late in waiting:
                assert_error(await late, 503, "server_error")
            for silent_one in held:
                assert "sent nothing for 1.5 seconds" in assert_error(await silent_one, 504, "server_error")
            behind_us.wake()
            assert (await ask(running)).final["status"] == "completed"
            await shows(running, lambda line: line == 'responses_gateway_queue_rejections_total{reason="full"} 1.0')
            await shows(running, lambda line: line == 'responses_gateway_queue_rejections_total{reason="late"} 2.0')
            await shows(running, lambda line: line == "responses_gateway_requests_in_flight 0.0")

    run(test())
