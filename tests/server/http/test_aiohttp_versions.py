"""The private parts of aiohttp that the gateway uses: this version has them, and without those of its server it works, too."""

from __future__ import annotations

import inspect

import aiohttp
import pytest
from aiohttp import web
from aiohttp.client_proto import ResponseHandler
from yarl import URL

from responses_gateway.server.http import aiohttp_internals as server_internals
from tests.server.running_gateway import RawClient, post, run, simulated


def test_this_version_has_all_of_them() -> None:
    response = ("writer", "continue100", "timer", "request_info", "traces", "loop", "session", "stream_writer")
    inspect.signature(aiohttp.ClientRequest).bind("POST", URL(), loop=None)
    inspect.signature(aiohttp.ClientResponse).bind("POST", URL(), **dict.fromkeys(response))
    inspect.signature(aiohttp.ClientResponse.start).bind(None, None)
    inspect.signature(aiohttp.TCPConnector.connect).bind(None, None, [], None)
    inspect.signature(ResponseHandler).bind(None)
    for name in ("set_response_params", "data_received", "connection_lost", "should_close", "force_close", "_drain_helper"):
        assert hasattr(ResponseHandler, name)
    assert server_internals.is_supported()


def test_another_version_is_used_through_its_public_api(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    server_internals.is_supported.cache_clear()
    monkeypatch.delattr(web.StreamResponse, "_send_headers_immediately")
    try:
        assert not server_internals.is_supported()
    finally:
        monkeypatch.undo()
        server_internals.is_supported.cache_clear()
    assert [record.levelname for record in caplog.records] == ["WARNING"]


@pytest.mark.usefixtures("aiohttp_api")
def test_responses_and_malformed_requests() -> None:
    async def test() -> None:
        async with simulated() as served:
            for stream in (True, False):
                for _ in range(2):
                    answer = await post(served, input="tokens: 20", stream=stream)
                    assert (answer.final if stream else answer.json)["status"] == "completed"
            client = await RawClient.connect(served)
            await client.send(b"no HTTP\r\n\r\n")
            assert (await client.read_all()).startswith((b"HTTP/1.1 400 ", b"HTTP/1.0 400 "))
            client.close()

    run(test())
