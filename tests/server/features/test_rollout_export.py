"""What a trainer reads of a rollout: who made each call, in pages and lines; and what each kind of server tells of tokens."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Mapping, Sequence
from contextlib import AbstractAsyncContextManager
from pathlib import Path
from typing import Any

import aiohttp
import pytest
from aiohttp import web

from responses_gateway.simulator import RECEIVED, create_app, serving
from tests.hosted.websites import searched_web
from tests.server.fleet_of_simulators import WEATHER, fleet
from tests.server.hosted.model import Model, model
from tests.server.resources.test_websocket_resource import connect
from tests.server.running_gateway import Served, ask, assert_error, gateway, post, run, simulated
from tests.server.scripted_backend import chunk

Json = dict[str, Any]


async def said(served: Served, *items: Any, headers: Mapping[str, str], **fields: Any) -> Json:
    """Have a response made."""
    answer = await post(served, model="simulator", input=list(items), stream=False, headers=dict(headers), **fields)
    assert answer.status == 200, answer.body
    response: Json = answer.json
    return response


async def read(served: Served, query: str = "", **headers: str) -> Json:
    answer = await ask(served, "GET", f"/rollouts/ep1{query}", headers=headers)
    assert answer.status == 200, answer.body
    found: Json = answer.json
    return found


def user(text: str) -> Json:
    return {"role": "user", "content": text}


# What requests say of themselves: two turns, and between them a title, a sub-agent and a compaction.
CHILD = {"x-claude-code-request-class": "subagent", "x-claude-code-agent-type": "Explore"}
ASKED: Sequence[tuple[str, dict[str, str]]] = (
    ("main", {"x-claude-code-request-class": "main"}),
    ("title", {"x-claude-code-request-class": "auxiliary"}),
    ("subagent", {"x-claude-code-agent-id": "a0123456789abcdef", **CHILD}),
    ("compaction", {"x-claude-code-request-class": "compaction"}),
    ("main", {"x-claude-code-request-class": "main"}),
)


def test_titles_compactions_and_sub_agents_are_calls_of_their_own() -> None:
    """The session of the client stays beside the rollout, and the chain of the work has no other calls."""

    async def test() -> None:
        async with simulated(store="memory") as served, aiohttp.ClientSession() as session:
            history: list[Json] = []
            for number, (kind, own) in enumerate(ASKED):
                headers = {"X-Rollout-Id": "ep1", "X-Claude-Code-Session-Id": "s1", **own}
                messages = [*history, user(f"question {number}")] if kind == "main" else [user(f"{kind} {number}")]
                body = {"model": "simulator", "max_tokens": 500, "messages": messages}
                async with session.post(f"{served.url}/v1/messages", json=body, headers=headers) as answer:
                    assert answer.status == 200
                    content = (await answer.json())["content"]
                if kind == "main":
                    history = [*messages, {"role": "assistant", "content": content}]
            calls = (await read(served))["calls"]
            chain = await read(served, f"?chain={calls[-1]['id']}")
        assert [call["kind"] for call in calls] == ["main", "auxiliary", "subagent", "compaction", "main"]
        assert {call["session"] for call in calls} == {"s1"}
        assert (calls[2]["thread"], calls[2]["agent"]) == ("a0123456789abcdef", "Explore")
        assert [call["parent"] for call in calls] == [None, None, None, None, calls[0]["id"]]
        assert chain["call_ids"] == [calls[0]["id"], calls[4]["id"]]

    run(test())


@pytest.mark.parametrize("pattern", ["Codex-*", "sim*"])
def test_a_model_has_prompts_as_ids_by_a_client_s_name_of_it_and_by_the_backends(pattern: str) -> None:
    async def test() -> None:
        async with (
            serving(create_app()) as url,
            gateway(
                backends={"one": {"url": url, "aliases": {"codex-x": "simulator"}}}, models={pattern: {"token_true": True}}
            ) as served,
        ):
            fields = {"model": "codex-x", "headers": {"X-Rollout-Id": "ep1"}}
            one = await post(served, input=[user("scenario: plain")], **fields)
            again = [user("scenario: plain"), *one.final["output"], user("scenario: plain, again")]
            assert (await post(served, input=again, **fields)).final["status"] == "completed"
            calls = (await read(served))["calls"]
        assert [call.get("token_true", False) for call in calls] == [False, True]

    run(test())


@pytest.mark.parametrize("wanted", ["1", "true", "True", "0", "false"])
def test_a_rollout_asks_for_prompts_as_ids_by_a_header(wanted: str) -> None:
    async def test() -> None:
        async with simulated() as served:
            headers = {"X-Rollout-Id": "ep1", "X-Token-True": wanted}
            one = await said(served, user("scenario: plain"), headers=headers)
            await said(served, user("scenario: plain"), *one["output"], user("and now?"), headers=headers)
            calls = (await read(served))["calls"]
        assert [call.get("token_true", False) for call in calls] == [False, wanted.lower() in ("1", "true")]

    run(test())


@pytest.mark.parametrize("token_true", ["0", "1"])
@pytest.mark.parametrize("warms", [{"generate": False}, {"prompt_cache_options": {"prewarm": True}}])
def test_a_warm_up_is_a_call_of_its_own(warms: Json, token_true: str) -> None:
    """Nobody has seen the token that the model sampled for it: Codex warms each thread up, and continues that by its id."""

    async def test() -> None:
        async with (
            simulated(store="memory") as served,
            connect(served, **{"X-Rollout-Id": "ep1", "X-Token-True": token_true}) as s,
        ):
            first = await s.ask("scenario: plain", **warms)
            one = await s.ask("scenario: plain, now", previous_response_id=first["id"])
            again = await s.ask("more context", previous_response_id=one["id"], **warms)
            two = await s.ask("scenario: plain, go on", previous_response_id=again["id"])
            calls = (await read(served))["calls"]
            chain = await read(served, f"?chain={two['id']}")
        assert [call["kind"] for call in calls] == ["prewarm", None, "prewarm", None]
        assert [call["parent"] for call in calls] == [None, None, one["id"], one["id"]]
        assert [call["reason"] for call in calls] == [None] * 4
        assert chain["token_ids"] == calls[3]["prompt_token_ids"] + calls[3]["generation_token_ids"]
        assert (chain["call_ids"], chain["breaks"]) == ([one["id"], two["id"]], [])
        assert sum(chain["mask"]) == sum(len(calls[number]["generation_token_ids"]) for number in (1, 3))

    run(test())


@pytest.mark.parametrize("first", ["scenario: plain", "scenario: plain fault: drop=8,times=1"])
@pytest.mark.parametrize("token_true", ["0", "1"])
def test_a_prompt_that_is_asked_again_stands_beside_the_first_attempt(first: str, token_true: str) -> None:
    """Whether that failed, or its answer was thrown away, the client goes on from the second one."""

    async def test() -> None:
        async with simulated(store="memory", retries=0) as served:
            headers = {"X-Rollout-Id": "ep1", "X-Session-Id": "s1", "X-Token-True": token_true}
            await said(served, user("before that"), headers=headers)
            await post(served, model="simulator", input=[user(first)], headers=headers)
            two = await said(served, user(first), headers=headers)
            await said(served, user(first), *two["output"], user("scenario: plain"), headers=headers)
            calls = (await read(served))["calls"]
        before = calls[0]["id"]
        assert [call["parent"] for call in calls] == [None, before, before, two["id"]]

    run(test())


def test_summaries_that_the_gateway_asks_for_are_compactions_in_the_session_of_the_chain() -> None:
    async def test() -> None:
        async with simulated(store="memory") as served:
            headers = {"X-Rollout-Id": "ep1"}
            one = await said(served, user("hello " * 1500), headers=headers)
            limit = [{"type": "compaction", "compact_threshold": 1000}]
            fields = {"previous_response_id": one["id"], "context_management": limit}
            two = await said(served, user("go on"), headers=headers, **fields)
            body = {"model": "simulator", "previous_response_id": two["id"]}
            answer = await ask(served, "POST", "/v1/responses/compact", json=body, headers=headers)
            assert answer.status == 200
            calls = (await read(served))["calls"]
        assert [call["kind"] for call in calls] == [None, "compaction", None, "compaction"]
        assert [call["session"] for call in calls[1:]] == [one["id"]] * 3
        assert [call["parent"] for call in calls] == [None, one["id"], one["id"], two["id"]]

    run(test())


def test_a_rollout_and_a_chain_are_read_in_pages_and_lines() -> None:
    async def test() -> None:
        async with simulated(store="memory") as served:
            headers = {"X-Rollout-Id": "ep1", "X-Token-True": "1"}
            previous: Json = {}
            for number in range(5):
                response = await said(served, user(f"question {number}"), headers=headers, **previous)
                previous = {"previous_response_id": response["id"]}
            whole = await read(served)
            calls = whole["calls"]
            assert (len(calls), whole["has_more"], whole["last_id"]) == (5, False, calls[-1]["id"])
            for chain in ("", f"&chain={calls[-1]['id']}"):
                pages = []
                after = ""
                while not pages or pages[-1]["has_more"]:
                    pages.append(await read(served, f"?limit=2{after}{chain}"))
                    after = f"&after={pages[-1]['last_id']}"
                assert len(pages) == 3
                if not chain:
                    assert [call for page in pages for call in page["calls"]] == calls
                else:
                    assert [name for page in pages for name in page["call_ids"]] == [call["id"] for call in calls]
                    # Each page can be read by itself, so it begins with a whole prompt.
                    assert pages[1]["token_ids"][: len(calls[2]["prompt_token_ids"])] == calls[2]["prompt_token_ids"]
            assert await lines(served, "?format=jsonl") == calls
            paged = []
            path: Any = f"/rollouts/ep1?format=jsonl&limit=2&chain={calls[-1]['id']}"
            while path is not None:
                answer = await ask(served, "GET", path)
                paged += [name for line in answer.body.splitlines() for name in json.loads(line)["call_ids"]]
                path = answer.headers["link"].partition(">")[0][1:] if "link" in answer.headers else None
            assert paged == [call["id"] for call in calls]
            (piece,) = await lines(served, f"?format=jsonl&chain={calls[-1]['id']}")
            assert piece["token_ids"] == calls[-1]["prompt_token_ids"] + calls[-1]["generation_token_ids"]
            for query in ("?limit=0", "?limit=1001", "?limit=00000000001001", "?limit=x", "?format=csv"):
                assert_error(await ask(served, "GET", f"/rollouts/ep1{query}"), 400, "invalid_value")
            for query in ("?after=resp_none", "?chain=resp_none"):
                assert_error(await ask(served, "GET", f"/rollouts/ep1{query}"), 400, "call_not_found")

    run(test())


@pytest.mark.slow
@pytest.mark.parametrize("store", ["none", "sqlite"])
@pytest.mark.parametrize("form", ["json", "jsonl"])
def test_the_pages_of_a_rollout_that_grows_have_each_call_once(store: str, form: str, tmp_path: Path) -> None:
    """Agents work side by side while a trainer reads, page by page, and goes on where it was."""
    kept = "none" if store == "none" else str(tmp_path / "store.sqlite3")

    async def test() -> None:
        async with simulated(store=kept) as served:

            async def work(agent: int) -> None:
                for number in range(12):
                    await said(served, user(f"question {number}"), headers={"X-Rollout-Id": "ep1", "x-session-id": f"s{agent}"})

            await said(served, user("hi"), headers={"X-Rollout-Id": "ep1"})
            working = asyncio.gather(*map(work, range(3)))
            found: list[Json] = []
            while not working.done() or len(found) < 37:
                after = f"&after={found[-1]['id']}" if found else ""
                page = await ask(served, "GET", f"/rollouts/ep1?limit=4&format={form}{after}")
                assert page.status == 200, page.body
                calls = page.json["calls"] if form == "json" else [json.loads(line) for line in page.body.splitlines()]
                more = ("link" in page.headers) if form == "jsonl" else page.json["has_more"]
                assert len(calls) <= 4
                assert len(calls) == 4 or not more
                found += calls
            await working
            whole = (await read(served))["calls"]
        assert found == whole
        assert len({call["id"] for call in found}) == 37

    run(test())


async def lines(served: Served, query: str) -> list[Json]:
    answer = await ask(served, "GET", f"/rollouts/ep1{query}")
    assert answer.headers["content-type"] == "application/jsonl"
    return [json.loads(line) for line in answer.body.splitlines()]


def test_a_chain_begins_anew_behind_a_prompt_that_is_no_extension() -> None:
    """The second turn has other tools, which stand before everything else."""

    async def test() -> None:
        async with simulated(store="memory") as served:
            headers = {"X-Rollout-Id": "ep1"}
            one = await said(served, user("scenario: plain"), headers=headers)
            two = await said(served, user("go on"), headers=headers, previous_response_id=one["id"], tools=[WEATHER])
            calls = (await read(served))["calls"]
            chain = await read(served, f"?chain={two['id']}")
            pieces = await lines(served, f"?format=jsonl&chain={two['id']}")
        whole = [call["prompt_token_ids"] + call["generation_token_ids"] for call in calls]
        assert whole[1][: len(whole[0])] != whole[0]
        assert (chain["token_ids"], chain["breaks"]) == ([*whole[0], *whole[1]], [len(whole[0])])
        assert [piece["token_ids"] for piece in pieces] == whole
        assert [sum(piece["mask"]) for piece in pieces] == [len(call["generation_token_ids"]) for call in calls]

    run(test())


def test_the_settings_of_a_model_have_its_prompts_sent_as_ids() -> None:
    """The first pattern that matches decides, and the chain needs no rollout."""
    models = {"sim-plain": {"token_true": False}, "sim*": {"token_true": True}}

    async def test() -> None:
        async with simulated(store="memory", models=models) as served:
            for name, expected in (("simulator", True), ("sim-plain", None)):
                one = await post(served, model=name, input="hi", stream=False, include=["token_ids"])
                fields = {"previous_response_id": one.json["id"], "include": ["token_ids"]}
                two = await post(served, model=name, input="go on", stream=False, **fields)
                answer = await ask(served, "GET", f"/v1/responses/{two.json['id']}/trajectory")
                assert [call.get("token_true") for call in answer.json["calls"]] == [None, expected]
                assert {call["reason"] for call in answer.json["calls"]} == {None}

    run(test())


@pytest.mark.slow
def test_with_hosted_turns_the_response_has_the_tokens_of_its_last_call() -> None:
    async def test() -> None:
        async with searched_web() as searched, fleet("vllm", **searched.settings) as served:
            fields = {"tools": [{"type": "web_search"}], "include": ["token_ids"]}
            question = user("scenario: research How high is the tower?")
            response = await said(served, question, headers={"X-Rollout-Id": "ep1"}, **fields)
            calls = (await read(served))["calls"]
        *others, last = response["output"]
        assert len(calls) == 3
        for name in ("prompt_token_ids", "generation_token_ids", "generation_log_probs"):
            assert last[name] == calls[-1][name]
            assert not any(name in item for item in others)

    run(test())


def serving_as(owner: str, *pieces: bytes) -> AbstractAsyncContextManager[tuple[Served, Model]]:
    """Serve a gateway before a server that lists its model as this owner's, and answers with these pieces."""

    async def models(_: web.Request) -> web.Response:
        return web.json_response({"data": [{"id": "m", "owned_by": owner}]})

    return model(list(pieces), routes=[web.get("/v1/models", models)])


USAGE = {"prompt_tokens": 3, "completion_tokens": 2, "total_tokens": 5}


def logprobs(*tokens: str) -> Json:
    return {"content": [{"token": token, "logprob": -0.5, "bytes": None, "top_logprobs": []} for token in tokens]}


def choice(text: str, finish: str | None = None, **fields: Any) -> bytes:
    return chunk(choices=[{"index": 0, "delta": {"content": text}, "finish_reason": finish, **fields}])


def test_sglang_tells_its_ids_at_the_end_of_the_stream() -> None:
    pieces = [
        choice("Hel", logprobs=logprobs("Hel")),
        choice("lo", "stop", logprobs=logprobs("lo")),
        chunk(choices=[], usage=USAGE, sglext={"input_ids": [1, 2, 3], "output_ids": [7, 8]}),
        b"data: [DONE]\n\n",
    ]

    async def test() -> None:
        async with serving_as("sglang", *pieces) as (served, talking):
            await said(served, user("hi"), headers={"X-Rollout-Id": "ep1"})
            (call,) = (await read(served))["calls"]
        (body,) = talking.requests
        assert (body["return_input_ids_in_sglext"], body["return_output_ids_in_sglext"]) == (True, True)
        assert "return_token_ids" not in body
        assert (call["prompt_token_ids"], call["generation_token_ids"]) == ([1, 2, 3], [7, 8])
        assert (call["generation_log_probs"], call["reason"], call["finish_reason"]) == ([-0.5, -0.5], None, "stop")

    run(test())


@pytest.mark.parametrize(("echoed", "reason"), [([1, 2, 3, 7, 9, 4, 5], None), ([1, 2, 6, 7, 9, 4, 5], "ids_ignored")])
def test_sglang_gets_the_next_prompt_of_a_chain_as_ids(echoed: list[int], reason: str | None) -> None:
    """The template writes the answer in other tokens (6) than the model did (7); 9 ends it."""

    def turn(prompt: list[int], *sampled: int) -> list[bytes]:
        told = {"input_ids": prompt, "output_ids": list(sampled)}
        return [
            choice("Hello", "stop", logprobs=logprobs(*map(str, sampled))),
            chunk(choices=[], usage=USAGE, sglext=told),
            b"data: [DONE]\n\n",
        ]

    async def models(_: web.Request) -> web.Response:
        return web.json_response({"data": [{"id": "m", "owned_by": "sglang"}]})

    async def tokenize(request: web.Request) -> web.Response:
        messages = (await request.json())["messages"]
        tokens = [1, 2, 3, 6, 9] if len(messages) == 2 else [1, 2, 3, 6, 9, 4, 5]
        return web.json_response({"tokens": tokens, "count": len(tokens)})

    async def test() -> None:
        routes = [web.get("/v1/models", models)]
        turns = (turn([1, 2, 3], 7, 9), turn(echoed, 8, 9))
        async with model(*turns, paths={"/tokenize": tokenize}, routes=routes) as (served, talking):
            headers = {"X-Rollout-Id": "ep1", "X-Token-True": "1"}
            first = await said(served, user("hi"), headers=headers)
            await said(served, user("hi"), *first["output"], user("go on"), headers=headers)
            one, two = (await read(served))["calls"]
        assert "input_ids" not in talking.requests[0]
        assert talking.requests[1]["input_ids"] == [1, 2, 3, 7, 9, 4, 5]
        assert (two["parent"], two["reason"], two.get("token_true", False)) == (one["id"], reason, reason is None)

    run(test())


def test_the_version_of_the_weights_is_that_of_the_last_tokens() -> None:
    versions = [{"version": "step-1", "start": 0, "end": 1}, {"version": "step-2", "start": 1, "end": 2}]
    pieces = [
        chunk(prompt_token_ids=[1, 2, 3], choices=[{"index": 0, "delta": {"role": "assistant"}, "finish_reason": None}]),
        choice("Hel", token_ids=[7], logprobs=logprobs("Hel")),
        choice("lo", "stop", token_ids=[8], logprobs=logprobs("lo"), weight_versions=versions),
        chunk(choices=[], usage=USAGE),
        b"data: [DONE]\n\n",
    ]

    async def test() -> None:
        async with serving_as("vllm", *pieces) as (served, talking):
            await said(served, user("hi"), headers={"X-Rollout-Id": "ep1"})
            (call,) = (await read(served))["calls"]
        assert talking.requests[0]["return_token_ids"] is True
        assert talking.requests[0]["return_weight_versions"] is True  # because vLLM tells of them only then
        assert (call["weight_version"], call["generation_token_ids"]) == ("step-2", [7, 8])
        assert call["backend"] == talking.url.removeprefix("http://").removesuffix("/v1")

    run(test())


@pytest.mark.parametrize("asks", [False, True])
def test_a_server_is_asked_for_ids_only_by_requests_that_want_them(asks: bool) -> None:
    async def test() -> None:
        app = create_app()
        async with serving(app) as url, gateway(url) as served:
            await said(served, user("hi"), headers={"X-Rollout-Id": "ep1"} if asks else {})
        body = app[RECEIVED][-1]["body"]
        assert ("return_token_ids" in body, "logprobs" in body) == (asks, asks)

    run(test())
