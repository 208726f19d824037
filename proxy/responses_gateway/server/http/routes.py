"""A path that the gateway serves, as a value."""

from __future__ import annotations

from typing import NamedTuple

from aiohttp.typedefs import Handler


class HttpRoute(NamedTuple):
    """A path with a method. `for_operators`: it is served where the admin key is asked for."""

    method: str
    path: str
    handler: Handler
    for_operators: bool = False
