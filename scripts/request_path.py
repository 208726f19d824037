"""The files that one plain request runs through: a part of `docs/ARCHITECTURE.md`.

Without arguments: exit code 1 if the document differs from what is measured. With `--write`: bring it up to date (`make docs`).
"""

from __future__ import annotations

import asyncio
import sys
from itertools import groupby
from pathlib import Path
from threading import Thread
from types import FrameType
from typing import Any

import aiohttp
from aiohttp import web
from generated_section import check_or_write

from responses_gateway.server.app import create_app
from responses_gateway.server.http.connections import Runner
from responses_gateway.server.lifespan import open_parts
from responses_gateway.settings import Settings
from responses_gateway.simulator import create_app as create_simulator
from responses_gateway.simulator import serving

ROOT = Path(__file__).parents[1]
TARGET = ROOT / "docs" / "ARCHITECTURE.md"
BEGIN = "<!-- request path: written by scripts/request_path.py from one measured request -->"
END = "<!-- /request path -->"
_PACKAGE = str(ROOT / "proxy" / "responses_gateway") + "/"
# These run by the clock, for all requests together.
_TIMERS = {
    "server/generation/background/runner.py",
    "server/generation/request_log/recent_requests.py",
    "server/generation/in_flight.py",
    "server/setup/store.py",
    "server/lifespan.py",
}
# What else runs by the clock does not run during each of so many requests.
_REQUESTS = 3
_QUESTION = {"model": "simulator", "input": "hi", "stream": True}


def measured() -> list[str]:
    """Return the files of the package, sorted, that run between a streamed `{"input": "hi"}` and the end of its answer."""
    return asyncio.run(_measure())


async def _measure() -> list[str]:
    files: set[str] = set()
    found: list[set[str]] = []

    def note(frame: FrameType, event: str, _argument: Any) -> None:
        if event == "call" and frame.f_code.co_filename.startswith(_PACKAGE):
            files.add(frame.f_code.co_filename.removeprefix(_PACKAGE))

    backend = _Backend()
    try:
        async with open_parts(Settings(backend=[backend.url], store="memory")) as parts:
            parts.autoconfiguration.begin()
            await parts.autoconfiguration.looked.wait()  # as when it serves: what the backend parses is not watched for
            runner = Runner(create_app(parts))
            await runner.setup()
            await web.TCPSite(runner, "127.0.0.1", 0).start()
            url = f"http://127.0.0.1:{runner.addresses[0][1]}/v1/responses"
            async with aiohttp.ClientSession() as session:
                await _ask(session, url)  # what runs once, for the first request of a connection, does not count
                for _ in range(_REQUESTS):
                    files.clear()
                    sys.setprofile(note)
                    await _ask(session, url)
                    parts.metrics.flush()
                    sys.setprofile(None)
                    found.append(files - _TIMERS)
            await runner.cleanup()
    finally:
        sys.setprofile(None)
        backend.close()
    files = set.intersection(*found)
    if not files:
        raise SystemExit(f"nothing below {_PACKAGE} was run: is another checkout installed? Set PYTHONPATH to proxy/")
    return sorted(files)


async def _ask(session: aiohttp.ClientSession, url: str) -> None:
    async with session.post(url, json=_QUESTION) as answer:
        body = await answer.read()
    assert b"response.completed" in body
    await asyncio.sleep(0)  # the end of the request, after the end of its answer


class _Backend:
    """A simulated backend in a thread of its own, whose calls are not counted."""

    def __init__(self) -> None:
        self._loop = asyncio.new_event_loop()
        self._thread = Thread(target=self._loop.run_forever, daemon=True)
        self._thread.start()
        self._serving = serving(create_simulator())
        self.url = asyncio.run_coroutine_threadsafe(self._serving.__aenter__(), self._loop).result()

    def close(self) -> None:
        """Stop it."""
        asyncio.run_coroutine_threadsafe(self._serving.__aexit__(None, None, None), self._loop).result()
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()


def section(files: list[str]) -> str:
    """Return the markdown between the two marker comments, both included."""
    rows = [f"| `{room}/` | {', '.join(f'`{name}`' for name in names)} |" for room, names in _by_room(files)]
    return "\n".join([BEGIN, "", f"{len(files)} files:", "", "| room | files |", "|---|---|", *rows, "", END])


def _by_room(files: list[str]) -> list[tuple[str, list[str]]]:
    return [
        (room, [name.removeprefix(f"{room}/") for name in names])
        for room, names in groupby(files, key=lambda name: name.partition("/")[0])
    ]


if __name__ == "__main__":
    sys.exit(check_or_write(TARGET, section(measured()), sys.argv[1:]))
