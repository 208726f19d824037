"""What an answer does not honour of its request is on record as other losses are."""

from __future__ import annotations

from typing import Any

import pytest

from tests.server.hosted.model import calls, model, says
from tests.server.running_gateway import Answer, Served, ask, gateway, post, run
from tests.server.scripted_backend import backend, chunk, streaming, text_stream

LOGPROB = {"token": "Hi", "logprob": -0.5, "bytes": [72, 105], "top_logprobs": []}
CHOICE = {"index": 0, "delta": {"content": "Hi"}, "logprobs": {"content": [LOGPROB]}}
SENT = [chunk(choices=[CHOICE]), chunk({}, "stop"), b"data: [DONE]\n\n"]
ASKED: dict[str, Any] = {"include": ["message.output_text.logprobs"]}


def counted(served: Served, name: str, kind: str = "parameter") -> float | None:
    """Return how often a parameter, or another part of a request, was ignored."""
    served.parts.metrics.flush()
    labels = {"kind": kind, "name": name, "outcome": "ignored"}
    return served.parts.metrics.registry.get_sample_value("responses_gateway_losses_total", labels)


@pytest.mark.parametrize(
    ("answer", "asked", "lost"),
    [
        (text_stream('Hi: "logprobs":[{'), ASKED, True),
        (SENT, ASKED, False),
        (text_stream("Hi"), {}, False),
        (text_stream(), ASKED, False),
    ],
)
def test_log_probabilities_that_were_asked_for_and_not_sent_are_a_loss(
    answer: list[bytes], asked: dict[str, Any], lost: bool
) -> None:
    async def test() -> None:
        async with backend(streaming(*answer)) as behind, gateway(behind.url) as served:
            whole = await post(served, stream=False, **asked)
            assert whole.status == 200
            assert ('ignored="parameter:include"' in whole.headers.get("x-responses-gateway-losses", "")) is lost
            await post(served, **asked)
            assert counted(served, "include") == (2 if lost else None)

    run(test())


def sampled(**tokens: Any) -> list[bytes]:
    said = {"index": 0, "delta": {"content": "Hi"}, "logprobs": {"content": [LOGPROB]}, **tokens}
    end = {"index": 0, "delta": {}, "finish_reason": "stop"}
    return [chunk(choices=[said], prompt_token_ids=[1]), chunk(choices=[end]), b"data: [DONE]\n\n"]


@pytest.mark.parametrize(
    ("answer", "asked", "lost"),
    [
        (text_stream('"generation_token_ids":[1]'), {"include": ["token_ids"]}, True),
        (sampled(logprobs=None, token_ids=[7]), {"include": ["token_ids"]}, True),
        (sampled(delta={}, token_ids=[7]), {"include": ["token_ids"]}, True),
        (sampled(token_ids=[7]), {"include": ["token_ids"]}, False),
        (text_stream("Hi"), {"headers": {"X-Rollout-Id": "ep1"}}, False),
    ],
)
def test_ids_that_were_asked_for_and_did_not_come_are_a_loss(answer: list[bytes], asked: dict[str, Any], lost: bool) -> None:
    async def test() -> None:
        async with backend(streaming(*answer)) as behind, gateway(behind.url) as served:
            whole = await post(served, stream=False, **asked)
            shows = any("generation_token_ids" in item for item in whole.json["output"])
            assert shows is (not lost and "include" in asked)
            assert ('ignored="parameter:include"' in whole.headers.get("x-responses-gateway-losses", "")) is lost
            await post(served, **asked)
            assert counted(served, "include") == (2 if lost else None)

    run(test())


FUNCTION = {"type": "function", "name": "look", "parameters": {"type": "object", "properties": {"q": {"type": "string"}}}}
NAMED = {"type": "function", "name": "look"}
CUT = [chunk({"content": "I loo"}), chunk({}, "length"), b"data: [DONE]\n\n"]


def tells(answer: Answer) -> bool:
    return "parameter:tool_choice" in answer.headers.get("x-responses-gateway-losses", "")


@pytest.mark.parametrize(
    ("answer", "fields", "lost"),
    [
        (says("It rains.", "Hm."), {"tool_choice": "required"}, True),
        (says("It rains."), {"tool_choice": NAMED}, True),
        (says("It rains."), {"tool_choice": {"type": "allowed_tools", "mode": "required", "tools": [NAMED]}}, True),
        (calls(("glance", {})), {"tool_choice": NAMED}, True),  # which no client may get
        (calls(("look", {"q": "x"})), {"tool_choice": NAMED}, False),
        (calls(("look", {"q": "x"})), {"tool_choice": "required"}, False),
        (says("It rains."), {"tool_choice": "auto"}, False),
        (says("It rains."), {}, False),
        (CUT, {"tool_choice": "required"}, False),  # the call might have come
        (says("It rains."), {"tool_choice": "required", "generate": False}, False),
    ],
)
def test_a_call_that_was_forced_and_not_made_is_a_loss(answer: list[bytes], fields: dict[str, Any], lost: bool) -> None:
    async def test() -> None:
        async with model(answer) as (served, _):
            whole = await post(served, stream=False, tools=[FUNCTION], **fields)
            assert whole.status == 200
            assert tells(whole) is lost
            await post(served, tools=[FUNCTION], **fields)
            assert counted(served, "tool_choice") == (2 if lost else None)

    run(test())


def test_a_call_that_was_forced_and_not_made_is_a_loss_at_the_other_door() -> None:
    async def test() -> None:
        tool = {"name": "look", "input_schema": FUNCTION["parameters"]}
        body = {"model": "m", "max_tokens": 9, "tools": [tool], "messages": [{"role": "user", "content": "x"}]}
        for choice in ({"type": "any"}, {"type": "tool", "name": "look"}):
            async with model(says("It rains."), calls(("look", {"q": "x"}))) as (served, _):
                first = await ask(served, "POST", "/v1/messages", json={**body, "tool_choice": choice})
                second = await ask(served, "POST", "/v1/messages", json={**body, "tool_choice": choice})
                assert (tells(first), tells(second)) == (True, False)
                assert counted(served, "tool_choice") == 1

    run(test())


def test_a_forced_call_of_a_tool_that_the_gateway_runs_was_made() -> None:
    async def test() -> None:
        later = {**FUNCTION, "async": True}
        async with model(calls(("look", {"q": "x"})), says("It is on its way.")) as (served, talking):
            assert not tells(await post(served, stream=False, tools=[later], tool_choice="required"))
            assert len(talking.requests) == 2

    run(test())


@pytest.mark.parametrize("images", [[{"type": "image_url", "image_url": {"url": "data:image/png;base64,AAAA"}}], []])
def test_an_image_in_an_answer_is_a_loss(images: list[Any]) -> None:
    async def test() -> None:
        said = [chunk({"content": "Here it is."}), chunk({"images": images}), chunk({}, "stop"), b"data: [DONE]\n\n"]
        async with backend(streaming(*said)) as behind, gateway(behind.url) as served:
            whole = await post(served, stream=False)
            assert whole.json["output"][0]["content"][0]["text"] == "Here it is."
            lost = whole.headers.get("x-responses-gateway-losses", "")
            assert ('ignored="item:image"' in lost) is bool(images), lost
            await post(served)
            assert counted(served, "image", "item") == (2 if images else None)  # of a stream, too

    run(test())
