"""Servers that end answers at a limit of their own, though nobody asked for one."""

from __future__ import annotations

import json
from functools import partial
from typing import Any, Protocol

import pytest
from aiohttp import web

from responses_gateway.simulator import serving
from tests.commands.doctor_report import CONTEXT, report, report_on
from tests.probing.simulated_backend import SimulatedBackend, adapted, settings_of
from tests.server.running_gateway import gateway, post, run

QUESTION = {"input": "scenario: plain"}
CUT = "an answer ended at a limit that the client did not ask for"


class Make(Protocol):
    """Return a backend with such options."""

    def __call__(self, **options: Any) -> SimulatedBackend: ...


def limited(body: dict[str, Any], limit: int = 2) -> web.Response | None:
    """Limit answers as a server does, unless another limit is asked for."""
    body.setdefault("max_completion_tokens", body.pop("max_tokens", limit))
    return None


def mlx(**options: Any) -> SimulatedBackend:
    """Return a backend that looks like mlx_lm.server, as far as it can be told."""

    async def name_software(_request: web.Request, response: web.StreamResponse) -> None:
        response.headers["Server"] = "BaseHTTP/0.6 Python/3.11.7"

    backend = SimulatedBackend("openai", limited, **options)
    backend.app.on_response_prepare.append(name_software)
    return backend


def transformers(**options: Any) -> SimulatedBackend:
    return SimulatedBackend("transformers", limited, **options)


def warnings(caplog: pytest.LogCaptureFixture) -> list[dict[str, Any]]:
    return [getattr(record, "fields", {}) for record in caplog.records if record.getMessage() == CUT]


def test_a_default_limit_takes_the_place_of_the_server_s(caplog: pytest.LogCaptureFixture) -> None:
    async def test() -> None:
        backend = SimulatedBackend(change=limited)
        async with serving(backend.app) as url, gateway(url, adapt=False, default_max_output_tokens=5000) as served:
            whole = (await post(served, QUESTION)).final
            assert (whole["status"], whole["max_output_tokens"]) == ("completed", None)
            assert backend.chats[-1]["max_completion_tokens"] == 5000
            cut = (await post(served, QUESTION, max_output_tokens=3)).final
            assert (cut["status"], cut["max_output_tokens"]) == ("incomplete", 3)
            assert backend.chats[-1]["max_completion_tokens"] == 3

    run(test())
    assert warnings(caplog) == []


def test_an_answer_that_is_cut_unasked_is_warned_of_once(caplog: pytest.LogCaptureFixture) -> None:
    async def test() -> None:
        async with serving(SimulatedBackend(change=limited).app) as url, gateway(url, adapt=False) as served:
            for _ in range(2):
                answer = await post(served, QUESTION)
                assert answer.final["incomplete_details"] == {"reason": "max_output_tokens"}
            served.metric("requests_total")  # written with those of others

    run(test())
    (warning,) = warnings(caplog)
    assert (warning["model"], warning["output_tokens"]) == ("simulator", 2)
    assert "default_max_output_tokens" in warning["advice"]


def test_a_prompt_that_is_only_read_is_no_answer_that_was_cut(caplog: pytest.LogCaptureFixture) -> None:
    """The gateway itself asks for one token then; the next answer that is cut is warned of."""

    async def test() -> None:
        async with serving(SimulatedBackend(change=limited).app) as url, gateway(url, adapt=False) as served:
            warmed = await post(served, QUESTION, prompt_cache_options={"prewarm": True})
            assert warmed.final["status"] == "completed"
            served.metric("requests_total")
            assert warnings(caplog) == []
            await post(served, QUESTION)
            served.metric("requests_total")

    run(test())
    assert len(warnings(caplog)) == 1


@pytest.mark.parametrize("make", [mlx, transformers])
def test_a_gateway_that_adapts_asks_for_enough(make: Make, lines: list[str]) -> None:
    async def test() -> None:
        async with adapted(make()) as served:
            assert settings_of(lines)["default_max_output_tokens"] == "32768"
            assert (await post(served, QUESTION)).final["status"] == "completed"

    run(test())


@pytest.mark.parametrize("make", [mlx, transformers])
def test_a_model_that_is_not_loaded_is_not_asked(make: Make, lines: list[str]) -> None:
    async def test() -> None:
        backend = make(models=("one", "two"))
        async with adapted(backend):
            assert settings_of(lines) == {"default_max_output_tokens": "32768"}
            assert backend.chats == []

    run(test())


@pytest.mark.slow
def test_the_doctor_measures_the_limit_of_an_unknown_server() -> None:
    found = report(dialect="openai", change=partial(limited, limit=9))
    assert found.profile["own_limit"] == 9
    assert "after 9 tokens if no limit is asked for" in found.said("warning")
    assert "default_max_output_tokens" in found.said("warning")


@pytest.mark.parametrize(("make", "advice"), [(mlx, "--max-tokens"), (transformers, "generation_config.json")])
def test_the_doctor_names_how_to_raise_the_limit(make: Make, advice: str) -> None:
    found = report_on(make(tokens_per_second=5000.0))
    assert advice in found.said("warning")
    assert found.settings["default_max_output_tokens"] == 32768


def test_a_full_context_is_no_limit_of_the_server() -> None:
    def change(body: dict[str, Any]) -> web.Response | None:
        if "1 to 2000" not in body["messages"][0]["content"]:
            return None
        chunk = {"choices": [{"index": 0, "delta": {"content": "1"}, "finish_reason": "length"}]}
        usage = {"choices": [], "usage": {"prompt_tokens": CONTEXT - 10, "completion_tokens": 10}}
        text = "".join(f"data: {json.dumps(each)}\n\n" for each in (chunk, usage))
        return web.Response(text=f"{text}data: [DONE]\n\n", content_type="text/event-stream")

    @web.middleware
    async def tell_context(request: web.Request, handler: Any) -> web.StreamResponse:
        if request.path == "/v1/models":
            return web.json_response({"data": [{"id": "simulator", "max_model_len": CONTEXT}]})
        answer: web.StreamResponse = await handler(request)
        return answer

    backend = SimulatedBackend("transformers", change, tokens_per_second=5000.0)
    backend.app.middlewares.append(tell_context)
    found = report_on(backend)
    assert found.profile["own_limit"] is None
    assert "generation_config.json" in found.said("note")  # it has one all the same
