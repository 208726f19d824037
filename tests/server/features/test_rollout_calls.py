"""Calls of a rollout that are not plain: continued by another backend, of hosted tools, of servers without ids."""

from __future__ import annotations

from dataclasses import replace
from itertools import pairwise
from typing import Any

import aiohttp
import pytest

from responses_gateway.simulator import DIALECTS, SimulatorOptions, answer
from responses_gateway.state import StoreUnavailable
from responses_gateway.state.token_trees import TokenTreeTable
from tests.hosted.websites import searched_web
from tests.server.fleet_of_simulators import WEATHER, fleet
from tests.server.running_gateway import Served, ask, gateway, run, simulated
from tests.server.scripted_backend import backend, chunk, streaming


async def calls_of(served: Served, name: str, **fields: Any) -> list[dict[str, Any]]:
    """Have a response made, as part of a rollout; return the calls of this."""
    body = {"model": "simulator", **fields}
    headers = {"X-Rollout-Id": name, "X-Token-True": "1"}
    async with aiohttp.ClientSession() as session:
        async with session.post(f"{served.url}/v1/responses", json=body, headers=headers) as answer:
            assert answer.status == 200, await answer.text()
            await answer.read()
        async with session.get(f"{served.url}/rollouts/{name}") as answer:
            return list((await answer.json())["calls"])


@pytest.mark.parametrize("dialect", ["vllm", "vllm-raw"])
def test_what_another_backend_continued_is_one_call_with_all_ids(dialect: str) -> None:
    async def test() -> None:
        async with fleet(dialect) as served:
            question = "scenario: demo fault: drop={},times={}"
            [whole] = await calls_of(served, "whole", input=question.format("05", 0), tools=[WEATHER], stream=True)
            for position in (10, 33, 60):
                name = f"cut-{position}"
                text = question.format(position, 1)
                [call] = await calls_of(served, name, input=text, tools=[WEATHER], stream=True)
                assert call["generation_token_ids"] == whole["generation_token_ids"], position
                assert call["generation_log_probs"] == whole["generation_log_probs"]
                assert places(call) == places(whole)
                assert call["reason"] is None
            assert served.metric("continuations_total", outcome="continued", reason="broke") == 3

    run(test())


@pytest.mark.slow
def test_each_turn_with_hosted_tools_is_a_call() -> None:
    async def test() -> None:
        async with searched_web() as searched, fleet("vllm", **searched.settings) as served:
            question = "scenario: research How high is the tower?"
            calls = await calls_of(served, "ep1", input=question, tools=[{"type": "web_search"}])
        assert len(calls) == 3
        assert len({call["response_id"] for call in calls}) == 1
        assert [call["id"] for call in calls][-1] == calls[0]["response_id"]
        for earlier, later in pairwise(calls):
            known = earlier["prompt_token_ids"] + earlier["generation_token_ids"]
            assert later["parent"] == earlier["id"]
            assert later["prompt_token_ids"][: len(known)] == known
            assert (later["reason"], later["token_true"]) == (None, True)

    run(test())


def test_a_server_without_ids_is_on_record() -> None:
    async def test() -> None:
        async with simulated(SimulatorOptions(dialect=DIALECTS["sglang"])) as served:
            [call] = await calls_of(served, "ep1", input="hi")
        assert (call["generation_token_ids"], call["reason"]) == (None, "no_token_ids")
        assert call["finish_reason"] == "stop"

    run(test())


@pytest.mark.parametrize("include", [[], ["token_ids"]])
def test_a_call_whose_name_has_half_a_character_is_on_record(include: list[str]) -> None:
    async def test() -> None:
        called = {"index": 0, "id": "c1", "type": "function", "function": {"name": "get\ud83d", "arguments": "{}"}}
        stream = streaming(chunk({"tool_calls": [called]}), chunk({}, "tool_calls"), b"data: [DONE]\n\n")
        async with backend(stream) as server, gateway(server.url, store="memory") as served:
            for number in range(2):
                calls = await calls_of(served, "ep1", input="hi", tools=[WEATHER], stream=bool(number), include=include)
            assert [call["finish_reason"] for call in calls] == ["tool_calls"] * 2
            [item] = await output_of(served, calls[-1]["response_id"])
            assert item["name"] == "get?"

    run(test())


@pytest.mark.parametrize(
    ("last", "reason"),
    [
        ({"finish_reason": "st\ud83d"}, "st?"),
        ({"finish_reason": "stop", "weight_versions": [{"version": "\ud83d"}]}, "stop"),
        ({"finish_reason": "stop", "weight_versions": [{"version": "BYTE"}]}, "stop"),
    ],
)
def test_a_call_whose_end_or_weights_have_a_part_of_a_character_is_on_record(last: dict[str, Any], reason: str) -> None:
    async def test() -> None:
        end = chunk(None, choices=[{"index": 0, "delta": {}, **last}]).replace(b"BYTE", b"\xff")
        stream = streaming(chunk({"content": "hi"}), end, b"data: [DONE]\n\n")
        async with backend(stream) as server, gateway(server.url, store="memory") as served:
            for number in range(2):
                calls = await calls_of(served, "ep1", input="hi", stream=bool(number))
            assert [call["finish_reason"] for call in calls] == [reason] * 2
            assert (await output_of(served, calls[-1]["response_id"]))[0]["status"] == "completed"

    run(test())


def test_a_history_that_was_changed_is_sent_as_messages_and_on_record() -> None:
    async def test() -> None:
        async with simulated() as served:
            await calls_of(served, "ep1", input=question(), tools=[WEATHER])
            history = [*question(), {"role": "assistant", "content": "Something else."}, {"role": "user", "content": "go on"}]
            other = await calls_of(served, "ep1", input=history)
        assert [call["reason"] for call in other] == [None, "history_differs"]

    run(test())


@pytest.mark.parametrize("dialect", ["vllm", "vllm-raw"])
@pytest.mark.parametrize("scenario", ["tool", "parallel", "broken_arguments", "text_after_call", "reasoning_only", "empty"])
@pytest.mark.parametrize("stateless", [True, False])
def test_a_prompt_that_does_not_extend_the_call_before_has_a_reason(dialect: str, scenario: str, stateless: bool) -> None:
    """Whatever the model has said: no answer, half a call, a call whose arguments are no JSON."""

    async def test() -> None:
        async with fleet(dialect, store="memory") as served:
            items: list[dict[str, Any]] = [{"role": "user", "content": f"scenario: {scenario}"}]
            fields: dict[str, Any] = {}
            for number in range(4):
                calls = await calls_of(served, "ep1", input=items, tools=[WEATHER], **fields)
                output = await output_of(served, calls[-1]["response_id"])
                results = [
                    {"type": "function_call_output", "call_id": item["call_id"], "output": "sunny"}
                    for item in output
                    if item["type"] == "function_call"
                ]
                new = results or [{"role": "user", "content": f"scenario: {scenario}, the {number}. time"}]
                items = [*items, *output, *new] if stateless else new
                fields = {} if stateless else {"previous_response_id": calls[-1]["response_id"]}
        silent = scenario == "empty" or (dialect, scenario) == ("vllm-raw", "reasoning_only")
        for earlier, call in pairwise(calls):
            known = earlier["prompt_token_ids"] + earlier["generation_token_ids"]
            extends = call["prompt_token_ids"][: len(known)] == known
            assert extends == call.get("token_true", False) == (not silent)
            # Without a name, and with nothing of the model in its messages, a prompt continues nothing.
            assert call["parent"] == (None if silent and stateless else earlier["id"])
            assert call["reason"] == ("history_differs" if silent and not stateless else None)

    run(test())


@pytest.mark.parametrize("dialect", ["vllm", "vllm-raw"])
def test_a_call_whose_arguments_claude_code_keeps_as_unparsed_input_is_continued_by_ids(dialect: str) -> None:
    tool = {"name": WEATHER["name"], "input_schema": WEATHER["parameters"]}
    messages: list[dict[str, Any]] = [{"role": "user", "content": "scenario: broken_arguments"}]
    body = {"model": "simulator", "max_tokens": 500, "tools": [tool], "messages": messages}

    async def test() -> None:
        async with fleet(dialect, store="memory") as served:
            headers = {"X-Rollout-Id": "ep1", "X-Token-True": "1"}
            for _ in range(3):
                answer = await ask(served, "POST", "/v1/messages", json=body, headers=headers)
                assert answer.status == 200, answer.body
                content = answer.json["content"]
                [called] = [block for block in content if block["type"] == "tool_use"]
                assert "__unparsedToolInput" in called["input"]
                failed = {
                    "type": "tool_result",
                    "tool_use_id": called["id"],
                    "content": "InputValidationError",
                    "is_error": True,
                }
                again = {"type": "text", "text": "scenario: broken_arguments"}
                messages.extend([{"role": "assistant", "content": content}, {"role": "user", "content": [failed, again]}])
            calls = (await ask(served, "GET", "/rollouts/ep1")).json["calls"]
        assert [(call["reason"], call.get("token_true")) for call in calls] == [(None, None), *[(None, True)] * 2]
        for earlier, call in pairwise(calls):
            known = earlier["prompt_token_ids"] + earlier["generation_token_ids"]
            assert (call["parent"], call["prompt_token_ids"][: len(known)]) == (earlier["id"], known)

    run(test())


@pytest.mark.parametrize("dialect", ["vllm", "vllm-raw"])
@pytest.mark.parametrize("tokens", [5, 30])
def test_an_answer_that_was_cut_is_continued_by_messages(dialect: str, tokens: int) -> None:
    """Within its thought, too, of which nothing is in the messages."""

    async def test() -> None:
        async with fleet(dialect, store="memory") as served:
            [first] = await calls_of(served, "ep1", input="scenario: reasoning", max_output_tokens=tokens)
            calls = await calls_of(served, "ep1", input="go on", previous_response_id=first["id"])
        assert (calls[-1]["parent"], calls[-1]["reason"]) == (first["id"], "answer_cut")

    run(test())


async def output_of(served: Served, response_id: str) -> list[dict[str, Any]]:
    async with aiohttp.ClientSession() as session, session.get(f"{served.url}/v1/responses/{response_id}") as answer:
        return list((await answer.json())["output"])


def test_a_thread_whose_history_was_rewritten_has_a_reason() -> None:
    """As after a compaction: nothing that the model has said is in the messages, but its client names the thread."""

    async def test() -> None:
        async with simulated() as served, aiohttp.ClientSession() as session:
            headers = {"X-Rollout-Id": "ep1", "X-Token-True": "1", "X-Session-Id": "s1"}
            for text in ("hi", "The story so far: you said hello."):
                body = {"model": "simulator", "input": text}
                async with session.post(f"{served.url}/v1/responses", json=body, headers=headers) as answer:
                    assert answer.status == 200
            async with session.get(f"{served.url}/rollouts/ep1") as answer:
                first, second = (await answer.json())["calls"]
        assert (second["parent"], second["reason"]) == (first["id"], "history_differs")

    run(test())


def test_a_prompt_whose_earlier_tokens_cannot_be_read_is_sent_as_messages_and_on_record(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async def away(*_: object) -> None:
        raise StoreUnavailable("away")

    async def test() -> None:
        async with simulated(store="memory") as served:
            [first] = await calls_of(served, "ep1", input="hi")
            monkeypatch.setattr(TokenTreeTable, "parent_of", away)
            calls = await calls_of(served, "ep1", input="go on", previous_response_id=first["response_id"])
        assert calls[-1]["reason"] == "store_unavailable"

    run(test())


def test_without_its_store_a_rollout_is_refused_and_others_are_served(monkeypatch: pytest.MonkeyPatch) -> None:
    async def away(*_: object) -> None:
        raise StoreUnavailable("away")

    async def test() -> None:
        async with simulated() as served, aiohttp.ClientSession() as session:
            monkeypatch.setattr(TokenTreeTable, "begin", away)
            monkeypatch.setattr(TokenTreeTable, "tree", away)
            body = {"model": "simulator", "input": "hi"}
            url = f"{served.url}/v1/responses"
            async with session.post(url, json=body, headers={"X-Rollout-Id": "ep1"}) as answer:
                assert (answer.status, "store" in (await answer.json())["error"]["message"]) == (503, True)
            async with session.get(f"{served.url}/rollouts/ep1") as answer:
                assert answer.status == 503
            async with session.post(url, json=body) as answer:
                assert answer.status == 200

    # The store being away is in the log, as an error.
    with pytest.raises(AssertionError, match="away"):
        run(test())


@pytest.mark.parametrize("has_log_probs", [True, False])
def test_a_server_that_ignores_the_ids_of_a_prompt_is_on_record(monkeypatch: pytest.MonkeyPatch, has_log_probs: bool) -> None:
    """The answer is the client's all the same; that log probabilities are missing, too, does not hide it."""
    dialect = DIALECTS["vllm"]
    if not has_log_probs:
        dialect = replace(dialect, shape=replace(dialect.shape, has_logprobs=False))

    async def test() -> None:
        async with simulated(SimulatorOptions(dialect=dialect), store="memory") as served:
            for name, reads_ids in (("read", True), ("ignored", False)):
                if not reads_ids:
                    monkeypatch.setattr(answer, "chat_prompt_ids", lambda _: None)
                [first] = await calls_of(served, name, input="scenario: demo", tools=[WEATHER])
                calls = await calls_of(served, name, input="go on", tools=[WEATHER], previous_response_id=first["response_id"])
                reason = (None if has_log_probs else "no_log_probs") if reads_ids else "ids_ignored"
                assert (calls[-1]["reason"], calls[-1].get("token_true", False)) == (reason, reads_ids)
                assert calls[-1]["generation_token_ids"]

    run(test())


@pytest.mark.parametrize(
    ("path", "headers"),
    [
        ("/rollouts/ep1/v1/responses", {}),
        ("/v1/responses", {"X-Rollout-Id": "ep1"}),
        ("/v1/responses", {"Authorization": "Bearer key:ep1", "X-Rollout-Id": "other"}),
    ],
)
def test_messages_of_a_websocket_belong_to_the_rollout_that_it_names(path: str, headers: dict[str, str]) -> None:
    async def test() -> None:
        async with simulated() as served, aiohttp.ClientSession(headers=headers) as session:
            async with session.ws_connect(served.url + path) as socket:
                await socket.send_json({"type": "response.create", "model": "simulator", "input": "hi"})
                async for message in socket:
                    if message.json()["type"] == "response.completed":
                        break
            async with session.get(f"{served.url}/rollouts/ep1") as found:
                [call] = (await found.json())["calls"]
        assert call["generation_token_ids"]

    run(test())


def places(call: dict[str, Any]) -> list[tuple[int, int]]:
    return [(span["from"], span["to"]) for span in call["item_spans"]]


@pytest.mark.parametrize("dialect", ["vllm", "vllm-raw", "vllm-raw-opened"])
def test_a_record_tells_the_tokens_of_each_item(dialect: str) -> None:
    """They are the same whether the server parses or the gateway."""

    async def test() -> None:
        async with fleet(dialect) as served:
            [call] = await calls_of(served, "ep1", input="scenario: demo", tools=[WEATHER])
            [whole] = await calls_of(served, "ep2", input="scenario: demo", tools=[WEATHER], stream=True)
        assert places(call) == places(whole)
        assert len(places(call)) == 3
        for (_, end), (begin, _) in pairwise(places(call)):
            assert begin > end  # there is a marker between them

    run(test())


def question() -> list[dict[str, Any]]:
    return [{"role": "user", "content": "hi"}]
