"""Paths that the gateway serves, as values."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from functools import wraps
from typing import Any, NamedTuple, TypeAlias

from aiohttp import web
from aiohttp.typedefs import Handler


class HttpRoute(NamedTuple):
    """A path with a method. `for_operators`: it is served where the admin key is asked for. `for_visitors`: it has data of the
    window, below `/ui/api/`, for those who may see metadata."""

    method: str
    path: str
    handler: Handler
    for_operators: bool = False
    for_visitors: bool = False


class HttpPrefix(NamedTuple):
    """A path below which all is served that is served below `/v1/`. `enter` is called with each; raises `ApiError`."""

    path: str
    enter: Callable[[web.Request], None]

    def entered(self, handler: Handler) -> Handler:
        """Return what handles requests below the prefix."""

        @wraps(handler)
        async def handle(request: web.Request) -> web.StreamResponse:
            self.enter(request)
            return await handler(request)

        return handle


Route: TypeAlias = HttpRoute | HttpPrefix


class PrefixedRouter:
    """Adds the routes of `/v1/` below the prefixes among some routes, too."""

    def __init__(self, router: web.UrlDispatcher, routes: Sequence[Route]) -> None:
        self._router = router
        self._prefixes = [route for route in routes if isinstance(route, HttpPrefix)]

    def add_route(self, method: str, path: str, handler: Handler) -> None:
        """Add a route."""
        self._router.add_route(method, path, handler)
        if path.startswith("/v1/"):
            for prefix in self._prefixes:
                self._router.add_route(method, prefix.path + path, prefix.entered(handler))


# Asks all workers a question by its name, with arguments; those that do not answer are left out.
AskAll: TypeAlias = Callable[..., Awaitable[list[Any]]]
ASK_ALL: web.AppKey[AskAll] = web.AppKey("ask_all")
