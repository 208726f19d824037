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
    now: set[str] = set()

    async def chat(request: web.Request) -> web.Response:
        body = await request.json()
        asked.append(body)
        request_id = request.headers["X-Request-Id"]
        if request_id in now:  # as vLLM before 0.14
            return web.json_response({"error": {"message": f"Request id {request_id} already running."}}, status=400)
        now.add(request_id)
        running.append(len(now))
        await asyncio.sleep(0)
        now.remove(request_id)
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
        refusal = {"error": {"message": "logprobs are off", "type": "BadRequestError", "param": None, "code": 400}}
        async with deciding(lambda _: refusal, status=400) as (served, _, _):
            assert "logprobs" in assert_error(await decide(served, PREDICATE), 400)
        async with deciding(lambda _: {"choices": "none"}) as (served, _, _):
            assert_error(await decide(served, PREDICATE), 502)

    run(test())


# ---- servers that tell the tokens that they are asked for --------------------------------------------------------------


class Vllm:
    """vLLM: it tokenizes lines, and tells the probabilities of ids. Its words have the probabilities `shares`, all others
    `rest` each; unless it `tells_ids` it tells the likeliest tokens, as older versions do; unless it `names_tokens` it
    writes their ids, as with `--return-tokens-as-token-ids`."""

    def __init__(self, shares: dict[str, float], rest: float, *, tells_ids: bool = True, names_tokens: bool = True) -> None:
        self.vocabulary = {"\n": 0, "Hm": 1}
        self._shares = shares
        self._rest = rest
        self._tells_ids = tells_ids
        self._names_tokens = names_tokens
        self.asked: list[dict[str, Any]] = []
        self.tokenized = 0

    async def models(self, request: web.Request) -> web.Response:
        return web.json_response({"object": "list", "data": [{"id": "m", "object": "model", "owned_by": "vllm"}]})

    async def tokenize(self, request: web.Request) -> web.Response:
        body = await request.json()
        assert body["add_special_tokens"] is False
        self.tokenized += 1
        words = [word for line in body["prompt"].split("\n") for word in (line, "\n") if word][:-1]
        return web.json_response({"tokens": [self.vocabulary.setdefault(word, len(self.vocabulary)) for word in words]})

    async def chat(self, request: web.Request) -> web.Response:
        body = await request.json()
        self.asked.append(body)
        texts = sorted(self.vocabulary, key=lambda word: -self._shares.get(word, self._rest))[:20]
        drawn = texts[0]
        if self._tells_ids and "logprob_token_ids" in body:
            assert len(body["logprob_token_ids"]) <= 128
            words = {number: word for word, number in self.vocabulary.items()}
            texts = list(dict.fromkeys([drawn, *(words[number] for number in body["logprob_token_ids"])]))
        top = [{"token": word, "logprob": math.log(self._shares.get(word, self._rest))} for word in texts]
        content = [{**next(one for one in top if one["token"] == drawn), "top_logprobs": top}]
        if not self._names_tokens:
            for one in (*top, *content):
                one["token"] = f"token_id:{self.vocabulary[one['token']]}"
        usage = {"prompt_tokens": 10, "completion_tokens": 1, "total_tokens": 11}
        return web.json_response({"choices": [{"index": 0, "logprobs": {"content": content}}], "usage": usage})


@asynccontextmanager
async def vllm(shares: dict[str, float], rest: float = 1e-4, **options: Any) -> AsyncIterator[tuple[Served, Vllm]]:
    """Serve the gateway before one server, of which nobody has asked before what it is."""
    server = Vllm(shares, rest, **options)
    app = web.Application()
    app.router.add_get("/v1/models", server.models)
    app.router.add_post("/tokenize", server.tokenize)
    app.router.add_post("/v1/chat/completions", server.chat)
    runner = web.AppRunner(app)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    try:
        async with gateway(f"http://127.0.0.1:{runner.addresses[0][1]}", adapt=False) as served:
            yield served, server
    finally:
        await runner.cleanup()


def choice(amount: int) -> dict[str, Any]:
    return {"type": "choice", "instructions": "Which?", "choices": [{"value": f"v{number}"} for number in range(amount)]}


def probabilities(answer: dict[str, Any]) -> list[float]:
    return [each["probability"] for each in answer["probabilities"]]


def test_a_server_that_tells_fewer_tokens_is_asked_for_as_many(monkeypatch: pytest.MonkeyPatch) -> None:
    """mlx_lm.server tells 11. It answers for any name of a model, of which some are remembered."""
    monkeypatch.setattr("responses_gateway.server.features.decisions.decisions.MOST_MODELS", 2)
    refusals: list[int] = []

    def answer(body: dict[str, Any]) -> dict[str, Any]:
        if body["top_logprobs"] <= 11:
            return completion(body)
        refusals.append(body["top_logprobs"])
        raise web.HTTPBadRequest(text='{"error": "top_logprobs must be at most 11"}', content_type="application/json")

    async def test() -> None:
        async with deciding(answer) as (served, _, _):
            for _ in range(2):
                (predicate,) = (await decide(served, PREDICATE)).json["answers"]
                assert predicate["probability"] == pytest.approx(0.625 / 0.875)
            assert len(refusals) == 1  # which is remembered
            for model, number in (("n", 2), ("m", 2), ("o", 3), ("m", 4)):
                assert (await decide(served, PREDICATE, model=model)).status == 200
                assert len(refusals) == number, model

    run(test())


def test_vllm_is_asked_for_the_tokens_of_the_labels_and_each_is_exact() -> None:
    async def test() -> None:
        async with vllm({"Hm": 0.4, "B": 0.25, " B": 0.05, "AB": 0.2, "Yes": 0.02}) as (served, server):
            answer = (await decide(served, choice(30), choice(255), PREDICATE)).json
            letters, pairs, predicate = answer["answers"]
            total = 0.3 + 58 * 1e-4  # each letter counts with and without a space
            assert probabilities(letters)[1] == pytest.approx(0.3 / total)
            assert probabilities(letters)[29] == pytest.approx(2e-4 / total)
            total = 0.2 + 509 * 1e-4
            assert pairs["choice"] == "v1"
            assert probabilities(pairs)[1] == pytest.approx(0.2001 / total)
            assert probabilities(pairs)[254] == pytest.approx(2e-4 / total)
            assert sum(probabilities(pairs)) == pytest.approx(1.0)
            assert predicate["probability"] == pytest.approx(0.0201 / (0.0201 + 2e-4))
            amounts = [len(body["logprob_token_ids"]) for body in server.asked]
            assert (amounts[0], sorted(amounts)) == (60, [4, 60, 126, 128, 128, 128])
            assert answer["usage"]["input_tokens"] == 60
            assert (await decide(served, PREDICATE)).status == 200
            assert server.tokenized == 1

    run(test())


@pytest.mark.parametrize("tells_ids", [True, False])
def test_a_server_may_write_ids_for_tokens(tells_ids: bool) -> None:
    async def test() -> None:
        shares = {"B": 0.5, " B": 0.125, "A": 0.25}
        async with vllm(shares, rest=1e-9, tells_ids=tells_ids, names_tokens=False) as (served, _):
            (answer,) = (await decide(served, choice(2))).json["answers"]
            assert answer["choice"] == "v1"
            assert probabilities(answer) == pytest.approx([0.25 / 0.875, 0.625 / 0.875])

    run(test())


def test_what_a_server_cannot_tell_is_refused_by_name() -> None:
    async def test() -> None:
        async with vllm({"A": 0.5, "AB": 0.25}, rest=1e-3, tells_ids=False) as (served, server):
            answer = await decide(served, choice(2), choice(255))
            assert "fewer options" in assert_error(answer, 400, "logprobs_truncated")
            assert answer.json["error"]["param"] == "questions[1]"
            assert probabilities((await decide(served, choice(2))).json["answers"][0]) == pytest.approx([501 / 503, 2 / 503])
            # Once the server has told other tokens nobody asks for ids again.
            assert ["logprob_token_ids" in body for body in server.asked] == [True, True, False, False]
        async with deciding() as (served, _, _):
            assert "at most 52" in assert_error(await decide(served, choice(53)), 400, "unsupported_value")

    run(test())
