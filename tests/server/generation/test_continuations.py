"""A backend breaks off in the middle of an answer, and another one goes on with it: the client notices nothing."""

from __future__ import annotations

import asyncio
import logging
from typing import Any

import aiohttp
import pytest
from aiohttp import web
from aiohttp.typedefs import Handler

from responses_gateway.backend.served_models import Route
from responses_gateway.simulator import create_app, serving
from responses_gateway.stream.continuation.join import Diverged, Join
from responses_gateway.wire.chat import Chunk
from tests.judges import judge_stream
from tests.server.fleet_of_simulators import READINGS, WEATHER, ask, fleet, said
from tests.server.running_gateway import gateway, post, run, until

NEVER = "drop=5,times=0"


@pytest.mark.parametrize("dialect", list(READINGS))
@pytest.mark.parametrize("scenario", ["demo", "unicode", "parallel"])
def test_cut_anywhere_nothing_is_lost_or_said_twice(dialect: str, scenario: str) -> None:
    """Ten places for each, another one in each combination: in thoughts, text, characters and calls, and between them."""

    async def test() -> None:
        async with fleet(dialect) as served:
            whole = said(await ask(served, scenario, NEVER))
            assert whole["status"] == "completed"
            step = 2 if dialect == "vllm-interval" else 11
            for position in range(len(dialect) % step, 12 * step, step):
                assert said(await ask(served, scenario, f"drop={position},times=1")) == whole, position
            assert served.metric("continuations_total", outcome="continued", reason="broke") >= 5

    run(test())


@pytest.mark.slow
@pytest.mark.parametrize("dialect", ["vllm", "vllm-interval"])
def test_a_call_behind_text_goes_on_wherever_it_breaks_off(dialect: str) -> None:
    """The text could be a thought for a parser that does not know how the prompt ended."""

    async def test() -> None:
        async with fleet(dialect) as served:
            whole = said(await ask(served, "text_after_call", NEVER))
            for position in range(6 if dialect == "vllm-interval" else 40):
                assert said(await ask(served, "text_after_call", f"drop={position},times=1")) == whole, position

    run(test())


def test_a_continuation_that_does_not_fit_ends_the_response_once(monkeypatch: pytest.MonkeyPatch) -> None:
    def differs(_rejoining: Join, _chunk: Chunk) -> None:
        raise Diverged("other_prompt")

    async def test() -> None:
        async with fleet("vllm") as served:
            answer = await ask(served, "demo", "drop=text,times=1")
            assert answer.final["status"] == "failed"  # and no number of an event is missing
            assert served.metric("continuations_total", outcome="failed", reason="other_prompt") == 1
            assert served.metric("continuations_total", outcome="failed", reason="no_ids") == 0

    monkeypatch.setattr(Join, "observe", differs)
    run(test())


@pytest.mark.parametrize("dialect", ["vllm", "vllm-raw"])
def test_nothing_goes_on_where_the_model_has_ended_its_answer(dialect: str) -> None:
    async def test() -> None:
        async with fleet(dialect) as served:
            whole = said(await ask(served, "demo", NEVER))
            answer = said(await ask(served, "demo", "drop=100000,times=1"))  # only its usage is lost
            assert (answer["status"], answer["output"]) == ("completed", whole["output"])
            assert served.metric("continuations_total", outcome="failed", reason="no_ids") == 0
            assert served.metric("continuations_total", outcome="continued", reason="broke") == 0

    run(test())


@pytest.mark.parametrize("dialect", ["vllm", "vllm-raw"])
@pytest.mark.parametrize(("fault", "cause"), [("eof", "eof"), ("abort", "abort"), ("error", "engine")])
@pytest.mark.parametrize("place", ["reasoning", "text", "call"])
def test_whatever_way_it_breaks_off(dialect: str, fault: str, cause: str, place: str) -> None:
    async def test() -> None:
        async with fleet(dialect) as served:
            whole = said(await ask(served, "demo", NEVER))
            place_or_half = place if dialect == "vllm" else {"reasoning": "12", "text": "70", "call": "110"}[place]
            assert said(await ask(served, "demo", f"{fault}={place_or_half},times=1")) == whole
            assert served.metric("continuations_total", outcome="continued", reason=cause) == 1

    run(test())


def test_silence_counts_as_an_end() -> None:
    async def test() -> None:
        async with fleet("vllm", idle_timeout=1) as served:
            whole = said(await ask(served, "demo", NEVER))
            assert said(await ask(served, "demo", "silence=60,times=1")) == whole
            assert served.metric("continuations_total", outcome="continued", reason="silent") == 1

    run(test())


def test_without_the_setting_the_response_fails_as_ever() -> None:
    async def test() -> None:
        async with fleet("vllm", continue_answers=0) as served:
            answer = await ask(served, "demo", "drop=text,times=1")
            assert answer.final["status"] == "failed"
            assert answer.final["output"][-1]["status"] == "incomplete"

    run(test())


def test_without_completions_a_raw_answer_goes_on_by_chat() -> None:
    async def test() -> None:
        async with fleet("vllm-raw", without=("/v1/completions",)) as served:
            whole = said(await ask(served, "demo", NEVER))
            for position in (20, 60, 110):
                assert said(await ask(served, "demo", f"drop={position},times=1")) == whole
            assert served.metric("continuations_total", outcome="continued", reason="broke") == 3

    run(test())


@pytest.mark.parametrize(
    ("without", "reason"), [("/v1/completions", "not_honoured"), ("/detokenize", "no_text"), ("/v1/models", None)]
)
def test_what_a_parsed_answer_needs(without: str, reason: str | None) -> None:
    async def test() -> None:
        async with fleet("vllm", without=(without,)) as served:
            answer = await ask(served, "demo", "drop=60,times=1")
            assert answer.final["status"] == "failed"
            if reason is not None:  # else nobody knows that this is vLLM
                assert served.metric("continuations_total", outcome="failed", reason=reason) == 1

    run(test())


def test_a_backend_that_ignores_the_ids_is_not_asked_again() -> None:
    """It begins another answer, of which no client sees anything."""

    async def test() -> None:
        async with fleet("vllm-raw", without=("/v1/completions",), ignored="kv_transfer_params") as served:
            for position in (60, 61):
                answer = await ask(served, "demo", f"drop={position},times=1")
                assert answer.final["status"] == "failed"
                assert judge_stream(answer.body) == []
                assert served.metric("continuations_total", outcome="failed", reason="other_prompt") == 1
            asked = [member.continues_by for member in served.parts.pool.members.by_name.values()]
            assert sorted(map(str, asked)) == ["None", "completions"]

    run(test())


def test_only_answers_of_backends_that_are_gone_need_no_budget() -> None:
    async def test() -> None:
        async with fleet("vllm") as served:
            await post(served)
            pool = served.parts.pool
            name = next(iter(pool.members.by_name))
            route = Route("simulator")
            found = [pool.continuation_route(route, name, "silent") for _ in range(30)]
            assert found.count("no_budget") >= 15
            assert isinstance(found[0], Route)
            assert isinstance(pool.continuation_route(route, name, "broke"), Route)
            assert (
                pool.continuation_route(Route("simulator", avoid=frozenset(pool.members.by_name)), name, "broke")
                == "no_backend"
            )

    run(test())


FORMAT = {"format": {"type": "json_schema", "name": "x", "schema": {"type": "object", "properties": {}}}}
IMAGE = [{"role": "user", "content": [
    {"type": "input_text", "text": "fault: drop=3,times=1"},
    {"type": "input_image", "image_url": "data:image/png;base64,AAAA", "detail": "auto"},
]}]  # fmt: skip


@pytest.mark.parametrize(
    ("reason", "fields"),
    [
        ("grammar", {"text": FORMAT}),
        ("forced_tool", {"tools": [WEATHER], "tool_choice": "required"}),
        ("strict_tool", {"tools": [{**WEATHER, "strict": True}]}),
        ("media", {"input": IMAGE}),
        ("logprobs", {"include": ["message.output_text.logprobs"]}),
        ("parameter", {"thinking_token_budget": 100}),
    ],
)
def test_what_is_not_continued_fails_and_says_why(
    reason: str, fields: dict[str, Any], caplog: pytest.LogCaptureFixture
) -> None:
    async def test() -> None:
        async with fleet("vllm", access_log=True) as served:
            answer = await post(served, **{"input": "fault: drop=3,times=1", **fields})
            assert answer.final["status"] == "failed"
            assert served.metric("continuations_total", outcome="impossible", reason=reason) == 1

    with caplog.at_level(logging.INFO, "responses_gateway"):
        run(test())
    (line,) = [record.fields for record in caplog.records if record.getMessage() == "response"]  # type: ignore[attr-defined]
    assert line["not_continued"] == reason


async def _drops(request: web.Request) -> web.StreamResponse:
    assert request.transport is not None
    request.transport.abort()
    return web.Response()


async def _refuses(_request: web.Request) -> web.StreamResponse:
    return web.Response(status=503, text="secret words of the backend")


async def _says_too_much(_request: web.Request) -> web.StreamResponse:
    return web.json_response({"choices": []})


@pytest.mark.parametrize(
    ("path", "answer", "reason", "outcome"),
    [
        ("/v1/completions", _drops, "dropped", "attempts"),
        ("/v1/completions", _refuses, "status_503", "attempts"),
        ("/v1/completions", _says_too_much, "no_stream", "refused"),
        ("/detokenize", _drops, "dropped", "no_text"),
    ],
)
def test_each_attempt_that_fails_is_logged_with_its_reason(
    path: str, answer: Handler, reason: str, outcome: str, caplog: pytest.LogCaptureFixture
) -> None:
    async def test() -> None:
        async with fleet("vllm", instead={path: answer}, access_log=True) as served:
            failed = await ask(served, "demo", "drop=text,times=1")
            assert failed.final["status"] == "failed"
            names.update(served.parts.pool.members.by_name)

    names: set[str] = set()
    with caplog.at_level(logging.INFO, "responses_gateway"):
        run(test())
    fields = {record.getMessage(): record.fields for record in caplog.records if hasattr(record, "fields")}
    told = fields["continuation failed"]
    assert told["reason"] == reason
    assert told["backend"] in names
    assert told["request_id"] == fields["response"]["request_id"]
    assert fields["response"]["not_continued"] == outcome
    assert "secret" not in caplog.text


def test_an_attempt_that_finds_no_backend_free_is_logged(caplog: pytest.LogCaptureFixture) -> None:
    async def test() -> None:
        async with fleet("vllm", max_concurrency=1, queue_size=0) as served:
            occupying = asyncio.create_task(post(served, input="tokens: 5000 tps: 20"))
            members = served.parts.pool.members.by_name.values()
            await until(lambda: any(member.in_flight for member in members))
            assert (await ask(served, "demo", "drop=text,times=1")).final["status"] == "failed"
            occupying.cancel()
            await asyncio.wait({occupying})

    with caplog.at_level(logging.WARNING, "responses_gateway"):
        run(test())
    (told,) = [record.fields for record in caplog.records if record.getMessage() == "continuation failed"]  # type: ignore[attr-defined]
    assert told["reason"] == "unavailable"
    assert "backend" not in told


def test_no_ids_are_asked_for_where_they_are_of_no_use() -> None:
    """By a single backend, by a request that cannot be continued, and without the setting."""

    async def received(size: int, **fields: Any) -> dict[str, Any]:
        app = create_app()
        async with serving(app) as url:
            settings = {"adapt": False, "continue_answers": fields.pop("continue_answers", 1)}
            async with serving(create_app()) as other, gateway(url, *[other][: size - 1], **settings) as served:
                await post(served, **fields)
                await post(served, **fields)
            async with aiohttp.ClientSession() as session, session.get(f"{url}/simulator/requests") as answer:
                return (await answer.json())[0]

    async def test() -> None:
        assert (await received(2))["return_token_ids"] is True
        assert "return_token_ids" not in await received(1)
        assert "return_token_ids" not in await received(2, text=FORMAT)
        assert "return_token_ids" not in await received(2, continue_answers=0)

    run(test())
