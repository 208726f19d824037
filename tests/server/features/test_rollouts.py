"""Rollouts through the front door: named, kept token by token, read as trees."""

from __future__ import annotations

import json
from itertools import pairwise
from pathlib import Path

import aiohttp
import pytest

from responses_gateway.conformance.checker import frames
from responses_gateway.settings.keys import hash_of
from tests.judges import judge_stream
from tests.server.gateway_process import fresh_connections, program
from tests.server.running_gateway import run, simulated


def test_the_calls_of_a_rollout_are_kept_as_they_were_sampled() -> None:
    async def test() -> None:
        async with simulated(store="memory") as served, aiohttp.ClientSession() as session:
            first, second = await two_turns(session, served.url)
            rollout = await read(session, f"{served.url}/rollouts/ep1")
        one, two = rollout["calls"]
        assert [one["response_id"], two["response_id"]] == [first["id"], second["id"]]
        assert [one["parent"], two["parent"]] == [None, first["id"]]
        assert len(one["generation_token_ids"]) == first["usage"]["output_tokens"]
        assert len(one["generation_log_probs"]) == len(one["generation_token_ids"])
        assert len(two["prompt_token_ids"]) == second["usage"]["input_tokens"]
        assert "generation_token_ids" not in first["output"][-1]

    run(test())


async def post(session: aiohttp.ClientSession, url: str, body: dict, headers: dict) -> dict:
    async with session.post(f"{url}/v1/responses", json=body, headers=headers) as answer:
        assert answer.status == 200, await answer.text()
        return await answer.json()


async def two_turns(session: aiohttp.ClientSession, url: str) -> tuple[dict, dict]:
    """Ask two questions of the rollout `ep1`, one after the other; return the responses."""
    headers = {"X-Rollout-Id": "ep1"}
    first = await post(session, url, {"model": "simulator", "input": "hi"}, headers)
    body = {"model": "simulator", "input": "go on", "previous_response_id": first["id"]}
    return first, await post(session, url, body, headers)


async def read(session: aiohttp.ClientSession, url: str) -> dict:
    async with session.get(url) as answer:
        assert answer.status == 200, await answer.text()
        return await answer.json()


def test_a_chain_is_one_list_with_what_was_sampled_marked() -> None:
    async def test() -> None:
        async with simulated(store="memory") as served, aiohttp.ClientSession() as session:
            first, second = await two_turns(session, served.url)
            rollout = await read(session, f"{served.url}/rollouts/ep1")
            chain = await read(session, f"{served.url}/rollouts/ep1?chain={second['id']}")
            of_response = await read(session, f"{served.url}/v1/responses/{second['id']}/trajectory")
            of_first = await read(session, f"{served.url}/v1/responses/{first['id']}/trajectory")
        one, two = rollout["calls"]
        sampled = one["generation_token_ids"] + two["generation_token_ids"]
        assert [token for token, mask in zip(chain["token_ids"], chain["mask"], strict=True) if mask] == sampled
        assert len(chain["log_probs"]) == len(chain["token_ids"])
        begin = chain["breaks"][-1] if chain["breaks"] else 0
        assert chain["token_ids"][begin:] == two["prompt_token_ids"] + two["generation_token_ids"]
        assert of_response["calls"] == [one, two]
        assert of_first["calls"] == [one]

    run(test())


def test_a_rollout_has_the_last_reward_that_it_was_given() -> None:
    async def test() -> None:
        async with simulated() as served, aiohttp.ClientSession() as session:
            url = f"{served.url}/rollouts/ep1"
            assert await status(session, "post", f"{url}/reward", json={"reward": 1}) == 404
            await post(session, served.url, {"model": "simulator", "input": "hi"}, {"X-Rollout-Id": "ep1"})
            for reward in (1, {"score": [0.5, None]}):
                assert await status(session, "post", f"{url}/reward", json={"reward": reward}) == 200
            assert (await read(session, url))["reward"] == {"score": [0.5, None]}
            assert await status(session, "post", f"{url}/reward", json={"reward": "x" * 65_537}) == 413
            assert await status(session, "post", f"{url}/reward", json={}) == 400
            assert await status(session, "delete", url) == 200
            assert await status(session, "get", url) == 404

    run(test())


async def status(session: aiohttp.ClientSession, method: str, url: str, **body: object) -> int:
    async with session.request(method, url, **body) as answer:
        await answer.read()
        return answer.status


KEY = "sk-a-key-of-many-characters"


def test_a_rollout_is_named_by_the_key_before_the_path_and_the_header() -> None:
    async def test() -> None:
        async with simulated(api_keys={"one": {"hash": hash_of(KEY)}}) as served, aiohttp.ClientSession() as session:
            header = {"X-Rollout-Id": "header"}
            own = {"Authorization": f"Bearer {KEY}"}
            for path, key, headers in (
                ("/rollouts/path/v1/responses", f"{KEY}:key", header),
                ("/rollouts/path/v1/messages", KEY, header),
                ("/v1/messages", KEY, header),
            ):
                named = {**headers, "Authorization": f"Bearer {key}"}
                body = {"model": "simulator", "input": "hi"}
                if path.endswith("messages"):
                    body = {"model": "simulator", "max_tokens": 100, "messages": [{"role": "user", "content": "hi"}]}
                assert await status(session, "post", f"{served.url}{path}", json=body, headers=named) == 200
            for name in ("key", "path", "header"):
                async with session.get(f"{served.url}/rollouts/{name}", headers=own) as answer:
                    [call] = (await answer.json())["calls"]
                assert call["prompt_token_ids"]
            assert await status(session, "post", f"{served.url}/rollouts/a_b:c/v1/responses", json={}, headers=own) == 400
            bad = {"Authorization": f"Bearer {KEY}:a/b"}
            assert await status(session, "post", f"{served.url}/v1/responses", json={}, headers=bad) == 400
            wrong = {"Authorization": "Bearer nobody:ep1"}
            assert await status(session, "post", f"{served.url}/v1/responses", json={}, headers=wrong) == 401

    run(test())


def test_without_keys_of_the_gateway_the_client_is_who_has_the_key_before_the_rollout() -> None:
    async def test() -> None:
        async with simulated() as served, aiohttp.ClientSession() as session:
            headers = {"Authorization": "Bearer own-key:ep1"}
            await post(session, served.url, {"model": "simulator", "input": "hi"}, headers)
            for key, expected in (("own-key", 200), ("own-key:other", 200), ("another", 404), ("another:ep1", 404)):
                url = f"{served.url}/rollouts/ep1"
                assert await status(session, "get", url, headers={"Authorization": f"Bearer {key}"}) == expected

    run(test())


NAMES_OF_THE_KEY = ("Authorization", "X-Api-Key", "Api-Key")
MESSAGE = {"model": "simulator", "max_tokens": 20, "messages": [{"role": "user", "content": "hi"}]}


@pytest.mark.parametrize("name", NAMES_OF_THE_KEY)
@pytest.mark.parametrize(
    ("path", "body"), [("/v1/responses", {"model": "simulator", "input": "hi"}), ("/v1/messages", MESSAGE)]
)
def test_without_keys_of_the_gateway_a_rollout_is_its_clients_whatever_header_has_the_key(
    name: str, path: str, body: dict
) -> None:
    def key(name: str, value: str) -> dict[str, str]:
        return {name: f"Bearer {value}" if name == "Authorization" else value}

    async def test() -> None:
        async with simulated() as served, aiohttp.ClientSession() as session:
            url = f"{served.url}/rollouts/ep1"
            assert await status(session, "post", f"{url}{path}", json=body, headers=key(name, "own")) == 200
            for other in NAMES_OF_THE_KEY:
                assert await status(session, "get", url, headers=key(other, "own")) == 200
                assert await status(session, "get", url, headers=key(other, "another")) == 404
            assert await status(session, "get", url) == 404
            assert await status(session, "post", f"{url}/reward", json={"reward": 1}) == 404
            behind = key(name, "own:ep2")
            assert await status(session, "post", f"{served.url}{path}", json=body, headers=behind) == 200
            assert await status(session, "get", f"{served.url}/rollouts/ep2", headers=key(name, "own")) == 200

    run(test())


def test_what_is_no_id_of_a_rollout_is_refused() -> None:
    async def test() -> None:
        async with simulated() as served, aiohttp.ClientSession() as session:
            for name in ("-begins", "a" * 129, "a b", ""):
                url = f"{served.url}/v1/responses"
                body = {"model": "simulator", "input": "hi"}
                assert await status(session, "post", url, json=body, headers={"X-Rollout-Id": name}) == 400
            assert await status(session, "get", f"{served.url}/rollouts/unknown") == 404

    run(test())


def test_an_error_below_the_prefix_is_in_the_words_of_the_protocol() -> None:
    async def test() -> None:
        async with simulated() as served, aiohttp.ClientSession() as session:
            bad = {**MESSAGE, "max_tokens": "many"}
            for path in ("/v1/messages", "/rollouts/ep1/v1/messages"):
                async with session.post(f"{served.url}{path}", json=bad) as answer:
                    error = await answer.json()
                    assert (answer.status, error["type"]) == (400, "error")
                    assert error["error"]["type"] == "invalid_request_error"
                    assert error["request_id"] == answer.headers["request-id"]

    run(test())


@pytest.mark.parametrize("with_keys", [True, False])
def test_a_key_with_no_rollout_behind_its_colon_is_refused(with_keys: bool) -> None:
    """Else a trainer whose name is empty finds out at the end that nothing was kept."""
    key = "a-key-of-alice-that-is-long-enough"

    async def test() -> None:
        settings = {"api_keys": {"alice": hash_of(key)}} if with_keys else {}
        async with simulated(**settings) as served, aiohttp.ClientSession() as session:
            for given, expected in ((f"{key}:", 400), (f"{key}:ep1", 200), (key, 200)):
                headers = {"Authorization": f"Bearer {given}"}
                body = {"model": "simulator", "input": "hi"}
                assert await status(session, "post", f"{served.url}/v1/responses", json=body, headers=headers) == expected

    run(test())


@pytest.mark.parametrize("store", ["memory", "sqlite"])
def test_the_tokens_of_responses_go_with_the_last_one_that_is_deleted(store: str, tmp_path: Path) -> None:
    """A prompt has what came before, so that it stays until then; those of a rollout are its trainer's."""
    kept = "memory" if store == "memory" else str(tmp_path / "store.sqlite3")

    async def test() -> None:
        async with simulated(store=kept) as served, aiohttp.ClientSession() as session:
            url = f"{served.url}/v1/responses"
            asked = {"model": "simulator", "include": ["token_ids"]}
            one = await post(session, served.url, {**asked, "input": "hi"}, {})
            two = await post(session, served.url, {**asked, "input": "go on", "previous_response_id": one["id"]}, {})
            other = await post(session, served.url, {**asked, "input": "hi"}, {})
            trained, _ = await two_turns(session, served.url)
            for response, left in ((one, [two, other]), (two, [other]), (trained, [other])):
                assert await status(session, "delete", f"{url}/{response['id']}") == 200
                for each in (one, two, other):
                    expected = 200 if each in left or (each is one and two in left) else 404
                    assert await status(session, "get", f"{url}/{each['id']}/trajectory") == expected
            assert len((await read(session, f"{served.url}/rollouts/ep1"))["calls"]) == 2

    run(test())


def test_without_a_store_the_tokens_in_memory_are_bounded_and_the_record_says_what_was_dropped(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("responses_gateway.server.features.rollouts.feature.MOST_BYTES_IN_MEMORY", 30_000)

    async def test() -> None:
        async with simulated(store="none") as served, aiohttp.ClientSession() as session:
            for number in (1, 1, 1, 1, 1, 1, 2, 2, 3, 3, 4, 4, 5, 5, 6, 6, 7, 7):
                headers = {"X-Rollout-Id": f"ep{number}"}
                await post(session, served.url, {"model": "simulator", "input": "hi"}, headers)
            records = [await read(session, f"{served.url}/rollouts/ep{number}") for number in range(1, 8)]
        assert records[0]["dropped_calls"] == 6
        assert records[0]["calls"] == []
        assert records[-1]["dropped_calls"] == 0
        assert [call["reason"] for call in records[-1]["calls"]] == [None, None]
        assert all(len(record["calls"]) + record["dropped_calls"] >= 2 for record in records)

    run(test())


@pytest.mark.slow
def test_without_a_store_a_rollout_has_the_calls_of_all_workers() -> None:
    async def test() -> None:
        flags = ("--simulator", "--workers", "2", "--no-adapt", "--store", "none")
        async with program(*flags) as running, fresh_connections() as session:
            body = {"model": "simulator", "input": "scenario: plain tps: 2000"}
            ids = [(await post(session, running.url, body, {"X-Rollout-Id": "ep1"}))["id"] for _ in range(10)]
            for _ in range(6):  # any worker may answer
                rollout = await read(session, f"{running.url}/rollouts/ep1")
                assert [call["id"] for call in rollout["calls"]] == ids

    run(test())


def test_a_rollout_that_has_its_share_of_memory_has_calls_without_tokens(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("responses_gateway.server.features.rollouts.feature.MOST_BYTES_IN_MEMORY", 30_000)

    async def test() -> None:
        async with simulated(store="none") as served, aiohttp.ClientSession() as session:
            for _ in range(9):
                await post(session, served.url, {"model": "simulator", "input": "hi"}, {"X-Rollout-Id": "ep1"})
            calls = (await read(session, f"{served.url}/rollouts/ep1"))["calls"]
        reasons = [call["reason"] for call in calls]
        assert len(reasons) == 9
        assert set(reasons) == {None, "no_room"}
        assert reasons == sorted(reasons, key=lambda reason: reason == "no_room")
        assert [call["generation_token_ids"] is None for call in calls] == [reason is not None for reason in reasons]

    run(test())


ARRAYS = ("prompt_token_ids", "generation_token_ids", "generation_log_probs")


def test_the_tokens_stand_on_the_last_item_alone_if_they_are_asked_for() -> None:
    async def test() -> None:
        async with simulated(store="memory") as served, aiohttp.ClientSession() as session:
            url = f"{served.url}/v1/responses"
            body = {"model": "simulator", "input": "think", "include": ["token_ids"]}
            async with session.post(url, json=body) as answer:
                assert "x-responses-gateway-losses" not in answer.headers
                whole = await answer.json()
            async with session.post(url, json={**body, "stream": True}) as answer:
                data = await answer.read()
            stored = await read(session, f"{url}/{whole['id']}")
            [call] = (await read(session, f"{url}/{whole['id']}/trajectory"))["calls"]
        *others, last = whole["output"]
        assert {name: last[name] for name in ARRAYS} == {name: call[name] for name in ARRAYS}
        assert len(last["generation_token_ids"]) == whole["usage"]["output_tokens"]
        assert not any(name in item for item in others for name in (*ARRAYS, "item_spans"))
        assert last["item_spans"] == call["item_spans"]
        assert [span["item_id"] for span in last["item_spans"]] == [item["id"] for item in whole["output"]]
        assert "prompt_token_ids" not in stored["output"][-1]
        assert judge_stream(data) == []
        events = [json.loads(frame.data) for frame in frames(data) if frame.data != "[DONE]"]
        done = [event["item"] for event in events if event["type"] == "response.output_item.done"]
        assert events[-1]["response"]["output"] == done
        assert done[-1]["generation_token_ids"] == last["generation_token_ids"]

    run(test())


TOOL = {
    "type": "function",
    "name": "get_weather",
    "parameters": {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]},
}


def answered(output: list[dict]) -> list[dict]:
    """Return what a client says to an answer: results of the calls, or the next question."""
    calls = [item["call_id"] for item in output if item["type"] == "function_call"]
    results = [{"type": "function_call_output", "call_id": call_id, "output": "sunny"} for call_id in calls]
    return results or [{"role": "user", "content": "What is the weather in Paris?"}]


@pytest.mark.slow
@pytest.mark.parametrize("stateless", [False, True])
def test_with_ids_each_prompt_of_a_long_tool_loop_extends_the_last_one(stateless: bool) -> None:
    async def test() -> None:
        async with simulated(store="memory") as served, aiohttp.ClientSession() as session:
            headers = {"X-Rollout-Id": "ep1", "X-Token-True": "1"}
            body: dict = {"model": "simulator", "tools": [TOOL], "store": not stateless}
            items = answered([])
            previous = None
            for _ in range(50):
                request = {**body, "input": items}
                if previous is not None and not stateless:
                    request["previous_response_id"] = previous
                response = await post(session, served.url, request, headers)
                previous = response["id"]
                news = answered(response["output"])
                items = [*items, *response["output"], *news] if stateless else news
            calls = (await read(session, f"{served.url}/rollouts/ep1"))["calls"]
            chain = await read(session, f"{served.url}/rollouts/ep1?chain={previous}")
        assert [call["reason"] for call in calls] == [None] * 50
        assert any(call["finish_reason"] == "tool_calls" for call in calls)
        for earlier, later in pairwise(calls):
            known = earlier["prompt_token_ids"] + earlier["generation_token_ids"]
            assert later["parent"] == earlier["id"]
            assert later["prompt_token_ids"][: len(known)] == known
        assert chain["breaks"] == []

    run(test())
