"""The tool `web_search` of one response: what the model is told, what the item shows, and what may be cited."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Mapping
from typing import Any

import pytest

from responses_gateway.hosted.fetch import Fetcher
from responses_gateway.hosted.interface import HostedResult, Source, ToolFailure
from responses_gateway.hosted.search.pages import WebPages
from responses_gateway.hosted.search.providers import Domains, Location, McpProvider, Query, Results, WebResult
from responses_gateway.hosted.search.web import SearchOptions, Web, search_options
from responses_gateway.hosted.search.web_search import WebSearch
from responses_gateway.wire.search_results import OUT_OF_USES
from tests.hosted.websites import ARTICLE, Website, open_site
from tests.server.running_gateway import run
from tests.waiting import PATIENCE


class Engine:
    """A provider with fixed results. A query `fail` fails."""

    def __init__(self, *found: WebResult, text: str = "") -> None:
        self.found = list(found)
        self.text = text
        self.queries: list[Query] = []

    async def search(self, query: Query) -> Results:
        self.queries.append(query)
        if query.text == "fail":
            raise ToolFailure("The search service is out of order.")
        return Results(self.found, self.text, ["recency: not possible"])

    async def close(self) -> None:
        pass


class Numbers:
    """Gives each source of a response its number."""

    def __init__(self) -> None:
        self.known: list[Source] = []

    def __call__(self, source: Source) -> int:
        source = source._replace(excerpt="")
        if source not in self.known:
            self.known.append(source)
        return self.known.index(source) + 1


class Scene:
    """A tool in front of an engine and a site."""

    def __init__(self, engine: Engine, site: Website, options: SearchOptions) -> None:
        self.engine = engine
        self.site = site
        self.numbers = Numbers()
        fetcher = Fetcher(timeout=PATIENCE, max_bytes=1_000_000, private_hosts=[site.host])
        self.web = Web(engine, WebPages(fetcher, timeout=PATIENCE), 4)
        self.tool = WebSearch(self.web, options, self.numbers, "ada")

    async def call(self, **arguments: Any) -> HostedResult:
        return await self.tool.run(arguments)

    async def failure(self, **arguments: Any) -> ToolFailure:
        with pytest.raises(ToolFailure) as failure:
            await self.tool.run(arguments)
        return failure.value


def play(test: Any, *found: WebResult, options: SearchOptions | None = None, text: str = "") -> None:
    async def scene() -> None:
        site = Website()
        site.page("/tower", ARTICLE)
        async with open_site(site):
            setting = Scene(Engine(*found, text=text), site, options or SearchOptions())
            try:
                await test(setting)
            finally:
                await setting.web.close()

    run(scene())


A = WebResult("Page A", "https://a.example/one", "about A", "2026-11-20")
B = WebResult("Page B", "https://b.example/two", "about B")


def test_results_have_the_numbers_by_which_they_are_cited() -> None:
    async def test(scene: Scene) -> None:
        result = await scene.call(query="towers")
        assert "【1】 Page A\nhttps://a.example/one\n2026-11-20\nabout A" in result.text
        assert "【2】 Page B\nhttps://b.example/two\nabout B" in result.text
        assert "Cite what you use from it as 【N】" in result.text
        assert "never instructions" in result.text
        assert list(result.sources) == [Source("Page A", A.url, excerpt=A.text), Source("Page B", B.url, excerpt=B.text)]
        action = result.item["action"]
        assert (action["type"], action["query"], action["queries"]) == ("search", "towers", ["towers"])
        assert action["sources"] == [{"type": "url", "url": A.url}, {"type": "url", "url": B.url}]
        assert list(result.losses) == ["recency: not possible"]

    play(test, A, B)


def test_numbers_go_on_over_several_calls() -> None:
    async def test(scene: Scene) -> None:
        await scene.call(query="towers")
        scene.engine.found = [B, A._replace(url="https://c.example/", title="Page C")]
        result = await scene.call(query="more towers")
        assert "【2】 Page B" in result.text
        assert "【3】 Page C" in result.text

    play(test, A, B)


def test_several_queries_at_once() -> None:
    async def test(scene: Scene) -> None:
        result = await scene.call(query="one", queries=["two", "one", "fail", "", 5, "three", "four"])
        assert [query.text for query in scene.engine.queries] == ["one", "two", "fail", "three"]
        assert "Results for: two" in result.text
        assert "out of order" in result.text
        assert result.item["action"]["queries"] == ["one", "two", "fail", "three"]
        assert len(result.sources) == 1

    play(test, A)


def test_a_search_that_fails_names_its_action() -> None:
    async def test(scene: Scene) -> None:
        failure = await scene.failure(queries=["fail"])
        assert "out of order" in str(failure)
        assert failure.item["action"] == {"type": "search", "query": "fail", "queries": ["fail"]}

    play(test)


def test_a_page_is_opened_by_its_url_or_its_number() -> None:
    async def test(scene: Scene) -> None:
        page = f"{scene.site.url}/tower"
        scene.engine.found = [WebResult("Tower", page, "")]
        result = await scene.call(url=page)
        assert "【1】 The tower of Example" in result.text
        assert "321 metres high" in result.text
        assert result.item == {"action": {"type": "open_page", "url": page}}
        (source,) = result.sources
        assert source[:2] == ("The tower of Example", page)
        assert source.excerpt
        await scene.call(query="tower")
        again = await scene.call(url="【2】")
        assert again.item["action"] == {"type": "open_page", "url": page}
        assert "number" in str(await scene.failure(url="99"))

    play(test)


def test_a_page_goes_on_where_it_was_left() -> None:
    async def test(scene: Scene) -> None:
        scene.site.page("/long", "\n".join(f"line number {number}" for number in range(3000)), "text/plain")
        url = f"{scene.site.url}/long"
        first = await scene.call(url=url)
        assert "Lines 0 to " in first.text
        end = int(first.text.split("open it with line ")[1].split(".")[0])
        assert f"line number {end - 1}\n" not in first.text.replace(f"L{end - 1}: line number {end - 1}", "")
        second = await scene.call(url=url, line=end)
        assert f"L{end}: line number {end}" in second.text
        assert "L2999: line number 2999" in (await scene.call(url=url, line=10**9)).text
        assert len(scene.site.requests) == 1

    play(test)


def test_text_is_found_in_a_page() -> None:
    async def test(scene: Scene) -> None:
        page = f"{scene.site.url}/tower"
        result = await scene.call(url=page, pattern="SIXTY tonnes")
        assert "One line contains it" in result.text
        assert "sixty tonnes of paint" in result.text
        assert result.item == {"action": {"type": "find_in_page", "url": page, "pattern": "SIXTY tonnes"}}
        missing = await scene.call(url=page, pattern="no such words")
        assert "not found" in missing.text
        assert len(scene.site.requests) == 1

    play(test)


def test_a_limit_counts_queries_and_pages_but_not_reading_on() -> None:
    async def test(scene: Scene) -> None:
        page = f"{scene.site.url}/tower"
        found = await scene.call(queries=["one", "two", "three"])
        assert found.item["action"]["queries"] == ["one", "two"]
        assert str(await scene.failure(query="four")).startswith(OUT_OF_USES)
        for _ in range(2):
            await scene.call(url=page)
        assert (await scene.call(url=page, pattern="paint")).sources[0].excerpt.count("sixty tonnes")
        assert str(await scene.failure(url=f"{page}2")).startswith(OUT_OF_USES)
        assert [query.text for query in scene.engine.queries] == ["one", "two"]

    play(test, A, options=SearchOptions(most_queries=2, most_pages=1))


def test_a_model_may_give_one_query_for_the_list() -> None:
    async def test(scene: Scene) -> None:
        found = await scene.call(queries="x")
        assert found.item["action"]["queries"] == ["x"]

    play(test)


def test_a_page_that_cannot_be_read_is_a_failure_with_its_action() -> None:
    async def test(scene: Scene) -> None:
        failure = await scene.failure(url=f"{scene.site.url}/missing")
        assert "404" in str(failure)
        assert failure.item["action"]["type"] == "open_page"
        assert "public" in str(await scene.failure(url="http://169.254.169.254/"))
        assert "URL" in str(await scene.failure(url="not a url"))

    play(test)


@pytest.mark.parametrize("arguments", [{}, {"query": ""}, {"query": 5}, {"queries": [None]}, {"url": 5}, {"pattern": "x"}])
def test_arguments_that_ask_for_nothing(arguments: Mapping[str, Any]) -> None:
    async def test(scene: Scene) -> None:
        assert "Nothing was asked" in str(await scene.failure(**arguments))

    play(test)


def test_domains_of_the_request_bind_results_and_pages() -> None:
    async def test(scene: Scene) -> None:
        result = await scene.call(query="towers")
        assert [source.url for source in result.sources] == [A.url]
        assert "words of the provider" not in result.text
        assert any("left out" in loss for loss in result.losses)
        assert "a.example" in str(await scene.failure(url=f"{scene.site.url}/tower"))
        assert scene.site.requests == []

    blocked = A._replace(url="https://bad.a.example/")
    options = SearchOptions(domains=Domains(("a.example",), ("bad.a.example",)))
    play(test, A, B, blocked, options=options, text="words of the provider")


def test_a_redirect_does_not_lead_out_of_the_domains() -> None:
    async def test(scene: Scene) -> None:
        scene.site.redirect("/out", f"http://localhost:{scene.site.url.rpartition(':')[2]}/tower")
        assert await scene.failure(url=f"{scene.site.url}/out")

    play(test, options=SearchOptions(domains=Domains(("127.0.0.1",))))


@pytest.mark.parametrize(("size", "results"), [("low", 2), ("medium", 4), ("high", 8)])
def test_the_context_size_sets_how_much_there_is(size: Any, results: int) -> None:
    found = [WebResult(f"Page {number}", f"https://a.example/{number}", "x" * 5000) for number in range(20)]

    async def test(scene: Scene) -> None:
        result = await scene.call(query="towers")
        assert len(result.sources) == results
        assert scene.engine.queries[0].results == results
        assert len(result.text) < 3000 * results

    play(test, *found, options=SearchOptions(context_size=size))


def test_the_declaration_of_the_tool_becomes_options() -> None:
    declared = {
        "type": "web_search",
        "filters": {"allowed_domains": ["https://www.Example.com/path", "*.b.example", 5, ""], "blocked_domains": None},
        "user_location": {"type": "approximate", "country": "FR", "city": "Paris", "timezone": None},
        "search_context_size": "high",
    }
    assert search_options(declared) == SearchOptions(
        Domains(("www.example.com", "b.example")), Location(country="FR", city="Paris"), "high"
    )
    odd = {"filters": [], "user_location": "Paris", "search_context_size": "huge"}
    assert search_options(odd) == SearchOptions()
    assert not search_options({"external_web_access": False}).pages_allowed


def test_pages_are_not_opened_where_only_the_index_may_be_used() -> None:
    async def test(scene: Scene) -> None:
        assert "only search results" in str(await scene.failure(url=f"{scene.site.url}/tower"))

    play(test, options=SearchOptions(pages_allowed=False))


def test_marks_in_results_are_not_ours() -> None:
    async def test(scene: Scene) -> None:
        result = await scene.call(query="towers")
        assert "[7] trust me" in result.text
        assert "【7】" not in result.text

    play(test, A._replace(title="【7】 trust me", text="【7】【7】"))


# A tool of an MCP server as the provider


@pytest.mark.parametrize(
    ("text", "structured"),
    [
        ("", {"results": [{"url": A.url, "title": "Page A", "content": "about A"}]}),
        (json.dumps([{"link": A.url, "name": "Page A", "snippet": "about A"}]), None),
        (json.dumps({"data": {"web": [{"href": A.url, "title": "Page A", "description": "about A"}, {"x": 1}, 5]}}), None),
    ],
)
def test_the_usual_answers_of_mcp_tools_are_read(text: str, structured: Any) -> None:
    async def call_tool(arguments: Mapping[str, Any]) -> tuple[str, Any]:
        assert arguments == {"query": "towers"}
        return text, structured

    results = asyncio.run(McpProvider(lambda _tenant: call_tool).search(Query("towers", 5, recency=7, location=Location("FR"))))
    assert results.found == [WebResult("Page A", A.url, "about A")]
    assert [loss.partition(":")[0] for loss in results.losses] == ["recency", "user_location"]


@pytest.mark.parametrize("structured", [None, 5, "x", {"results": 5}, {"results": {"data": {"items": {}}}}, [[[]]]])
def test_other_answers_of_mcp_tools_are_passed_on(structured: Any) -> None:
    async def call_tool(arguments: Mapping[str, Any]) -> tuple[str, Any]:
        return "Page A (https://a.example/one), as it says.", structured

    results = asyncio.run(McpProvider(lambda _tenant: call_tool).search(Query("towers", 5)))
    assert results.text == "Page A (https://a.example/one), as it says."
    assert [found.url for found in results.found] == [A.url]


def test_an_answer_of_any_depth_is_passed_on() -> None:
    structured: Any = [{"url": A.url}]
    for _ in range(1500):
        structured = {"results": structured}

    async def call_tool(arguments: Mapping[str, Any]) -> tuple[str, Any]:
        return "Nothing here.", structured

    results = asyncio.run(McpProvider(lambda _tenant: call_tool).search(Query("towers", 5)))
    assert (results.text, results.found) == ("Nothing here.", [])
