"""A server in front of llama.cpp that enforces the schemas of tools only where a tool is `strict`, as vLLM does.

llama.cpp itself enforces them always. Without `strict` it is shown the tools by its template alone, so that it knows of no
grammar, and leaves the model's markup in the text."""

from __future__ import annotations

import argparse
import asyncio
from typing import Any

from aiohttp import ClientSession, web

_LLAMA = web.AppKey("llama", str)


def forwarded(body: dict[str, Any]) -> dict[str, Any]:
    """Return the body of a chat request as llama.cpp is asked."""
    tools = body.get("tools")
    if not tools or any(tool["function"].get("strict") for tool in tools):
        return body
    return {name: value for name, value in body.items() if name not in ("tools", "tool_choice", "parallel_tool_calls")} | {
        "chat_template_kwargs": {"declared_tools": tools}
    }


async def _complete(request: web.Request) -> web.StreamResponse:
    body = forwarded(await request.json())
    async with ClientSession() as session, session.post(f"{request.app[_LLAMA]}{request.path}", json=body) as answer:
        response = web.StreamResponse(status=answer.status, headers={"content-type": answer.content_type})
        await response.prepare(request)
        async for data in answer.content.iter_any():
            await response.write(data)
        return response


async def _models(_request: web.Request) -> web.Response:
    return web.json_response({"object": "list", "data": [{"id": "smollm2-135m", "object": "model"}]})


def main() -> None:
    """Serve until it is ended."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--port", type=int, required=True)
    parser.add_argument("--llama", metavar="URL", required=True)
    options = parser.parse_args()
    app = web.Application(client_max_size=1 << 24)
    app[_LLAMA] = options.llama
    app.router.add_post("/v1/chat/completions", _complete)
    app.router.add_get("/v1/models", _models)
    asyncio.set_event_loop(asyncio.new_event_loop())
    web.run_app(app, host="127.0.0.1", port=options.port, print=None)


if __name__ == "__main__":
    main()
