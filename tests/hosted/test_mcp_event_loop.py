"""Whatever an MCP server sends within its 8 MiB: nothing else in the gateway waits for it."""

from __future__ import annotations

import asyncio
import gc
import ssl
import sys
import threading
import time
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager, suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

import httpx2
import pytest
from aiohttp import web

from responses_gateway.hosted.interface import ToolFailure
from responses_gateway.hosted.mcp.http import tls_context
from responses_gateway.hosted.mcp.search_results import read_results
from responses_gateway.hosted.mcp.servers import Endpoint, HttpEndpoint, StdioEndpoint
from tests.hosted.mcp_peers import ENVIRONMENT, LIMITS, PEER, connections, peer
from tests.server.running_gateway import run

# Seconds of CPU time that one turn of the loop may take: twice what it takes on a machine with nothing else to do.
LONGEST_TURN = 0.1
ROOM = LIMITS.message_bytes - 200


def lists() -> bytes:
    return b"[" + b",".join([b"[]"] * 1_200_000) + b"]"


def tools(number: int, properties: int = 0) -> bytes:
    schema = b",".join(b'"p%d":{"type":"string","description":"%s"}' % (at, b"x" * 60) for at in range(properties))
    one = b'{"name":"%d","inputSchema":{"type":"object","properties":{' + schema + b"}}}"
    return b'"result":{"tools":[%s]}' % b",".join(one % at for at in range(number))


def content(*blocks: bytes, structured: bytes = b"{}") -> bytes:
    return b'"result":{"content":[%s],"structuredContent":%s}' % (b",".join(blocks), structured)


def text(part: bytes) -> bytes:
    return content(b'{"type":"text","text":"%s"}' % (part * (ROOM // len(part))))


def members() -> bytes:
    return b"{%s}" % b",".join(b'"k%d":1' % at for at in range(300_000))


# What a server answers, after the id.
LISTINGS: dict[str, Callable[[], bytes]] = {
    "150,000 tools": lambda: tools(150_000),
    "60,000 tools": lambda: tools(60_000),
    "many properties": lambda: tools(500, 20),
    "a schema of 1.2 million lists": lambda: b'"result":{"tools":[{"name":"echo","inputSchema":{"x":%s}}]}' % lists(),
    "a long description": lambda: b'"result":{"tools":[{"name":"echo","description":"%s"}]}' % (b"\\n" * (ROOM // 2 - 100)),
}
RESULTS: dict[str, Callable[[], bytes]] = {
    "150,000 contents": lambda: content(*[b'{"type":"text","text":"x"}'] * 150_000),
    "100,000 contents": lambda: content(*[b'{"type":"text","text":"x"}'] * 100_000),
    "300,000 members": lambda: content(structured=members()),
    "300,000 unknown members": lambda: content()[:-1] + b"," + members()[1:],
    "1.2 million lists": lambda: content(structured=b'{"a":%s}' % lists()),
    "1.2 million contents": lambda: b'"result":{"content":%s}' % lists(),
    "lists in a text": lambda: text(b"[],"),
    "lists in another result": lambda: b'"result":{"a":%s}' % lists(),
    "one string": lambda: text(b"x"),
    "escapes": lambda: text(b"\\n"),
    "letters": lambda: text("é".encode()),
    "control characters": lambda: text(b"a\\u0000"),
    "escape characters": lambda: text(b"\\u001b"),
    "citations": lambda: text("【1】".encode()),
    "half a surrogate pair": lambda: text(b"\\ud800"),
    "an image": lambda: content(b'{"type":"image","mimeType":"image/png","data":"%s"}' % (b"A" * (ROOM - 100))),
    "deep lists": lambda: content(structured=b'{"a":%s%s}' % (b"[" * 1_000_000, b"]" * 1_000_000)),
    "an error with data": lambda: b'"error":{"code":1,"message":"no","data":%s}' % lists(),
    "a long error": lambda: b'"error":{"code":1,"message":"%s"}' % (b"x" * (ROOM - 100)),
    "an error of lists": lambda: b'"error":%s' % lists(),
    "a request": lambda: b'"method":"ping","params":{"a":%s}' % lists(),
    "no JSON": lambda: b'"result":{"content":[%s' % (b"NaN," * 2_000_000),
}
# For the other transports.
SOME = ("60,000 tools", "150,000 contents", "1.2 million lists", "escapes", "an error with data")
PROGRAM = """
import json, sys
answer = open(sys.argv[2], "rb").read()
for line in sys.stdin:
    asked = json.loads(line)
    if "id" not in asked:
        continue
    head = b'{"jsonrpc":"2.0","id":%d,' % asked["id"]
    if asked["method"] == sys.argv[1]:
        out = head + answer + b"}"
    elif asked["method"] == "initialize":
        version = asked["params"]["protocolVersion"].encode()
        out = head + b'"result":{"protocolVersion":"%s","capabilities":{},"serverInfo":{"name":"p","version":"1"}}}' % version
    elif asked["method"] == "tools/list":
        out = head + b'"result":{"tools":[{"name":"echo","inputSchema":{"type":"object"}}]}}'
    else:
        out = head + b'"error":{"code":-32601,"message":"no"}}'
    sys.stdout.buffer.write(out + b"\\n")
    sys.stdout.buffer.flush()
"""


@contextmanager
def watched() -> Iterator[list[float]]:
    """Note the CPU time of the longest turn of the loop so far. The heap of the tests is not collected meanwhile."""
    loop = asyncio.get_running_loop()
    longest = [0.0]
    last = 0.0
    running = True

    def turn() -> None:
        nonlocal last
        now = time.thread_time()
        longest[0] = max(longest[0], now - last)
        last = now
        if running:
            loop.call_soon(turn)

    gc.collect()
    gc.freeze()
    last = time.thread_time()
    loop.call_soon(turn)
    try:
        yield longest
    finally:
        running = False
        longest[0] = max(longest[0], time.thread_time() - last)
        gc.unfreeze()


@asynccontextmanager
async def program(method: str, answer: bytes, folder: Path) -> AsyncIterator[Endpoint]:
    file = folder / "answer"
    file.write_bytes(answer)
    yield StdioEndpoint(sys.executable, ("-c", PROGRAM, method, str(file)), ENVIRONMENT)


def over_http(content_type: str, wrap: Callable[[bytes], bytes]) -> Any:
    @asynccontextmanager
    async def serve(method: str, answer: bytes, _folder: Path) -> AsyncIterator[Endpoint]:
        async def hostile(_request: web.Request, message: dict[str, Any]) -> Any:
            body = wrap(b'{"jsonrpc":"2.0","id":%d,%s}' % (message["id"], answer))
            return web.Response(body=body, headers={"Content-Type": content_type})

        async with peer() as served:
            served.answers[method] = hostile
            yield HttpEndpoint(served.url, public_only=False)

    return serve


TRANSPORTS = {
    "json": over_http("application/json", lambda message: message),
    "events": over_http("text/event-stream", lambda message: b"event: message\r\ndata: %s\r\n\r\n" % message),
    "program": program,
}


@pytest.mark.parametrize(
    ("transport", "name"),
    [
        *(("json", name) for name in (*LISTINGS, *RESULTS)),
        *(("events", name) for name in SOME),
        *(("program", name) for name in SOME),
    ],
)
def test_no_answer_holds_the_event_loop(transport: str, name: str, tmp_path: Path) -> None:
    async def test() -> None:
        method = "tools/list" if name in LISTINGS else "tools/call"
        answer = (LISTINGS | RESULTS)[name]()
        async with (
            TRANSPORTS[transport](method, answer, tmp_path) as endpoint,
            connections({"peer": endpoint}, limits=replace(LIMITS, call_timeout=10)) as servers,
        ):
            if method == "tools/call":
                await servers.list_tools("alice", PEER)
            with watched() as longest, suppress(ToolFailure):
                await servers.call_tool("alice", PEER, "echo", {})
            assert longest[0] < LONGEST_TURN

    run(test())


def test_certificates_are_read_in_a_thread(monkeypatch: pytest.MonkeyPatch) -> None:
    """The first connection of a process held all responses for tens of milliseconds."""
    readers: list[threading.Thread] = []
    context = tls_context()

    def read() -> ssl.SSLContext:
        readers.append(threading.current_thread())
        return context

    monkeypatch.setattr(httpx2, "create_ssl_context", read)
    tls_context.cache_clear()

    async def test() -> None:
        async with peer() as served, connections({"peer": served.endpoint}) as servers:
            await servers.list_tools("alice", PEER)

    run(test())
    assert len(readers) == 1
    assert readers[0] is not threading.main_thread()


def test_programs_need_no_certificates(tmp_path: Path) -> None:
    tls_context.cache_clear()

    async def test() -> None:
        async with (
            program("tools/call", b'"result":{}', tmp_path) as endpoint,
            connections({"peer": endpoint}) as servers,
        ):
            await servers.list_tools("alice", PEER)

    run(test())
    assert tls_context.cache_info().currsize == 0


def test_the_charset_of_a_server_is_not_used() -> None:
    """There are decoders that take an hour for what UTF-8 takes a millisecond."""

    async def test() -> None:
        body = b'data: {"jsonrpc":"2.0","id":%%d,%s}\n\n' % text(b"a")

        async def hostile(_request: web.Request, message: dict[str, Any]) -> Any:
            headers = {"Content-Type": "text/event-stream; charset=punycode"}
            return web.Response(body=body % message["id"], headers=headers)

        async with peer() as served, connections({"peer": served.endpoint}) as servers:
            served.answers["tools/call"] = hostile
            await servers.list_tools("alice", PEER)
            with watched() as longest:
                result = await servers.call_tool("alice", PEER, "echo", {})
            assert set(result.text) == {"a"}
            assert longest[0] < LONGEST_TURN

    run(test())


def test_a_search_of_too_many_values_is_read_as_text() -> None:
    text = "[" + "[]," * 170_000 + "[]]"
    began = time.thread_time()
    assert list(read_results(text, None)) == []
    assert time.thread_time() - began < LONGEST_TURN
