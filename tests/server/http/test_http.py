"""HTTP as clients speak it: methods, paths, versions, connections, bodies of every kind, hostile ones among them."""

from __future__ import annotations

import asyncio
import gzip
import io
import json
import zlib
from uuid import UUID

import pytest

from responses_gateway.settings.keys import hash_of
from responses_gateway.simulator import RECEIVED, SimulatorOptions, create_app, serving
from tests.server.running_gateway import (
    LOOPS,
    QUESTION,
    RawClient,
    ask,
    assert_error,
    body_of,
    final_of,
    gateway,
    post,
    run,
    simulated,
)
from tests.server.scripted_backend import CLOSED_HEAD, answering, backend, text_stream
from tests.waiting import PATIENCE

JSON = {"Content-Type": "application/json"}
BODY = json.dumps(QUESTION).encode()
MEBIBYTE = 1024 * 1024


# ---- event streams -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("door", ["responses", "messages"])
def test_lines_end_only_where_events_do_for_clients_with_other_ideas_of_a_line(door: str) -> None:
    said = ["caf\u00e9 \u201ca\u201d ", "one\u2028two ", "\\\u2029", "three\u0085four", "\u2028"]

    async def test() -> None:
        asked = {**QUESTION, "stream": True, "messages": [{"role": "user", "content": "hi"}]}
        body = {name: asked[name] for name in ("model", "stream", "input" if door == "responses" else "messages")}
        async with backend(answering(CLOSED_HEAD, b"".join(text_stream(*said)))) as behind, gateway(behind.url) as served:
            answer = await ask(served, "POST", f"/v1/{door}", json={"max_tokens": 100, **body} if door == "messages" else body)
        lines = [line for line in answer.body.decode().splitlines() if line]
        assert all(line.startswith(("event: ", "data: ")) for line in lines)
        data = [json.loads(line[6:]) for line in lines if line.startswith("data: {")]
        deltas = [event["delta"] for event in data if "delta" in event]
        texts = [delta if isinstance(delta, str) else delta.get("text", "") for delta in deltas]
        assert "".join(texts) == "".join(said)

    run(test())


# ---- methods and paths ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("path", "hint"),
    [
        ("/responses", "The base URL should end in /v1."),
        ("/chat/completions", "The base URL should end in /v1."),
        ("/v1/v1/responses", "The base URL has /v1 twice"),
        ("/v1/v1/models", "The base URL has /v1 twice"),
    ],
)
def test_a_wrong_base_url_is_explained(path: str, hint: str) -> None:
    async def test() -> None:
        async with simulated() as served:
            answer = await ask(served, "POST", path)
            assert_error(answer, 404, "not_found")
            assert hint in answer.json["error"]["message"]

    run(test())


@pytest.mark.parametrize("keys", [{}, {"alice": hash_of("rp_alice-0123456789")}])
def test_an_operator_without_admin_key_is_not_asked_for_a_clients_key(keys: dict[str, str]) -> None:
    async def test() -> None:
        async with simulated(api_keys=keys) as served:
            answer = await ask(served, "GET", "/admin/backends")
            assert_error(answer, 404, "not_found")
            assert "if the gateway has an `admin_key`" in answer.json["error"]["message"]
            assert (await ask(served, "GET", "/nothing")).status == (401 if keys else 404)

    run(test())


@pytest.mark.parametrize("stream", [True, False])
def test_the_log_has_the_size_of_an_error(stream: bool, caplog: pytest.LogCaptureFixture) -> None:
    async def test() -> None:
        async with gateway("http://127.0.0.1:9/v1", access_log=True, adapt=False) as served:
            answer = await post(served, stream=stream)
            assert answer.status == 502
            served.parts.responses.metrics.flush()
        sizes = [fields["bytes_out"] for record in caplog.records if "bytes_out" in (fields := getattr(record, "fields", {}))]
        assert sizes == [len(answer.body)]

    caplog.set_level("DEBUG", "responses_gateway")
    run(test())


def test_methods_and_paths_that_are_not_there() -> None:
    async def test() -> None:
        async with simulated() as served:
            for method in ("PUT", "DELETE", "PATCH", "OPTIONS"):
                answer = await ask(served, method, "/v1/responses")
                assert_error(answer, 405, "method_not_allowed")
                assert answer.headers["allow"] == "GET, POST"
            assert (await ask(served, "HEAD", "/v1/responses")).status == 426
            assert_error(await ask(served, "GET", "/v1/responses"), 426, "upgrade_required")
            assert_error(await ask(served, "POST", "/health"), 405, "method_not_allowed")
            for path in ("/", "/nothing", "/v1", "/v1/", "/responses", "/.env", "/metrics/x", "/%00"):
                assert_error(await ask(served, "GET", path), 404, "not_found")
            for path in ("/health", "/ready", "/metrics"):
                assert (await ask(served, "HEAD", path)).status == 200

    run(test())


def test_a_websocket_upgrade_can_be_refused() -> None:
    headers = {
        "Connection": "Upgrade",
        "Upgrade": "websocket",
        "Sec-WebSocket-Version": "13",
        "Sec-WebSocket-Key": "x" * 22 + "==",
    }

    async def test() -> None:
        async with simulated(websocket=False) as served:
            assert_error(await ask(served, "GET", "/v1/responses", headers=headers), 426)

    run(test())


def test_the_request_id_is_the_clients_or_a_new_one() -> None:
    async def test() -> None:
        backend = create_app(SimulatorOptions())
        async with serving(backend) as url, gateway(url) as served:
            given = await post(served, headers={"X-Request-Id": "abc-123"})
            assert given.headers["x-request-id"] == "abc-123"
            received = {name.lower(): value for name, value in backend[RECEIVED][-1]["headers"].items()}
            assert UUID(received["x-request-id"])  # some backends refuse any other id
            made = [(await post(served)).headers["x-request-id"] for _ in range(2)]
            assert made[0] != made[1]
            for bad in ("a" * 200, "ü", "a b"):
                assert (await post(served, headers={"X-Request-Id": bad})).headers["x-request-id"].startswith("req_")

    run(test())


def is_json(data: bytes) -> bool:
    try:
        return bool(json.loads(data))
    except ValueError:
        return False


# ---- connections ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("loop", LOOPS)
def test_an_http_1_0_client_gets_a_stream_that_ends_with_the_connection(loop: str) -> None:
    async def test() -> None:
        async with simulated() as served:
            client = await RawClient.connect(served)
            await client.post(version="1.0")
            head, _, body = (await client.read_all()).partition(b"\r\n\r\n")
            client.close()
            assert head.startswith(b"HTTP/1.0 200")
            assert b"chunked" not in head.lower()
            assert final_of(body)["status"] == "completed"

    run(test(), loop)


@pytest.mark.parametrize("loop", LOOPS)
def test_a_connection_is_used_again(loop: str) -> None:
    async def test() -> None:
        async with simulated() as served:
            client = await RawClient.connect(served)
            for stream in (True, False, True, True):
                client.received = b""
                await client.post(stream=stream)
                await client.read_until(b"\r\n0\r\n\r\n" if stream else b'"object":"response"')
                while not stream and not is_json(body_of(client.received)):
                    await client.read()
                assert client.received.startswith(b"HTTP/1.1 200")
                if stream:
                    assert final_of(body_of(client.received))["status"] == "completed"
            client.close()

    run(test(), loop)


@pytest.mark.parametrize("loop", LOOPS)
def test_pipelined_requests_are_answered_in_order(loop: str) -> None:
    async def test() -> None:
        async with simulated() as served:
            client = await RawClient.connect(served)
            for number in range(5):
                await client.post(input=f"scenario: plain number {number}")
            while client.received.count(b"\r\n0\r\n\r\n") < 5:
                assert await client.read()
            client.close()
            answers = client.received.split(b"HTTP/1.1 200")[1:]
            assert len(answers) == 5
            for number, answer in enumerate(answers):
                assert f"number {number}" in final_of(body_of(answer))["output"][0]["content"][0]["text"]

    run(test(), loop)


def test_expect_100_continue() -> None:
    async def test() -> None:
        async with simulated() as served:
            client = await RawClient.connect(served)
            length = str(len(BODY)).encode()
            await client.send(
                b"POST /v1/responses HTTP/1.1\r\nHost: x\r\nExpect: 100-continue\r\nContent-Length: " + length + b"\r\n\r\n"
            )
            await client.read_until(b"100 Continue\r\n\r\n")
            await client.send(BODY)
            await client.read_until(b"\r\n0\r\n\r\n")
            client.close()
            assert b"HTTP/1.1 200" in client.received

    run(test())


@pytest.mark.parametrize("expectation", [b"a miracle", b"\xff"])
def test_an_expectation_that_is_unknown_is_refused(expectation: bytes) -> None:
    async def test() -> None:
        async with simulated() as served:
            client = await RawClient.connect(served)
            await client.send(
                b"GET /v1/models HTTP/1.1\r\nHost: x\r\nExpect: " + expectation + b"\r\nConnection: close\r\n\r\n"
            )
            answer = await client.read_all()
            client.close()
            assert answer.startswith(b"HTTP/1.1 417 ")
            assert "100-continue" in json.loads(body_of(answer))["error"]["message"]

    run(test())


@pytest.mark.parametrize(
    "request_bytes",
    [
        b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03" + b"\x00" * 100,
        b"GET\r\n\r\n",
        b"POST /v1/responses HTTP/1.1\r\nHost: x\r\nContent-Length: -1\r\n\r\n",
        b"POST /v1/responses HTTP/1.1\r\nHost: x\r\nContent-Length: 5\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
        b"POST /v1/responses HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n",
        b"GET /health HTTP/1.1\r\nHost: x\r\nX-Long: " + b"a" * 1_000_000 + b"\r\n\r\n",
        b"GET /health HTTP/1.1\r\n" + b"".join(b"X-%d: a\r\n" % number for number in range(5000)) + b"\r\n",
    ],
    ids=["tls", "no target", "negative length", "length and chunked", "bad chunk", "a huge header", "too many headers"],
)
def test_what_is_not_http_is_refused(request_bytes: bytes) -> None:
    async def test() -> None:
        async with simulated() as served:
            client = await RawClient.connect(served)
            try:
                await client.send(request_bytes)
                answer = await asyncio.wait_for(client.read_all(), PATIENCE)
            except ConnectionError:
                answer = b""
            client.close()
            assert answer == b"" or answer.startswith((b"HTTP/1.1 400", b"HTTP/1.0 400"))
            assert b"Traceback" not in answer
            assert (await post(served)).status == 200

    run(test())


# ---- bodies -----------------------------------------------------------------------------------------------------------


def test_a_body_that_is_too_large_is_a_413() -> None:
    async def test() -> None:
        async with simulated(max_body_bytes=MEBIBYTE) as served:
            large = json.dumps({**QUESTION, "input": "x" * 2 * MEBIBYTE}).encode()
            for headers, data in [
                (JSON, large),
                ({**JSON, "Content-Encoding": "gzip"}, gzip.compress(large)),
            ]:
                answer = await ask(served, "POST", "/v1/responses", data=io.BytesIO(data), headers=headers)
                assert_error(answer, 413, "request_too_large")
            assert (await post(served)).status == 200

    run(test())


@pytest.mark.slow
def test_a_large_body_is_accepted() -> None:
    async def test() -> None:
        async with simulated(SimulatorOptions(max_model_len=1 << 30)) as served:
            image = {"type": "input_image", "detail": "auto", "image_url": "data:image/png;base64," + "A" * (64 * MEBIBYTE)}
            body = json.dumps({**QUESTION, "input": [{"role": "user", "content": [image]}]}).encode()
            answer = await ask(served, "POST", "/v1/responses", data=io.BytesIO(body), headers=JSON)
            assert answer.status == 200, answer.body[:300]
            assert b"1 image part" in answer.body

    run(test())


@pytest.mark.parametrize("loop", LOOPS)
def test_compressed_bodies(loop: str) -> None:
    async def test() -> None:
        async with simulated() as served:
            for encoding, data in [("gzip", gzip.compress(BODY)), ("deflate", zlib.compress(BODY)), ("identity", BODY)]:
                headers = {**JSON, "Content-Encoding": encoding}
                answer = await ask(served, "POST", "/v1/responses", data=data, headers=headers)
                assert answer.final["status"] == "completed", encoding
            for data in (b"no gzip at all", gzip.compress(BODY)[:20], b""):
                headers = {**JSON, "Content-Encoding": "gzip"}
                assert_error(await ask(served, "POST", "/v1/responses", data=data, headers=headers), 400)

    run(test(), loop)


def test_a_compression_that_is_not_known_is_refused() -> None:
    async def test() -> None:
        async with simulated() as served:
            for encoding, status in (("zstd", 415), ("br", 415), ("compress", 415), ("x-own", 415)):
                headers = {**JSON, "Content-Encoding": encoding}
                data = b"\x28\xb5\x2f\xfd\x00\x00"
                answer = await ask(served, "POST", "/v1/responses", data=data, headers=headers)
                assert_error(answer, status)
            assert (await post(served)).status == 200

    run(test())


@pytest.mark.parametrize("kind", ["application/json; charset=latin-1", "text/plain", "application/x-www-form-urlencoded", ""])
def test_the_content_type_does_not_matter(kind: str) -> None:
    async def test() -> None:
        async with simulated() as served:
            answer = await ask(served, "POST", "/v1/responses", data=BODY, headers={"Content-Type": kind})
            assert answer.final["status"] == "completed"

    run(test())


def deep(depth: int) -> bytes:
    return b'{"model": "m", "input": ' + b"[" * depth + b"]" * depth + b"}"


HOSTILE: dict[str, bytes] = {
    "empty": b"",
    "white space": b"   ",
    "cut": BODY[:-3],
    "two values": BODY + BODY,
    "a list": b"[]",
    "a string": b'"hello"',
    "null": b"null",
    "an unknown word": b'{"model": "m", "input": NaN}',
    "nan": b'{"model": "m", "input": "hi", "temperature": NaN}',
    "infinity": b'{"model": "m", "input": "hi", "temperature": 1e999}',
    "a lone surrogate's half escape": b'{"model": "m", "input": "\\ud83d\\u"}',
    "invalid utf-8": b'{"model": "m", "input": "\xff\xfe"}',
    "utf-16": '{"model": "m", "input": "hi"}'.encode("utf-16"),
    "nul": b'{"model": "m", "input": "hi"}\x00',
    "nested": deep(200),
    "nested deeply": deep(100_000),
    "unclosed": b"[" * 1_000_000,
    "objects": b'{"a":' * 50_000,
    "a huge number": b'{"model": "m", "input": "hi", "max_output_tokens": ' + b"9" * 5000 + b"}",
    "no model": b'{"input": "hi"}',
    "an empty model": b'{"model": "", "input": "hi"}',
    "wrong types": b'{"model": 7, "input": {}}',
    "items that are none": b'{"model": "m", "input": [1, null, "x", []]}',
    "tools that are none": b'{"model": "m", "input": "hi", "tools": [1]}',
}


def test_hostile_bodies_are_400_and_the_server_lives() -> None:
    async def test() -> None:
        async with simulated() as served:
            for name, body in HOSTILE.items():
                answer = await ask(served, "POST", "/v1/responses", data=body, headers=JSON)
                assert answer.status == 400, name
                assert_error(answer, 400)
                assert len(answer.body) < 5000, name
            assert (await post(served)).final["status"] == "completed"

    run(test())


ODD: dict[str, bytes] = {
    "a lone surrogate": b'{"model": "m", "input": "\\ud800 hi", "stream": true}',
    "a nul character": b'{"model": "m", "input": "\\u0000", "stream": true}',
    "a name twice": b'{"model": "m", "input": "hi", "input": "ho", "stream": true}',
    "a huge number where none is read": b'{"model": "m", "input": "hi", "stream": true, "x": ' + b"9" * 400 + b"}",
    "a byte order mark": b"\xef\xbb\xbf" + BODY,
    "a surrogate in metadata": b'{"model": "m", "input": "hi", "stream": true, "metadata": {"a": "\\ud800"}}',
}


def test_odd_bodies_get_an_answer_of_either_kind() -> None:
    async def test() -> None:
        async with simulated() as served:
            for name, body in ODD.items():
                answer = await ask(served, "POST", "/v1/responses", data=body, headers=JSON)
                if answer.status == 200:
                    assert answer.final["status"] == "completed", name
                else:
                    assert answer.status == 400, name
                    assert_error(answer, 400)

    run(test())


def test_headers_that_are_no_text_do_no_harm() -> None:
    async def test() -> None:
        async with simulated() as served:
            for path in ("responses", "chat/completions"):
                client = await RawClient.connect(served)
                head = f"POST /v1/{path} HTTP/1.1\r\nHost: x\r\nConnection: close\r\nContent-Length: {len(BODY)}\r\n"
                await client.send(head.encode() + b"Authorization: Bearer \xff\xfe\r\n\r\n" + BODY)
                assert (await client.read_all()).startswith((b"HTTP/1.1 400", b"HTTP/1.1 200"))
                client.close()

    run(test())
