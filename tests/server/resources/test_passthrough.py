"""Paths that are not ours go to the backend and back, byte for byte."""

from __future__ import annotations

import asyncio
import gzip
import io
import json
from contextlib import suppress
from typing import Any

import pytest

from responses_gateway.simulator import SimulatorOptions
from tests.log_lines import log_lines
from tests.server.running_gateway import LOOPS, RawClient, ask, assert_error, body_of, gateway, run, simulated, until
from tests.server.scripted_backend import HEAD, SECRETS, Backend, Connection, Play, backend, chunked, refusing
from tests.waiting import PATIENCE

BINARY = bytes(range(256)) * 50


def echo(content_type: bytes = b"application/octet-stream") -> Play:
    """Return a backend that answers with bytes of its own."""

    async def play(connection: Connection) -> None:
        connection.write(
            b"HTTP/1.1 201 Created\r\nContent-Type: %b\r\nContent-Length: %d\r\n\r\n" % (content_type, len(BINARY))
        )
        connection.write(BINARY)

    return play


def first(behind: Backend) -> tuple[str, dict[str, list[str]], bytes]:
    """Return the last request that the backend got: its request line, its headers by lower-case name, its body."""
    head, _, body = behind.requests[-1].partition(b"\r\n\r\n")
    line, *rest = head.decode("latin-1").split("\r\n")
    headers: dict[str, list[str]] = {}
    for name, _, value in (field.partition(": ") for field in rest):
        headers.setdefault(name.lower(), []).append(value)
    return line, headers, body


# ---- against the simulator --------------------------------------------------------------------------------------------


@pytest.mark.parametrize("loop", LOOPS)
def test_the_other_endpoints_of_a_server(loop: str) -> None:
    async def test() -> None:
        async with simulated(SimulatorOptions(models=("tiny",))) as served:
            models = await ask(served, "GET", "/v1/models")
            assert [model["id"] for model in models.json["data"]] == ["tiny"]
            assert models.headers["server"] == "responses-gateway"
            messages = [{"role": "user", "content": "hi"}]
            chat = await ask(served, "POST", "/v1/chat/completions", json={"model": "tiny", "messages": messages})
            assert chat.json["object"] == "chat.completion"
            stream = {"model": "tiny", "messages": messages, "stream": True}
            streamed = await ask(served, "POST", "/v1/chat/completions", json=stream)
            assert streamed.headers["content-type"].startswith("text/event-stream")
            assert streamed.body.endswith(b"data: [DONE]\n\n")
            vectors = await ask(served, "POST", "/v1/embeddings", json={"model": "tiny", "input": ["a", "b"]})
            assert len(vectors.json["data"]) == 2
            tokens = await ask(served, "POST", "/tokenize", json={"model": "tiny", "prompt": "one two"})
            assert tokens.json["count"] > 0
            text = await ask(served, "POST", "/detokenize", json={"model": "tiny", "tokens": tokens.json["tokens"]})
            assert text.status == 200
            missing = await ask(served, "GET", "/v1/nothing")
            assert (missing.status, missing.json) == (404, {"detail": "Not Found"})

    run(test(), loop)


@pytest.mark.parametrize("loop", LOOPS)
def test_a_chat_stream_is_passed_on_as_it_comes(loop: str) -> None:
    """Expect the first chunk before the second is sent, and the bytes of the backend."""
    seen = asyncio.Event()

    async def play(connection: Connection) -> None:
        connection.write(HEAD + chunked(b"data: one\n\n"))
        await seen.wait()
        connection.write(chunked(b"data: two\n\n") + b"0\r\n\r\n")

    async def test() -> None:
        async with backend(play) as behind, gateway(behind.url) as served:
            client = await RawClient.connect(served)
            await client.send(b"POST /v1/chat/completions HTTP/1.1\r\nHost: x\r\nContent-Length: 2\r\n\r\n{}")
            await client.read_until(b"data: one\n\n")
            seen.set()
            await client.read_until(b"\r\n0\r\n\r\n")
            client.close()
            assert body_of(client.received) == b"data: one\n\ndata: two\n\n"

    run(test(), loop)


# ---- byte for byte ----------------------------------------------------------------------------------------------------


def test_binary_in_both_directions() -> None:
    async def test() -> None:
        async with backend(echo()) as behind, gateway(behind.url) as served:
            answer = await ask(served, "PUT", "/v1/files/x", data=BINARY)
            assert (answer.status, answer.body) == (201, BINARY)
            line, headers, body = first(behind)
            assert line == "PUT /v1/files/x HTTP/1.1"
            assert body == BINARY
            assert headers["content-length"] == [str(len(BINARY))]

    run(test())


@pytest.mark.parametrize(
    ("path", "sent"),
    [
        ("/v1/files/org%2Fname", "/v1/files/org%2Fname"),
        ("/v1/files?a=1&b=%2F%20+&a=2&c", "/v1/files?a=1&b=%2F%20+&a=2&c"),
        ("/v1/a//b/", "/v1/a//b/"),
        ("/v1//metrics", "/v1//metrics"),
        ("/v1/%252e%252e/x", "/v1/%252e%252e/x"),
        ("/v1/a;b=c,d:e@f!$&'()*", "/v1/a;b=c,d:e@f!$&'()*"),
        ("/v1/gr%C3%BC%C3%9Fe?q=%E2%82%AC", "/v1/gr%C3%BC%C3%9Fe?q=%E2%82%AC"),
        ("/v1/a..b/...", "/v1/a..b/..."),
    ],
)
def test_paths_and_queries_keep_their_encoding(path: str, sent: str) -> None:
    async def test() -> None:
        async with backend(echo()) as behind, gateway(behind.url) as served:
            client = await RawClient.connect(served)
            await client.send(f"GET {path} HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n".encode())
            assert b" 201 " in await client.read_all()
            client.close()
            assert first(behind)[0] == f"GET {sent} HTTP/1.1"

    run(test())


@pytest.mark.parametrize(
    "path",
    [
        "/v1/../metrics", "/v1/a/../../metrics", "/v1/%2e%2e/metrics", "/v1/%2E./metrics", "/v1/..%2fmetrics",
        "/v1/..%5cmetrics", "/v1/..\\metrics", "/v1/./models", "/v1/x/..",
        "/v1/models/", "/v1//models",
        "/v1/responses/", "/v1//responses", "/v1//responses//compact", "/v1/responses/resp_1/", "/v1/%2fresponses",
    ],
)  # fmt: skip
def test_no_path_leads_out(path: str) -> None:
    async def test() -> None:
        async with backend(echo()) as behind, gateway(behind.url) as served:
            client = await RawClient.connect(served)
            await client.send(f"GET {path} HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n".encode())
            assert (await client.read_all()).startswith((b"HTTP/1.1 404", b"HTTP/1.1 400"))
            client.close()
            assert behind.requests == []

    run(test())


def test_headers_of_the_message_pass_and_those_of_the_connection_do_not() -> None:
    head = (
        b"GET /v1/files HTTP/1.1\r\nHost: gateway\r\nauthorization: Bearer key\r\nX-Twice: 1\r\nX-Twice: 2\r\n"
        b"accept-encoding: br\r\nConnection: close, X-Hop\r\nX-Hop: secret\r\nKeep-Alive: 5\r\nTE: trailers\r\n"
        b"Proxy-Authorization: x\r\nUpgrade: h2c\r\n\r\n"
    )

    async def test() -> None:
        async with backend(echo()) as behind, gateway(behind.url) as served:
            client = await RawClient.connect(served)
            await client.send(head)
            await client.read_until(b" 201 ")
            client.close()
            _, headers, _ = first(behind)
            assert headers["authorization"] == ["Bearer key"]
            assert headers["x-twice"] == ["1", "2"]
            assert headers["accept-encoding"] == ["br"]
            assert headers["host"] == [behind.url.removeprefix("http://")]
            assert not {"connection", "x-hop", "keep-alive", "te", "proxy-authorization", "upgrade"} & set(headers)

    run(test())


@pytest.mark.parametrize("key", ["sk-proj-abcdT3BlbkFJefgh", "sk-ant-api03-abcd"])
@pytest.mark.parametrize("path", ["/v1/models", "/v1/responses", "/v1/messages", "/v1/chat/completions"])
def test_the_key_of_a_provider_that_a_client_finds_in_its_environment_reaches_no_model_server(path: str, key: str) -> None:
    async def received(header: str, value: str, **settings: Any) -> list[str]:
        async with backend(echo()) as behind, gateway(behind.url, **settings) as served:
            body = b'{"model": "m", "input": "hi", "max_tokens": 9, "messages": [{"role": "user", "content": "hi"}]}'
            await ask(served, "POST", path, data=body, headers={header: value})
            sent = first(behind)[1]
            return [*sent.get("authorization", []), *sent.get("x-api-key", [])]

    async def test() -> None:
        assert await received("Authorization", f"Bearer {key}") == []
        assert await received("X-Api-Key", key) == []
        assert await received("Authorization", f"Bearer {key}", forward_authorization=True) == [f"Bearer {key}"]
        assert await received("Authorization", "Bearer sk-mine") == ["Bearer sk-mine"]

    run(test())


@pytest.mark.parametrize("name", ["Authorization", "X-Api-Key", "Api-Key"])
@pytest.mark.parametrize("path", ["/v1/chat/completions", "/v1/embeddings"])
def test_backends_get_the_key_of_a_client_as_it_was_before_a_rollout_was_named_behind_it(path: str, name: str) -> None:
    scheme = "Bearer " if name == "Authorization" else ""

    async def received(key: str, more: dict[str, str] | None = None, **settings: Any) -> list[str]:
        async with backend(echo()) as behind, gateway(behind.url, **settings) as served:
            await ask(served, "POST", path, json={"model": "m"}, headers={name: f"{scheme}{key}", **(more or {})})
            return [value for sent, values in first(behind)[1].items() for value in values if sent == name.lower()]

    async def test() -> None:
        assert await received("client:ep1") == [f"{scheme}client"]
        assert await received("cl:ient:ep1") == [f"{scheme}cl:ient"]
        assert await received("client") == [f"{scheme}client"]
        assert await received("client:ep1", forward_authorization=False) == []
        assert await received("client:ep1", backend_api_key="ours") == ([] if not scheme else ["Bearer ours"])
        if not scheme:  # the client's key, and so its rollout, is in another header
            assert await received("user:word", {"Authorization": "Bearer client:ep1"}) == ["user:word"]

    run(test())


@pytest.mark.parametrize("spelling", ["authorization", "Authorization", "AUTHORIZATION"])
@pytest.mark.parametrize("path", ["/v1/models", "/v1/responses"])
def test_whose_key_the_backend_gets(path: str, spelling: str) -> None:
    async def key(**settings: Any) -> list[str]:
        async with backend(echo()) as behind, gateway(behind.url, **settings) as served:
            body = b'{"model": "m", "input": "hi"}'
            await ask(served, "POST", path, data=body, headers={spelling: "Bearer client"})
            return first(behind)[1].get("authorization", [])

    async def test() -> None:
        assert await key() == ["Bearer client"]
        assert await key(forward_authorization=False) == []
        assert await key(backend_api_key="ours") == ["Bearer ours"]

    run(test())


def test_a_large_upload_is_streamed() -> None:
    """Expect the beginning at the backend before the client has sent the end."""
    size = 8 * 1024 * 1024

    async def play(connection: Connection) -> None:
        connection.write(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok")

    async def test() -> None:
        async with backend(play) as behind, gateway(behind.url) as served:
            client = await RawClient.connect(served)
            await client.send(b"POST /v1/files HTTP/1.1\r\nHost: x\r\nContent-Length: %d\r\n\r\n" % size)
            await client.send(b"begin" + b"x" * 100_000)
            await until(lambda: behind.connections and b"begin" in behind.connections[0].data)
            await client.send(b"x" * (size - 100_005))
            await client.read_until(b"\r\n\r\nok")
            client.close()
            assert len(first(behind)[2]) == size

    run(test())


def test_uploads_of_other_kinds() -> None:
    async def test() -> None:
        async with backend(echo()) as behind, gateway(behind.url, max_body_bytes=1000) as served:
            packed = gzip.compress(b"hello")
            assert (await ask(served, "POST", "/v1/x", data=packed, headers={"Content-Encoding": "gzip"})).status == 201
            _, headers, body = first(behind)
            assert body == b"hello"
            assert "content-encoding" not in headers
            assert (await ask(served, "POST", "/v1/x", data=io.BytesIO(b"x" * 999))).status == 201
            assert_error(await ask(served, "POST", "/v1/x", data=b"x" * 1001), 413, "request_too_large")
            bomb = gzip.compress(b"x" * 100_000)
            assert_error(await ask(served, "POST", "/v1/x", data=bomb, headers={"Content-Encoding": "gzip"}), 413)
            client = await RawClient.connect(served)
            await client.send(
                b"POST /v1/x HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n" + chunked(b"abc") + b"0\r\n\r\n"
            )
            await client.read_until(b" 201 ")
            client.close()
            assert first(behind)[2] == b"abc"

    run(test())


def test_a_compressed_answer_stays_compressed() -> None:
    packed = gzip.compress(json.dumps({"data": []}).encode())

    async def play(connection: Connection) -> None:
        connection.write(b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Encoding: gzip\r\n")
        connection.write(b"Content-Length: %d\r\n\r\n" % len(packed) + packed)

    async def test() -> None:
        async with backend(play) as behind, gateway(behind.url) as served:
            answer = await ask(served, "GET", "/v1/files", headers={"Accept-Encoding": "gzip"})
            assert (answer.body, answer.headers["content-encoding"]) == (packed, "gzip")

    run(test())


def test_an_answer_without_body() -> None:
    async def play(connection: Connection) -> None:
        connection.write(b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: 99\r\n\r\n")

    async def test() -> None:
        async with backend(play) as behind, gateway(behind.url) as served:
            answer = await ask(served, "HEAD", "/v1/files")
            assert (answer.status, answer.body, answer.headers["content-length"]) == (200, b"", "99")

    run(test())


# ---- what goes wrong --------------------------------------------------------------------------------------------------


def test_errors_pass_with_their_body_but_without_headers_of_the_backend() -> None:
    async def test() -> None:
        async with backend(refusing(429, b'{"a": 1}', headers=b"Retry-After: 3\r\n")) as behind, gateway(behind.url) as served:
            answer = await ask(served, "GET", "/v1/files")
            assert (answer.status, answer.body, answer.headers["retry-after"]) == (429, b'{"a": 1}', "3")
            assert [secret for secret in SECRETS if secret in repr(answer.headers).encode()] == []
        async with gateway("http://127.0.0.1:9") as served:
            assert_error(await ask(served, "GET", "/v1/files"), 502, "server_error")

    run(test())


@pytest.mark.parametrize("loop", LOOPS)
def test_an_answer_that_breaks_off_breaks_off(loop: str) -> None:
    async def play(connection: Connection) -> None:
        connection.write(HEAD + chunked(b"data: one\n\n"))
        await asyncio.sleep(0.02)
        connection.reset()

    async def test() -> None:
        with log_lines() as written:
            async with backend(play) as behind, gateway(behind.url, access_log=True) as served:
                client = await RawClient.connect(served)
                await client.send(b"POST /v1/chat/completions HTTP/1.1\r\nHost: x\r\nContent-Length: 2\r\n\r\n{}")
                with suppress(ConnectionError):
                    await client.read_all()
                client.close()
                assert not client.received.endswith(b"\r\n0\r\n\r\n"), "the client must see that it is cut"
            (line,) = written("request")
            assert (line["code"], line["bytes_out"]) == ("server_error", len(b"data: one\n\n")), "no error was sent"

    run(test(), loop)


@pytest.mark.parametrize("loop", LOOPS)
def test_a_client_that_leaves(loop: str) -> None:
    async def play(connection: Connection) -> None:
        connection.write(HEAD + chunked(b"data: one\n\n"))
        await connection.lost

    async def test() -> None:
        async with backend(play) as behind, gateway(behind.url) as served:
            client = await RawClient.connect(served)
            await client.send(b"POST /v1/chat/completions HTTP/1.1\r\nHost: x\r\nContent-Length: 2\r\n\r\n{}")
            await client.read_until(b"data: one\n\n")
            client.close()
            await asyncio.wait_for(behind.connections[0].lost, PATIENCE)

    run(test(), loop)
