"""Claude Code asks for more than the next step: a web search that the gateway runs, and a sub-agent."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import AsyncExitStack
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from aiohttp import web

from tests.claude.claude_code import ClaudeCode
from tests.codex.servers import Background
from tests.hosted.websites import SearchEngine, open_site
from tests.server.hosted.model import Model, Turn, calls, model, says
from tests.server.running_gateway import Served


class Servers:
    """Servers in a thread of their own."""

    def __init__(self) -> None:
        self._background = Background()
        self._stack = AsyncExitStack()

    def open_engine(self, engine: SearchEngine) -> None:
        self._background.run(self._stack.enter_async_context(open_site(engine)))

    def open_model(self, *turns: Turn, **settings: Any) -> tuple[Served, Model]:
        return self._background.run(self._stack.enter_async_context(model(*turns, **settings)))

    def close(self) -> None:
        self._background.run(self._stack.aclose())
        self._background.stop()


@pytest.fixture
def servers() -> Iterator[Servers]:
    servers = Servers()
    yield servers
    servers.close()


def test_a_search_is_run_by_the_gateway_and_its_results_reach_the_model(servers: Servers, tmp_path: Path) -> None:
    engine = SearchEngine()
    servers.open_engine(engine)
    engine.results = [{"url": "https://example.org/rivers", "title": "Rivers", "content": "The Nile is 6650 km long."}]
    served, talking = servers.open_model(
        calls(("WebSearch", {"query": "longest river"})),
        calls(("web_search", {"query": "longest river"})),  # of the request that the tool makes
        says("The Nile 【1】."),
        says("It is the Nile."),
        web_search_url=engine.url,
    )
    run = ClaudeCode(tmp_path, served.url).run("Which river is the longest?")
    assert (run.code, run.complaints, run.failed_tools) == (0, [], [])
    assert (run.tools, run.result) == (["WebSearch"], "It is the Nile.")
    assert [query["q"] for query in engine.queries] == ["longest river"]
    told = str(talking.requests[-1]["messages"][-1])
    assert "https://example.org/rivers" in told
    assert "The Nile" in told


def test_a_sub_agent_has_a_conversation_of_its_own(servers: Servers, tmp_path: Path) -> None:
    task = {
        "description": "Count",
        "prompt": "Count the files.",
        "subagent_type": "general-purpose",
        "run_in_background": False,
    }
    served, talking = servers.open_model(calls(("Agent", task)), says("There are none."), says("No files."))
    run = ClaudeCode(tmp_path, served.url).run("How many files are here?")
    assert (run.code, run.complaints, run.failed_tools) == (0, [], [])
    assert (run.tools[0], run.result) == ("Agent", "No files.")
    assert "Count the files." in str(talking.requests[1]["messages"])
    assert "How many files" not in str(talking.requests[1]["messages"])
    assert "There are none." in str(talking.requests[2]["messages"][-1])


def test_no_result_is_lost_though_the_backend_repeats_the_ids_of_calls(servers: Servers, tmp_path: Path) -> None:
    def echo(word: str) -> tuple[str, dict[str, str]]:
        return "Bash", {"command": f"echo {word}", "description": f"Say {word}"}

    served, talking = servers.open_model(calls(echo("one"), echo("two")), calls(echo("three"), echo("four")), says("Said."))
    run = ClaudeCode(tmp_path, served.url).run("Say four words.")
    assert (run.code, run.complaints, run.failed_tools, run.result) == (0, [], [], "Said.")
    told = [message for message in talking.requests[-1]["messages"] if message["role"] == "tool"]
    assert [message["content"].strip() for message in told] == ["one", "two", "three", "four"]
    assert len({message["tool_call_id"] for message in told}) == 4


def test_a_conversation_that_is_too_long_is_summarised_and_goes_on(servers: Servers, tmp_path: Path) -> None:
    longest = 0
    refused = 0

    def vllm(body: dict[str, Any]) -> list[bytes]:
        """Refuse what does not fit, in vLLM's words."""
        nonlocal refused
        told = json.dumps(body["messages"])
        if "create a detailed summary" in str(body["messages"][-1]):
            return says("<summary>Alpha was said.</summary>")
        if len(told) > longest > 0:
            refused += 1
            message = (
                "This model's maximum context length is 40960 tokens. However, your request has 50000 input tokens. "
                "Please reduce the length of the input messages."
            )
            error = {"error": {"message": message, "type": "BadRequestError", "param": "input_tokens", "code": 400}}
            raise web.HTTPBadRequest(text=json.dumps(error), content_type="application/json")
        return says("Noted.")

    served, talking = servers.open_model(vllm)
    claude = ClaudeCode(tmp_path, served.url)
    assert claude.run("Remember this. " + "alpha " * 4000).result == "Noted."
    longest = len(json.dumps(talking.requests[-1]["messages"])) + 5000
    run = claude.run("Remember this, too. " + "beta " * 3000, "--continue")
    assert (run.code, run.complaints, run.result) == (0, [], "Noted.")
    assert refused == 1
    last = json.dumps(talking.requests[-1]["messages"])
    assert "Alpha was said." in last
    assert "beta beta" in last
    assert "alpha alpha" not in last


def test_each_prompt_begins_with_the_one_before(servers: Servers, tmp_path: Path) -> None:
    steps = [calls(("Bash", {"command": f"echo {number}", "description": "Count"}), thought="Hm.") for number in range(28)]
    served, talking = servers.open_model(*steps, says("Counted."))
    known = served.parts.responses.preparation.known
    read = known.read
    continued: list[bool] = []

    def noting(*arguments: Any) -> Any:
        growing = read(*arguments)
        continued.append(growing is not None)
        return growing

    known.read = noting
    claude = ClaudeCode(tmp_path, served.url)
    assert claude.run("Count to 28.").result == "Counted."
    assert claude.run("Once more.", "--continue").result == "Counted."
    prompts = [body["messages"] for body in talking.requests]
    assert len(prompts) == 30
    assert [number for number, (one, following) in enumerate(pairwise(prompts)) if following[: len(one)] != one] == []
    assert len({json.dumps(body["tools"]) for body in talking.requests}) == 1
    assert sum(continued) >= 25  # though the mark for Anthropic's cache moves with each request
