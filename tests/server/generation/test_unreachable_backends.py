"""Why a backend cannot be reached: the client, the log and the metrics tell names, refusals, TLS and time-outs apart."""

from __future__ import annotations

import asyncio
import socket
import ssl
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from tests.log_lines import log_lines
from tests.ports import free_port
from tests.server.process.test_sockets import certificate
from tests.server.running_gateway import gateway, post, run


@asynccontextmanager
async def unresolved(monkeypatch: pytest.MonkeyPatch, folder: Path) -> AsyncIterator[str]:
    """Give a URL whose name has no address."""

    def nowhere(*arguments: Any, **more: Any) -> Any:
        raise socket.gaierror(socket.EAI_NONAME, "Name or service not known")

    monkeypatch.setattr(asyncio.BaseEventLoop, "getaddrinfo", nowhere)
    monkeypatch.setattr(socket, "getaddrinfo", nowhere)
    yield "http://gpu.internal:8000"


@asynccontextmanager
async def refused(monkeypatch: pytest.MonkeyPatch, folder: Path) -> AsyncIterator[str]:
    yield f"http://127.0.0.1:{free_port()}"


@asynccontextmanager
async def untrusted(monkeypatch: pytest.MonkeyPatch, folder: Path) -> AsyncIterator[str]:
    """Give the URL of a server with a certificate that nobody knows."""
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    context.load_cert_chain(*certificate(folder))
    async with await asyncio.start_server(lambda reader, writer: None, "127.0.0.1", 0, ssl=context) as server:
        yield f"https://127.0.0.1:{server.sockets[0].getsockname()[1]}"


@asynccontextmanager
async def without_tls(monkeypatch: pytest.MonkeyPatch, folder: Path) -> AsyncIterator[str]:
    """Give an `https` URL of a server that speaks plain HTTP."""

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.read(1)
        writer.write(b"HTTP/1.1 400 Bad Request\r\ncontent-length: 0\r\n\r\n")
        writer.close()

    async with await asyncio.start_server(answer, "127.0.0.1", 0) as server:
        yield f"https://127.0.0.1:{server.sockets[0].getsockname()[1]}"


@pytest.mark.parametrize(
    ("behind", "reason", "words"),
    [
        (unresolved, "dns", "name cannot be resolved"),
        (refused, "connect", "is it running"),
        (untrusted, "tls", "self-signed certificate"),
        (without_tls, "tls", "does it speak HTTPS"),
    ],
)
def test_it_is_said_why_a_backend_cannot_be_reached(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, behind: Any, reason: str, words: str
) -> None:
    async def test() -> None:
        async with behind(monkeypatch, tmp_path) as url, gateway(f"{url}/v1", access_log=True, adapt=False) as served:
            answer = await post(served, headers={"X-Request-Id": "mine"})
            assert answer.status == 502
            assert words in answer.json["error"]["message"]
            assert "?." not in answer.json["error"]["message"]
            assert "127.0.0.1" not in answer.json["error"]["message"]
            # Metrics are flushed once a second, and the lines of responses with them: not of those that have failed.
            (line,) = [line for line in lines() if line["message"] == "response"]
            assert (line["request_id"], line["reason"], line["level"]) == ("mine", reason, "warning")
            assert words in line["error"]
            assert served.metric("backend_errors_total", kind=reason) == 1

    with log_lines() as written:

        def lines() -> list[dict[str, Any]]:
            return written("response")

        run(test())
