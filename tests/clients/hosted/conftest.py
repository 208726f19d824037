"""A gateway with hosted tools for the programs of users: a model that does as it is told, a search engine, a page, and an MCP
server made with the SDK, which also searches files and runs code. Every stream that a program caused is judged at its end."""

from __future__ import annotations

import json
import re
from collections.abc import AsyncIterator, Iterator
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from urllib.parse import urlsplit

import pytest
from aiohttp import web

from proxy.simulator import SimulatorOptions, serving
from tests.clients.client_programs import Output, absence, run
from tests.codex.servers import Background, Stage, open_stage
from tests.hosted.mcp_peers import sdk_over_http
from tests.hosted.websites import ARTICLE, SearchEngine, open_site
from tests.server.hosted.model import calls, says

_ORDER = re.compile(r"call (\S+) (\{.*\})")


@dataclass
class Hosted:
    """Running servers. `web` is the URL of the search engine, `mcp` that of the MCP server."""

    stage: Stage
    web: str
    mcp: str


@pytest.fixture(scope="module")
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
    model = web.Application()
    model.router.add_post("/v1/chat/completions", _obey)
    engine = SearchEngine()
    engine.page("/tower", ARTICLE)
    async with serving(model) as backend, open_site(engine), sdk_over_http() as server:
        engine.results = [{"url": f"{engine.url}/tower", "title": "The tower of Example", "content": "It is 321 metres high."}]
        settings = {
            "adapt": False,
            "web_search_url": engine.url,
            "web_fetch_private_hosts": [engine.host],
            "mcp_servers": {"docs": {"url": server.url}},
            "mcp_allowed_hosts": [urlsplit(server.url).netloc],
            "file_search_tools": {"vs_manuals": "docs/search"},
            "code_interpreter": "mcp:docs/run_python",
        }
        async with open_stage(SimulatorOptions(), backend, settings) as stage:
            yield Hosted(stage, engine.url, server.url)


async def _obey(request: web.Request) -> web.StreamResponse:
    """Make the calls that the user's last message orders, a `call NAME ARGUMENTS` on each line; repeat what came of them,
    with the first source where there is one."""
    messages = (await request.json())["messages"]
    results = []
    while messages[-1]["role"] in ("tool", "system", "developer"):
        results.insert(0, messages.pop()["content"])
    orders = _ORDER.findall(str(messages[-1]["content"]))
    if results:
        said = " ".join(results)
        answer = says("The tower is 321 metres high 【1】." if "【1】" in said else f"The tool said: {said}", thought="I know.")
    elif orders:
        answer = calls(*((name, json.loads(arguments)) for name, arguments in orders), thought="I need a tool.")
    else:
        answer = says("You are welcome.")
    stream = web.StreamResponse(headers={"Content-Type": "text/event-stream"})
    await stream.prepare(request)
    for piece in answer:
        await stream.write(piece)
    return stream
