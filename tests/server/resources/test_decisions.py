"""`/v1/decisions`: questions about one input, answered by the probabilities of one token each."""

from __future__ import annotations

import asyncio
import json
import math
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any

import pytest
from aiohttp import web
from openai.types import Decision

from tests.request.test_decisions_reading import CHOICE, PREDICATE, SCORE
from tests.server.running_gateway import Answer, Served, assert_error, gateway, run
from tests.server.running_gateway import ask as send

# What a model says with which probability, by a word of the question; as vLLM tells it, the rest being spread over others.
SAID = {
    "angry": {"Yes": 0.5, " Yes": 0.125, "No": 0.25, "Maybe": 0.0625},
    "Where": {"B": 0.6, "A": 0.2, "X": 0.1},
    "urgent": {"C": 0.5, "B": 0.3, "A": 0.2},
    "declines": {"I": 0.9, "Sorry": 0.05},
}


def completion(body: dict[str, Any]) -> dict[str, Any]:
    """Answer as vLLM does with `logprobs` and `top_logprobs`."""
    said = next(said for word, said in SAID.items() if word in body["messages"][-1]["content"])
    top = [{"token": token, "logprob": math.log(share), "bytes": list(token.encode())} for token, share in said.items()]
    content = [{**top[0], "top_logprobs": top}]
    message = {"role": "assistant", "content": top[0]["token"], "reasoning": None}
    usage = {"prompt_tokens": 100, "completion_tokens": 1, "total_tokens": 101, "prompt_tokens_details": {"cached_tokens": 90}}
    choice = {"index": 0, "message": message, "logprobs": {"content": content}, "finish_reason": "length"}
    return {"id": "chatcmpl-1", "object": "chat.completion", "model": "m", "choices": [choice], "usage": usage}


@asynccontextmanager
async def deciding(
    answer: Callable[[dict[str, Any]], dict[str, Any]] = completion, status: int = 200, **settings: Any
) -> AsyncIterator[tuple[Served, list[dict[str, Any]], list[int]]]:
    """Serve the gateway before a model; yield the bodies that it got, and how many requests it had at once with each."""
    asked: list[dict[str, Any]] = []
    running: list[int] = []
    now = 0

    async def chat(request: web.Request) -> web.Response:
        nonlocal now
        body = await request.json()
        asked.append(body)
        now += 1
        running.append(now)
        await asyncio.sleep(0)
        now -= 1
        return web.json_response(answer(body), status=status)

    app = web.Application()
    app.router.add_post("/v1/chat/completions", chat)
    runner = web.AppRunner(app)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    try:
        async with gateway(f"http://127.0.0.1:{runner.addresses[0][1]}", **settings) as served:
            yield served, asked, running
    finally:
        await runner.cleanup()


async def decide(served: Served, *questions: dict[str, Any], **fields: Any) -> Answer:
    body = {"model": "m", "input": "My invoice is wrong again!", "questions": list(questions), **fields}
    return await send(served, "POST", "/v1/decisions", json=body)


def test_answers_are_the_probabilities_that_the_backend_tells() -> None:
    async def test() -> None:
        async with deciding() as (served, asked, running):
            declines = {"type": "predicate", "name": "d", "instructions": "The model declines."}
            answer = await decide(served, PREDICATE, CHOICE, SCORE, declines)
            decision = Decision.model_validate(answer.json)
            assert decision.model == "m"
            predicate, choice, score, refusal = answer.json["answers"]
            assert predicate == {"type": "predicate", "name": "angry", "probability": pytest.approx(0.625 / 0.875)}
            assert (choice["choice"], choice["name"]) == (True, None)
            assert choice["confidence"] == pytest.approx(0.75)
            assert [(each["value"], each["probability"]) for each in choice["probabilities"]] == [
                ("billing", pytest.approx(0.25)),
                (True, pytest.approx(0.75)),
                ("true", 0.0),
            ]
            assert score["score"] == pytest.approx(0.3 + 2 * 0.5)
            assert [(each["label"], each["value"], each["probability"]) for each in score["probabilities"]] == [
                ("low", 0, pytest.approx(0.2)),
                ("middle", 1, pytest.approx(0.3)),
                ("high", 2, pytest.approx(0.5)),
            ]
            assert refusal == {"type": "refusal", "name": "d"}
            assert decision.usage.input_tokens_details.cached_tokens == 360
            assert (decision.usage.input_tokens, decision.usage.output_tokens, decision.usage.total_tokens) == (400, 4, 404)
            # One request for each, behind the same beginning, the first one alone.
            assert len(asked) == 4
            assert running[0] == 1
            assert {json.dumps(body["messages"][:-1]) for body in asked} == {json.dumps(asked[0]["messages"][:-1])}
            limits = ("max_completion_tokens", "logprobs", "top_logprobs")
            assert {tuple(body[name] for name in limits) for body in asked} == {(1, True, 20)}
            choosing = next(body["messages"][-1]["content"] for body in asked if "Where" in body["messages"][-1]["content"])
            assert '{"a": ["ü"]}' in choosing
            assert "A. billing\nB. true: to a human\nC. true" in choosing

    run(test())


def test_the_input_may_be_a_conversation_with_calls() -> None:
    async def test() -> None:
        items = [
            {"role": "user", "content": [{"type": "input_json", "data": {"city": "Paris"}}]},
            {"type": "function_call", "call_id": "c", "name": "f", "arguments": "{}"},
            {"type": "function_call_output", "call_id": "c", "output": "sunny"},
        ]
        async with deciding(user_messages="merge") as (served, asked, _):
            assert (await decide(served, PREDICATE, input=items)).status == 200
            roles = [message["role"] for message in asked[0]["messages"]]
            assert roles == ["user", "assistant", "tool", "user"]
            assert (await decide(served, PREDICATE)).status == 200  # the question is a part of the one message
            assert [message["role"] for message in asked[1]["messages"]] == ["user"]

    run(test())


def test_a_body_that_is_wrong_is_named() -> None:
    async def test() -> None:
        async with deciding() as (served, asked, _):
            answer = await decide(served, PREDICATE, {"type": "predicate"})
            assert_error(answer, 400, "missing_required_parameter")
            assert (answer.json["error"]["param"], asked) == ("questions[1].instructions", [])

    run(test())


def test_a_backend_without_probabilities_or_with_an_error_is_told() -> None:
    def silent(body: dict[str, Any]) -> dict[str, Any]:
        return {"choices": [{"message": {"content": "Yes"}, "logprobs": None}]}

    async def test() -> None:
        async with deciding(silent) as (served, _, _):
            assert_error(await decide(served, PREDICATE), 502, "logprobs_unavailable")
        refusal = {"error": {"message": "top_logprobs is too large", "type": "BadRequestError", "param": None, "code": 400}}
        async with deciding(lambda _: refusal, status=400) as (served, _, _):
            assert "top_logprobs" in assert_error(await decide(served, PREDICATE), 400)
        async with deciding(lambda _: {"choices": "none"}) as (served, _, _):
            assert_error(await decide(served, PREDICATE), 502)

    run(test())
