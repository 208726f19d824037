"""`/v1/messages` as its clients see it: answers, errors, counts and lists, in front of a simulated backend."""

from __future__ import annotations

import asyncio
import json
import re
import threading
from pathlib import Path
from typing import Any

import pytest

from responses_gateway import request
from responses_gateway.server.generation.preparation import translation
from responses_gateway.server.generation.replay import replay
from responses_gateway.server.window.timeline import answer
from responses_gateway.settings.keys import hash_of
from responses_gateway.simulator import DIALECTS, SimulatorOptions, create_app, serving
from tests.hosted.websites import SearchEngine, open_site, searched_web
from tests.log_lines import log_lines
from tests.server.fleet_of_simulators import fleet
from tests.server.hosted.model import model
from tests.server.running_gateway import Answer, Event, RawClient, Served, ask, events_of, gateway, run, simulated
from tests.server.scripted_backend import HEAD, Connection, Play, backend, chunk, refusing, streaming, text_stream
from tests.waiting import until

PATH = "/v1/messages"
COUNT = "/v1/messages/count_tokens"
QUESTION: dict[str, Any] = {"model": "simulator", "max_tokens": 100, "messages": [{"role": "user", "content": "hi"}]}
KEY = "sk-alice-0123456789"
NINE = "[a-zA-Z0-9]{9}"
VERSION = {"anthropic-version": "2023-06-01"}


async def send(served: Served, body: dict[str, Any] | None = None, path: str = PATH, **headers: str) -> Answer:
    """Send a message, and read the whole answer."""
    return await ask(served, "POST", path, json={**QUESTION, **(body or {})}, headers=headers)


def text_of(events: list[Event]) -> str:
    """Return the text of a stream."""
    return "".join(event["delta"].get("text", "") for event in events if event["type"] == "content_block_delta")


def error_in(answer: Answer, status: int, kind: str) -> str:
    """Expect an error in this API's shape, and return its message."""
    assert answer.status == status, answer.body
    body = answer.json
    assert body["type"] == "error"
    assert body["error"]["type"] == kind
    assert set(body["error"]) == {"type", "message"}
    assert body["request_id"] == answer.headers["request-id"]
    return str(body["error"]["message"])


# ---- answers -----------------------------------------------------------------------------------------------------------


def test_a_text_is_streamed_and_is_the_same_as_a_whole() -> None:
    async def test() -> None:
        async with simulated() as served:
            streamed = await send(served, {"stream": True})
            whole = await send(served)
            events = events_of(streamed.body)
            assert streamed.status == whole.status == 200
            assert [event["type"] for event in (events[0], *events[-3:])] == [
                "message_start", "content_block_stop", "message_delta", "message_stop",
            ]  # fmt: skip
            assert whole.json["content"] == [{"type": "text", "text": text_of(events)}]
            assert whole.json["stop_reason"] == events[-2]["delta"]["stop_reason"] == "end_turn"
            assert whole.json["model"] == "simulator"
            assert streamed.headers["request-id"] != whole.headers["request-id"]

    run(test())


@pytest.mark.parametrize("headers", [{}, VERSION, {"anthropic-version": "2026-10-21", "anthropic-beta": "new-2027-01-01,x"}])
def test_any_version_and_beta_is_served(headers: dict[str, str]) -> None:
    async def test() -> None:
        async with simulated() as served:
            assert (await send(served, path=f"{PATH}?beta=true", **headers)).status == 200

    run(test())


def test_claude_code_finds_a_server_and_nothing_else_there() -> None:
    async def test() -> None:
        async with simulated(api_keys={"alice": hash_of(KEY)}) as served:
            for path in ("/", "/api/hello"):
                assert (await ask(served, "HEAD", path)).status == 200
                assert (await ask(served, "GET", path, headers={"x-api-key": KEY})).status == 404
            refused = await ask(served, "GET", PATH, headers={"x-api-key": KEY})
            error_in(refused, 405, "invalid_request_error")
            doubled = await ask(served, "POST", f"/v1{PATH}", json={}, headers={"x-api-key": KEY, **VERSION})
            assert "without /v1" in error_in(doubled, 404, "not_found_error")

    run(test())


@pytest.mark.parametrize(("method", "path"), [("POST", "batches"), ("GET", "batches"), ("DELETE", "batches/msgbatch_1"),
                                              ("GET", "batches/msgbatch_1/results")])  # fmt: skip
def test_what_else_that_api_has_is_not_found_in_its_own_words(method: str, path: str) -> None:
    async def test() -> None:
        async with model(text_stream("hi")) as (served, talking):
            answer = await ask(served, method, f"{PATH}/{path}", **({"json": {"requests": []}} if method == "POST" else {}))
            assert f"{PATH}/{path}" in error_in(answer, 404, "not_found_error")
            assert talking.requests == []
        async with simulated(api_keys={"alice": hash_of(KEY)}) as served:
            error_in(await ask(served, method, f"{PATH}/{path}"), 401, "authentication_error")

    run(test())


def test_a_thread_is_refused_in_the_way_that_has_sdks_send_the_whole_conversation() -> None:
    async def test() -> None:
        async with model(text_stream("hi")) as (served, talking):
            for thread in ({"type": "create"}, {"type": "continue", "previous_message_id": "msg_1"}):
                refused = await send(served, {"thread": thread, "stream": True})
                assert refused.status == 400
                assert refused.json["error"]["type"] == "invalid_request_error"
                details = refused.json["error"]["details"]
                assert details == {"error_code": "thread_unsupported_request", "unsupported": ["thread"]}
            assert talking.requests == []
            assert (await send(served, {"thread": None})).status == 200

    run(test())


def test_nothing_is_stored() -> None:
    async def test() -> None:
        async with simulated(store="memory") as served:
            answer = await send(served)
            response_id = answer.json["id"].replace("msg_", "resp_")
            assert (await ask(served, "GET", f"/v1/responses/{response_id}")).status == 404

    run(test())


@pytest.mark.parametrize("stream", [False, True])
def test_a_message_of_no_tokens_has_the_backend_read_the_prompt(stream: bool) -> None:
    async def test() -> None:
        async with model(text_stream("Hel")) as (served, talking):
            answer = await send(served, {"max_tokens": 0, "stream": stream})
            assert answer.status == 200, answer.body
            ended = answer.events[-2]["delta"] if stream else answer.json
            assert ended["stop_reason"] == "max_tokens"
            assert b"Hel" not in answer.body
            assert talking.requests[0]["max_completion_tokens"] == 1
            refused = await send(served, {"max_tokens": -1})
            assert "max_tokens" in error_in(refused, 400, "invalid_request_error")

    run(test())


def test_losses_are_in_the_header_and_strict_refuses_by_the_clients_field() -> None:
    async def test() -> None:
        async with simulated() as served:
            assert "x-responses-gateway-losses" not in (await send(served)).headers
            answer = await send(served, {"service_tier": "auto", "colour": "red", "thinking": {"type": "disabled"}})
            assert answer.headers["x-responses-gateway-losses"] == (
                'ignored="parameter:service_tier parameter:unknown", adapted="parameter:thinking"'
            )
        async with simulated(strict=True) as served:
            assert (await send(served, {"service_tier": "auto"})).status == 200
            assert "colour" in error_in(await send(served, {"colour": "red"}), 400, "invalid_request_error")

    run(test())


@pytest.mark.parametrize("streamed", [True, False])
def test_a_call_of_a_typed_tool_is_one_that_the_client_can_run(streamed: bool) -> None:
    async def test() -> None:
        called = {"index": 0, "id": "c", "type": "function", "function": {"name": "bash", "arguments": '{"command": "ls"}'}}
        stream = [chunk({"tool_calls": [called]}), chunk({}, "tool_calls"), b"data: [DONE]\n\n"]
        tools = [{"type": "bash_20250124", "name": "bash"}, {"type": "advisor_20260301", "name": "advisor", "model": "x"}]
        async with model(stream) as (served, talking):
            answer = await send(served, {"tools": tools, "stream": streamed})
            assert answer.headers["x-responses-gateway-losses"] == 'ignored="tool:advisor", adapted="tool:bash"'
            (offered,) = talking.requests[0]["tools"]
            assert offered["function"]["parameters"]["properties"].keys() == {"command", "restart"}
            if streamed:
                events = events_of(answer.body)
                block = next(event["content_block"] for event in events if event["type"] == "content_block_start")
                deltas = [event["delta"] for event in events if event["type"] == "content_block_delta"]
                called = {**block, "input": json.loads("".join(delta["partial_json"] for delta in deltas))}
                assert events[-2]["delta"]["stop_reason"] == "tool_use"
            else:
                (called,) = answer.json["content"]
                assert answer.json["stop_reason"] == "tool_use"
            assert (called["type"], called["name"], called["input"]) == ("tool_use", "bash", {"command": "ls"})

    run(test())


# ---- models ------------------------------------------------------------------------------------------------------------


def test_names_of_anthropic_that_nobody_serves_mean_the_default_and_the_answer_has_the_name_that_was_asked() -> None:
    async def test() -> None:
        async with simulated() as served:  # the first one that is served
            answer = await send(served, {"model": "claude-sonnet-5"})
            assert answer.json["model"] == "claude-sonnet-5"
            assert "parameter:model" in answer.headers["x-responses-gateway-losses"]
            assert served.metric("tokens_total", model="simulator", kind="input") > 0
        async with model(text_stream("hi"), messages_model="big") as (served, talking):
            assert (await send(served, {"model": "claude-haiku-9"})).json["model"] == "claude-haiku-9"
            assert (await send(served, {"model": "qwen3"})).json["model"] == "qwen3"
            assert [request["model"] for request in talking.requests] == ["big", "qwen3"]

    run(test())


def test_an_alias_that_begins_with_claude_is_served_and_listed() -> None:
    async def test() -> None:
        async with serving(create_app(SimulatorOptions())) as url:
            backends = {"gpu": {"url": url, "aliases": {"claude-opus-5": "simulator"}}}
            async with gateway(backends=backends, messages_model="other") as served:
                assert "parameter:model" not in (await send(served, {"model": "claude-opus-5"})).headers.get(
                    "x-responses-gateway-losses", ""
                )
                listed = (await ask(served, "GET", "/v1/models?limit=1000", headers=VERSION)).json
                assert [entry["id"] for entry in listed["data"]] == ["simulator", "claude-opus-5"]
                assert (listed["first_id"], listed["last_id"], listed["has_more"]) == ("simulator", "claude-opus-5", False)
                assert set(listed["data"][0]) >= {"type", "id", "display_name", "created_at", "max_input_tokens"}
                page = (await ask(served, "GET", "/v1/models?limit=1", headers=VERSION)).json
                assert ([entry["id"] for entry in page["data"]], page["has_more"]) == (["simulator"], True)
                rest = (await ask(served, "GET", "/v1/models?after_id=simulator", headers=VERSION)).json
                assert ([entry["id"] for entry in rest["data"]], rest["has_more"]) == (["claude-opus-5"], False)
                for query in ("after_id=gone", "limit=0", f"limit={'9' * 5000}"):
                    error_in(await ask(served, "GET", f"/v1/models?{query}", headers=VERSION), 400, "invalid_request_error")

    run(test())


def test_models_have_the_shape_that_the_header_chooses() -> None:
    async def test() -> None:
        async with simulated() as served:
            for path, mine in (("/v1/models", "data"), ("/v1/models/simulator", "id")):
                theirs = (await ask(served, "GET", path)).json
                ours = (await ask(served, "GET", path, headers=VERSION)).json
                assert theirs["object"] in ("list", "model")
                assert "object" not in ours
                assert mine in ours
            missing = await ask(served, "GET", "/v1/models/gone", headers=VERSION)
            assert "gone" in error_in(missing, 404, "not_found_error")

    run(test())


# ---- keys and limits ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("headers", [{"x-api-key": KEY}, {"Authorization": f"Bearer {KEY}"}])
def test_a_key_comes_in_either_header_and_limits_are_told_in_anthropics(headers: dict[str, str]) -> None:
    async def test() -> None:
        async with simulated(api_keys={"alice": hash_of(KEY)}, requests_per_minute=1, tokens_per_minute=10_000) as served:
            answer = await send(served, **headers)
            assert answer.status == 200
            told = {name: value for name, value in answer.headers.items() if name.startswith("anthropic-ratelimit-")}
            assert told["anthropic-ratelimit-requests-limit"] == "1"
            assert told["anthropic-ratelimit-requests-remaining"] == "0"
            assert told["anthropic-ratelimit-tokens-reset"].endswith("Z")
            assert "x-ratelimit-limit-requests" not in answer.headers
            refused = await send(served, **headers)
            error_in(refused, 429, "rate_limit_error")
            assert int(refused.headers["retry-after"]) > 0

    run(test())


@pytest.mark.parametrize("headers", [{}, {"x-api-key": "sk-wrong-0123456789"}, {"Authorization": "Bearer wrong"}])
def test_without_a_key_nobody_comes_in(headers: dict[str, str]) -> None:
    async def test() -> None:
        async with simulated(api_keys={"alice": hash_of(KEY)}) as served:
            for path in (PATH, COUNT):
                refused = await send(served, path=path, **headers)
                error_in(refused, 401, "authentication_error")
                assert refused.headers["x-should-retry"] == "false"

    run(test())


def test_without_keys_the_backend_gets_the_clients_own() -> None:
    async def test() -> None:
        async with backend(refusing(404, b"{}")) as behind, gateway(behind.url) as served:
            await send(served, **{"x-api-key": KEY})
            assert f"Authorization: Bearer {KEY}".lower() in behind.requests[-1].decode().lower()

    run(test())


@pytest.mark.parametrize(("blocks", "waits"), [(10, True), (3000, False)])
def test_no_stream_waits_while_a_long_conversation_is_translated(
    blocks: int, waits: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    threads: list[int] = []

    def translate(*arguments: Any) -> Any:
        threads.append(threading.get_ident())
        return request.translate(*arguments)

    async def test() -> None:
        monkeypatch.setattr(translation, "translate", translate)
        long = {"messages": [{"role": "user", "content": [{"type": "text", "text": "a"}] * blocks}]}
        async with simulated() as served:
            for path in (PATH, COUNT):
                assert (await send(served, long, path)).status == 200
        assert [thread == threading.get_ident() for thread in threads] == [waits, waits]

    run(test())


# ---- errors ------------------------------------------------------------------------------------------------------------


def refusal(message: str) -> bytes:
    return json.dumps({"error": {"message": message, "type": "x", "code": None, "param": None}}).encode()


@pytest.mark.parametrize(
    ("status", "message", "told", "kind", "words"),
    [
        (401, "bad key", 502, "api_error", "refused the key"),
        (403, "no", 502, "api_error", "refused the key"),
        (403, "Country, region, or territory not supported", 502, "api_error", "Country, region, or territory not supported"),
        (404, "The model `m` does not exist.", 404, "not_found_error", "does not exist"),
        (400, "max_tokens must be at least 1", 400, "invalid_request_error", "max_tokens"),
        (400, "This model's maximum context length is 9 tokens. However, your messages resulted in 10 tokens.", 400,
         "invalid_request_error", "prompt is too long: 10 tokens > 9 maximum"),
        (429, "slow down", 429, "rate_limit_error", "slow down"),
        (503, "busy", 529, "overloaded_error", "busy"),
        (500, "boom", 502, "api_error", "boom"),
    ],
)  # fmt: skip
def test_what_the_backend_refuses_has_the_status_and_the_words_clients_act_on(
    status: int, message: str, told: int, kind: str, words: str
) -> None:
    async def test() -> None:
        play = refusing(status, refusal(message), headers=b"retry-after: 7\r\n")
        async with backend(play) as behind, gateway(behind.url, retries=0) as served:
            for stream in (True, False):
                answer = await send(served, {"stream": stream})
                assert words in error_in(answer, told, kind)
                assert ("x-should-retry" in answer.headers) == (status in (401, 403))  # it would be refused again
                if told in (429, 529):
                    assert answer.headers["retry-after"] == "7"

    run(test())


def test_a_body_that_cannot_be_read_and_one_that_is_wrong() -> None:
    async def test() -> None:
        async with simulated(max_body_bytes=1000) as served:
            broken = await ask(served, "POST", PATH, data=b"{", headers={"Content-Type": "application/json"})
            assert "JSON" in error_in(broken, 400, "invalid_request_error")
            error_in(await send(served, {"system": "x" * 2000}), 413, "request_too_large")
            wrong = await send(
                served, {"messages": [{"role": "user", "content": [{"type": "tool_result", "tool_use_id": "t"}]}]}
            )
            assert "messages[0].content[0].tool_use_id" in error_in(wrong, 400, "invalid_request_error")

    run(test())


def test_a_backend_that_cannot_be_reached_is_a_failure_that_is_repeated() -> None:
    async def test() -> None:
        async with gateway("http://127.0.0.1:1", retries=0) as served:
            for stream in (True, False):
                answer = await send(served, {"stream": stream})
                assert "cannot be reached" in error_in(answer, 529, "overloaded_error")
                assert answer.headers.get("x-should-retry") != "false"

    run(test())


# ---- tokens ------------------------------------------------------------------------------------------------------------

TOOL = {"name": "Bash", "description": "Runs a command.", "input_schema": {"type": "object", "properties": {}}}


def test_the_count_is_the_usage_of_the_same_body() -> None:
    async def test() -> None:
        async with simulated() as served:
            body = {"system": "Be brief.", "tools": [TOOL], "thinking": {"type": "adaptive"}}
            counted = await send(served, {**body, "max_tokens": None}, COUNT)
            usage = (await send(served, body)).json["usage"]
            assert counted.json == {"input_tokens": sum(usage[name] for name in usage if name.endswith("input_tokens"))}
            assert "x-responses-gateway-losses" not in counted.headers

    run(test())


def test_where_nobody_counts_it_is_an_estimate_and_says_so() -> None:
    async def test() -> None:
        async with model(text_stream("hi")) as (served, _):
            counted = await send(served, {"system": "word " * 700}, COUNT)
            assert 800 < counted.json["input_tokens"] < 1200
            assert counted.headers["x-responses-gateway-losses"] == 'adapted="parameter:input_tokens"'

    run(test())


def test_a_request_for_more_tokens_than_the_context_has_room_for_is_reduced() -> None:
    async def test() -> None:
        options = SimulatorOptions(dialect=DIALECTS["vllm"], max_model_len=400)
        async with simulated(options) as served:
            answer = await send(served, {"max_tokens": 32_000})
            assert answer.status == 200, answer.body
            assert "parameter:max_tokens" in answer.headers["x-responses-gateway-losses"]
            fitting = await send(served, {"max_tokens": 50})
            assert "x-responses-gateway-losses" not in fitting.headers
            long = await send(served, {"max_tokens": 50, "messages": [{"role": "user", "content": "word " * 1000}]})
            assert "prompt is too long: " in error_in(long, 400, "invalid_request_error")

    run(test())


def with_window(count: bytes | None) -> Play:
    """Be a backend whose window has 20,000 tokens; `count` is what its `/tokenize` answers, None: it has none."""
    models = b'{"data":[{"id":"simulator","object":"model","owned_by":"vllm","max_model_len":20000}]}'

    async def play(connection: Connection) -> None:
        if connection.request.startswith(b"GET /v1/models"):
            await refusing(200, models)(connection)
        elif connection.request.startswith(b"POST /tokenize"):
            await (refusing(404, b'{"detail":"Not Found"}') if count is None else refusing(200, count))(connection)
        elif connection.request.startswith(b"POST /v1/chat"):
            await streaming(*text_stream("hi"))(connection)
        else:
            await refusing(404, b"{}")(connection)

    return play


@pytest.mark.parametrize(("count", "questions", "most"), [(b'{"count":15000}', 2, 5000), (None, 1, 9999)])
def test_a_backend_that_counts_is_asked_for_each_long_request_and_one_that_cannot_is_asked_once(
    count: bytes | None, questions: int, most: int
) -> None:
    async def test() -> None:
        async with backend(with_window(count)) as behind, gateway(behind.url) as served:
            said = [{"role": "user", "content": "é word " * 7000}, {"role": "assistant", "content": "Yes."}]
            for number in range(2):
                messages = [*said, {"role": "user", "content": f"And {number}?"}]
                assert (await send(served, {"max_tokens": 10_000, "messages": messages})).status == 200
        bodies = [request.partition(b"\r\n\r\n") for request in behind.requests]
        asked = [json.loads(body) for head, _, body in bodies if head.startswith(b"POST /tokenize")]
        sent = [json.loads(body) for head, _, body in bodies if head.startswith(b"POST /v1/chat")]
        assert len(asked) == questions
        for question, chat in zip(asked, sent, strict=False):
            assert question["messages"] == chat["messages"]
        assert [body["messages"][-1]["content"] for body in sent] == ["And 0?", "And 1?"]
        limits = {body.get("max_tokens") or body.get("max_completion_tokens") for body in sent}
        assert len(limits) == 1
        assert 0 < limits.pop() <= most

    run(test())


# ---- what else works as at the other door ------------------------------------------------------------------------------


def test_the_beginning_of_an_answer_is_continued_by_vllm_alone() -> None:
    async def test() -> None:
        begun = {"messages": [{"role": "user", "content": "JSON!"}, {"role": "assistant", "content": "{"}]}
        async with model(text_stream("}")) as (served, talking):
            assert "messages" in error_in(await send(served, begun), 400, "invalid_request_error")
            assert talking.requests == []
        async with simulated() as served:
            assert (await send(served, begun)).status == 200

    run(test())


@pytest.mark.slow
def test_a_web_search_is_run_here_and_shown_with_its_results_and_citations() -> None:
    async def test() -> None:
        question = {
            "messages": [{"role": "user", "content": "scenario: research How high is the tower?"}],
            "tools": [
                {"type": "web_search_20250305", "name": "web_search", "max_uses": 8},
                {"type": "web_fetch_20250910", "name": "web_fetch"},
            ],
            "max_tokens": 1000,
        }
        async with searched_web() as web:
            async with simulated(**web.settings) as served:
                message = (await send(served, question)).json
                assert message["usage"]["server_tool_use"] == {"web_search_requests": 1, "web_fetch_requests": 1}
                blocks = message["content"]
                kinds = [block["type"] for block in blocks]
                assert kinds == [
                    "server_tool_use", "web_search_tool_result", "server_tool_use", "web_fetch_tool_result", "text",
                ]  # fmt: skip
                assert blocks[1]["content"][0]["url"] == blocks[-1]["citations"][0]["url"] == f"{web.site.url}/tower"
                assert blocks[-1]["citations"][0]["cited_text"] == "All about it."
                history = [*question["messages"], {"role": "assistant", "content": blocks}, {"role": "user", "content": "hi"}]
                assert (await send(served, {**question, "messages": history})).status == 200
            async with simulated() as served:
                refused = error_in(await send(served, question), 400, "invalid_request_error")
                assert "web_search_20250305" in refused
                assert "web_search_url" in refused

    run(test())


@pytest.mark.parametrize(
    ("name", "ids"),
    [
        ("moonshotai/Kimi-K2", ["functions.Bash:0", "functions.Read:1", "functions.Bash:2"]),
        ("Devstral-Small", [NINE, NINE, NINE]),
        ("qwen3", ["toolu_1", "toolu_2", "toolu_3"]),
    ],
)
def test_templates_that_read_the_ids_of_calls_get_those_that_they_want(name: str, ids: list[str]) -> None:
    async def test() -> None:
        calls = [("toolu_1", "Bash"), ("toolu_2", "Read"), ("toolu_3", "Bash")]
        messages: list[dict[str, Any]] = [{"role": "user", "content": "x"}]
        items: list[dict[str, Any]] = [{"role": "user", "content": "x"}]
        for call_id, tool in calls:
            messages += [
                {"role": "assistant", "content": [{"type": "tool_use", "id": call_id, "name": tool, "input": {}}]},
                {"role": "user", "content": [{"type": "tool_result", "tool_use_id": call_id, "content": "ok"}]},
            ]
            items += [
                {"type": "function_call", "call_id": call_id, "name": tool, "arguments": "{}"},
                {"type": "function_call_output", "call_id": call_id, "output": "ok"},
            ]
        async with model(text_stream("hi")) as (served, talking):
            assert (await send(served, {"model": name, "messages": messages})).status == 200
            assert (await ask(served, "POST", "/v1/responses", json={"model": name, "input": items})).status == 200
            sent, same = [request["messages"] for request in talking.requests]
            assert sent == same
            made = [call["id"] for message in sent for call in message.get("tool_calls", ())]
            assert made == [message["tool_call_id"] for message in sent if message["role"] == "tool"]
            assert len(set(made)) == 3
            assert all(re.fullmatch(wanted, got) for wanted, got in zip(ids, made, strict=True))

    run(test())


def test_requests_of_one_user_go_to_the_same_backend() -> None:
    async def test() -> None:
        async with fleet() as served:
            for number in range(6):
                question = {"messages": [{"role": "user", "content": f"{number}"}], "metadata": {"user_id": "session 1"}}
                assert (await send(served, question)).status == 200
            asked = [served.metric("backend_requests_total", backend=name) for name in served.parts.pool.members.by_name]
            assert sorted(asked) == [0, 6]

    run(test())


def test_an_answer_that_breaks_off_is_continued_by_another_backend() -> None:
    async def test() -> None:
        async with fleet() as served:
            question = {
                "messages": [{"role": "user", "content": "scenario: demo fault: drop=text,times=1"}],
                "max_tokens": 1000,
            }
            broken = await send(served, {**question, "stream": True})
            assert served.metric("continuations_total", outcome="continued", reason="broke") == 1
            whole = await send(served, {**question, "messages": [{"role": "user", "content": "scenario: demo"}]})
            assert text_of(events_of(broken.body)) == whole.json["content"][0]["text"]

    run(test())


def test_the_api_is_in_the_log_and_in_the_metrics() -> None:
    async def test() -> None:
        with log_lines() as written:
            async with simulated(access_log=True) as served:
                await send(served)
                await until(lambda: len(written("response")) == 1, "a line")
                assert written("response")[0]["api"] == "messages"
                counted = {"model": "simulator", "outcome": "completed", "stream": "false"}
                assert served.metric("requests_total", **counted, api="messages") == 1
                assert served.metric("requests_total", **counted, api="responses") == 0

    run(test())


def test_a_recorded_exchange_is_run_again(tmp_path: Path) -> None:
    async def test() -> None:
        async with simulated(record=tmp_path) as served:
            await send(served, {"stream": True, "thinking": {"type": "adaptive"}})
            await send(served, {"model": "claude-sonnet-5", "system": "x"})
            await send(served, {"messages": [{"role": "user", "content": [{"type": "text"}]}]})

    run(test())
    records = sorted(tmp_path.glob("exchange-*.jsonl"))
    assert [replay(path).differences for path in records] == [[], [], []]
    shown = answer(records[0].read_text(encoding="utf-8"))["items"]
    assert [item["type"] for item in shown] == ["reasoning", "message"]
    assert all(item["so_far"] for item in shown)


def test_a_message_that_fails_once_tools_have_run_is_an_error_that_is_not_repeated() -> None:
    async def test() -> None:
        asked = chunk(
            {"tool_calls": [{"index": 0, "id": "c", "function": {"name": "web_search", "arguments": '{"queries":["x"]}'}}]}
        )
        turn = [asked, chunk({}, "tool_calls"), b"data: [DONE]\n\n"]
        engine = SearchEngine()
        async with open_site(engine), model(turn, 500, web_search_url=engine.url, retries=0) as (served, _):
            answer = await send(served, {"tools": [{"type": "web_search_20250305", "name": "web_search"}]})
            assert "this went wrong" in error_in(answer, 502, "api_error")
            assert answer.headers["x-should-retry"] == "false"

    run(test())


def test_the_classifier_of_claude_code_gets_its_verdict_and_the_stop_sequence() -> None:
    async def test() -> None:
        ended = chunk({}, "stop").replace(b'"finish_reason": "stop"', b'"finish_reason": "stop", "stop_reason": "</block>"')
        thought = chunk({"reasoning": "Is this dangerous?"})
        turn = [thought, chunk({"content": "<block>no"}), ended, b"data: [DONE]\n\n"]
        asked = {"model": "claude-sonnet-5", "max_tokens": 64, "stop_sequences": ["</block>"], "thinking": {"type": "disabled"}}
        async with model(turn, messages_model="qwen3") as (served, talking):
            answer = (await send(served, asked)).json
            assert answer["content"] == [{"type": "text", "text": "<block>no"}]
            assert (answer["stop_reason"], answer["stop_sequence"]) == ("stop_sequence", "</block>")
            [sent] = talking.requests
            assert (sent["model"], sent["stop"], sent["reasoning_effort"]) == ("qwen3", ["</block>"], "none")
            assert sent["chat_template_kwargs"] == {"enable_thinking": False}

    run(test())


def test_a_client_that_leaves_frees_the_backend() -> None:
    async def test() -> None:
        async def play(connection: Connection) -> None:
            if connection.request.startswith(b"GET"):  # for its models
                connection.close()
                return
            connection.write(HEAD)
            connection.send(chunk({"content": "never"}))
            await connection.lost

        async with backend(play) as behind, gateway(behind.url) as served:
            client = await RawClient.connect(served)
            data = json.dumps({**QUESTION, "stream": True}).encode()
            head = f"POST {PATH} HTTP/1.1\r\nHost: x\r\nContent-Length: {len(data)}\r\nContent-Type: application/json\r\n\r\n"
            await client.send(head.encode() + data)
            await client.read_until(b"text_delta")
            client.close()
            await until(lambda: all(connection.lost.done() for connection in behind.connections), "the backend is free")

    run(test())


def test_a_client_that_leaves_while_its_tokens_are_counted_frees_the_backend() -> None:
    async def test() -> None:
        counting = asyncio.Event()

        async def play(connection: Connection) -> None:
            if connection.request.startswith(b"GET"):  # for its models
                connection.close()
                return
            counting.set()
            await connection.lost

        async with backend(play) as behind, gateway(behind.url) as served:
            asking = asyncio.create_task(send(served, path=COUNT))
            await counting.wait()
            asking.cancel()
            await until(lambda: all(connection.lost.done() for connection in behind.connections), "the backend is free")
            assert any(request.startswith(b"POST /tokenize") for request in behind.requests)

    run(test())


@pytest.mark.parametrize("stream", [True, False])
def test_a_quota_holds_at_this_door_and_its_refusal_is_not_repeated(stream: bool) -> None:
    async def test() -> None:
        keys = {"alice": {"hash": hash_of(KEY), "tokens_per_day": 1}}
        long = [{"role": "user", "content": "a question that is longer than a block of the cache " * 4}]
        async with simulated(store="memory", api_keys=keys) as served:
            asked = {**QUESTION, "messages": long, "stream": stream}
            first = await ask(served, "POST", PATH, json=asked, headers={"x-api-key": KEY})
            assert first.status == 200
            usage = events_of(first.body)[-2]["usage"] if stream else first.json["usage"]
            told = sum(count for name, count in usage.items() if name.endswith("put_tokens"))
            second = await ask(served, "POST", PATH, json=QUESTION, headers={"x-api-key": KEY})
            assert f"key alice has used {told} of 1 tokens" in error_in(second, 429, "rate_limit_error")
            assert "retry-after" not in second.headers
            assert second.headers["x-should-retry"] == "false"

    run(test())


def test_a_key_sees_and_asks_its_own_models_alone() -> None:
    async def test() -> None:
        keys = {"alice": {"hash": hash_of(KEY), "models": ["other*"]}}
        async with simulated(api_keys=keys) as served:
            asked = await ask(served, "POST", PATH, json=QUESTION, headers={"x-api-key": KEY})
            assert asked.status == 404
            listed = await ask(served, "GET", "/v1/models", headers={"x-api-key": KEY, **VERSION})
            assert listed.json["data"] == []

    run(test())
