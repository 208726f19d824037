"""Looking through the window without a browser: its requests, and the pictures that it gets."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Callable
from contextlib import aclosing
from typing import Any

import aiohttp

from tests.server.running_gateway import Answer, Reachable, ask
from tests.waiting import PATIENCE

KEY = "an-administrators-key"
Picture = dict[str, Any]


def bearer(key: str = KEY) -> dict[str, str]:
    return {"Authorization": f"Bearer {key}"}


async def look(served: Reachable, path: str = "state", method: str = "GET", **request: Any) -> Answer:
    """Ask for something below `/ui/api/`."""
    return await ask(served, method, f"/ui/api/{path}", **request)


async def pictures(served: Reachable, **request: Any) -> AsyncIterator[Picture]:
    """Yield what the live connection shows, each as it comes."""
    timeout = aiohttp.ClientTimeout(total=PATIENCE)
    async with (
        aiohttp.ClientSession(timeout=timeout, read_bufsize=1 << 24) as session,
        session.get(f"{served.url}/ui/api/live", **request) as answer,
    ):
        assert answer.status == 200, await answer.read()
        while line := await answer.content.readline():
            if line.startswith(b"data: "):
                yield json.loads(line.removeprefix(b"data: "))


async def picture_in_which(served: Reachable, wanted: Callable[[Picture], Any], **request: Any) -> Picture:
    """Return the first picture of which this is true."""
    async with aclosing(pictures(served, **request)) as seen:
        async for picture in seen:
            if wanted(picture):
                return picture
    raise AssertionError("the live connection ended")


def running(picture: Picture) -> list[dict[str, Any]]:
    return [summary for view in picture["views"] for summary in view["running"]]


def ended(picture: Picture) -> list[dict[str, Any]]:
    return [summary for view in picture["views"] for summary in view["ended"]]


async def last_ended(served: Reachable, number: int = 1, **request: Any) -> list[dict[str, Any]]:
    """Return the requests that have ended, once there are so many."""
    found: list[dict[str, Any]] = []
    async with aclosing(pictures(served, **request)) as seen:
        async for picture in seen:
            found += ended(picture)
            if len(found) >= number:
                return found
    raise AssertionError("the live connection ended")
