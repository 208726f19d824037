"""The memory of a request that was answered is free when it is over, not when the collector of cycles comes, minutes later."""

from __future__ import annotations

import gc
import gzip
import random
import tracemalloc
from collections.abc import Callable, Coroutine, Iterator
from typing import Any

import aiohttp
import pytest

from responses_gateway.server.generation.generation import Generation
from responses_gateway.server.generation.responses import Creation
from responses_gateway.stream.translator import Translator
from tests.server.running_gateway import RawClient, ask, gateway, post, run, simulated, until
from tests.server.scripted_backend import HEAD, Connection, Play, backend, chunk


@pytest.fixture
def _uncollected() -> Iterator[None]:
    gc.collect()
    gc.disable()
    gc.freeze()  # what is there already is not looked at again and again
    yield
    gc.unfreeze()
    gc.enable()


def alive() -> int:
    """Return how many parts of requests there are; other tests may have left some."""
    return sum(isinstance(one, Creation | Generation | Translator) for one in gc.get_objects())


@pytest.mark.usefixtures("_uncollected")
@pytest.mark.parametrize(
    "question",
    [
        {"input": "scenario: demo"},
        {"input": "scenario: demo", "stream": False},
        {"input": "scenario: demo", "store": True},
    ],
    ids=["streamed", "whole", "stored"],
)
def test_a_request_leaves_nothing(question: dict[str, Any]) -> None:
    async def test() -> None:
        async with simulated(store="memory") as served:
            before = alive()
            for _ in range(3):
                await post(served, question)
            await until(lambda: alive() <= before, "nothing is left")

    run(test())


# ---- requests that are refused, that fail, whose clients leave --------------------------------------------------------

# A body that is worth noticing if it stays: about 300 KB.
LARGE = "x" * 300_000
IMAGE = {"type": "input_image", "image_url": f"data:image/png;base64,{LARGE}"}
REFUSED: dict[str, dict[str, Any]] = {
    "a wrong type in an image": {
        "input": [{"role": "user", "content": [{**IMAGE, "detail": 5}]}],
    },
    "an unknown type of item": {"input": [{"type": "nothing", "text": LARGE}]},
    "a wrong parameter": {"input": LARGE, "temperature": "hot"},
    "a wrong tool": {"input": LARGE, "tools": [{"type": "function"}]},
    "an unknown previous response": {"input": LARGE, "previous_response_id": "resp_none"},
    "an unknown conversation": {"input": LARGE, "conversation": "conv_none"},
    "background without a store": {"input": LARGE, "background": True, "store": False},
    "encrypted content that was changed": {"input": [{"type": "reasoning", "encrypted_content": LARGE, "summary": 3}]},
}


async def refusing(connection: Connection) -> None:
    connection.write(b"HTTP/1.1 400 No\r\nContent-Length: 2\r\n\r\nno")


async def breaking(connection: Connection) -> None:
    connection.write(HEAD)
    connection.send(chunk({"content": "Hello"}))
    connection.end()


async def answering_nonsense(connection: Connection) -> None:
    connection.write(HEAD)
    connection.send(b"data: {nonsense}\n\n")
    connection.end()


def large_alive() -> int:
    """Return how much memory the allocations of large pieces take, in bytes."""
    snapshot = tracemalloc.take_snapshot().statistics("lineno")
    return sum(found.size for found in snapshot if found.size / max(1, found.count) > 50_000)


@pytest.fixture
def _traced() -> Iterator[None]:
    tracemalloc.start()
    yield
    tracemalloc.stop()


async def nothing_stays(ask_once: Callable[[], Coroutine[Any, Any, object]]) -> None:
    await ask_once()  # what is loaded once may stay
    before = alive()
    size = large_alive()
    for _ in range(5):
        await ask_once()
    await until(lambda: alive() <= before, "no part of a request is left")
    await until(lambda: large_alive() < size + len(LARGE), "no body is left")


@pytest.mark.usefixtures("_uncollected", "_traced")
@pytest.mark.parametrize("body", REFUSED.values(), ids=REFUSED.keys())
@pytest.mark.parametrize("stream", [True, False])
def test_a_refused_request_leaves_nothing(body: dict[str, Any], stream: bool) -> None:
    async def test() -> None:
        async with simulated(store="memory") as served:

            async def ask_once() -> None:
                assert (await post(served, body, stream=stream)).status >= 400

            await nothing_stays(ask_once)

    run(test())


@pytest.mark.usefixtures("_uncollected", "_traced")
@pytest.mark.parametrize("data", [b"{" + LARGE.encode(), b'["' + LARGE.encode() + b'"]', LARGE.encode()])
def test_a_body_that_is_no_request_leaves_nothing(data: bytes) -> None:
    async def test() -> None:
        async with simulated() as served:

            async def ask_once() -> None:
                for path in ("responses", "responses/compact", "responses/input_tokens"):
                    headers = {"Content-Type": "application/json"}
                    assert (await ask(served, "POST", f"/v1/{path}", data=data, headers=headers)).status == 400

            await nothing_stays(ask_once)

    run(test())


@pytest.mark.usefixtures("_uncollected", "_traced")
@pytest.mark.parametrize(
    ("encoding", "data", "status"),
    [
        ("gzip", gzip.compress(b" " * 5_000_000), 413),
        ("gzip", gzip.compress(b"{" + LARGE.encode()), 400),
        ("gzip", gzip.compress(random.Random(1).randbytes(400_000))[:-9], 400),
        ("identity", b" " * 600_000, 413),
        ("br", LARGE.encode(), 415),
    ],
    ids=["bomb", "compressed nonsense", "cut", "too large", "unknown encoding"],
)
def test_a_body_that_is_not_taken_leaves_nothing(encoding: str, data: bytes, status: int) -> None:
    async def test() -> None:
        async with simulated(max_body_bytes=500_000) as served:

            async def ask_once() -> None:
                headers = {"Content-Type": "application/json", "Content-Encoding": encoding}
                assert (await ask(served, "POST", "/v1/responses", data=data, headers=headers)).status == status

            await nothing_stays(ask_once)

    run(test())


@pytest.mark.usefixtures("_uncollected", "_traced")
def test_a_body_that_gave_way_leaves_nothing() -> None:
    async def test() -> None:
        async with simulated(max_body_bytes=1_000_000, max_total_body_bytes=1_000_000) as served:

            async def ask_once() -> None:
                client = await RawClient.connect(served)
                await client.send(b"POST /v1/responses HTTP/1.1\r\nHost: x\r\nContent-Length: 900000\r\n\r\n{" + b" " * 600_000)
                await until(lambda: served.metric("request_body_bytes") > 600_000)
                assert (await post(served, padding="x" * 450_000)).status == 200
                await client.read_until(b" 503 ")
                client.close()
                await until(lambda: served.metric("request_body_bytes") == 0)

            await nothing_stays(ask_once)

    run(test())


@pytest.mark.usefixtures("_uncollected", "_traced")
@pytest.mark.parametrize("stream", [True, False])
@pytest.mark.parametrize("play", [refusing, breaking, answering_nonsense], ids=["refused", "broken", "nonsense"])
def test_a_response_that_fails_leaves_nothing(play: Play, stream: bool) -> None:
    async def test() -> None:
        async with backend(play) as behind, gateway(behind.url, store="memory") as served:

            async def ask_once() -> None:
                behind.requests.clear()
                await post(served, input=LARGE, stream=stream)
                behind.requests.clear()

            await nothing_stays(ask_once)

    run(test())


@pytest.mark.usefixtures("_uncollected", "_traced")
def test_a_client_that_leaves_takes_everything_along() -> None:
    async def test() -> None:
        async with simulated(store="memory") as served:

            async def ask_once() -> None:
                client = await RawClient.connect(served)
                await client.post(input=f"tokens: 1000 tps: 50 {LARGE}")
                await client.read_until(b"output_text.delta")
                client.close()
                await until(lambda: not served.parts.in_flight.activities)

            await nothing_stays(ask_once)

    run(test())


@pytest.mark.usefixtures("_uncollected", "_traced")
def test_a_message_that_is_refused_leaves_nothing() -> None:
    async def test() -> None:
        async with (
            simulated(store="memory") as served,
            aiohttp.ClientSession() as session,
            session.ws_connect(f"{served.url}/v1/responses", max_msg_size=0) as socket,
        ):

            async def ask_once() -> None:
                for body in REFUSED.values():
                    await socket.send_json({"type": "response.create", "model": "simulator", **body})
                    assert (await socket.receive_json())["type"] == "error"

            await nothing_stays(ask_once)

    run(test())
