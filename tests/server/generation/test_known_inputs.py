"""A history that is known from the last request of its thread, through the front door."""

from __future__ import annotations

import json
from itertools import pairwise
from typing import Any

import httpx
import pytest
from aiohttp import web

from responses_gateway.server.generation.preparation.known_inputs import SMALLEST
from responses_gateway.simulator import create_app as create_simulator
from responses_gateway.simulator import serving
from tests.server.running_gateway import gateway, run

# Long enough that each body is worth being kept.
LONG = "Follow the house rules. " * (SMALLEST // 20)
TOOLS = [{"type": "function", "name": "read", "parameters": {"type": "object", "properties": {}}}]


@pytest.mark.parametrize("store", ["none", "memory"])
def test_the_backend_gets_the_same_whether_a_history_is_known(store: str) -> None:
    async def test() -> None:
        asked: dict[str, list[bytes]] = {"known": [], "unknown": []}

        def recording(name: str) -> web.Application:
            app = create_simulator()

            @web.middleware
            async def note(request: web.Request, handler: Any) -> web.StreamResponse:
                if request.path.endswith("/chat/completions"):
                    asked[name].append(await request.read())
                answer: web.StreamResponse = await handler(request)
                return answer

            app.middlewares.append(note)
            return app

        async with (
            serving(recording("known")) as one,
            serving(recording("unknown")) as other,
            gateway(one, store=store, seal_key="0" * 32) as with_memory,
            gateway(other, store=store, seal_key="0" * 32, known_history_bytes=0) as without,
            httpx.AsyncClient() as client,
        ):
            items: list[Any] = [{"type": "message", "role": "user", "content": "Do it. " + LONG}]
            for number in range(6):
                items.append({"type": "reasoning", "summary": [], "content": [{"type": "reasoning_text", "text": "Hm."}]})
                items.append({"type": "function_call", "call_id": f"c{number}", "name": "read", "arguments": "{}"})
                items.append({"type": "function_call_output", "call_id": f"c{number}", "output": f"{number}" * 900})
                asked_for = {"include": ["reasoning.encrypted_content"], "tools": TOOLS}
                body = json.dumps({"model": "simulator", "input": items, **asked_for}).encode()
                answers = []
                for served in (with_memory, without):
                    headers = {"Content-Type": "application/json"}
                    answers.append(await client.post(f"{served.url}/v1/responses", content=body, headers=headers))
                assert [answer.status_code for answer in answers] == [200, 200]
                losses = [answer.headers.get("x-responses-gateway-losses") for answer in answers]
                assert losses[0] == losses[1]
                items += [
                    item for item in answers[0].json()["output"] if item["type"] != "reasoning" or item.get("encrypted_content")
                ]
            assert with_memory.parts.responses.preparation.known.size > 0
            assert asked["known"] == asked["unknown"]
            assert all(len(later) > len(earlier) for earlier, later in pairwise(asked["known"]))

    run(test())
