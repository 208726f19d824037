"""Servers that refuse what the gateway has added to a request, or the order of its messages: through both doors, in the
background, with several backends, and never more often than a few times."""

from __future__ import annotations

import json
import re
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest

from tests.server.reports.chat_server import ChatServer, Json, serving
from tests.server.reports.doors import Outcome, body_of, outcome_of
from tests.server.running_gateway import Served, ask, assert_error, gateway, post, run

PATHS = {"responses": "/v1/responses", "messages": "/v1/messages"}
# Two models, so that no server is examined at the start.
MODELS = {"m": "someone", "other": "someone"}
HISTORY: list[Json] = [
    {"role": "user", "content": "q"},
    {"type": "reasoning", "id": "rs_1", "summary": [], "content": [{"type": "reasoning_text", "text": "a thought"}]},
    {"role": "assistant", "content": "A"},
    {"role": "user", "content": "more"},
]
INTERRUPTED: list[Json] = [
    {"role": "user", "content": "the weather?"},
    {"type": "function_call", "call_id": "c1", "name": "f", "arguments": "{}"},
    {"type": "function_call_output", "call_id": "c1", "output": "sunny"},
    {"role": "user", "content": "stop"},
]
ALTERNATING = r"s?[ct]*(u[ct]*a[ct]*)*(u[ct]*)?$"


def refusing(path: str, answer: Json) -> Json:
    return {"if": {"has": path}, "answer": answer}


def unknown(name: str, status: int = 400) -> Json:
    message = f"Unrecognized request argument supplied: {name}"
    return {"status": status, "json": {"error": {"message": message, "type": "invalid_request_error"}}}


def disorderly(status: int = 400, message: str = "Conversation roles must alternate user/assistant/user/assistant/...") -> Json:
    return {"if": {"roles_not": ALTERNATING}, "answer": {"status": status, "json": {"error": {"message": message}}}}


@asynccontextmanager
async def served_by(*backends: list[Json], **settings: Any) -> AsyncIterator[tuple[Served, list[ChatServer]]]:
    """Serve a gateway in front of chat servers with these rules."""
    async with serving({"rules": backends[0]}, MODELS, 1) as first:
        if len(backends) == 1:
            async with gateway(f"{first.url}/v1", **settings) as served:
                yield served, [first]
            return
        async with (
            serving({"rules": backends[1]}, MODELS, 1) as second,
            gateway(f"{first.url}/v1", f"{second.url}/v1", **settings) as served,
        ):
            yield served, [first, second]


async def say(served: Served, door: str, *, streamed: bool = False, **request: Any) -> Outcome:
    body = {"model": "m", "stream": streamed, **body_of(door, request, [])}
    return outcome_of(door, await ask(served, "POST", PATHS[door], json=body), streamed=streamed)


# ---- fields ------------------------------------------------------------------------------------------------------------


WORDS = {
    "pydantic": {"detail": [{"type": "extra_forbidden", "loc": ["body", "FIELD"], "msg": "Extra inputs are not permitted"}]},
    "openai": {"error": {"message": "Unknown parameter: 'FIELD'.", "param": "FIELD", "code": "unknown_parameter"}},
    "serde": "Failed to deserialize: unknown field `FIELD`, expected one of `model`, `messages`, `reasoning_effort`",
    "python": {"error": {"message": "create() got an unexpected keyword argument 'FIELD'", "code": 500}},
    "value": {"error": {"message": "Invalid value: supported are 'low' and 'high'.", "param": "FIELD"}},
}


@pytest.mark.parametrize("streamed", [True, False])
@pytest.mark.parametrize("status", [400, 404, 422, 500])
@pytest.mark.parametrize("words", WORDS)
def test_a_switch_that_no_client_asked_for_is_given_up(words: str, status: int, streamed: bool) -> None:
    body = WORDS[words]

    def answer(field: str) -> Json:
        if isinstance(body, str):
            return {"status": status, "text": body.replace("FIELD", field)}
        return {"status": status, "json": json.loads(json.dumps(body).replace("FIELD", field))}

    async def test() -> None:
        rules = [refusing("chat_template_kwargs", answer("chat_template_kwargs"))]
        async with served_by(rules) as (served, (server,)):
            outcome = await say(served, "messages", streamed=streamed)
            assert outcome.known["status"] == "completed"
            assert "parameter:thinking" in outcome.known["losses"]
            assert server.requests[-1]["reasoning_effort"] == "none"
            await say(served, "messages", streamed=streamed)
            assert ["chat_template_kwargs" in request for request in server.requests] == [True, False, False]

    run(test())


@pytest.mark.parametrize(
    ("thinking", "message"),
    [
        ({"type": "enabled", "budget_tokens": 2000}, '"granite4:3b" does not support thinking'),
        ({"type": "enabled", "budget_tokens": 3999}, 'think value "medium" is not supported for this model'),
        (
            {"type": "enabled", "budget_tokens": 2000},
            "Unable to submit request because thinking is not supported by this model.",
        ),
        (None, "registry.ollama.ai/library/gemma3n:e4b-it-q8_0 does not support thinking"),
    ],
)
def test_a_model_that_cannot_think_answers_a_request_that_lets_it_think(thinking: Json | None, message: str) -> None:
    async def test() -> None:
        answer = {"status": 400, "json": {"error": {"message": message, "type": "invalid_request_error"}}}
        async with served_by([refusing("reasoning_effort", answer)]) as (served, (server,)):
            asked = {} if thinking is None else {"thinking": thinking, "max_tokens": 4000}
            for _ in range(2):
                outcome = await say(served, "messages", **asked)
                assert outcome.known["status"] == "completed"
                assert "parameter:thinking" in outcome.known["losses"]
            assert len(server.requests) == 3

    run(test())


@pytest.mark.parametrize("streamed", [True, False])
@pytest.mark.parametrize(
    "message",
    [
        "Reasoning is mandatory for this endpoint and cannot be disabled.",
        "invalid thinking: only type=enabled is allowed for this model",
    ],
)
def test_a_model_that_always_thinks_answers_a_request_that_asks_for_no_thoughts(message: str, streamed: bool) -> None:
    refusal = {"error": {"message": message, "code": 400}}

    async def test() -> None:
        rules = [refusing(name, {"status": 400, "json": refusal}) for name in ("reasoning_effort", "chat_template_kwargs")]
        async with served_by(rules) as (served, (server,)):
            for _ in range(2):
                outcome = await say(served, "messages", streamed=streamed)
                assert outcome.known["status"] == "completed"
                assert "parameter:thinking" in outcome.known["losses"]
            assert len(server.requests) == 3

    run(test())


@pytest.mark.parametrize(
    ("status", "message"),
    [
        (503, "Using priority is disabled for this server. Please send a new request without a priority."),
        (400, "Got priority 3 but Priority scheduling is not enabled."),
    ],
)
def test_a_priority_that_stands_for_a_tier_is_given_up(status: int, message: str) -> None:
    async def test() -> None:
        rules = [refusing("priority", {"status": status, "json": {"error": {"message": message}}})]
        async with served_by(rules, service_tier_priorities={"priority": 3}) as (served, (server,)):
            for _ in range(2):
                outcome = await say(served, "responses", service_tier="priority")
                assert outcome.known["status"] == "completed"
                assert "parameter:service_tier" in outcome.known["losses"]
            assert len(server.requests) == 3

    run(test())


@pytest.mark.parametrize("streamed", [True, False])
def test_earlier_reasoning_is_sent_under_the_name_that_the_server_knows(streamed: bool) -> None:
    async def test() -> None:
        rules = [refusing("messages[].reasoning", unknown("messages[$i].reasoning"))]
        async with served_by(rules) as (served, (server,)):
            for _ in range(2):
                outcome = await say(served, "responses", streamed=streamed, input=HISTORY)
                assert outcome.known["status"] == "completed"
                assert "losses" not in outcome.known
                assert server.requests[-1]["messages"][1] == {
                    "role": "assistant",
                    "content": "A",
                    "reasoning_content": "a thought",
                }
            assert len(server.requests) == 3

    run(test())


def test_earlier_reasoning_that_no_name_fits_is_a_loss() -> None:
    async def test() -> None:
        names = ("reasoning", "reasoning_content")
        rules = [refusing(f"messages[].{name}", unknown(f"messages.$i.{name}")) for name in names]
        async with served_by(rules) as (served, (server,)):
            outcome = await say(served, "responses", input=HISTORY)
            assert 'ignored="item:reasoning"' in outcome.known["losses"]
            assert len(server.requests) == 3

    run(test())


@pytest.mark.parametrize("door", PATHS)
def test_a_limit_without_a_name_is_an_error_in_the_clients_words(door: str) -> None:
    name = {"responses": "max_output_tokens", "messages": "max_tokens"}[door]

    async def test() -> None:
        rules = [refusing(field, unknown(field)) for field in ("max_completion_tokens", "max_tokens")]
        async with served_by(rules) as (served, (server,)):
            outcome = await say(served, door, **{name: 100})
            assert outcome.known["status"] == "failed"
            assert name in outcome.known["error"]["message"]
            assert len(server.requests) == 2

    run(test())


# What servers answer to Claude Code, which asks for as much with each request: DeepSeek, OpenAI, Groq, DashScope, Anthropic,
# Bedrock, Volcengine, Vertex and pydantic.
TOO_MANY = [
    ("Invalid max_tokens value, the valid range of max_tokens is [1, 8192]", 8192),
    ("max_tokens is too large: 32000. This model supports at most 16384 completion tokens, whereas you provided 32000.", 16384),
    ("`max_tokens` must be less than or equal to `8192`, the maximum value for `max_tokens` is less than the `context_window` "
     "for this model", 8192),
    ("<400> InternalError.Algo.InvalidParameter: Range of max_tokens should be [1, 8192]", 8192),
    ("max_tokens: 32000 > 8192, which is the maximum allowed number of output tokens for claude-3-5-sonnet-20241022", 8192),
    ("The maximum tokens you requested exceeds the model limit of 4096. Try again with a maximum tokens value that is lower "
     "than 4096.", 4095),
    ("The parameter `max_completion_tokens` specified in the request are not valid: integer above maximum value, expected a "
     "value <= 12288, but got 32000 instead. Request id: 0217752964393142fa50af54af66c5cfb922304bfd59ea286af93", 12288),
    ("Unable to submit request because it has a maxOutputTokens value of 32000 but the supported range is from 1 (inclusive) "
     "to 8193 (exclusive). Update the value and try again.", 8192),
    ("1 validation error: ['body', 'max_tokens']: Input should be less than or equal to 16,384", 16384),
]  # fmt: skip


@pytest.mark.parametrize(("message", "most"), TOO_MANY)
def test_a_message_asks_for_no_more_tokens_than_the_server_takes(message: str, most: int) -> None:
    async def test() -> None:
        refusal = {"status": 400, "json": {"error": {"message": message}}}
        rules = [{"if": {"above": {"max_completion_tokens": most}}, "answer": refusal}]
        async with served_by(rules) as (served, (server,)):
            for asked in (32_000, 64_000, 100):
                outcome = await say(served, "messages", max_tokens=asked)
                assert outcome.known["status"] == "completed"
                assert ("parameter:max_tokens" in outcome.known.get("losses", "")) == (asked > most)
            asked_for = [request["max_completion_tokens"] for request in server.requests]
            assert asked_for == [32_000, most, most, 100]

    run(test())


def test_a_message_asks_for_no_more_tokens_than_are_paid_for_and_for_more_once_they_are() -> None:
    async def test() -> None:
        words = (
            "This request requires more credits, or fewer max_tokens. You requested up to 32000 tokens, but can only afford "
        )
        refused = {"status": 402, "json": {"error": {"message": f"{words}27342. To increase, visit the settings", "code": 402}}}
        rules = [{"if": {"above": {"max_completion_tokens": 27_342}}, "answer": refused}]
        async with served_by(rules) as (served, (server,)):
            assert "parameter:max_tokens" in (await say(served, "messages", max_tokens=32_000)).known["losses"]
            rules.clear()
            assert "losses" not in (await say(served, "messages", max_tokens=32_000)).known
            assert [request["max_completion_tokens"] for request in server.requests] == [32_000, 27_342, 32_000]
            rules[:] = [{"if": {"above": {"max_completion_tokens": 1}}, "answer": refused}]
            assert "more credits" in (await say(served, "messages", max_tokens=32_000)).known["error"]["message"]

    run(test())


def test_a_limit_is_found_under_either_name_and_beside_other_numbers() -> None:
    async def test() -> None:
        message = "Value error, max_tokens must be less than or equal to 8192"
        too_many = {"status": 400, "json": {"code": 20015, "message": message}}
        rules = [
            refusing("max_completion_tokens", unknown("max_completion_tokens")),
            {"if": {"above": {"max_tokens": 8192}}, "answer": too_many},
        ]
        async with served_by(rules) as (served, (server,)):
            for _ in range(2):
                assert (await say(served, "messages", max_tokens=32_000)).known["status"] == "completed"
            assert [request.get("max_tokens") for request in server.requests] == [None, 32_000, 20_015, 8192, 8192]

    run(test())


@pytest.mark.parametrize(
    "message",
    [
        "Unsupported parameter: 'stop' is not supported with this model.",
        "Model grok-4.6 does not support parameter stop.",
        "Argument not supported on this model: stop",
    ],
)
def test_a_message_ends_at_its_stop_sequence_though_the_server_refuses_to_be_told(message: str) -> None:
    """Claude Code asks so whether a command is safe, and runs none where it gets no answer."""
    classifier = {"max_tokens": 64, "stop_sequences": ["</reason>", "</block>"]}
    written = {"events": [{"delta": {"content": "<block>yes</block><category>"}}, {"finish": "length"}, "DONE"]}

    async def test() -> None:
        rules = [refusing("stop", {"status": 400, "json": {"error": {"message": message}}}), refusing("model", written)]
        async with served_by(rules) as (served, (server,)):
            for _ in range(2):
                body = {"model": "m", **body_of("messages", classifier, [])}
                answer = (await ask(served, "POST", PATHS["messages"], json=body)).json
                assert answer["content"] == [{"type": "text", "text": "<block>yes"}]
                assert (answer["stop_reason"], answer["stop_sequence"]) == ("stop_sequence", "</block>")
            assert len(server.requests) == 3
            refused = await say(served, "messages", streamed=True, **classifier)  # what was sent cannot be taken back
            assert refused.known["http"] == 400

    run(test())


def test_a_limit_that_a_client_of_the_responses_api_has_chosen_is_not_lowered() -> None:
    async def test() -> None:
        message, most = TOO_MANY[0]
        refusal = {"status": 400, "json": {"error": {"message": message}}}
        rules = [{"if": {"above": {"max_completion_tokens": most}}, "answer": refusal}]
        async with served_by(rules) as (served, (server,)):
            for door in ("messages", "responses"):
                outcome = await say(served, door, **{"max_tokens" if door == "messages" else "max_output_tokens": 32_000})
            assert outcome.known["http"] == 400
            assert "max_output_tokens" in outcome.known["error"]["message"]
            assert len(server.requests) == 3

    run(test())


@pytest.mark.parametrize(
    ("field", "request_fields", "named"),
    [
        ("reasoning_effort", {"reasoning": {"effort": "high"}}, "reasoning.effort"),
        ("temperature", {"temperature": 0.5}, "temperature"),
        ("chat_template_kwargs", {"chat_template_kwargs": {"x": 1}}, "chat_template_kwargs"),
        ("priority", {"priority": 3}, "priority"),
        ("response_format", {"text": {"format": {"type": "json_object"}}}, "text.format"),
    ],
)
def test_what_the_client_asked_for_is_refused_to_the_client(field: str, request_fields: Json, named: str) -> None:
    async def test() -> None:
        async with served_by([refusing(field, unknown(field, 422))]) as (served, (server,)):
            for _ in range(2):
                message = assert_error(await post(served, model="m", **request_fields), 400)
                assert named in message
            assert len(server.requests) == 2

    run(test())


def test_an_effort_that_a_client_has_invented_is_refused_and_not_remembered() -> None:
    async def test() -> None:
        refusal = {"status": 400, "json": {"error": {"message": "reasoning_effort: not one of low, medium, high"}}}
        async with served_by([refusing("reasoning_effort", refusal)], reasoning_effort="pass") as (served, _):
            (member,) = served.parts.pool.members.by_name.values()
            learned = []
            for number in range(3):
                effort = {"effort": f"invented-{number}"}
                refused = await say(served, "messages", thinking={"type": "adaptive"}, output_config=effort)
                assert "output_config.effort" in refused.known["error"]["message"]
                learned.append({model: dict(changes) for model, changes in member.backend.learned.items()})
            assert learned[0] == learned[-1]

    run(test())


def test_an_effort_of_the_client_is_refused_though_the_gateways_own_was_given_up() -> None:
    async def test() -> None:
        async with served_by([refusing("reasoning_effort", unknown("reasoning_effort"))], strict=True) as (served, _):
            assert (await say(served, "messages")).known["status"] == "completed"
            thinking = {"type": "enabled", "budget_tokens": 1024}
            asked = await say(served, "messages", thinking=thinking, max_tokens=4000)
            assert asked.known["status"] == "completed"  # an effort stands for a budget
            refused = await say(served, "messages", thinking={"type": "adaptive"}, output_config={"effort": "high"})
            assert "output_config.effort" in refused.known["error"]["message"]
            assert "reasoning.effort" in assert_error(await post(served, model="m", reasoning={"effort": "none"}), 400)

    run(test())


def test_only_the_gateways_own_variable_of_a_template_is_given_up() -> None:
    async def test() -> None:
        rules = [refusing("chat_template_kwargs.enable_thinking", unknown("chat_template_kwargs.enable_thinking"))]
        async with served_by(rules) as (served, (server,)):
            fields: Json = {"reasoning": {"effort": "none"}, "chat_template_kwargs": {"x": 1}}
            answer = await post(served, model="m", **fields)
            assert answer.final["status"] == "completed"
            assert server.requests[-1]["chat_template_kwargs"] == {"x": 1}

    run(test())


def test_what_is_learned_holds_for_one_model() -> None:
    async def test() -> None:
        async with served_by([refusing("chat_template_kwargs", unknown("chat_template_kwargs"))]) as (served, (server,)):
            for model in ("m", "other", "other"):
                await say(served, "messages", model=model)
            assert ["chat_template_kwargs" in request for request in server.requests] == [True, False, True, False, False]

    run(test())


def test_each_backend_learns_for_itself() -> None:
    async def test() -> None:
        strict = [refusing("chat_template_kwargs", unknown("chat_template_kwargs"))]
        async with served_by(strict, []) as (served, servers):
            for number in range(16):  # conversations, since each stays where it began
                said = [{"role": "user", "content": f"hi {number}"}]
                assert (await say(served, "messages", messages=said)).known["status"] == "completed"
            strict_ones, others = (["chat_template_kwargs" in request for request in server.requests] for server in servers)
            assert strict_ones == [True] + [False] * (len(strict_ones) - 1)
            assert strict_ones[1:]
            assert others
            assert all(others)

    run(test())


def test_a_response_in_the_background_is_made_all_the_same() -> None:
    async def test() -> None:
        rules = [refusing("messages[].reasoning", unknown("messages.$i.reasoning")), disorderly(500)]
        async with served_by(rules, store="memory") as (served, _):
            for items in (HISTORY, INTERRUPTED):
                answer = await post(served, model="m", input=items, background=True)
                assert answer.final["status"] == "completed"

    run(test())


def test_a_server_that_always_names_something_else_is_asked_a_few_times() -> None:
    fields = ["chat_template_kwargs", "reasoning_effort", "stream_options", "max_completion_tokens", "max_tokens", "model"]

    async def test() -> None:
        rules = [refusing(field, unknown(field, 500)) for field in fields]
        async with served_by(rules) as (served, (server,)):
            for _ in range(2):
                assert (await say(served, "messages")).known["status"] == "failed"
            assert len(server.requests) <= 2 * 9

    run(test())


def test_a_server_that_names_everything_whatever_it_gets_is_asked_a_few_times() -> None:
    names = ["chat_template_kwargs", "reasoning_effort", "stream_options", "max_completion_tokens", "max_tokens", "model"]

    async def test() -> None:
        rules = [refusing("model", unknown(" ".join(f"'{name}'" for name in names)))]
        async with served_by(rules) as (served, (server,)):
            assert (await say(served, "messages")).known["status"] == "failed"
            assert len(server.requests) <= 3

    run(test())


def test_nothing_is_repeated_once_tokens_came() -> None:
    error = {"error": {"message": "Unknown parameter: 'reasoning_effort'.", "code": 400}}

    async def test() -> None:
        answers = [{"events": [{"delta": {"content": "Hi"}}, error]}]
        async with (
            serving({"answers": answers}, MODELS, 1) as server,
            gateway(f"{server.url}/v1") as served,
        ):
            outcome = await say(served, "messages", streamed=True)
            assert outcome.known["status"] == "failed"
            assert len(server.requests) == 1

    run(test())


# ---- turns -------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("streamed", [True, False])
@pytest.mark.parametrize("status", [400, 422, 500])
def test_turns_are_made_to_alternate_once_a_server_wants_that(status: int, streamed: bool) -> None:
    async def test() -> None:
        async with served_by([disorderly(status)]) as (served, (server,)):
            for _ in range(2):
                outcome = await say(served, "responses", streamed=streamed, input=INTERRUPTED)
                assert outcome.known["status"] == "completed"
                assert "content:turns" in outcome.known["losses"]
            assert len(server.requests) == 3  # only the first one was refused
            sent = server.requests[-1]["messages"]
            assert [message["role"] for message in sent] == ["user", "assistant", "tool", "assistant", "user"]
            assert (sent[2]["content"], sent[4]["content"]) == ("sunny", "stop")
            await say(served, "responses", input=INTERRUPTED, model="other")
            assert len(server.requests[-2]["messages"]) == 4  # another model may have another template

    run(test())


def wanting(roles: str, message: str, status: int) -> Json:
    return {"if": {"roles_not": roles}, "answer": {"status": status, "json": {"error": {"message": message}}}}


TWO_CALLS: list[Json] = [
    {"role": "user", "content": "the weather?"},
    {"role": "user", "content": "quick"},
    *({"type": "function_call", "call_id": name, "name": "f", "arguments": "{}"} for name in ("c1", "c2")),
    *({"type": "function_call_output", "call_id": name, "output": f"of {name}"} for name in ("c1", "c2")),
]


CALLED: list[Json] = [
    {"role": "user", "content": "the weather?"},
    {"role": "assistant", "content": [{"type": "tool_use", "id": "c1", "name": "f", "input": {}}]},
    {"role": "user", "content": [{"type": "tool_result", "tool_use_id": "c1", "content": "sunny"}]},
]


@pytest.mark.parametrize("streamed", [True, False])
@pytest.mark.parametrize(
    ("rules", "roles"),
    [
        ([wanting(r"(?!.*tt)", "This model only supports single tool-calls at once!", 500)], "suuctct"),
        ([wanting(r"(?!s)", "System role not supported", 400)], "uuctt"),
        ([wanting(r"(?!s)", "System role not supported", 500), disorderly(500)], "uctt"),  # Gemma 2
    ],
)
def test_a_template_that_refuses_in_other_words_gets_what_it_takes(rules: list[Json], roles: str, streamed: bool) -> None:
    """And the session goes on: its later requests are sent like that at once."""

    async def test() -> None:
        async with served_by(rules) as (served, (server,)):
            for _ in range(2):
                outcome = await say(served, "responses", streamed=streamed, input=TWO_CALLS, instructions="Be good.")
                assert outcome.known["status"] == "completed"
                assert "content:turns" in outcome.known["losses"]
            assert len(server.requests) == 2 + len(rules)
            sent = server.requests[-1]["messages"]
            letters = {"system": "s", "user": "u", "assistant": "c", "tool": "t"}
            assert "".join(letters[message["role"]] for message in sent) == roles
            assert all(text in str(sent) for text in ("Be good.", "the weather?", "quick", "of c1", "of c2"))

    run(test())


def strict_about(message: str, *contents: Any) -> Json:
    """Refuse an assistant's message with one of these contents beside its calls."""
    return {"if": {"call_content": contents}, "answer": {"status": 400, "json": {"error": {"message": message}}}}


@pytest.mark.parametrize("door", ["responses", "messages"])
@pytest.mark.parametrize(
    ("rules", "content"),
    [
        ([], ""),
        ([strict_about("content: expected a string, got null", None, "missing")], ""),
        ([strict_about("messages: text content blocks must be non-empty", "")], None),
        ([strict_about("messages.1.content must not be empty", ""), strict_about("content must be a string", None)], "missing"),
    ],
)
def test_the_content_beside_calls_is_what_the_server_takes(rules: list[Json], content: str | None, door: str) -> None:
    async def test() -> None:
        async with served_by(rules) as (served, (server,)):
            for _ in range(2):
                call = {"input": TWO_CALLS} if door == "responses" else {"messages": CALLED, "max_tokens": 9}
                assert (await say(served, door, **call)).known["status"] == "completed"
            assert [
                message.get("content", "missing") for message in server.requests[-1]["messages"] if "tool_calls" in message
            ] == [content]
            taken = 2 if content == "" else 2 + len(rules)
            assert len(server.requests) == taken  # what was learned is remembered

    run(test())


@pytest.mark.parametrize("door", PATHS)
@pytest.mark.parametrize("known", [True, False])
@pytest.mark.parametrize(
    "message",
    [
        "The `reasoning_content` in the thinking mode must be passed back to the API.",
        "Missing `reasoning_content` field in the assistant message at message index 1. For more information, …",
    ],
)
def test_a_model_that_needs_its_thoughts_gets_one_with_each_call(door: str, known: bool, message: str) -> None:
    # DeepSeek and Kimi look for them in `reasoning_content`; a client may have none, after another model say.
    answer = {"status": 400, "json": {"error": {"message": message, "code": "invalid_request_error"}}}
    thought: Json = {"type": "reasoning", "id": "r", "summary": [], "content": [{"type": "reasoning_text", "text": "Look."}]}
    call = {"type": "function_call", "call_id": "c1", "name": "f", "arguments": "{}"}
    items = [{"role": "user", "content": "q"}, *([thought] if known else []), call]
    thinking = {"type": "thinking", "thinking": "Look.", "signature": ""}
    user, turn, result = CALLED
    called = {**turn, "content": [*([thinking] if known else []), *turn["content"]]}
    asked: dict[str, Json] = {
        "responses": {"input": [*items, {"type": "function_call_output", "call_id": "c1", "output": "sunny"}]},
        "messages": {"messages": [user, called, result], "thinking": {"type": "enabled", "budget_tokens": 2000}},
    }

    async def test() -> None:
        async with served_by([{"if": {"thoughtless": True}, "answer": answer}]) as (served, (server,)):
            for _ in range(2):
                assert (await say(served, door, **asked[door])).known["status"] == "completed"
            assert server.requests[-1]["messages"][1]["reasoning_content"] == ("Look." if known else " ")
            assert len(server.requests) == 3

    run(test())


@pytest.mark.parametrize("status", [400, 500])
@pytest.mark.parametrize("door", PATHS)
def test_tools_whose_schemas_a_server_refuses_are_sent_in_a_plain_form(door: str, status: int) -> None:
    # Kimi wants no type beside `anyOf`, and llama.cpp (500) makes no grammar of a long text.
    message = "tools.function.parameters is not a valid moonshot flavored json schema: type should be defined in anyOf items"
    said = {"error": {"message": message, "type": "invalid_request_error"}}
    schema = {"type": "object", "properties": {"a": {"anyOf": [{"type": "array", "items": {}}, {"type": "string"}]}}}
    tools = {
        "responses": {"type": "function", "name": "f", "parameters": schema},
        "messages": {"name": "f", "input_schema": schema},
    }

    async def test() -> None:
        rules = [
            {"if": {"tools_say": '"anyOf":'}, "answer": {"status": status, "json": said}},
            {
                "if": {"has": "tools"},
                "answer": {
                    "events": [
                        {
                            "delta": {
                                "tool_calls": [{"index": 0, "id": "c", "function": {"name": "f", "arguments": '{"a":"x"}'}}]
                            }
                        },
                        {"finish": "tool_calls"},
                        "DONE",
                    ]
                },
            },
        ]
        async with served_by(rules, repair_calls="safe") as (served, (server,)):
            for _ in range(2):
                outcome = await say(served, door, streamed=True, tools=[tools[door]])
                turn = outcome.turn
                arguments = json.loads(turn["output"][0]["arguments"]) if door == "responses" else turn["content"][0]["input"]
                assert arguments == {"a": "x"}  # as the tool takes it: it is checked against the schema as it came
                assert "tool:schema" in outcome.known["losses"]
            assert len(server.requests) == 3
            assert "anyOf" in server.requests[-1]["tools"][0]["function"]["parameters"]["properties"]["a"]["description"]
            # Other tools, of another client perhaps, stay as they come.
            enum = {"type": "object", "properties": {"a": {"type": "string", "minLength": 1}}}
            others = {
                "responses": {"type": "function", "name": "f", "parameters": enum},
                "messages": {"name": "f", "input_schema": enum},
            }
            outcome = await say(served, door, streamed=True, tools=[others[door]])
            assert server.requests[-1]["tools"][0]["function"]["parameters"]["properties"] == enum["properties"]
            assert "losses" not in outcome.known

    run(test())


def test_a_format_that_a_server_does_not_know_is_asked_for_in_another_way() -> None:
    schema = {"type": "object", "properties": {"a": {"type": "string"}}}
    refusals = {  # by the type of the format that they are about: DeepSeek's and LM Studio's
        "json_schema": {"error": {"message": "This response_format type is unavailable now"}},
        "json_object": {"error": "'response_format.type' must be 'json_schema' or 'text'"},
    }
    formats = {
        "json_schema": {"type": "json_schema", "name": "x", "schema": schema, "strict": True},
        "json_object": {"type": "json_object"},
    }

    sent = {
        "json_schema": {"type": "json_schema", "json_schema": {"name": "x", "schema": schema, "strict": True}},
        "json_object": {"type": "json_object"},
    }

    async def test(kind: str, message: Json) -> None:
        other = {"json_schema": "json_object", "json_object": "json_schema"}[kind]
        rules = [{"if": {"value": {"response_format": sent[kind]}}, "answer": {"status": 400, "json": message}}]
        async with served_by(rules) as (served, (server,)):
            outcome = await say(served, "responses", text={"format": formats[kind]})
            assert outcome.known["status"] == "completed"
            assert ("parameter:text.format" in outcome.known.get("losses", "")) == (kind == "json_schema")
            assert outcome.turn["text"]["format"]["type"] == kind  # as it was asked for
            assert server.requests[-1]["response_format"]["type"] == other

    for kind, message in refusals.items():
        run(test(kind, message))


@pytest.mark.parametrize("door", ["responses", "messages"])
def test_an_agent_with_tools_and_a_format_is_served_where_a_server_takes_one_of_them(door: str) -> None:
    shape = {"type": "json_schema", "schema": {"type": "object", "properties": {"a": {"type": "string"}}}}
    asked = {"text": {"format": {**shape, "name": "x"}}} if door == "responses" else {"output_config": {"format": shape}}
    refusal = {"error": {"message": "json mode cannot be combined with tool/function calling"}}
    place = {"responses": "parameter:text.format", "messages": "parameter:output_config.format"}[door]

    async def test() -> None:
        rules = [{"if": {"has": "response_format.json_schema"}, "answer": {"status": 400, "json": refusal}}]
        async with served_by(rules) as (served, (server,)):
            outcome = await say(served, door, tools=["f"], **asked)
            assert outcome.known["status"] == "completed"
            assert f'adapted="{place}' in outcome.known["losses"]
            assert [tool["function"]["name"] for tool in server.requests[-1]["tools"]] == ["f"]
            assert '"properties":{"a"' in server.requests[-1]["messages"][0]["content"]

    run(test())


@pytest.mark.parametrize("message", ["Thinking mode does not support this tool_choice", "Tool choice must be auto"])
@pytest.mark.parametrize("thinks", [True, False])
def test_a_model_that_cannot_be_forced_while_it_thinks_is_asked_without(thinks: bool, message: str) -> None:
    async def test() -> None:
        refused = [{"type": "function", "function": {"name": "f"}}, *(["required"] if thinks else [])]
        answer = {"status": 400, "json": {"error": {"message": message}}}
        rules = [{"if": {"value": {"tool_choice": choice}}, "answer": answer} for choice in refused]
        async with served_by(rules) as (served, (server,)):
            asked = {"tools": ["f", "g"], "tool_choice": {"type": "function", "name": "f"}}
            outcome = await say(served, "responses", **asked)
            assert outcome.known["status"] == "completed"
            assert "parameter:tool_choice" in outcome.known["losses"]
            sent = server.requests[-1]
            assert sent["tool_choice"] == ("auto" if thinks else "required")
            assert [tool["function"]["name"] for tool in sent["tools"]] == ["f"]
            plain = await say(served, "responses", tools=["f", "g"])
            assert "losses" not in plain.known

    run(test())


def test_several_backends_of_a_model_are_asked_alike() -> None:
    async def test() -> None:
        async with served_by([disorderly()], [disorderly()]) as (served, servers):
            for _ in range(6):
                assert (await say(served, "responses", input=INTERRUPTED)).known["status"] == "completed"
            assert sum(len(server.requests) for server in servers) == 7

    run(test())


def test_a_refusal_of_both_forms_is_that_of_the_request_as_it_came() -> None:
    async def test() -> None:
        def refused(number: str) -> Json:
            return {"status": 400, "json": {"error": {"message": f"Unexpected role {number}"}}}

        rules = [
            {"if": {"roles_not": r"(?!uctu$)"}, "answer": refused("one")},
            {"if": {"has": "model"}, "answer": refused("two")},
        ]
        async with served_by(rules) as (served, (server,)):
            for _ in range(2):
                assert "Unexpected role one" in assert_error(await post(served, model="m", input=INTERRUPTED), 400)
            assert len(server.requests) == 4  # nothing was learned
            assert "Unexpected role two" in assert_error(await post(served, model="m"), 400)
            assert len(server.requests) == 5  # there is no other form of one message

    run(test())


@pytest.mark.parametrize("streamed", [True, False])
@pytest.mark.parametrize("status", [400, 500])
@pytest.mark.parametrize("roles", [r"(?!s)", r"(ua)*u$"])
def test_a_template_that_says_the_same_though_turns_alternate_gets_fewer_roles(roles: str, status: int, streamed: bool) -> None:
    async def test() -> None:
        async with served_by([wanting(roles, "Only user and model roles are supported", status)]) as (served, (server,)):
            for _ in range(2):
                outcome = await say(served, "responses", streamed=streamed, input=TWO_CALLS, instructions="Be good.")
                assert outcome.known["status"] == "completed"
                assert "content:turns" in outcome.known["losses"]
            assert len(server.requests) <= 5  # only the first one was refused
            assert "of c2" in json.dumps(server.requests[-1]["messages"])

    run(test())


def test_a_server_may_refuse_fields_and_order() -> None:
    async def test() -> None:
        rules = [disorderly(500), *(refusing(name, unknown(name)) for name in ("chat_template_kwargs", "reasoning_effort"))]
        async with served_by(rules) as (served, (server,)):
            messages = [
                {"role": "user", "content": "list the files"},
                {"role": "assistant", "content": [{"type": "tool_use", "id": "t1", "name": "ls", "input": {}}]},
                {
                    "role": "user",
                    "content": [
                        {"type": "tool_result", "tool_use_id": "t1", "content": "a.txt"},
                        {"type": "text", "text": "A reminder."},
                    ],
                },
            ]
            for _ in range(2):
                outcome = await say(served, "messages", messages=messages, tools=["ls()"])
                assert outcome.known["status"] == "completed"
            roles = [message["role"] for message in server.requests[-1]["messages"]]
            assert re.fullmatch("user assistant tool assistant user", " ".join(roles))
            assert len(server.requests) == 5

    run(test())
