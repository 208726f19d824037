"""Servers that do not know the effort of a request, though they know others."""

from __future__ import annotations

import json

import pytest

from tests.server.generation.test_refused_requests import refusing, say, served_by
from tests.server.running_gateway import assert_error, post, run


@pytest.mark.parametrize(
    ("asked", "message", "taken"),
    [
        # LMDeploy, Xinference, and serde.
        ("none", "body.reasoning_effort: Input should be 'low', 'medium' or 'high'", "low"),
        (
            "high",
            "Invalid reasoning_effort for qwen3.8. Supported values are xhigh, medium, and low. Use "
            "chat_template_kwargs.enable_thinking to disable thinking.",
            "xhigh",
        ),
        ("minimal", "reasoning_effort: unknown variant `minimal`, expected one of `none`, `high`, `max`", "none"),
        ("low", "reasoning_effort: unknown variant `low`, expected one of `none`, `high`, `max`", "high"),
        # OpenAI, Ollama, and vLLM.
        (
            "minimal",
            "Unsupported value: 'reasoning_effort' does not support 'minimal' with this model. Supported values are: 'none', "
            "'low', 'medium', 'high', and 'xhigh'.",
            "low",
        ),
        ("minimal", 'invalid reasoning value: \'minimal\' (must be "high", "medium", "low", "max", or "none")', "low"),
        ("medium", 'level "medium" not supported, valid levels: low, high', "high"),  # CLIProxyAPI
        (
            "minimal",
            "[{'type': 'literal_error', 'loc': ('body', 'reasoning_effort'), 'msg': \"Input should be 'none', 'low', 'medium' "
            "or 'high'\", 'input': 'minimal', 'ctx': {'expected': \"'none', 'low', 'medium' or 'high'\"}}]",
            "low",
        ),
    ],
)
def test_an_effort_that_a_client_has_chosen_becomes_the_nearest_that_the_server_knows(
    asked: str, message: str, taken: str
) -> None:
    """A user has chosen it once, in Codex, which sends it with each request."""
    rule = {
        "if": {"value": {"reasoning_effort": asked}},
        "answer": {"status": 400, "json": {"error": {"message": message}}},
    }

    async def test() -> None:
        async with served_by([rule]) as (served, (server,)):
            for _ in range(2):
                answer = await post(served, model="m", reasoning={"effort": asked}, stream=False)
                assert answer.json["status"] == "completed"
                assert "parameter:reasoning.effort" in answer.headers["x-responses-gateway-losses"]
            assert [request["reasoning_effort"] for request in server.requests] == [asked, taken, taken]
        async with served_by([rule], strict=True) as (served, (server,)):
            assert_error(await post(served, model="m", reasoning={"effort": asked}), 400)
            assert len(server.requests) == 1

    run(test())


def test_a_thought_is_not_given_up_for_an_effort() -> None:
    """Groq: its Qwen 3 knows no efforts."""

    async def test() -> None:
        message = "`reasoning_effort` must be one of `none` or `default`"
        refusal = {"status": 400, "json": {"error": {"message": message}}}
        rule = {"if": {"value": {"reasoning_effort": "high"}}, "answer": refusal}
        async with served_by([rule]) as (served, (server,)):
            assert message[-9:] in assert_error(await post(served, model="m", reasoning={"effort": "high"}), 400)
            assert len(server.requests) == 1

    run(test())


def test_a_word_that_is_no_effort_of_the_server_leaves_its_refusal() -> None:
    async def test() -> None:
        refusal = {"status": 400, "json": {"error": {"message": "Invalid reasoning_effort: not without a high budget"}}}
        async with served_by([refusing("reasoning_effort", refusal)]) as (served, (server,)):
            for _ in range(2):
                assert "reasoning.effort" in assert_error(await post(served, model="m", reasoning={"effort": "low"}), 400)
            assert [request["reasoning_effort"] for request in server.requests] == ["low", "high"] * 2
            claude = {"thinking": {"type": "adaptive"}, "output_config": {"effort": "low"}}
            assert (await say(served, "messages", **claude)).known["status"] == "completed"

    run(test())


def test_an_effort_stays_where_the_refusal_of_another_field_quotes_the_request() -> None:
    """What is learned of a model holds for all who ask for it: a word of one user's question is no effort that it takes."""

    async def test() -> None:
        message = 'stream_options is not supported: {"reasoning_effort": "high", "messages": [{"content": "The tide is low."}]}'
        refusal = {"status": 400, "json": {"error": {"message": message}}}
        async with served_by([refusing("stream_options", refusal)]) as (served, (server,)):
            for _ in range(2):
                answer = await post(served, model="m", reasoning={"effort": "high"}, stream=False)
                assert answer.json["status"] == "completed"
            sent = [(request["reasoning_effort"], "stream_options" in request) for request in server.requests]
            assert sent == [("high", True), ("high", False), ("high", False)]

    run(test())


@pytest.mark.parametrize(
    "message",
    [
        '"qwen2.5-coder" does not support thinking',
        "reasoning_effort: 'high' is not one of low",
        "This model always engages in thinking and cannot be disabled",  # z.ai, to an effort that it does not know
        "Invalid API parameter, please check the documentation.",
        "API 调用参数有误，请检查文档。",
    ],
)
def test_an_effort_in_a_message_is_a_hint(message: str) -> None:
    """Claude Code sends one with each request, whatever the model can do. What is refused of one says nothing of another."""
    claude = {"thinking": {"type": "adaptive"}, "output_config": {"effort": "high"}}
    refusal = {"status": 400, "text": json.dumps({"error": {"message": message}}, ensure_ascii=False)}

    async def test() -> None:
        rule = {"if": {"value": {"reasoning_effort": "high"}}, "answer": refusal}
        async with served_by([rule]) as (served, (server,)):
            for _ in range(2):
                outcome = await say(served, "messages", **claude)
                assert outcome.known["status"] == "completed"
                assert "parameter:thinking" in outcome.known["losses"]
            claude["output_config"] = {"effort": "low"}
            for request in (claude, {}):
                assert (await say(served, "messages", **request)).known["status"] == "completed"
            efforts = [request.get("reasoning_effort") for request in server.requests]
            other = "low" if message.endswith("one of low") else None
            assert efforts == ["high", other, other, "low", "none"]

    run(test())


def test_tools_are_worth_more_than_an_effort_that_is_a_hint() -> None:
    """GPT-5.6 takes both in the Responses API alone, and reasons if it is told nothing of it."""
    message = (
        "Function tools with reasoning_effort are not supported for gpt-5.6 in /v1/chat/completions. To use function tools, "
        "use /v1/responses or set reasoning_effort to 'none'."
    )
    answer = {"status": 400, "json": {"error": {"message": message, "param": "reasoning_effort"}}}
    taken = {"events": [{"delta": {"content": "ok"}}, {"finish": "stop"}]}
    rules = [{"if": {"value": {"reasoning_effort": "none"}}, "answer": taken}, {"if": {"has": "tools"}, "answer": answer}]

    async def test() -> None:
        async with served_by(rules) as (served, (server,)):
            claude = {"thinking": {"type": "adaptive"}, "output_config": {"effort": "high"}, "tools": ["f"]}
            for _ in range(2):
                outcome = await say(served, "messages", **claude)
                assert (outcome.known["status"], outcome.known["losses"]) == ("completed", 'adapted="parameter:thinking"')
            assert [request["reasoning_effort"] for request in server.requests] == ["high", "none", "none"]
            # One that is asked for is not given up.
            asked = await post(served, model="m", reasoning={"effort": "high"}, tools=[{"type": "function", "name": "f"}])
            assert "/v1/responses" in assert_error(asked, 400)

    run(test())
