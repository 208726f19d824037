"""The memory of a request that was answered is free when it is over, not when the collector of cycles comes, minutes later."""

from __future__ import annotations

import gc
import gzip
import json
import random
import tracemalloc
from collections.abc import Callable, Coroutine, Iterator
from pathlib import Path
from types import UnionType
from typing import Any

import aiohttp
import pytest
from aiohttp import web

from responses_gateway.server.generation.generation import Generation
from responses_gateway.server.generation.responses import Creation
from responses_gateway.stream.translator import Translator
from tests.ports import free_port
from tests.server.fleet_of_simulators import fleet
from tests.server.running_gateway import Answer, RawClient, Served, ask, gateway, post, run, simulated, until
from tests.server.scripted_backend import HEAD, Backend, Connection, Play, backend, chunk


@pytest.fixture
def _uncollected() -> Iterator[None]:
    gc.collect()
    gc.disable()
    gc.freeze()  # what is there already is not looked at again and again
    yield
    gc.unfreeze()
    gc.enable()


def alive(kind: type | UnionType = Creation | Generation | Translator) -> int:
    """Return how many parts of requests there are; other tests may have left some."""
    return sum(isinstance(one, kind) for one in gc.get_objects())


@pytest.mark.usefixtures("_uncollected")
@pytest.mark.parametrize(
    "question",
    [
        {"input": "scenario: demo"},
        {"input": "scenario: demo", "stream": False},
        {"input": "scenario: demo", "store": True},
        {"input": "scenario: demo", "background": True},
        {"input": "scenario: agent", "tools": [{"type": "shell"}]},
    ],
    ids=["streamed", "whole", "stored", "background", "agent"],
)
@pytest.mark.parametrize("settings", [{}, {"on_disconnect": "continue"}], ids=["abort", "continue"])
def test_a_request_leaves_nothing(question: dict[str, Any], settings: dict[str, Any]) -> None:
    async def test() -> None:
        async with simulated(store="memory", **settings) as served:
            before = alive()
            for _ in range(3):
                await post(served, question)
            await until(lambda: alive() <= before, "nothing is left")

    run(test())


@pytest.mark.usefixtures("_uncollected")
def test_a_background_response_that_others_could_take_over_leaves_nothing(tmp_path: Path) -> None:
    async def test() -> None:
        async with fleet(store=str(tmp_path / "responses.db")) as served:
            for _ in range(3):
                await post(served, input="scenario: demo", background=True)
            await until(lambda: not alive(), "nothing is left")

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


FAILING = pytest.mark.parametrize("play", [refusing, breaking, answering_nonsense], ids=["refused", "broken", "nonsense"])
MODERATION: dict[str, Any] = {"model": "any", "policy": {"output": {"mode": "block"}}}


def large_alive() -> int:
    """Return how much memory the allocations of large pieces take, in bytes."""
    snapshot = tracemalloc.take_snapshot().statistics("lineno")
    return sum(found.size for found in snapshot if found.size / max(1, found.count) > 50_000)


@pytest.fixture
def _traced() -> Iterator[None]:
    tracemalloc.start()
    yield
    tracemalloc.stop()


async def nothing_stays(ask_once: Callable[[], Coroutine[Any, Any, object]], behind: Backend | None = None) -> None:
    """Ask, and expect that no part of the requests is left. `behind`: a scripted backend, which shall forget them too."""

    def large() -> int:
        if behind is not None:
            behind.forget()
        return large_alive()

    await ask_once()  # what is loaded once may stay
    before = alive()
    size = large()
    for _ in range(5):
        await ask_once()
    await until(lambda: alive() <= before, "no part of a request is left")
    await until(lambda: large() < size + len(LARGE), "no body is left")


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


@pytest.mark.usefixtures("_uncollected")
@pytest.mark.parametrize("path", ["/v1/responses", "/v1/messages"])
def test_a_wrong_key_leaves_nothing(path: str) -> None:
    async def test() -> None:
        async with simulated(api_keys={"one": f"sha256:{'0' * 64}"}) as served:
            for _ in range(5):
                headers = {"Authorization": "Bearer wrong"}
                assert (await ask(served, "POST", path, data=LARGE.encode(), headers=headers)).status == 401
            await until(lambda: not alive(web.Request), "no request is left, with the body that nobody has read")

    run(test())


@pytest.fixture
def _room_for_one(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let all bodies together have no more room than one may have."""
    monkeypatch.setattr("responses_gateway.server.app.LARGEST_BODIES", 1)


@pytest.mark.usefixtures("_uncollected", "_traced", "_room_for_one")
def test_a_body_that_gave_way_leaves_nothing() -> None:
    async def test() -> None:
        async with simulated(max_body_bytes=1_000_000) as served:

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
@pytest.mark.parametrize("fields", [{}, {"moderation": MODERATION}], ids=["plain", "moderated"])
@FAILING
def test_a_response_that_fails_leaves_nothing(play: Play, fields: dict[str, Any], stream: bool) -> None:
    async def test() -> None:
        async with backend(play) as behind, gateway(behind.url, store="memory", moderation_model="guard") as served:

            async def ask_once() -> None:
                await post(served, input=LARGE, stream=stream, **fields)

            await nothing_stays(ask_once, behind)

    run(test())


@pytest.mark.usefixtures("_uncollected", "_traced")
@pytest.mark.parametrize("path", ["/v1/responses", "/v1/messages", "/v1/chat/completions"])
def test_a_backend_that_is_away_leaves_nothing(path: str) -> None:
    async def test() -> None:
        async with gateway(f"http://localhost:{free_port()}") as served:
            body = {"model": "m", "max_tokens": 5, "input": LARGE, "messages": [{"role": "user", "content": LARGE}]}

            async def ask_once() -> None:
                assert (await ask(served, "POST", path, json=body)).status == (529 if path == "/v1/messages" else 502)

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


# ---- the other doors ---------------------------------------------------------------------------------------------------

MESSAGE: dict[str, Any] = {"model": "simulator", "max_tokens": 100, "messages": [{"role": "user", "content": LARGE}]}
REFUSED_MESSAGES: dict[str, dict[str, Any]] = {
    "a wrong parameter": {"temperature": "hot"},
    "a wrong tool": {"tools": [{"type": "custom", "name": 5}]},
    "a wrong block": {"messages": [{"role": "user", "content": [{"type": "text", "text": LARGE}, {"type": "image"}]}]},
    "a result without its call": {
        "messages": [{"role": "user", "content": [{"type": "tool_result", "content": LARGE}]}],
    },
    "servers of tools": {"mcp_servers": [{"url": "https://example.com", "name": "example"}]},
}


async def refusing_what_is_long(connection: Connection) -> None:
    if connection.request.startswith(b"GET "):
        listed = b'{"object": "list", "data": [{"id": "simulator", "object": "model", "max_model_len": 1000}]}'
        connection.write(b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n" % len(listed))
        connection.write(listed)
    else:
        await refusing(connection)


async def message(served: Served, path: str = "/v1/messages", **fields: Any) -> Answer:
    return await ask(served, "POST", path, json={**MESSAGE, **fields})


@pytest.mark.usefixtures("_uncollected", "_traced")
@pytest.mark.parametrize("body", REFUSED_MESSAGES.values(), ids=REFUSED_MESSAGES.keys())
@pytest.mark.parametrize("path", ["/v1/messages", "/v1/messages/count_tokens"])
def test_a_refused_request_for_a_message_leaves_nothing(body: dict[str, Any], path: str) -> None:
    async def test() -> None:
        async with simulated() as served:

            async def ask_once() -> None:
                assert (await message(served, path, **body)).status >= 400

            await nothing_stays(ask_once)

    run(test())


@pytest.mark.usefixtures("_uncollected", "_traced")
@pytest.mark.parametrize("stream", [True, False])
@FAILING
def test_a_message_that_fails_leaves_nothing(play: Play, stream: bool) -> None:
    async def test() -> None:
        async with backend(play) as behind, gateway(behind.url) as served:

            async def ask_once() -> None:
                await message(served, stream=stream)
                await message(served, "/v1/messages/count_tokens")

            await nothing_stays(ask_once, behind)

    run(test())


@pytest.mark.usefixtures("_uncollected", "_traced")
def test_a_prompt_that_cannot_be_counted_leaves_nothing() -> None:
    async def test() -> None:
        async with backend(refusing_what_is_long) as behind, gateway(behind.url) as served:

            async def ask_once() -> None:
                assert (await message(served)).status == 400
                assert any(request.startswith(b"POST /tokenize ") for request in behind.requests)

            await nothing_stays(ask_once, behind)

    run(test())


@pytest.mark.usefixtures("_uncollected", "_traced")
def test_a_client_that_leaves_a_message_takes_everything_along() -> None:
    async def test() -> None:
        async with simulated() as served:
            asked = {**MESSAGE, "stream": True, "messages": [{"role": "user", "content": f"tokens: 1000 tps: 50 {LARGE}"}]}
            data = json.dumps(asked).encode()

            async def ask_once() -> None:
                client = await RawClient.connect(served)
                await client.send(b"POST /v1/messages HTTP/1.1\r\nHost: x\r\nContent-Length: %d\r\n\r\n" % len(data) + data)
                await client.read_until(b"content_block_delta")
                client.close()
                await until(lambda: not served.parts.in_flight.activities)

            await nothing_stays(ask_once)

    run(test())


@pytest.mark.usefixtures("_uncollected", "_traced")
@FAILING
def test_a_background_response_that_fails_leaves_nothing(play: Play) -> None:
    async def test() -> None:
        async with backend(play) as behind, gateway(behind.url, store="memory") as served:

            async def ask_once() -> None:
                accepted = await post(served, input=LARGE, background=True, stream=False)
                path = f"/v1/responses/{accepted.json['id']}"
                while (await ask(served, "GET", path)).json["status"] in ("queued", "in_progress"):
                    pass
                await ask(served, "DELETE", path)

            await nothing_stays(ask_once, behind)

    run(test())


@pytest.mark.usefixtures("_uncollected", "_traced")
@pytest.mark.parametrize("last", ["response.completed", "response.output_text.delta"], ids=["answered", "left"])
def test_a_websocket_that_was_closed_leaves_nothing(last: str) -> None:
    async def test() -> None:
        async with simulated() as served, aiohttp.ClientSession() as session:
            body = {"type": "response.create", "model": "simulator", "input": f"scenario: plain {LARGE}", "store": False}

            async def ask_once() -> None:
                async with session.ws_connect(f"{served.url}/v1/responses", max_msg_size=0) as socket:
                    await socket.send_json(body)
                    while (await socket.receive_json())["type"] != last:
                        pass
                await until(lambda: not served.parts.in_flight.activities)

            await nothing_stays(ask_once)

    run(test())


@pytest.mark.usefixtures("_uncollected", "_traced")
@FAILING
def test_a_response_that_fails_at_a_websocket_leaves_nothing(play: Play) -> None:
    async def test() -> None:
        async with (
            backend(play) as behind,
            gateway(behind.url) as served,
            aiohttp.ClientSession() as session,
            session.ws_connect(f"{served.url}/v1/responses", max_msg_size=0) as socket,
        ):

            async def ask_once() -> None:
                await socket.send_json({"type": "response.create", "model": "simulator", "input": LARGE, "store": False})
                while (await socket.receive_json())["type"] not in ("error", "response.failed"):
                    pass

            await nothing_stays(ask_once, behind)

    run(test())
