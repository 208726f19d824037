"""Web search and file search through the front door: what is found, how it is cited, and what is asked for by other names."""

from __future__ import annotations

import json
import re
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest

from responses_gateway.settings.keys import hash_of
from tests.hosted.websites import ARTICLE, SearchEngine, Website, open_site
from tests.server.hosted.model import DOCS, Model, calls, model, says
from tests.server.running_gateway import Served, ask, post, run, simulated
from tests.server.scripted_backend import chunk

SEARCH = {"type": "web_search"}


@asynccontextmanager
async def web_of(*turns: Any, **settings: Any) -> AsyncIterator[tuple[Served, Model, SearchEngine, Website]]:
    """Serve a gateway that searches a small web: one page, which the engine finds."""
    engine, site = SearchEngine(), Website()
    async with open_site(engine), open_site(site):
        site.page("/tower", ARTICLE)
        engine.results = [{"title": "The tower of Example", "url": f"{site.url}/tower", "content": "It is 321 metres high."}]
        reach: dict[str, Any] = {"web_search_url": engine.url, "web_fetch_private_hosts": [site.host]}
        async with model(*turns, **reach, **settings) as (served, talking):
            yield served, talking, engine, site


def results(body: dict[str, Any]) -> list[str]:
    """Return what the model was told by its tools."""
    return [message["content"] for message in body["messages"] if message["role"] == "tool"]


def test_the_model_searches_opens_a_page_and_cites_it() -> None:
    async def test() -> None:
        def opening(body: dict[str, Any]) -> list[bytes]:
            url = next(line for line in results(body)[0].splitlines() if line.startswith("http"))
            return calls(("open_page", {"url": url}))

        turns = calls(("web_search", {"queries": ["tower height"]})), opening, says("It is 321 metres high【1】. Really.")
        async with web_of(*turns) as (served, talking, engine, site):
            include = ["web_search_call.action.sources"]
            answer = (await post(served, tools=[SEARCH], include=include)).final
            searched, opened, message = answer["output"]
            assert answer["tool_usage"]["web_search"] == {"num_requests": 2}
            assert answer["tool_usage"]["image_gen"]["total_tokens"] == 0
            url = f"{site.url}/tower"
            assert searched["action"]["queries"] == ["tower height"]
            assert searched["action"]["sources"] == [{"type": "url", "url": url}]
            assert opened["action"] == {"type": "open_page", "url": url}
            assert engine.queries[0]["q"] == "tower height"
            assert "finished in 1889" in results(talking.requests[2])[1]
            part = message["content"][0]
            assert part["text"] == "It is 321 metres high. Really."
            (cited,) = part["annotations"]
            assert (cited["url"], cited["title"]) == (url, "The tower of Example")
            assert part["text"][cited["start_index"] : cited["end_index"]] == "It is 321 metres high"

    run(test())


def test_gpt_oss_calls_its_own_browser() -> None:
    """It writes these names where a request declares the tools under ours."""

    async def test() -> None:
        turns = (
            calls(("browser.search", {"query": "tower", "topn": 5})),
            calls(("browser.open", {"id": 1, "loc": 0})),
            calls(("browser.find", {"pattern": "painted"})),
            says("Every seven years."),
        )
        async with web_of(*turns) as (served, talking, _, _site):
            answer = (await post(served, tools=[SEARCH])).final
            actions = [item["action"]["type"] for item in answer["output"] if item["type"] == "web_search_call"]
            assert actions == ["search", "open_page", "find_in_page"]
            assert "sixty tonnes" in results(talking.requests[3])[2]
            names = {
                call["function"]["name"]
                for message in talking.requests[3]["messages"]
                for call in message.get("tool_calls", ())
            }
            assert names == {"web_search", "open_page", "find_in_page"}

    run(test())


def test_raw_harmony_of_gpt_oss_is_a_search() -> None:
    async def test() -> None:
        raw = "<|channel|>analysis<|message|>Look.<|end|><|start|>assistant<|channel|>commentary to=browser.search code"
        raw += '<|message|>{"query": "tower"}<|call|>'
        final = "<|channel|>final<|message|>Found.<|return|>"
        turns = [[chunk({"content": text}), chunk({}, "stop"), b"data: [DONE]\n\n"] for text in (raw, final)]
        async with web_of(*turns, reasoning_parser="openai_gptoss", tool_call_parser="openai") as (served, _, engine, _site):
            answer = (await post(served, tools=[SEARCH])).final
            assert [item["type"] for item in answer["output"]] == ["reasoning", "web_search_call", "message"]
            assert engine.queries[0]["q"] == "tower"

    run(test())


def test_a_forced_search_is_made_once() -> None:
    async def test() -> None:
        turns = calls(("web_search", {"queries": ["tower"]})), says("High.")
        async with web_of(*turns) as (served, talking, _, _site):
            answer = (await post(served, tools=[SEARCH], tool_choice={"type": "web_search_preview"})).final
            assert answer["status"] == "completed"
            first, second = (request["tool_choice"] for request in talking.requests)
            assert (first, second) == ({"type": "function", "function": {"name": "web_search"}}, "auto")

    run(test())


def test_a_page_that_may_not_be_fetched_is_told_to_the_model() -> None:
    async def test() -> None:
        turns = calls(("open_page", {"url": "http://169.254.169.254/latest/meta-data"})), says("I may not.")
        async with web_of(*turns) as (served, talking, _, _site):
            answer = (await post(served, tools=[SEARCH])).final
            assert (answer["output"][0]["status"], answer["status"]) == ("failed", "completed")
            assert results(talking.requests[1])[0].startswith("Error: ")

    run(test())


def test_files_are_searched_by_the_tool_that_the_settings_name() -> None:
    async def test() -> None:
        turns = calls(("file_search", {"queries": ["valves"]})), says("See the manual【1】.")
        async with model(*turns, mcp_servers=DOCS, file_search_tools={"*": "docs/search"}) as (served, talking):
            tool = {"type": "file_search", "vector_store_ids": ["vs_1"]}
            answer = (await post(served, tools=[tool], include=["file_search_call.results"])).final
            searched, message = answer["output"]
            assert searched["queries"] == ["valves"]
            assert searched["results"][0]["file_id"] == "doc-0"
            assert "valves 0" in results(talking.requests[1])[0]
            (cited,) = message["content"][0]["annotations"]
            assert (cited["type"], cited["file_id"], cited["filename"]) == ("file_citation", "doc-0", "Manual 0")

    run(test())


def test_code_runs_with_a_tool_of_an_mcp_server() -> None:
    async def test() -> None:
        turns = calls(("python", {"code": "1 + 2"})), says("3")
        async with model(*turns, mcp_servers=DOCS, code_interpreter="mcp:docs/shout_code") as (served, talking):
            tool = {"type": "code_interpreter", "container": {"type": "auto"}}
            answer = (await post(served, tools=[tool], include=["code_interpreter_call.outputs"])).final
            ran = answer["output"][0]
            assert (ran["code"], ran["status"]) == ("1 + 2", "completed")
            assert ran["outputs"] == [{"type": "logs", "logs": "ran: 1 + 2"}]
            assert ran["container_id"].startswith("cntr_")
            assert results(talking.requests[1]) == ["ran: 1 + 2"]

    run(test())


@pytest.mark.parametrize(
    ("name", "written", "code"),
    [
        ("python", '{"code": "a = 1\na"}', "a = 1\na"),
        ("python", "a = 1\na", "a = 1\na"),
        ("python", '"a"', "a"),
        ("python", '{"input": "a"}', "a"),
        ("python", '{"input": "a\\ud83d"}', "a?"),
        ("code_interpreter", '{"code": "a"', "a"),
    ],
)
def test_the_code_that_is_shown_is_the_code_that_runs(name: str, written: str, code: str) -> None:
    async def test() -> None:
        turns = calls((name, written)), says("Done.")
        async with model(*turns, mcp_servers=DOCS, code_interpreter="mcp:docs/shout_code") as (served, talking):
            tool = {"type": "code_interpreter", "container": {"type": "auto"}}
            answer = (await post(served, tools=[tool], include=["code_interpreter_call.outputs"])).final
            ran = answer["output"][0]
            assert (ran["code"], ran["outputs"]) == (code, [{"type": "logs", "logs": f"ran: {code}"}])
            said = talking.requests[1]["messages"][-2]["tool_calls"][0]["function"]
            assert (said["name"], json.loads(said["arguments"])) == ("python", {"code": code})

    run(test())


@pytest.mark.parametrize("written", ['{"code": "a = 1', '{"a": "b", "c": "d"}', "{}"])
def test_what_is_no_whole_code_is_not_run(written: str) -> None:
    async def test() -> None:
        turns = calls(("python", written)), says("Sorry.")
        async with model(*turns, mcp_servers=DOCS, code_interpreter="mcp:docs/shout_code") as (served, talking):
            tool = {"type": "code_interpreter", "container": {"type": "auto"}}
            answer = (await post(served, tools=[tool])).final
            assert [item["status"] for item in answer["output"]] == ["failed", "completed"]
            assert results(talking.requests[1])[0].startswith("Error: ")

    run(test())


def test_the_models_list_tells_which_tools_are_on() -> None:
    async def test() -> None:
        async with simulated(mcp_servers=DOCS, web_search_url="http://127.0.0.1:9") as served:
            listed = (await ask(served, "GET", "/v1/models")).json
            assert {"web_search", "mcp"} <= set(json.dumps(listed).split('"'))

    run(test())


def test_two_keys_do_not_share_the_mcp_server_that_searches() -> None:
    async def test() -> None:
        keys = {name: hash_of(f"key-of-{name}-0123456789") for name in ("ada", "bob")}
        settings: dict[str, Any] = {"mcp_servers": DOCS, "web_search_provider": "mcp:docs/search_the_web", "api_keys": keys}

        def turns(body: dict[str, Any]) -> list[bytes]:
            return says("Found.") if results(body) else calls(("web_search", {"queries": ["x"]}))

        async with model(turns, **settings) as (served, talking):
            found: list[str] = []
            for name in ("ada", "bob", "ada"):
                key = {"Authorization": f"Bearer key-of-{name}-0123456789"}
                await post(served, headers=key, tools=[SEARCH])
                asked = {"commands": {"search_query": [{"q": "x"}]}}
                codex = await ask(served, "POST", "/v1/alpha/search", headers=key, json=asked)
                for text in (results(talking.requests[-1])[0], codex.json["output"]):
                    found += set(re.findall(r"https://example.com/process/\d+", text))
            ada, ada_of_codex, bob, bob_of_codex, *again = found
            assert (ada_of_codex, bob_of_codex, again) == (ada, bob, [ada, ada])
            assert ada != bob

    run(test())
