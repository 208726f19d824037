"""`responses-gateway doctor --gateway`: a walk through a running gateway."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable
from typing import Any

import pytest
from aiohttp import web

from responses_gateway.simulator import serving
from tests.commands.doctor_report import run
from tests.probing.simulated_backend import SimulatedBackend
from tests.server import running_gateway
from tests.server.running_gateway import simulated


def smoke_test(*argv: str, **settings: Any) -> int:
    statuses: list[int] = []

    async def test() -> None:
        async with simulated(**settings) as served:
            statuses.append(await asyncio.to_thread(run, "--gateway", served.url, *argv))

    running_gateway.run(test())
    return statuses[0]


def test_every_step_of_a_working_gateway_passes(capsys: pytest.CaptureFixture[str]) -> None:
    assert smoke_test() == 0
    out = capsys.readouterr().out
    assert "failed" not in out
    assert out.count("passed") == 8
    assert out.endswith("works\n")
    assert 'get_weather({"city": "Paris"})' in out


def test_the_walk_as_json(capsys: pytest.CaptureFixture[str]) -> None:
    assert smoke_test("--json", "--model", "sim-plain") == 0
    report = json.loads(capsys.readouterr().out)
    assert report["verdict"] == "works"
    steps = {step["name"]: step["outcome"] for step in report["steps"]}
    assert steps["tool call"] == "unclear"
    assert steps["stream of text"] == "passed"


@pytest.mark.parametrize(
    ("model", "said"),
    [
        ("sim-drop", "failed: The connection to the backend broke"),
        ("sim-status-500", "HTTP 502"),
        ("sim-empty", "without text"),
    ],
)
def test_a_gateway_in_front_of_a_broken_backend(model: str, said: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert smoke_test("--model", model) == 1
    out = capsys.readouterr().out
    assert said in out
    assert out.endswith("broken\n")


async def _page(_request: web.Request) -> web.Response:
    return web.Response(text="<html>Welcome</html>", content_type="text/html")


def _website() -> web.Application:
    app = web.Application()
    app.router.add_route("*", "/{path:.*}", _page)
    return app


@pytest.mark.parametrize(("make", "status"), [(lambda: SimulatedBackend().app, 404), (web.Application, 404), (_website, 200)])
def test_a_server_that_is_no_gateway(
    make: Callable[[], web.Application], status: int, capsys: pytest.CaptureFixture[str]
) -> None:
    urls: list[str] = []

    async def test() -> int:
        async with serving(make()) as url:
            urls.append(url)
            return await asyncio.to_thread(run, "--gateway", url)

    assert asyncio.run(test()) == 2
    assert f"there is no gateway: {urls[0]}/v1/responses answers HTTP {status}\n" in capsys.readouterr().err


def test_a_gateway_that_breaks_the_laws(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    from responses_gateway.stream.writer.responses import ResponsesWriter  # noqa: PLC0415

    original = ResponsesWriter.snapshot

    def changed(self: ResponsesWriter, kind: bytes, number: int, response: bytes) -> bytes:
        return original(self, kind, number + 1, response)

    monkeypatch.setattr(ResponsesWriter, "snapshot", changed)
    assert smoke_test() == 1
    assert "violations, first" in capsys.readouterr().out
