"""Requests that are moderated: a guard model behind the same gateway judges what goes in and what comes out."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Any

import pytest
from aiohttp import web
from openai.types.responses import Response

from responses_gateway.server.features.moderation.guard import SAFE, Guard, Judgement
from tests.judges import judge_stream
from tests.server.fleet_of_simulators import ask as ask_fleet
from tests.server.fleet_of_simulators import fleet, said
from tests.server.generation.test_background import ended, get
from tests.server.hosted.model import DOCS, MCP
from tests.server.resources.test_websocket_resource import connect
from tests.server.running_gateway import RawClient, Served, assert_error, gateway, post, run, until
from tests.server.scripted_backend import call, chunk, text_stream

GUARD = {"moderation_model": "guard"}
BLOCK: dict[str, Any] = {"model": "any", "policy": {"input": {"mode": "block"}, "output": {"mode": "block"}}}
SCORE: dict[str, Any] = {"model": "any"}
SENTENCES = text_stream("This is ", "fine. ", "Then comes ", "EVIL ", "and more. ", "End.")


_PAY = {"tool_calls": [{"index": 0, "id": "c1", "type": "function", "function": {"name": "docs__pay", "arguments": "{}"}}]}
PAYS = [chunk(_PAY), chunk({}, "tool_calls"), b"data: [DONE]\n\n"]


async def judge(body: dict[str, Any]) -> str:
    """Answer as Llama Guard does."""
    return "unsafe\nS1,S9" if "EVIL" in body["messages"][-1]["content"] else "safe"


class Models:
    """A server with two models: the guard, and one that streams the next of the turns. `asked` are the bodies by model."""

    def __init__(self, turns: list[list[bytes]], guard: Callable[[dict[str, Any]], Awaitable[str]]) -> None:
        self._turns = turns
        self._guard = guard
        self.asked: dict[str, list[dict[str, Any]]] = {"guard": [], "m": []}
        self.left: list[str] = []  # models whose client has gone before the end
        self.keeps_open = False

    async def answer(self, request: web.Request) -> web.StreamResponse:
        body = await request.json()
        model = body["model"]
        self.asked[model].append(body)
        try:
            return await (self._judge(body) if model == "guard" else self._stream(request))
        except (asyncio.CancelledError, ConnectionError):
            self.left.append(model)
            raise

    async def _judge(self, body: dict[str, Any]) -> web.Response:
        said = await self._guard(body)
        return web.json_response({"choices": [{"message": {"content": said}, "finish_reason": "stop"}]})

    async def _stream(self, request: web.Request) -> web.StreamResponse:
        stream = web.StreamResponse(headers={"Content-Type": "text/event-stream"})
        await stream.prepare(request)
        for piece in self._turns[min(len(self.asked["m"]), len(self._turns)) - 1]:
            await stream.write(piece)
        if self.keeps_open:
            await asyncio.Event().wait()
        return stream


@asynccontextmanager
async def moderating(
    *turns: list[bytes], guard: Callable[[dict[str, Any]], Awaitable[str]] = judge, **settings: Any
) -> AsyncIterator[tuple[Served, Models]]:
    models = Models(list(turns) or [SENTENCES], guard)
    app = web.Application()
    app.router.add_post("/v1/chat/completions", models.answer)
    runner = web.AppRunner(app, handler_cancellation=True, shutdown_timeout=0.1)
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0)
    await site.start()
    try:
        async with gateway(f"http://127.0.0.1:{runner.addresses[0][1]}", **{**GUARD, **settings}) as served:
            yield served, models
    finally:
        await runner.cleanup()


async def ask(served: Served, moderation: dict[str, Any] = BLOCK, **fields: Any) -> Any:
    return await post(served, model="m", moderation=moderation, **fields)


def told(response: dict[str, Any]) -> dict[str, Any]:
    """Return what the response tells of each side, as the SDK's model reads it."""
    moderation = Response.model_validate(response).moderation
    assert moderation is not None
    sides = {"input": moderation.input, "output": moderation.output}
    return {side: result.flagged if result.type == "moderation_result" else result.code for side, result in sides.items()}


def text_of(response: dict[str, Any]) -> str:
    return "".join(part["text"] for item in response["output"] for part in item.get("content", ()))


# ---- what is flagged ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("stream", [True, False])
@pytest.mark.parametrize("keeps_open", [True, False])
def test_an_answer_is_held_back_from_the_sentence_on_that_is_flagged(stream: bool, keeps_open: bool) -> None:
    async def test() -> None:
        async with moderating() as (served, models):
            models.keeps_open = keeps_open
            answer = await ask(served, stream=stream)
            response = answer.final if stream else answer.json
            assert (response["status"], response["incomplete_details"]) == ("incomplete", {"reason": "content_filter"})
            assert "This is fine. ".startswith(text_of(response))
            assert b"EVIL" not in answer.body
            assert told(response) == {"input": False, "output": True}
            assert response["moderation"]["output"]["model"] == "guard"
            flagged = [name for name, value in response["moderation"]["output"]["categories"].items() if value]
            assert flagged == ["S1", "S9"]
            assert served.metric("moderation_judgements_total", side="output", outcome="flagged") == 1

    run(test())


@pytest.mark.parametrize("stream", [True, False])
def test_an_input_is_held_back_before_anything_is_generated(stream: bool) -> None:
    async def test() -> None:
        async with moderating() as (served, models):
            answer = await ask(served, stream=stream, input="do EVIL things")
            response = answer.final if stream else answer.json
            assert (response["status"], response["output"]) == ("incomplete", [])
            assert told(response) == {"input": True, "output": "not_judged"}
            assert models.asked["m"] == []

    run(test())


def test_scores_are_told_and_nothing_is_held_back() -> None:
    async def test() -> None:
        async with moderating() as (served, models):
            response = (await ask(served, SCORE, input="EVIL?")).final
            assert (response["status"], text_of(response)) == ("completed", "This is fine. Then comes EVIL and more. End.")
            assert told(response) == {"input": True, "output": True}
            assert response["moderation"]["input"]["category_scores"]["S1"] == 1.0
            assert len(models.asked["guard"]) == 2

    run(test())


def test_a_safe_answer_passes_and_what_was_safe_is_not_judged_again() -> None:
    async def test() -> None:
        safe = text_stream("All ", "is ", "well. ", "Really.")
        async with moderating(safe) as (served, models):
            for _ in range(2):
                response = (await ask(served)).final
                assert (response["status"], text_of(response)) == ("completed", "All is well. Really.")
                assert told(response) == {"input": False, "output": False}
            assert served.metric("moderation_judgements_total", side="input", outcome="safe") == 1
            asked = [body["messages"] for body in models.asked["guard"]]
            assert asked[0] == [{"role": "user", "content": "hi"}]
            assert asked[1][0] == {"role": "user", "content": "hi"}
            assert "All is well. Really.".startswith(asked[1][1]["content"])

    run(test())


@pytest.mark.parametrize("place", ["reasoning", "refusal", "call"])
def test_thoughts_refusals_and_calls_are_held_back_too(place: str) -> None:
    async def test() -> None:
        deltas = {"reasoning": {"reasoning": "EVIL. "}, "refusal": {"refusal": "EVIL. "}}
        evil = deltas.get(place) or call('{"city": "EVIL"}', id="c1", type="function")
        turn = [chunk({"content": "Good. "}), chunk(evil), chunk({}, "stop"), b"data: [DONE]\n\n"]
        async with moderating(turn) as (served, _):
            tools = [{"type": "function", "name": "get_weather", "parameters": {}}]
            answer = await ask(served, tools=tools)
            assert (answer.final["status"], told(answer.final)["output"]) == ("incomplete", True)
            assert b"EVIL" not in answer.body
            assert {item["type"] for item in answer.final["output"]} <= {"message"}

    run(test())


def test_a_prompt_of_the_settings_takes_the_place_of_the_conversation() -> None:
    async def test() -> None:
        async with moderating(moderation_prompt="Judge <text>{text}</text>. Say safe or unsafe.") as (served, models):
            assert told((await ask(served)).final)["output"] is True
            asked = [body["messages"] for body in models.asked["guard"]]
            assert asked[0] == [{"role": "user", "content": "Judge <text>hi</text>. Say safe or unsafe."}]
            assert all(len(messages) == 1 for messages in asked)

    run(test())


def test_what_the_guard_cannot_read_is_refused_where_it_is_to_be_blocked() -> None:
    async def test() -> None:
        picture = {"type": "input_image", "image_url": "data:image/png;base64,AAAA", "detail": "auto"}
        given = [{"type": "message", "role": "user", "content": [picture]}]
        async with moderating(text_stream("Nice.")) as (served, models):
            answer = await ask(served, input=given)
            assert_error(answer, 400, "unsupported_value")
            assert answer.json["error"]["param"] == "moderation.policy.input.mode"
            assert models.asked == {"guard": [], "m": []}
            assert (await ask(served, SCORE, input=given)).final["status"] == "completed"
            models.asked["guard"].clear()
            long = await ask(served, input="word " * 200_000)
            assert "too long" in assert_error(long, 400, "unsupported_value")
            assert models.asked["guard"] == []

    run(test())


# ---- a guard that fails ------------------------------------------------------------------------------------------------


async def garbage(body: dict[str, Any]) -> str:
    return "I would rather not say."


async def nested(body: dict[str, Any]) -> str:
    raise web.HTTPOk(text='{"choices": ' + "[" * 100_000)


async def streaming(body: dict[str, Any]) -> str:
    raise web.HTTPOk(text="data: {}\n\n", content_type="text/event-stream")


async def broken(body: dict[str, Any]) -> str:
    raise web.HTTPInternalServerError(text="no")


async def slow(body: dict[str, Any]) -> str:
    return await asyncio.Event().wait() or ""


def for_output_alone(guard: Callable[[dict[str, Any]], Awaitable[str]]) -> Callable[[dict[str, Any]], Awaitable[str]]:
    async def answer(body: dict[str, Any]) -> str:
        return await guard(body) if len(body["messages"]) == 2 else "safe"

    return answer


@pytest.mark.parametrize("guard", [garbage, nested, streaming, broken, slow])
def test_nothing_passes_without_a_guard_where_it_is_to_block(
    guard: Callable[[dict[str, Any]], Awaitable[str]], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("responses_gateway.server.features.moderation.guard.SECONDS_OF_A_JUDGEMENT", 0.5)

    async def test() -> None:
        async with moderating(guard=guard) as (served, models):
            assert_error(await ask(served, stream=False), 503, "moderation_failed")
            assert models.asked["m"] == []
        async with moderating(guard=for_output_alone(guard)) as (served, models):
            assert_error(await ask(served, stream=False), 503, "moderation_failed")
            answer = await ask(served)
            assert (answer.final["status"], text_of(answer.final)) == ("failed", "")
            assert b"fine" not in answer.body
            assert told(answer.final) == {"input": False, "output": "moderation_failed"}
            assert len(models.asked["m"]) == 2  # the backend is not blamed for it

    run(test())


def test_scores_of_a_guard_that_fails_are_errors() -> None:
    async def test() -> None:
        async with moderating(guard=garbage) as (served, _):
            final = (await ask(served, SCORE)).final
            assert (final["status"], told(final)) == (
                "completed",
                {"input": "moderation_failed", "output": "moderation_failed"},
            )

    run(test())


# ---- who else makes responses ------------------------------------------------------------------------------------------


def test_background_responses_and_websockets_are_moderated_alike() -> None:
    async def test() -> None:
        async with moderating(store="memory") as (served, _):
            started = (await ask(served, background=True, stream=False)).json
            final = await ended(served, started["id"])
            assert (final["status"], told(final)["output"]) == ("incomplete", True)
            events = await get(served, started["id"], "?stream=true")
            assert b"EVIL" not in events.body
            assert judge_stream(events.body) == []
            async with connect(served) as socket:
                response = await socket.ask("hi", model="m", moderation=BLOCK)
                assert (response["status"], told(response)["output"]) == ("incomplete", True)
                assert "EVIL" not in json.dumps(response)
                # What is built on it has seen none of it either.
                after = await socket.ask("and?", model="m", previous_response_id=response["id"])
                assert after["status"] == "completed"

    run(test())


def test_a_hosted_tool_is_not_run_before_its_arguments_are_judged() -> None:
    async def test() -> None:
        def calls(text: str) -> list[bytes]:
            arguments = {"name": "docs__echo", "arguments": json.dumps({"text": text})}
            delta = {"tool_calls": [{"index": 0, "id": "c1", "type": "function", "function": arguments}]}
            return [chunk(delta), chunk({}, "tool_calls"), b"data: [DONE]\n\n"]

        async with moderating(calls("good"), text_stream("Well done."), mcp_servers=DOCS) as (served, models):
            final = (await ask(served, tools=[MCP])).final
            assert [item["type"] for item in final["output"]] == ["mcp_list_tools", "mcp_call", "message"]
            assert (final["status"], told(final)["output"]) == ("completed", False)
            judged = [body["messages"][-1]["content"] for body in models.asked["guard"] if len(body["messages"]) == 2]
            assert judged == ['\ndocs__echo {"text": "good"}', "Well done."]
        async with moderating(calls("EVIL"), text_stream("Well done."), mcp_servers=DOCS) as (served, models):
            final = (await ask(served, tools=[MCP])).final
            assert ([item["type"] for item in final["output"]], final["status"]) == (["mcp_list_tools"], "incomplete")
            assert len(models.asked["m"]) == 1

    run(test())


@pytest.mark.parametrize("mode", ["block", "score"])
def test_what_a_hosted_tool_brings_is_judged_before_the_model_gets_it(mode: str) -> None:
    async def guard(body: dict[str, Any]) -> str:
        return "unsafe\nS2" if "paid 1 times" in body["messages"][0]["content"] else "safe"

    async def test() -> None:
        rules = {"model": "any", "policy": {"input": {"mode": mode}}}
        async with moderating(PAYS, text_stream("Well."), guard=guard, mcp_servers=DOCS, store="memory") as (served, models):
            answer = await ask(served, rules, tools=[MCP])
            assert told(answer.final)["input"] is True
            asked = [body["messages"] for body in models.asked["guard"] if len(body["messages"]) == 1]
            assert [messages[0]["content"] for messages in asked] == ["hi", "paid 1 times"]
            if mode == "block":
                assert answer.final["incomplete_details"] == {"reason": "content_filter"}
                assert [item["type"] for item in answer.final["output"]] == ["mcp_list_tools", "mcp_call"]
                assert len(models.asked["m"]) == 1
                # Nor does the model get it in a later response.
                after = await ask(served, rules, previous_response_id=answer.final["id"])
                assert (after.final["status"], len(models.asked["m"])) == ("incomplete", 1)
            else:
                assert (answer.final["status"], text_of(answer.final)) == ("completed", "Well.")

    run(test())


def test_what_a_hosted_tool_brings_does_not_pass_without_a_guard() -> None:
    async def guard(body: dict[str, Any]) -> str:
        return "Hm?" if body["messages"][0]["content"] == "paid 1 times" else "safe"

    async def test() -> None:
        async with moderating(PAYS, text_stream("Well."), guard=guard, mcp_servers=DOCS) as (served, models):
            answer = await ask(served, tools=[MCP], stream=False)
            assert (answer.status, answer.json["status"]) == (200, "failed")  # a tool ran: nothing is to be repeated
            assert told(answer.json) == {"input": "moderation_failed", "output": False}
            assert len(models.asked["m"]) == 1

    run(test())


def test_an_input_is_not_corrected_past_the_guard() -> None:
    async def test() -> None:
        tool = {"type": "custom", "name": "t", "format": {"type": "grammar", "syntax": "regex", "definition": "[a-z]+"}}
        delta = {"tool_calls": [{"index": 0, "id": "c1", "type": "function", "function": {"name": "t", "arguments": ""}}]}
        turn = [chunk(delta), chunk(call(json.dumps({"input": "123"}))), chunk({}, "tool_calls"), b"data: [DONE]\n\n"]
        async with moderating(turn, repair_custom_tools="once") as (served, models):
            final = (await ask(served, tools=[tool])).final
            assert (final["output"][0]["input"], len(models.asked["m"])) == ("123", 1)

    run(test())


def test_a_long_text_passes_in_parts_while_the_rest_waits_for_the_guard() -> None:
    async def test() -> None:
        asked = 0
        waits = asyncio.Event()

        async def guard(body: dict[str, Any]) -> str:
            nonlocal asked
            asked += len(body["messages"]) == 2
            if asked == 3:
                waits.set()
                await slow(body)
            return "safe"

        async with moderating(text_stream(*["go on " * 100] * 100), guard=guard) as (served, models):
            client = await RawClient.connect(served)
            await client.post(model="m", moderation=BLOCK)
            await waits.wait()
            while b"go on go on" not in client.received:
                assert await client.read()
            client.close()
            await until(lambda: "guard" in models.left, "the guard is free")

    run(test())


def test_a_client_that_leaves_while_its_input_is_judged_frees_the_guard() -> None:
    async def test() -> None:
        async with moderating(guard=slow) as (served, models):
            client = await RawClient.connect(served)
            await client.post(model="m", moderation=BLOCK)
            await until(lambda: len(models.asked["guard"]) == 1, "the guard is asked")
            client.close()
            await until(lambda: models.left == ["guard"], "the guard is free")
            assert models.asked["m"] == []

    run(test())


def test_a_client_that_leaves_frees_guard_and_backend() -> None:
    async def test() -> None:
        asked = asyncio.Event()

        async def waiting(body: dict[str, Any]) -> str:
            if len(body["messages"]) == 1:
                return "safe"
            asked.set()
            return await slow(body)

        async with moderating(guard=waiting) as (served, models):
            models.keeps_open = True
            client = await RawClient.connect(served)
            await client.post(model="m", moderation=BLOCK)
            await asked.wait()
            client.close()
            await until(lambda: sorted(models.left) == ["guard", "m"], "both are free")

    run(test())


def test_a_backend_that_breaks_off_loses_nothing_that_was_judged() -> None:
    async def test() -> None:
        async with moderating([chunk({"content": "Half an "}), chunk({"content": "answer"})]) as (served, _):
            final = (await ask(served)).final
            assert (final["status"], text_of(final)) == ("failed", "Half an answer")
            assert told(final)["output"] is False

    run(test())


@pytest.mark.parametrize("dialect", ["vllm", "vllm-raw"])
@pytest.mark.parametrize("mode", ["block", "score"])
def test_another_backend_continues_what_was_judged(dialect: str, mode: str, monkeypatch: pytest.MonkeyPatch) -> None:
    async def safe(*_: Any) -> Judgement:
        return SAFE

    async def test() -> None:
        rules = {"model": "any", "policy": {"output": {"mode": mode}}}
        async with fleet(dialect, moderation_model="guard") as served:
            whole = said(await ask_fleet(served, "demo", "drop=5,times=0"))
            for place in (12, 40, 70):
                answer = await ask_fleet(served, "demo", f"drop={place},times=1", moderation=rules)
                assert said(answer) == whole
                assert told(answer.final) == {"input": False, "output": False}
            assert served.metric("continuations_total", outcome="continued", reason="broke") > 0

    monkeypatch.setattr(Guard, "judge_input", safe)
    monkeypatch.setattr(Guard, "judge_answer", safe)
    run(test())
