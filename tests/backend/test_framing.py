"""HTTP chunks from a backend, cut and formatted in every way that is allowed, and in some that are not."""

from __future__ import annotations

import asyncio
import random

import aiohttp
import pytest

from tests.server.running_gateway import LOOPS, ask, gateway, post, run
from tests.server.scripted_backend import HEAD, Connection, Play, backend, chat_stream, chunked

WEATHER = {"type": "function", "name": "get_weather", "parameters": {"type": "object"}}
PAYLOADS = chat_stream()
BODY = b"".join(map(chunked, PAYLOADS)) + b"0\r\n\r\n"
WHOLE = b"".join(PAYLOADS)


def writing(*pieces: bytes) -> Play:
    """Return a backend that writes these pieces, so that each arrives by itself."""

    async def play(connection: Connection) -> None:
        for piece in pieces:
            connection.write(piece)
            for _ in range(3):  # turns of the loop, which the gateway shares
                await asyncio.sleep(0)

    return play


def cut(data: bytes, size: int) -> list[bytes]:
    return [data[at : at + size] for at in range(0, len(data), size)]


def shuffled(data: bytes, seed: int) -> list[bytes]:
    chance = random.Random(seed)
    pieces = []
    while data:
        size = chance.choice([1, 2, 3, 7, 40, 300])
        pieces.append(data[:size])
        data = data[size:]
    return pieces


GOOD: dict[str, list[bytes]] = {
    "head and body in one write": [HEAD + BODY],
    "head alone, then the body": [HEAD, BODY],
    "head, body, last chunk": [HEAD, BODY[:-5], BODY[-5:]],
    "byte by byte": cut(HEAD + BODY, 1),
    "two by two": cut(HEAD + BODY, 2),
    "body byte by byte": [HEAD, *cut(BODY, 1)],
    "head cut": [HEAD[:20], HEAD[20:] + BODY],
    "head cut in its end": [HEAD[:-1], HEAD[-1:] + BODY],
    "one HTTP chunk for all": [HEAD, chunked(WHOLE) + b"0\r\n\r\n"],
    "an HTTP chunk for each byte": [HEAD, b"".join(chunked(WHOLE[at : at + 1]) for at in range(len(WHOLE))) + b"0\r\n\r\n"],
    "events cut across HTTP chunks": [HEAD, b"".join(map(chunked, cut(WHOLE, 37))) + b"0\r\n\r\n"],
    "sizes that end in 0": [HEAD, b"".join(map(chunked, cut(WHOLE, 16))) + b"0\r\n\r\n"],
    "each of these in its own write": [HEAD, *map(chunked, cut(WHOLE, 16)), b"0\r\n\r\n"],
    "extensions": [HEAD, b"".join(b"%X;a=b;c\r\n%b\r\n" % (len(one), one) for one in PAYLOADS) + b"0;last\r\n\r\n"],
    "leading zeros": [HEAD, b"".join(b"000%x\r\n%b\r\n" % (len(one), one) for one in PAYLOADS) + b"000\r\n\r\n"],
    "trailers": [HEAD, BODY[:-2] + b"X-Checksum: 1\r\nX-Other: 2\r\n\r\n"],
    "trailers in pieces": [HEAD, BODY[:-2], b"X-Check", b"sum: 1\r\n", b"\r\n"],
    "other spellings": [HEAD.replace(b"Transfer-Encoding: chunked", b"TRANSFER-ENCODING:   Chunked"), BODY],
    "random 1": shuffled(HEAD + BODY, 1),
    "random 2": shuffled(HEAD + BODY, 2),
    "random 3": shuffled(HEAD + BODY, 3),
}


@pytest.mark.parametrize("loop", LOOPS)
@pytest.mark.parametrize("pieces", GOOD.values(), ids=GOOD)
def test_good_framing(pieces: list[bytes], loop: str) -> None:
    async def test() -> None:
        async with backend(writing(*pieces)) as behind, gateway(behind.url) as served:
            outputs = []
            for _ in range(2):  # the second on the same connection, which must be as good as new
                final = (await post(served, tools=[WEATHER])).final
                assert final["status"] == "completed"
                outputs.append([item["type"] for item in final["output"]])
            assert outputs == [["reasoning", "message", "function_call"]] * 2
            assert final["usage"]["total_tokens"] == 16
            # If the very last bytes come late, the connection is closed without waiting for them.
            assert len(behind.connections) == 1 or pieces[-1] in {b"\n", b"\r\n"}

    run(test(), loop)


@pytest.mark.slow
def test_the_body_cut_at_every_byte() -> None:
    """Cut the answer into two writes, at each place in turn."""
    wire = HEAD + BODY
    places = iter(range(1, len(wire), 3))

    async def play(connection: Connection) -> None:
        place = next(places)
        await writing(wire[:place], wire[place:])(connection)

    async def test() -> None:
        async with backend(play) as behind, gateway(behind.url) as served:
            for place in range(1, len(wire) - 6, 3 * 4):
                answer = await post(served, tools=[WEATHER], stream=False)
                assert answer.status == 200, place
                assert len(answer.json["output"]) == 3

    run(test())


BAD: dict[str, bytes] = {
    "no size": b"zz\r\nhello\r\n",
    "a negative size": b"-5\r\nhello\r\n",
    "a size with an underscore": b"1_0\r\nhello\r\n",
    "a size without end": b"1" * 5000,
    "an enormous size": b"f" * 30 + b"\r\nhello",
    "an extension without end": b"5;" + b"a" * 100_000,
    "no line end behind the chunk": b"5\r\nhelloXX5\r\nhello",
    "nothing": b"",
}


@pytest.mark.parametrize("loop", LOOPS)
@pytest.mark.parametrize("bad", BAD.values(), ids=BAD)
@pytest.mark.parametrize("sent", [0, 4])
def test_bad_framing_fails_the_stream(bad: bytes, sent: int, loop: str) -> None:
    async def play(connection: Connection) -> None:
        connection.write(HEAD)
        connection.send(*PAYLOADS[:sent])
        connection.write(bad)
        if not bad or bad.startswith((b"1", b"f", b"5\r")):  # what might still become valid
            connection.close()

    async def test() -> None:
        async with backend(play) as behind, gateway(behind.url) as served:
            for _ in range(2):
                answer = await post(served, tools=[WEATHER])
                assert answer.final["status"] == "failed"
                await behind.connections[0].lost
            assert len(behind.connections) == 2, "a broken connection is not used again"

    run(test(), loop)


@pytest.mark.parametrize("loop", LOOPS)
@pytest.mark.parametrize("bad", [one for one in BAD if one != "an extension without end"])  # for which aiohttp has no limit
def test_bad_framing_fails_an_answer_whose_head_came_in_pieces(bad: str, loop: str) -> None:
    """Nobody waits for the rest of a malformed body that aiohttp reads, as it does where a head is cut."""

    async def play(connection: Connection) -> None:
        await writing(HEAD[:20], HEAD[20:], *map(chunked, PAYLOADS[:4]), BAD[bad])(connection)
        if bad == "nothing":
            connection.close()

    async def test() -> None:
        async with backend(play) as behind, gateway(behind.url) as served:
            for _ in range(2):
                assert (await post(served, tools=[WEATHER])).final["status"] == "failed"
                await behind.connections[-1].lost
            assert len(behind.connections) == 2

    run(test(), loop)


@pytest.mark.parametrize("loop", LOOPS)
@pytest.mark.parametrize("hints", [{}, {"session_hints": "vllm"}])
@pytest.mark.parametrize("begun", [b"", chunked(PAYLOADS[0])])
def test_bad_framing_ends_a_relayed_answer(begun: bytes, hints: dict[str, str], loop: str) -> None:
    """It waited for its limit, though the connection was closed; with hints, its first event is waited for, too."""

    async def play(connection: Connection) -> None:
        connection.write(HEAD + begun)
        await asyncio.sleep(0.05)  # the gateway reads the head by itself
        connection.write(b"zz\r\nxx")

    async def test() -> None:
        async with backend(play) as behind, gateway(backends={"b": {"url": behind.url, **hints}}) as served:
            body = {"model": "m", "messages": [], "stream": True}
            with pytest.raises(aiohttp.ClientPayloadError):
                async with asyncio.timeout(1):
                    await ask(served, "POST", "/v1/chat/completions", json=body, headers={"x-session-id": "s1"})

    run(test(), loop)


def test_bytes_behind_the_answer_do_not_leak_into_the_next() -> None:
    async def play(connection: Connection) -> None:
        connection.write(HEAD + BODY + b"HTTP/1.1 200 OK\r\nContent-Length: 4\r\n\r\nevil")

    async def test() -> None:
        async with backend(play) as behind, gateway(behind.url) as served:
            for _ in range(3):
                answer = await post(served, tools=[WEATHER])
                assert answer.status == 502 or answer.final["status"] in {"completed", "failed"}
                assert b"evil" not in answer.body

    run(test())


@pytest.mark.parametrize(("said", "connections"), [(b"keep-alive", 1), (b"close", 3), (b"Close, TE", 3)])
def test_a_connection_serves_again_unless_the_backend_says_that_it_will_close_it(said: bytes, connections: int) -> None:
    head = HEAD.replace(b"\r\n\r\n", b"\r\nConnection: " + said + b"\r\n\r\n")

    async def test() -> None:
        async with backend(writing(head + BODY)) as behind, gateway(behind.url) as served:
            for _ in range(3):
                assert (await post(served, tools=[WEATHER])).final["status"] == "completed"
            assert len(behind.connections) == connections

    run(test())
