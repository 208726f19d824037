"""Malformed requests get JSON like all errors, and nothing in it quotes them or tells what the gateway is made of."""

from __future__ import annotations

import json

import pytest

from tests.server.gateway_process import program
from tests.server.running_gateway import RawClient, run

POST = b"POST /v1/responses HTTP/1.1\r\nHost: a\r\n"
# Request -> status and code.
BROKEN = {
    b"GET / HTTP/1.1\r\nHost: a\r\nBad Header: SECRET\r\n\r\n": (400, "invalid_http"),
    b"GET / HTTP/9.1\r\nHost: a\r\n\r\n": (400, "invalid_http"),
    b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03 SECRET": (400, "invalid_http"),
    b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n": (400, "invalid_http"),
    POST + b"Content-Length: 5\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n": (400, "invalid_http"),
    POST + b"Content-Length: -5\r\n\r\nSECRET": (400, "invalid_http"),
    b"GET /SECRET" + b"a" * 40_000 + b" HTTP/1.1\r\nHost: a\r\n\r\n": (431, "request_too_large"),
    b"GET / HTTP/1.1\r\nAuthorization: SECRET" + b"a" * 40_000 + b"\r\n\r\n": (431, "request_too_large"),
    POST + b"Authorization: Bearer SECRET\x01\r\n\r\n": (400, "invalid_http"),
    POST + b"X-A: SECRET\r\n" * 200 + b"\r\n": (400, "invalid_http"),
    b"GET http://[SECRET HTTP/1.1\r\nHost: a\r\n\r\n": (400, "invalid_http"),
    b"SECRET\r\n\r\n": (400, "invalid_http"),
    POST + b"Content-Encoding: br\r\nContent-Length: 5\r\n\r\nabcde": (415, "unsupported_content_encoding"),
    POST + b"Content-Encoding: zstd\r\nContent-Length: 5\r\n\r\nabcde": (415, "unsupported_content_encoding"),
}


@pytest.mark.slow
def test_malformed_requests_get_json_like_all_errors() -> None:
    async def test() -> None:
        async with program(
            "--backend", "http://127.0.0.1:9", "--store", "none", "--no-adapt", "--log-level", "debug"
        ) as running:
            for request, (status, code) in BROKEN.items():
                client = await RawClient.connect(running)
                await client.send(request)
                await client.read_until(b"}}")
                client.close()
                head, _, body = bytes(client.received).partition(b"\r\n\r\n")
                assert head.split(b" ")[1] == str(status).encode(), request
                assert json.loads(body)["error"].keys() == {"message", "type", "param", "code"}
                assert json.loads(body)["error"]["code"] == code
                fields = dict(line.lower().split(b": ", 1) for line in head.split(b"\r\n")[1:])
                assert fields[b"server"] == b"responses-gateway"
                assert fields[b"x-request-id"].startswith(b"req_")
                assert fields[b"content-type"].startswith(b"application/json")
                assert b"SECRET" not in client.received
            assert "SECRET" not in running.said
            assert "Traceback" not in running.said

    run(test())


@pytest.mark.slow
def test_a_client_that_waits_for_a_sign_before_it_sends_the_body_gets_one() -> None:
    async def test() -> None:
        async with program("--backend", "http://127.0.0.1:9", "--store", "none", "--no-adapt") as running:
            body = b'{"model":"m","input":"hi"}'
            client = await RawClient.connect(running)
            await client.send(POST + b"Expect: 100-continue\r\nContent-Length: %d\r\n\r\n" % len(body))
            await client.read_until(b"HTTP/1.1 100 Continue\r\n\r\n")
            await client.send(body)
            await client.read_until(b"}}")
            client.close()
            assert b"HTTP/1.1 502 " in client.received

    run(test())
