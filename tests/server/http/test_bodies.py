"""The bodies of requests: unpacked in bounded steps beside the event loop, and limited together."""

from __future__ import annotations

import asyncio
import gzip
import json
import threading
import tracemalloc
import zlib
from functools import cache
from typing import Any

import aiohttp
import pytest
from hypothesis import given
from hypothesis import strategies as st

from responses_gateway.wire import unpacking
from responses_gateway.wire.unpacking import DamagedBodyError, Unpacker
from tests.server.running_gateway import QUESTION, RawClient, Served, ask, assert_error, body_of, post, run, simulated, until
from tests.waiting import PATIENCE

MEBIBYTE = 1024 * 1024
PACKED = {"Content-Type": "application/json", "Content-Encoding": "gzip"}
HEAD = b"POST /v1/%b HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n"


def whole(unpacker: Unpacker, step: int) -> bytes:
    pieces = b""
    while not unpacker.ended:
        piece = unpacker.read(step)
        assert len(piece) <= step
        pieces += piece
    return pieces


def raw_deflate(data: bytes) -> bytes:
    packer = zlib.compressobj(wbits=-zlib.MAX_WBITS)
    return packer.compress(data) + packer.flush()


# ---- unpacking --------------------------------------------------------------------------------------------------------

TEXTS = st.lists(st.binary(max_size=300) | st.binary(min_size=1, max_size=3).map(lambda data: data * 3000), max_size=4)


@given(texts=TEXTS, padding=st.integers(0, 3), step=st.integers(1, 5000))
def test_what_was_compressed_comes_out_again_whatever_the_steps(texts: list[bytes], padding: int, step: int) -> None:
    data = b"".join(texts)
    members = b"".join(gzip.compress(text) + bytes(padding) for text in texts)
    assert whole(Unpacker(members, "gzip"), step) == data
    for packed in (zlib.compress(data), raw_deflate(data)):
        assert whole(Unpacker(packed, "deflate"), step) == data


@pytest.mark.parametrize("encoding", ["gzip", "deflate"])
def test_what_is_cut_or_changed_is_not_taken_for_a_body(encoding: str) -> None:
    data = json.dumps(QUESTION).encode() * 10
    packed = gzip.compress(data) if encoding == "gzip" else zlib.compress(data)
    for size in range(1, len(packed)):
        with pytest.raises(DamagedBodyError):
            whole(Unpacker(packed[:size], encoding), 100)
    with pytest.raises(DamagedBodyError):
        whole(Unpacker(packed[:-2] + b"\xff\xff", encoding), 100)


def test_thousands_of_tiny_members_are_refused() -> None:
    many = gzip.compress(b"") * (unpacking.MAX_MEMBERS + 1)
    with pytest.raises(DamagedBodyError):
        whole(Unpacker(many, "gzip"), 100)


# ---- bombs ------------------------------------------------------------------------------------------------------------


@cache
def bomb(size: int) -> bytes:
    return gzip.compress(b" " * size)


@pytest.mark.parametrize("path", ["responses", "responses/compact", "responses/input_tokens", "conversations", "embeddings"])
def test_a_bomb_takes_no_more_memory_than_the_largest_body(path: str) -> None:
    limit = 4 * MEBIBYTE
    packed = bomb(200 * MEBIBYTE)

    async def test() -> None:
        async with simulated(max_body_bytes=limit, store="memory") as served:
            tracemalloc.start()
            try:
                before, _ = tracemalloc.get_traced_memory()
                answer = await ask(served, "POST", f"/v1/{path}", data=packed, headers=PACKED)
                _, peak = tracemalloc.get_traced_memory()
            finally:
                tracemalloc.stop()
            assert_error(answer, 413, "request_too_large")
            assert peak - before < 2 * limit
            assert (await post(served)).status == 200

    run(test())


def test_others_are_answered_while_a_bomb_is_unpacked(monkeypatch: pytest.MonkeyPatch) -> None:
    unpacking_goes_on = threading.Event()
    read = Unpacker.read

    def read_slowly(unpacker: Unpacker, size: int) -> bytes:
        if threading.current_thread() is not threading.main_thread():
            assert unpacking_goes_on.wait(PATIENCE)
        return read(unpacker, size)

    monkeypatch.setattr(Unpacker, "read", read_slowly)

    async def test() -> None:
        async with simulated(max_body_bytes=4 * MEBIBYTE) as served:
            bombs = [
                asyncio.create_task(ask(served, "POST", "/v1/responses", data=bomb(20 * MEBIBYTE), headers=PACKED))
                for _ in range(6)
            ]
            await until(lambda: served.metric("requests_in_flight") == 6)
            try:
                assert (await ask(served, "GET", "/health")).status == 200
                assert (await post(served)).status == 200
                assert not any(one.done() for one in bombs)
            finally:
                unpacking_goes_on.set()
            for answer in await asyncio.gather(*bombs):
                assert_error(answer, 413, "request_too_large")

    run(test())


def test_a_declared_size_beyond_the_limit_is_refused_before_anything_is_read() -> None:
    async def test() -> None:
        async with simulated(max_body_bytes=1000) as served:
            client = await RawClient.connect(served)
            await client.send(HEAD % (b"responses", 1001))
            await client.read_until(b"request_too_large")
            client.close()

    run(test())


# ---- all together -----------------------------------------------------------------------------------------------------


async def begin(served: Served, size: int, path: bytes = b"responses") -> RawClient:
    """Send so many bytes of a body that is longer than that, and wait until they are counted."""
    before = held(served)
    client = await RawClient.connect(served)
    await client.send(HEAD % (path, 900_000) + b"{" + b" " * (size - 1))
    await until(lambda: held(served) >= before + size)
    return client


@pytest.fixture
def _room_for_one(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let all bodies together have no more room than one may have."""
    monkeypatch.setattr("responses_gateway.server.app.LARGEST_BODIES", 1)


def held(served: Served) -> float:
    return served.metric("request_body_bytes")


@pytest.mark.usefixtures("_room_for_one")
def test_the_largest_of_the_bodies_under_way_gives_way() -> None:
    """A few that send large bodies slowly cannot shut out the others."""

    async def test() -> None:
        async with simulated(max_body_bytes=1_000_000) as served:
            small = await begin(served, 300_000)
            large = await begin(served, 500_000)
            answer = await post(served, input="scenario: plain", padding="x" * 250_000)
            assert answer.final["status"] == "completed"
            refused = await large.read_all()
            assert refused.startswith(b"HTTP/1.1 503 ")
            assert b"retry-after: 1\r\n" in refused.lower()
            assert b"connection: close" in refused.lower()
            assert json.loads(body_of(refused))["error"]["code"] == "server_error"
            assert served.metric("access_refusals_total", reason="bodies") == 1
            large.close()
            assert small.received == b""
            small.close()
            await until(lambda: held(served) == 0)

    run(test())


@pytest.mark.usefixtures("_room_for_one")
def test_whoever_is_the_largest_is_refused() -> None:
    async def test() -> None:
        async with simulated(max_body_bytes=1_000_000) as served:
            others = [await begin(served, 300_000) for _ in range(3)]
            for headers, data in (({}, b" " * 700_000), (PACKED, bomb(700_000))):
                answer = await ask(served, "POST", "/v1/responses", data=data, headers=headers)
                assert_error(answer, 503, "server_error")
            for client in others:
                assert client.received == b""
                client.close()
            await until(lambda: held(served) == 0)
            assert (await post(served, padding="x" * 700_000)).status == 200

    run(test())


@pytest.mark.usefixtures("_room_for_one")
def test_a_body_counts_until_its_answer_ends() -> None:
    async def test() -> None:
        async with simulated(max_body_bytes=1_000_000) as served:
            client = await RawClient.connect(served)
            await client.post(input="tokens: 1000 tps: 50", padding="x" * 600_000)
            await client.read_until(b"output_text.delta")
            assert held(served) > 600_000
            assert_error(await post(served, padding="x" * 600_000), 503)
            client.close()
            await until(lambda: held(served) == 0)
            assert (await post(served, padding="x" * 600_000)).status == 200

    run(test())


@pytest.mark.usefixtures("_room_for_one")
def test_messages_of_websockets_count_too() -> None:
    async def test() -> None:
        message: dict[str, Any] = {"type": "response.create", "model": "simulator", "input": "hi", "padding": "x" * 600_000}
        async with (
            simulated(max_body_bytes=1_000_000) as served,
            aiohttp.ClientSession() as session,
            session.ws_connect(f"{served.url}/v1/responses", max_msg_size=0) as socket,
        ):
            client = await RawClient.connect(served)
            await client.post(input="tokens: 1000 tps: 50", padding="x" * 600_000)
            await client.read_until(b"output_text.delta")
            await socket.send_json(message)
            assert (await socket.receive_json())["status"] == 503
            client.close()
            await until(lambda: held(served) == 0)
            await socket.send_json(message)
            while (event := await socket.receive_json())["type"] != "response.completed":
                assert event["type"] != "error"
            await until(lambda: held(served) == 0)

    run(test())
