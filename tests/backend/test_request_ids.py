"""The ids of requests at a backend that takes UUIDs alone, as llama-cpp-python does: it answers 400, without a word."""

from __future__ import annotations

import asyncio
from typing import Any
from uuid import UUID

import pytest
from aiohttp import web

from responses_gateway.simulator import RECEIVED, serving
from tests.commands.doctor_report import CONTEXT
from tests.commands.doctor_report import run as run_doctor
from tests.log_lines import log_lines
from tests.probing.simulated_backend import SimulatedBackend, adapted
from tests.server.running_gateway import ask, gateway, post, run, until


def strict_backend(seen: list[str], **options: Any) -> SimulatedBackend:
    """Return a simulator that refuses requests without a UUID in `X-Request-Id`, and notes in `seen` the others' ids."""

    @web.middleware
    async def checking(request: web.Request, handler: Any) -> web.StreamResponse:
        given = request.headers.get("X-Request-Id", "")
        try:
            UUID(given)
        except ValueError:
            return web.Response(status=400)
        seen.append(given)
        answer: web.StreamResponse = await handler(request)
        return answer

    backend = SimulatedBackend(**options)
    backend.app.middlewares.insert(0, checking)
    return backend


def test_every_request_of_the_gateway_has_one() -> None:
    async def test() -> None:
        seen: list[str] = []
        async with adapted(strict_backend(seen)) as served:
            assert len(seen) >= 5  # the probe
            for headers in ({}, {"X-Request-Id": "my-own-id"}, {"X-Request-Id": "7"}):
                answer = await post(served, input="scenario: plain", headers=headers)
                assert answer.final["status"] == "completed"
                assert answer.headers["x-request-id"] == headers.get("X-Request-Id", answer.headers["x-request-id"])
                counted = await ask(
                    served, "POST", "/v1/responses/input_tokens", json={"model": "simulator", "input": "x"}, headers=headers
                )
                assert counted.status == 200
                relayed = await ask(served, "GET", "/v1/anything", headers=headers)
                assert relayed.status == 404  # the simulator's own answer

    run(test())


@pytest.mark.slow
def test_the_doctor_sends_what_requests_have() -> None:
    async def test() -> None:
        seen: list[str] = []
        backend = strict_backend(seen, max_model_len=CONTEXT, tokens_per_second=5000.0)
        async with serving(backend.app) as url:
            assert await asyncio.to_thread(run_doctor, url) == 0
        assert len(seen) >= len(backend.app[RECEIVED]) > 10

    run(test())


def test_the_log_names_the_id_that_the_backend_got() -> None:
    async def test() -> None:
        seen: list[str] = []
        with log_lines() as written:
            async with serving(strict_backend(seen).app) as url, gateway(url, access_log=True) as served:
                for _ in range(2):
                    await post(served, input="scenario: plain", headers={"X-Request-Id": "my-own-id"})
                given = "0B4E28BA-2FA1-41D2-883F-0016D3CCA427"
                await post(served, input="scenario: plain", headers={"X-Request-Id": given})
                await until(lambda: not served.parts.in_flight.activities)
            lines = written("response")
        assert [line["request_id"] for line in lines] == ["my-own-id", "my-own-id", given]
        assert [line["backend_request_id"] for line in lines] == seen[-3:]
        assert seen[-3] == seen[-2]  # the same for the same id
        assert seen[-1] == given  # a client's UUID stays

    run(test())
