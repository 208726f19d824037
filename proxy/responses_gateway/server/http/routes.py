"""A path that the gateway serves, as a value."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import NamedTuple, TypeAlias

from aiohttp import web

Handler: TypeAlias = Callable[[web.Request], Awaitable[web.StreamResponse]]


class HttpRoute(NamedTuple):
    """A path with a method. `for_operators`: it is served where the admin key is asked for."""

    method: str
    path: str
    handler: Handler
    for_operators: bool = False
