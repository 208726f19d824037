"""A web search at `/v1/messages`, streamed: what the model has read comes back with the client's next request."""

from __future__ import annotations

import json
from typing import Any

import pytest

from responses_gateway.simulator import RECEIVED, SimulatorOptions, create_app, serving
from tests.hosted.websites import searched_web
from tests.judges import judge_message
from tests.server.hosted.model import calls, model, says
from tests.server.running_gateway import ask, events_of, gateway, run
from tests.stream.message_player import Block, read_blocks

QUESTION: dict[str, Any] = {
    "model": "simulator",
    "max_tokens": 1000,
    "messages": [{"role": "user", "content": "scenario: research How high is the tower?"}],
    "tools": [{"type": "web_search_20250305", "name": "web_search"}, {"type": "web_fetch_20250910", "name": "web_fetch"}],
}
LOOK_AGAIN = calls(("web_search", {"queries": ["height"]}))
LOOK = ("web_search", {"queries": ["tower height"]})


def as_sent_back(block: Block) -> Block:
    """Return a block as an SDK sends it back: the input of a call is the sum of its deltas."""
    sent = {name: value for name, value in block.items() if name != "json"}
    return {**sent, "input": json.loads(block["json"])} if "json" in block else sent


def test_the_next_prompt_begins_with_what_the_model_has_read() -> None:
    async def test() -> None:
        async with searched_web() as web:
            backend = create_app(SimulatorOptions())
            async with serving(backend) as url, gateway(url, **web.settings) as served:
                streamed = await ask(served, "POST", "/v1/messages", json={**QUESTION, "stream": True})
                assert judge_message(streamed.body) == []
                blocks = [as_sent_back(block) for block in read_blocks(events_of(streamed.body))]
                said = [{"role": "assistant", "content": blocks}, {"role": "user", "content": "Thanks."}]
                answer = await ask(served, "POST", "/v1/messages", json={**QUESTION, "messages": QUESTION["messages"] + said})
                assert answer.status == 200, answer.body
                *_, last_turn, next_request = [entry["body"]["messages"] for entry in list(backend[RECEIVED])]
                read = [message["content"] for message in last_turn if message["role"] == "tool"]
                again = [message["content"] for message in next_request if message["role"] == "tool"]
                assert len(read) == 2
                assert again == read
                assert "321 metres" in read[1]

    run(test())


TOWER_PAGE = "http://{host}/tower"


@pytest.mark.parametrize("stream", [True, False])
@pytest.mark.parametrize(
    "made",
    [
        [("web_search", {"queries": ["tower", "height"]}), ("open_page", {"url": TOWER_PAGE, "line": 2})],
        [("find_in_page", {"url": TOWER_PAGE, "pattern": "321"})],
        [("web_search", {"query": "tower", "recency": "year"})],
        [("web_search", {"queries": [" "]}), ("open_page", {"url": "http://{host}/no-such-page"})],
    ],
)
def test_the_next_prompt_has_the_calls_as_the_model_made_them(made: list[tuple[str, Any]], stream: bool) -> None:
    """Else the cache of the backend is lost from there on, and the model reads of a page that it has searched for."""

    async def test() -> None:
        async with searched_web() as web:
            at_host = json.loads(json.dumps(made).replace("{host}", web.site.host))
            turn = calls(*at_host, thought="Hm.")
            thinking = {**QUESTION, "thinking": {"type": "enabled", "budget_tokens": 500}}
            async with model(turn, LOOK_AGAIN, says("High.", thought="So."), **web.settings) as (served, talking):
                answer = await ask(served, "POST", "/v1/messages", json={**thinking, "stream": stream})
                blocks = answer.json["content"] if not stream else map(as_sent_back, read_blocks(events_of(answer.body)))
                said = [{"role": "assistant", "content": [*blocks]}, {"role": "user", "content": "Thanks."}]
                await ask(served, "POST", "/v1/messages", json={**thinking, "messages": QUESTION["messages"] + said})
                *_, last_turn, next_request = [request["messages"] for request in talking.requests]
                assert next_request[: len(last_turn)] == last_turn
                assert len(last_turn) == 4 + len(made)

    run(test())


@pytest.mark.parametrize("stream", [True, False])
def test_a_search_that_finds_nothing_is_that_in_the_next_prompt_too(stream: bool) -> None:
    async def test() -> None:
        async with searched_web() as web, model(calls(LOOK), says("I do not know."), **web.settings) as (served, talking):
            web.engine.results = []
            answer = await ask(served, "POST", "/v1/messages", json={**QUESTION, "stream": stream})
            blocks = answer.json["content"] if not stream else map(as_sent_back, read_blocks(events_of(answer.body)))
            said = [{"role": "assistant", "content": [*blocks]}, {"role": "user", "content": "Thanks."}]
            await ask(served, "POST", "/v1/messages", json={**QUESTION, "messages": QUESTION["messages"] + said})
            *_, last_turn, next_request = [request["messages"] for request in talking.requests]
            assert "Nothing was found." in last_turn[-1]["content"]
            assert next_request[: len(last_turn)] == last_turn

    run(test())


def test_a_client_that_lets_the_model_only_fetch_offers_it_no_search_and_the_other_way_round() -> None:
    async def test() -> None:
        backend = create_app(SimulatorOptions())
        async with serving(backend) as url, gateway(url, web_search_url="http://127.0.0.1:9") as served:
            search, fetch = QUESTION["tools"]
            for tool, names in ((search, ["web_search"]), (fetch, ["open_page", "find_in_page"])):
                body = {**QUESTION, "tools": [tool], "messages": [{"role": "user", "content": "Hello."}]}
                answer = await ask(served, "POST", "/v1/messages", json=body)
                assert answer.status == 200, answer.body
                offered = list(backend[RECEIVED])[-1]["body"]["tools"]
                assert [tool["function"]["name"] for tool in offered] == names

    run(test())


def test_a_model_may_call_the_tool_by_the_name_under_which_the_client_has_declared_it() -> None:
    """Prompts call it so. A client cannot run what it takes for a tool of the server."""

    async def test() -> None:
        search, fetch = QUESTION["tools"]
        own = {"name": "web_fetch", "input_schema": {"type": "object"}}
        async with searched_web() as web:
            page = {"url": f"http://{web.site.host}/tower"}
            async with model(calls(("web_fetch", page)), says("High."), **web.settings) as (served, talking):
                answer = await ask(served, "POST", "/v1/messages", json={**QUESTION, "tools": [fetch]})
                kinds = [block["type"] for block in answer.json["content"]]
                assert kinds == ["server_tool_use", "web_fetch_tool_result", "text"]
                assert len(talking.requests) == 2
            async with model(calls(("web_fetch", page)), **web.settings) as (served, _):
                answer = await ask(served, "POST", "/v1/messages", json={**QUESTION, "tools": [search, own]})
                assert [block["type"] for block in answer.json["content"]] == ["tool_use"], "a tool of the client's own"

    run(test())


def test_each_tool_of_the_web_has_its_own_domains_and_its_own_limit() -> None:
    async def test() -> None:
        async with (
            searched_web() as web,
            serving(create_app(SimulatorOptions())) as url,
            gateway(url, **web.settings) as served,
        ):
            search, fetch = QUESTION["tools"]
            found = []
            for tools in (
                [search, {**fetch, "allowed_domains": ["example.com"]}],
                [{**search, "allowed_domains": ["example.com"]}, fetch],
            ):
                answer = await ask(served, "POST", "/v1/messages", json={**QUESTION, "tools": tools})
                results = [block["content"] for block in answer.json["content"] if block["type"].endswith("_tool_result")]
                found.append([content["type"] if isinstance(content, dict) else len(content) for content in results])
            assert found[0] == [1, "web_fetch_tool_result_error"]  # found, and not to be read
            assert found[1][0] == 0

    run(test())


def test_sources_of_earlier_requests_keep_their_numbers_and_are_cited() -> None:
    """Else two sources had one number, and what was read in the first one was cited as of the second one."""

    async def test() -> None:
        turns = (
            calls(LOOK),
            says("High【1】."),
            says("As it says【1】."),
            calls(LOOK),
            says("That【1】 and this【2】."),
        )
        async with searched_web() as web, model(*turns, **web.settings) as (served, talking):
            messages: list[Block] = []

            async def cited(question: str) -> list[str]:
                messages.append({"role": "user", "content": question})
                answer = await ask(served, "POST", "/v1/messages", json={**QUESTION, "messages": messages})
                messages.append({"role": "assistant", "content": answer.json["content"]})
                assert "【" not in answer.json["content"][-1]["text"]
                return [found["url"] for found in answer.json["content"][-1]["citations"]]

            first = f"{web.site.url}/tower"
            assert await cited("How high?") == [first]
            assert await cited("Why?") == [first]
            web.engine.results = [{"title": "Another", "url": f"{web.site.url}/other", "content": "More."}]
            assert await cited("And?") == [first, f"{web.site.url}/other"]
            assert "【2】 Another" in talking.requests[4]["messages"][-1]["content"]

    run(test())


def test_a_search_too_many_is_told_as_that() -> None:
    async def test() -> None:
        tools = [{**QUESTION["tools"][0], "max_uses": 1}]
        async with searched_web() as web, model(calls(LOOK), calls(LOOK), says("High."), **web.settings) as (served, _):
            answer = await ask(served, "POST", "/v1/messages", json={**QUESTION, "tools": tools})
            results = [block["content"] for block in answer.json["content"] if block["type"] == "web_search_tool_result"]
            assert results[1]["type"] == "web_search_tool_result_error"
            assert results[1]["error_code"] == "max_uses_exceeded"

    run(test())
