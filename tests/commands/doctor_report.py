"""Run `responses-gateway doctor` on a simulated server, and read its report."""

from __future__ import annotations

import argparse
import asyncio
import io
import json
import os
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager, redirect_stdout
from typing import Any
from unittest.mock import patch

from aiohttp import web

from responses_gateway.commands import doctor
from responses_gateway.simulator import serving
from tests.probing.simulated_backend import Change, SimulatedBackend

# Tokens per second: slow enough to disconnect in the middle of an answer, fast enough for a test.
_PACE = 5000.0
# Small, so that the prompt that exceeds it is small too.
CONTEXT = 8192


def run(*argv: str, environ: Mapping[str, str] | None = None) -> int:
    """Run the command on a wide terminal, with these environment variables; return its exit status."""
    parser = argparse.ArgumentParser()
    doctor.add_arguments(parser)
    with patch.dict(os.environ, {"NO_PROXY": "*", "COLUMNS": "200"}):
        os.environ.pop("OPENAI_API_KEY", None)
        os.environ.update(environ or {})
        return doctor.run(parser.parse_args(argv))


@asynccontextmanager
async def server(
    dialect: str = "vllm", *, model: str = "m", change: Change | None = None, **options: Any
) -> AsyncIterator[str]:
    """Serve a simulator; `change` may alter a chat request, or answer it instead."""
    chosen = {"tokens_per_second": _PACE, "max_model_len": CONTEXT, **options}
    async with serving(SimulatedBackend(dialect, change, models=(model,), **chosen).app) as url:
        yield url


def examine(
    *argv: str,
    change: Change | None = None,
    dialect: str = "vllm",
    environ: Mapping[str, str] | None = None,
    **options: Any,
) -> int:
    """Run the command against a simulator of this dialect; return its exit status."""

    async def test() -> int:
        async with server(dialect, change=change, **options) as url:
            return await asyncio.to_thread(run, url, *argv, environ=environ)

    return asyncio.run(test())


class Report:
    """The report of `--json`, and the exit status."""

    def __init__(self, status: int, text: str) -> None:
        self.status = status
        report = json.loads(text)
        self.verdict = report["verdict"]
        self.server = report["server"]
        self.profile = report["profile"]
        self.settings = {name: value for name, value in report["settings"].items() if name != "backend"}
        self.findings = report["findings"]

    def said(self, level: str) -> str:
        """Return all findings of a level, with their advice."""
        return "\n".join(f"{found['text']} {found['advice']}" for found in self.findings if found["level"] == level)


def report(*argv: str, **options: Any) -> Report:
    """Examine a simulator (see `examine`) and return the report."""
    with redirect_stdout(io.StringIO()) as out:
        status = examine("--json", *argv, **options)
    return Report(status, out.getvalue())


def report_on(backend: SimulatedBackend) -> Report:
    """Examine this simulator and return the report."""

    async def test() -> int:
        async with serving(backend.app) as url:
            return await asyncio.to_thread(run, url, "--json")

    with redirect_stdout(io.StringIO()) as out:
        status = asyncio.run(test())
    return Report(status, out.getvalue())


def bad_request(message: str, status: int = 400) -> web.Response:
    return web.json_response(
        {"error": {"message": message, "type": "BadRequestError", "param": None, "code": 400}}, status=status
    )


def roles(body: dict[str, Any]) -> list[str]:
    return [message["role"] for message in body["messages"]]


def stream(text: str) -> web.Response:
    """Answer with one chunk."""
    chunk = {"choices": [{"index": 0, "delta": {"content": text}, "finish_reason": "stop"}]}
    return web.Response(text=f"data: {json.dumps(chunk)}\n\ndata: [DONE]\n\n", content_type="text/event-stream")
