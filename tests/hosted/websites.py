"""A search engine and pages of the web on loopback, for tests."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Any, NamedTuple

from aiohttp import web

Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]
ARTICLE = """<!doctype html>
<html><head><title>The tower of Example</title><script>var hidden = "never shown";</script></head>
<body><nav><a href="/">Home</a> <a href="/visit#prices">Visit</a></nav>
<article><h1>The tower of Example</h1>
<p>The tower of Example is 321 metres high and was finished in 1889 by its engineers.</p>
<p>It is painted every seven years, which takes sixty tonnes of paint and about eighteen months of work.</p>
<p>Visitors reach the top by lift; the stairs end at the second floor, 115 metres above the ground.</p>
</article></body></html>"""


class Website:
    """Pages on a free port. `requests` has those that came."""

    def __init__(self) -> None:
        self.url = ""
        self.requests: list[web.Request] = []
        self.bodies: list[bytes] = []
        self.pages: dict[str, Handler] = {}

    @property
    def host(self) -> str:
        """Name and port, as `web_fetch_private_hosts` takes them."""
        return self.url.removeprefix("http://")

    def page(self, path: str, body: str | bytes, content_type: str = "text/html", status: int = 200, **headers: str) -> None:
        """Serve a fixed page."""
        data = body.encode() if isinstance(body, str) else body

        async def answer(request: web.Request) -> web.StreamResponse:
            return web.Response(body=data, status=status, headers={"Content-Type": content_type, **headers})

        self.pages[path] = answer

    def redirect(self, path: str, location: str) -> None:
        """Serve a redirect."""
        self.page(path, "", status=302, Location=location)

    async def answer(self, request: web.Request) -> web.StreamResponse:
        """Answer any request."""
        self.requests.append(request)
        self.bodies.append(await request.read())
        handler = self.pages.get(request.path)
        if handler is None:
            return web.Response(status=404, text="no such page")
        return await handler(request)


class SearchEngine(Website):
    """A SearXNG as its manual describes it: `GET /search?q=…&format=json`, and 403 where another format is not enabled."""

    def __init__(self) -> None:
        super().__init__()
        self.results: list[dict[str, Any]] = []
        self.unresponsive: list[list[str]] = []
        self.pages["/search"] = self._search

    @property
    def queries(self) -> list[dict[str, str]]:
        """The parameters of all searches."""
        return [dict(request.query) for request in self.requests]

    async def _search(self, request: web.Request) -> web.StreamResponse:
        if request.query.get("format") != "json":
            return web.Response(status=403, text="Forbidden")
        answer = {
            "query": request.query["q"],
            "number_of_results": 0,
            "results": [{"engine": "test", "template": "default.html", "positions": [1], **result} for result in self.results],
            "answers": [],
            "corrections": [],
            "infoboxes": [],
            "suggestions": [],
            "unresponsive_engines": self.unresponsive,
        }
        return web.Response(text=json.dumps(answer), content_type="application/json")


@asynccontextmanager
async def open_site(site: Website) -> AsyncIterator[None]:
    """Serve a site while the block runs."""
    app = web.Application(client_max_size=1 << 30)
    app.router.add_route("*", "/{path:.*}", site.answer)
    runner = web.AppRunner(app, handler_cancellation=True, shutdown_timeout=0.1)
    await runner.setup()
    try:
        await web.TCPSite(runner, "127.0.0.1", 0).start()
        site.url = f"http://127.0.0.1:{runner.addresses[0][1]}"
        yield
    finally:
        await runner.cleanup()


class SearchedWeb(NamedTuple):
    """A page, an engine that finds it, and the settings of a gateway that uses both."""

    site: Website
    engine: SearchEngine
    settings: dict[str, Any]


@asynccontextmanager
async def searched_web() -> AsyncIterator[SearchedWeb]:
    """Serve a page and a search that finds it."""
    site = Website()
    engine = SearchEngine()
    async with open_site(site), open_site(engine):
        site.page("/tower", ARTICLE)
        engine.results = [{"url": f"{site.url}/tower", "title": "The tower", "content": "All about it."}]
        yield SearchedWeb(site, engine, {"web_search_url": engine.url, "web_fetch_private_hosts": [site.host]})


async def never() -> None:
    """Wait until cancelled."""
    await asyncio.get_running_loop().create_future()
