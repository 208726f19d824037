"""A gateway with hosted tools for the programs of users: a model that does as it is told, a search engine, a page, and an MCP
server made with the SDK, which also searches files and runs code. Every stream that a program caused is judged at its end."""

from __future__ import annotations

import json
import re
from collections.abc import AsyncIterator, Iterator
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from typing import Any
from urllib.parse import urlsplit

import pytest
from aiohttp import web

from responses_gateway.simulator import SimulatorOptions, serving
from tests.clients.client_programs import Output, absence, run
from tests.codex.servers import Background, Stage, open_stage
from tests.hosted.mcp_peers import sdk_over_http
from tests.hosted.websites import ARTICLE, SearchEngine, open_site
from tests.server.hosted.model import calls, says

_ORDER = re.compile(r"call (\S+) (\{.*\})")


@dataclass
class Hosted:
    """Running servers. `web` is the URL of the search engine, `mcp` that of the MCP server; `chats` are the chat requests that
    reached the model."""

    stage: Stage
    web: str
    mcp: str
    chats: list[dict[str, Any]]


@pytest.fixture(scope="package")
def hosted() -> Iterator[Hosted]:
    servers = Background()
    stack = AsyncExitStack()
    opened = servers.run(stack.enter_async_context(_open()))
    yield opened
    servers.run(stack.aclose())
    servers.stop()
    assert opened.stage.complaints() == []


@pytest.fixture(scope="module")
def output(request: pytest.FixtureRequest, hosted: Hosted) -> Output:
    """Return what the program of the module (its `PROGRAM`) printed: it runs once for all tests."""
    program = request.module.PROGRAM
    reason = absence(program)
    if reason is not None:
        pytest.skip(reason)
    return run(program, hosted.stage.url, hosted.mcp, hosted.web)


@asynccontextmanager
async def _open() -> AsyncIterator[Hosted]:
    model = _Model()
    backend = web.Application()
    backend.router.add_post("/v1/chat/completions", model.answer)
    engine = SearchEngine()
    engine.page("/tower", ARTICLE)
    async with serving(backend) as url, open_site(engine), sdk_over_http() as server:
        engine.results = [{"url": f"{engine.url}/tower", "title": "The tower of Example", "content": "It is 321 metres high."}]
        settings = {
            "adapt": False,
            "web_search_url": engine.url,
            "web_fetch_private_hosts": [engine.host],
            "mcp_servers": {"docs": {"url": server.url}},
            "mcp_allowed_hosts": [urlsplit(server.url).netloc],
            "file_search_tools": {"vs_manuals": "docs/search"},
            "code_interpreter": "mcp:docs/shout_code",
        }
        async with open_stage(SimulatorOptions(), url, settings) as stage:
            yield Hosted(stage, engine.url, server.url, model.requests)


class _Model:
    """Makes the calls that the last message of the user orders, a `call NAME ARGUMENTS` on each line; then it repeats what came
    of them, and cites the first source where there is one. `requests` are the chat requests that came."""

    def __init__(self) -> None:
        self.requests: list[dict[str, Any]] = []

    async def answer(self, request: web.Request) -> web.StreamResponse:
        """Answer `POST /v1/chat/completions`."""
        body = await request.json()
        self.requests.append(body)
        stream = web.StreamResponse(headers={"Content-Type": "text/event-stream"})
        await stream.prepare(request)
        for piece in _turn(body["messages"]):
            await stream.write(piece)
        return stream


def _turn(messages: list[dict[str, Any]]) -> list[bytes]:
    asked = max(index for index, message in enumerate(messages) if message["role"] == "user")
    results = [message["content"] for message in messages[asked:] if message["role"] == "tool"]
    orders = _ORDER.findall(messages[asked]["content"])
    if not orders:
        return says("You are welcome.")
    if not results:
        return calls(*((name, json.loads(arguments)) for name, arguments in orders), thought="I need a tool.")
    said = " ".join(results)
    return says("The tower is 321 metres high 【1】." if "【1】" in said else f"The tool said: {said}", thought="I know.")
