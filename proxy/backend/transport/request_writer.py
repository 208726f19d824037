"""The short way to send a request body that is there as a whole, over aiohttp's connections.

`ClientSession.request` builds a request object, a timer, a tracer, header maps and a task that writes the body: more than half
of what a short answer costs the gateway. Here the head is text that was made once, head and body leave in one write, and
from the answer on all is aiohttp's again: parser, response, pool, keep-alive. `pyproject.toml` pins the minor version of
aiohttp because of this and of `push.py`.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from contextlib import suppress

import aiohttp
from aiohttp.client_proto import ResponseHandler
from aiohttp.connector import Connection
from yarl import URL

from proxy.backend.transport.body_push import PushHandler

#: Bytes that are written at once.
_PIECE = 256 * 1024


class _Written:
    """Stands for the writer of a request that was written already."""

    output_size = 0


_WRITTEN = _Written()


class Posting:
    """POST requests with JSON bodies to one URL. Create it inside the running event loop."""

    def __init__(
        self, url: URL, connector: aiohttp.TCPConnector, timeout: aiohttp.ClientTimeout, headers: Mapping[str, str]
    ) -> None:
        """`headers` go with every request."""
        self._loop = asyncio.get_running_loop()
        self._url = url
        self._connector = connector
        self._timeout = timeout
        self._template = aiohttp.ClientRequest("POST", url, loop=self._loop)
        lines = [f"POST {url.raw_path_qs} HTTP/1.1", f"Host: {self._template.headers['Host']}", *_lines(headers)]
        self._head = "\r\n".join(lines).encode()

    async def post(self, body: bytes, headers: Mapping[str, str]) -> aiohttp.ClientResponse:
        """Send a body; the answer's head is there, its body unread. Raises what `ClientSession.post` does, and ValueError for
        a header that is none."""
        fields = "".join(f"{line}\r\n" for line in _lines(headers)).encode("utf-8", "surrogateescape")  # there may be none
        head = b"%b\r\n%bContent-Length: %d\r\n\r\n" % (self._head, fields, len(body))
        while True:
            connection = await self._connect()
            protocol = connection.protocol
            try:
                return await self._send(connection, head + body)
            except (aiohttp.ServerDisconnectedError, aiohttp.ClientOSError, ConnectionError):
                if not isinstance(protocol, PushHandler) or not protocol.outlived:
                    raise  # else the backend closed an idle connection, and has not seen the request: take another one

    async def _send(self, connection: Connection, request: bytes) -> aiohttp.ClientResponse:
        protocol = connection.protocol
        assert protocol is not None
        try:
            # Some servers compress whatever they are told, and the translation needs text.
            protocol.set_response_params(read_until_eof=True, auto_decompress=True)
            if protocol.transport is None:
                raise aiohttp.ServerDisconnectedError
            writer = None
            if len(request) <= _PIECE:
                protocol.transport.write(request)
            else:  # beside the wait for the answer: a backend may refuse a body before it has all of it
                writer = self._loop.create_task(_write(protocol, memoryview(request)))
            response = aiohttp.ClientResponse(
                "POST",
                self._url,
                writer=writer,
                continue100=None,
                timer=None,  # type: ignore[arg-type]
                request_info=self._template.request_info,
                traces=[],
                loop=self._loop,
                session=None,  # type: ignore[arg-type]
                stream_writer=_WRITTEN,  # type: ignore[arg-type]
            )
            return await response.start(connection)
        except BaseException:
            connection.close()
            raise

    async def _connect(self) -> Connection:
        while True:
            try:
                connection = await self._connector.connect(self._template, [], self._timeout)
            except TimeoutError as error:
                raise aiohttp.ConnectionTimeoutError(f"no connection to {self._url.host} in time") from error
            if connection.protocol is not None and not connection.protocol.should_close:
                return connection
            connection.close()  # the backend said more than it was asked: what it says next cannot be told apart


async def _write(protocol: ResponseHandler, request: memoryview) -> None:
    """Write in pieces, so that other streams get their turn in between."""
    with suppress(ConnectionError):  # whoever reads the answer is told
        for begin in range(0, len(request), _PIECE):
            if protocol.transport is None:
                return
            protocol.transport.write(request[begin : begin + _PIECE])
            await protocol._drain_helper()


def _lines(headers: Mapping[str, str]) -> list[str]:
    lines = [f"{name}: {value}" for name, value in headers.items()]
    for line in lines:
        if "\r" in line or "\n" in line or "\0" in line:
            raise ValueError("a header holds a line break")
    return lines
