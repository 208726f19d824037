"""An aiohttp without the private parts that the gateway uses: one warning for each side, and everything works."""

from __future__ import annotations

import aiohttp
import pytest
from aiohttp import web
from aiohttp.client_proto import ResponseHandler

from responses_gateway.backend.transport import aiohttp_internals as client_internals
from responses_gateway.server.http import aiohttp_internals as server_internals
from tests.server.running_gateway import RawClient, post, run, simulated


def test_this_version_has_all_of_them() -> None:
    async def test() -> None:
        assert client_internals.is_supported(aiohttp.TCPConnector())
        assert server_internals.is_supported()

    run(test())


def test_another_version_is_used_through_its_public_api(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    server_internals.is_supported.cache_clear()
    client_internals.warn_once.cache_clear()
    monkeypatch.delattr(web.StreamResponse, "_send_headers_immediately")
    monkeypatch.delattr(ResponseHandler, "should_close")

    async def test() -> None:
        connector = aiohttp.TCPConnector()
        assert not client_internals.is_supported(connector)
        assert not server_internals.is_supported()

    try:
        run(test())
    finally:
        monkeypatch.undo()
        server_internals.is_supported.cache_clear()
    assert [record.levelname for record in caplog.records] == ["WARNING"]


def test_responses_and_malformed_requests(aiohttp_api: str, caplog: pytest.LogCaptureFixture) -> None:
    client_internals.warn_once.cache_clear()

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
    warnings = [record for record in caplog.records if "slower public API" in record.getMessage()]
    assert len(warnings) == (aiohttp_api == "public")
