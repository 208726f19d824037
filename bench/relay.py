"""The measure of the gateway: an aiohttp server and client that pass a stream on byte by byte and parse nothing.

Started with `python -m bench.relay --backend http://127.0.0.1:9000 --port 9001`.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import AsyncIterator

import aiohttp
import uvloop
from aiohttp import web

SESSION = web.AppKey("session", aiohttp.ClientSession)
BACKEND = web.AppKey("backend", str)
MAX_BODY = 64 * 1024 * 1024


async def relay(request: web.Request) -> web.StreamResponse:
    """Send the request on as it is; write every piece of the answer as soon as it is read."""
    headers = {"Content-Type": request.content_type, "Accept-Encoding": "identity"}
    url = request.app[BACKEND] + request.raw_path
    async with request.app[SESSION].post(url, data=await request.read(), headers=headers) as upstream:
        response = web.StreamResponse(status=upstream.status, headers={"Content-Type": upstream.content_type})
        await response.prepare(request)
        async for data in upstream.content.iter_any():
            await response.write(data)
        await response.write_eof()
        return response


async def _client(app: web.Application) -> AsyncIterator[None]:
    connector = aiohttp.TCPConnector(limit=0)
    timeout = aiohttp.ClientTimeout(total=None, sock_read=None)
    async with aiohttp.ClientSession(
        connector=connector, timeout=timeout, cookie_jar=aiohttp.DummyCookieJar(), auto_decompress=False
    ) as session:
        app[SESSION] = session
        yield


def main(arguments: list[str]) -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--backend", required=True)
    parser.add_argument("--port", type=int, required=True)
    options = parser.parse_args(arguments)
    app = web.Application(client_max_size=MAX_BODY)
    app[BACKEND] = options.backend
    app.cleanup_ctx.append(_client)
    app.router.add_post("/{path:.*}", relay)
    uvloop.install()
    web.run_app(app, host="127.0.0.1", port=options.port, access_log=None, print=None)


if __name__ == "__main__":
    main(sys.argv[1:])
