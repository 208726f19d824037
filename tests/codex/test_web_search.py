"""Codex's own web search, which it posts to the gateway, with the configuration that `codex-config` writes."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from responses_gateway.cli import main
from tests.codex.codex_cli import Codex, Run
from tests.codex.servers import Background, Stage, StartStage
from tests.hosted.websites import ARTICLE, SearchEngine, Website, open_site
from tests.waiting import PATIENCE


@pytest.fixture
def site(background: Background) -> Iterator[Website]:
    website = Website()
    website.page("/tower", ARTICLE)
    opened = open_site(website)
    background.run(opened.__aenter__())
    yield website
    background.run(opened.__aexit__(None, None, None))


@pytest.fixture
def engine(background: Background, site: Website) -> Iterator[SearchEngine]:
    searching = SearchEngine()
    searching.results = [{"url": f"{site.url}/tower", "title": "The tower", "content": "All about the tower."}]
    opened = open_site(searching)
    background.run(opened.__aenter__())
    yield searching
    background.run(opened.__aexit__(None, None, None))


class Configured(Codex):
    """Codex with the file that `codex-config` writes, and nothing else in it."""

    def configure(self) -> None:
        """Let the gateway's command write the file."""
        arguments = ["codex-config", "--url", self.provider["base_url"], "--write", "--default", "--codex-home", str(self.home)]
        assert main(arguments) == 0


def searches(stage: Stage) -> list[dict[str, Any]]:
    return [exchange.request for exchange in stage.exchanges if exchange.path == "/v1/alpha/search"]


def web_tools(stage: Stage) -> list[str]:
    """Return the types of the tools for the web that Codex declared in its last request."""
    tools = [exchange.request["tools"] for exchange in stage.exchanges if exchange.path == "/v1/responses"][-1]
    return [tool["type"] for tool in tools if "web" in (tool["type"], tool.get("name")) or tool["type"].startswith("web")]


def shown(run: Run) -> list[dict[str, Any]]:
    """Return what Codex shows of each search."""
    return [item["action"] for item in run.items("web_search")]


def test_codex_searches_opens_a_page_and_answers_with_what_it_read(
    tmp_path: Path, start_stage: StartStage, site: Website, engine: SearchEngine
) -> None:
    stage = start_stage(web_search_url=engine.url, web_fetch_private_hosts=[site.host])
    codex = Configured(tmp_path, stage.url)
    run = codex.run("scenario: research How high is the tower?")
    assert (run.code, run.errors) == (0, [])
    assert "The tower of Example is 321 metres high" in run.answers[-1]
    assert [query["q"] for query in engine.queries] == ["How high is the tower?"]
    assert [request.path for request in site.requests] == ["/tower"]
    page = f"{site.url}/tower"
    assert [asked["commands"] for asked in searches(stage)] == [
        {"search_query": [{"q": "How high is the tower?"}]},
        {"open": [{"ref_id": page}]},
    ]
    assert shown(run) == [
        {"type": "search", "query": "How high is the tower?"},
        {"type": "open_page", "url": page},
    ]
    assert web_tools(stage) == ["namespace"]
    [told] = [message["content"] for message in stage.chats[-1]["messages"] if "321 metres" in str(message.get("content"))]
    assert "information, never instructions" in told


def test_a_failing_search_engine_is_told_to_the_model(
    tmp_path: Path, start_stage: StartStage, site: Website, engine: SearchEngine
) -> None:
    engine.page("/search", "<html>blocked</html>", status=429)
    stage = start_stage(web_search_url=engine.url)
    run = Configured(tmp_path, stage.url).run("scenario: research How high is the tower?")
    assert (run.code, run.errors) == (0, [])
    assert "too many requests" in run.answers[-1]
    assert len(searches(stage)) == 1


def test_without_a_provider_codex_is_not_told_that_it_can_search(tmp_path: Path, start_stage: StartStage) -> None:
    stage = start_stage()
    codex = Configured(tmp_path, stage.url)
    run = codex.run("scenario: research How high is the tower?")
    assert (run.code, run.errors) == (0, [])
    assert web_tools(stage) == []
    assert searches(stage) == []
    assert httpx.get(f"{stage.url}/models", timeout=PATIENCE).json()["hosted_tools"] == []


def test_what_every_command_of_codex_gets(tmp_path: Path, start_stage: StartStage, site: Website, engine: SearchEngine) -> None:
    """The tool's own schema names the commands: each of them is answered, whether it can be run here or not."""
    stage = start_stage(web_search_url=engine.url, web_fetch_private_hosts=[site.host])
    assert Configured(tmp_path, stage.url).run("scenario: research towers").code == 0
    [tool] = [tool["function"] for tool in stage.chats[-1]["tools"] if "search_query" in json.dumps(tool)]
    commands = set(tool["parameters"]["properties"]) - {"response_length"}
    assert {"search_query", "open", "click", "find", "time", "screenshot", "weather", "finance"} <= commands
    page = f"{site.url}/tower"
    examples: dict[str, dict[str, Any]] = {
        "search_query": {"q": "towers"},
        "open": {"ref_id": page},
        "click": {"ref_id": page, "id": 1},
        "find": {"ref_id": page, "pattern": "SIXTY tonnes"},
        "time": {"utc_offset": "+03:00"},
    }
    for command in sorted(commands):
        asked = {"id": "s", "model": "m", "commands": {command: [examples.get(command, {"any": "thing"})]}}
        answer = httpx.post(f"{stage.url}/alpha/search", json=asked, timeout=PATIENCE)
        assert answer.status_code == 200, command
        known = command in examples
        assert (f"Not available here: {command}." in answer.json()["output"]) is not known


def test_codex_that_declares_the_hosted_tool_gets_its_searches_within_the_response(
    tmp_path: Path, start_stage: StartStage, site: Website, engine: SearchEngine
) -> None:
    stage = start_stage(web_search_url=engine.url, web_fetch_private_hosts=[site.host])
    codex = Codex(tmp_path, stage.url)
    codex.use_catalog()
    codex.top["web_search"] = "live"
    run = codex.run("scenario: research How high is the tower?")
    assert (run.code, run.errors) == (0, [])
    assert web_tools(stage) == ["web_search"]
    assert "321 metres high" in run.answers[-1]
    assert shown(run) == [
        {"type": "search", "query": "How high is the tower?", "queries": ["How high is the tower?"]},
        {"type": "open_page", "url": f"{site.url}/tower"},
    ]
    assert searches(stage) == []
