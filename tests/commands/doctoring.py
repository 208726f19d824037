"""`responses-proxy doctor` on a simulated server: how the tests run it, and read what it says."""

from __future__ import annotations

import argparse
import asyncio
import io
import json
import os
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager, redirect_stdout
from typing import Any
from unittest.mock import patch

from aiohttp import web

from proxy.commands import doctor
from proxy.simulator import PERSONALITIES, SimulatorOptions, create_app, serving

Change = Callable[[dict[str, Any]], web.Response | None]
#: Slow enough that one can leave in the middle of an answer, fast enough for a test.
_PACE = 5000.0
#: So that the prompt that is too long is not very long.
CONTEXT = 8192


def run(*argv: str, environ: Mapping[str, str] | None = None) -> int:
    """Run the command on a wide terminal, with these variables and no others that count; its exit status."""
    parser = argparse.ArgumentParser()
    doctor.add_arguments(parser)
    with patch.dict(os.environ, {"NO_PROXY": "*", "COLUMNS": "200"}):
        os.environ.pop("OPENAI_API_KEY", None)
        os.environ.update(environ or {})
        return doctor.run(parser.parse_args(argv))


@asynccontextmanager
async def server(
    personality: str = "vllm", *, model: str = "m", change: Change | None = None, **options: Any
) -> AsyncIterator[str]:
    """A simulator; `change` may answer a chat request instead of it, or alter the request."""
    chosen = {"tokens_per_second": _PACE, "max_model_len": CONTEXT, **options}
    app = create_app(SimulatorOptions(models=(model,), personality=PERSONALITIES[personality], **chosen))

    @web.middleware
    async def changing(request: web.Request, handler: Any) -> web.StreamResponse:
        if change is not None and request.path.endswith("/chat/completions"):
            body = json.loads(await request.read())
            instead = change(body)
            if instead is not None:
                return instead
            request._read_bytes = json.dumps(body).encode()
        answer: web.StreamResponse = await handler(request)
        return answer

    app.middlewares.insert(0, changing)
    async with serving(app) as url:
        yield url


def examine(
    *argv: str,
    change: Change | None = None,
    personality: str = "vllm",
    environ: Mapping[str, str] | None = None,
    **options: Any,
) -> int:
    """Run the command against a server of this personality; its exit status."""

    async def test() -> int:
        async with server(personality, change=change, **options) as url:
            return await asyncio.to_thread(run, url, *argv, environ=environ)

    return asyncio.run(test())


class Report:
    """What `--json` says, and the exit status."""

    def __init__(self, status: int, text: str) -> None:
        self.status = status
        report = json.loads(text)
        self.verdict = report["verdict"]
        self.server = report["server"]
        self.profile = report["profile"]
        self.settings = {name: value for name, value in report["settings"].items() if name != "backend"}
        self.findings = report["findings"]

    def said(self, level: str) -> str:
        """All findings of a level, with their advice."""
        return "\n".join(f"{found['text']} {found['advice']}" for found in self.findings if found["level"] == level)


def report(*argv: str, **options: Any) -> Report:
    """Examine a server, see `examine`."""
    with redirect_stdout(io.StringIO()) as out:
        status = examine("--json", *argv, **options)
    return Report(status, out.getvalue())


def bad_request(message: str, status: int = 400) -> web.Response:
    return web.json_response(
        {"error": {"message": message, "type": "BadRequestError", "param": None, "code": 400}}, status=status
    )


def roles(body: dict[str, Any]) -> list[str]:
    return [message["role"] for message in body["messages"]]


def stream(text: str) -> web.Response:
    """An answer of one chunk."""
    chunk = {"choices": [{"index": 0, "delta": {"content": text}, "finish_reason": "stop"}]}
    return web.Response(text=f"data: {json.dumps(chunk)}\n\ndata: [DONE]\n\n", content_type="text/event-stream")
