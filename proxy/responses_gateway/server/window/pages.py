"""The static files of the page. They contain no data, and load nothing from other hosts."""

from __future__ import annotations

from functools import cache
from importlib.resources import files

from aiohttp import web

from responses_gateway.server.access.api_keys import Needs, needs

_TYPES = {"html": "text/html", "css": "text/css", "js": "text/javascript", "svg": "image/svg+xml"}
# No inline code, no other origins, no text that becomes markup: texts of models and clients are untrusted.
_POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; base-uri 'none'; "
    "form-action 'none'; frame-ancestors 'none'; require-trusted-types-for 'script'; trusted-types 'none'"
)
# Headers of all answers below `/ui`.
SECURITY_HEADERS = {
    "Content-Security-Policy": _POLICY,
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
    "X-Frame-Options": "DENY",
}


class FrontDoor(web.PlainResource):
    """`/` for browsers, which it leads to the window. To all others there is nothing at that path."""

    def __init__(self) -> None:
        super().__init__("/")
        self.add_route("GET", lead_in)
        self.add_route("HEAD", lead_in)

    async def resolve(self, request: web.Request) -> tuple[web.UrlMappingMatchInfo | None, set[str]]:
        if request.method in ("GET", "HEAD") and "text/html" in request.headers.get("Accept", ""):
            return await super().resolve(request)
        return None, set()


@needs(Needs.NOTHING)
async def lead_in(_request: web.Request) -> web.Response:
    """Lead a browser from `/` to the window."""
    return web.Response(status=302, headers={"Location": "ui/", "Vary": "Accept", **SECURITY_HEADERS})


@needs(Needs.NOTHING)
async def redirect(_request: web.Request) -> web.Response:
    """Redirect `/ui` to `/ui/`: the page names its files relative to its own address."""
    return web.Response(status=308, headers={"Location": "ui/", **SECURITY_HEADERS})


@needs(Needs.NOTHING)
async def page(request: web.Request) -> web.Response:
    """Answer with the page, or one of its files."""
    name = request.match_info.get("name") or "index.html"
    content = _files().get(name)
    if content is None:
        raise web.HTTPNotFound
    kind = _TYPES[name.rpartition(".")[2]]
    headers = {**SECURITY_HEADERS, "Cache-Control": "no-cache"}
    return web.Response(body=content, content_type=kind, charset="utf-8", headers=headers)


@cache
def _files() -> dict[str, bytes]:
    folder = files("responses_gateway.server.window") / "static"
    return {file.name: file.read_bytes() for file in folder.iterdir() if file.name.rpartition(".")[2] in _TYPES}
