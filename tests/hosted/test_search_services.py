"""Search services: what each is asked, and what is made of whatever it answers."""

from __future__ import annotations

import gzip
import json
from collections.abc import Awaitable, Callable
from datetime import date
from typing import Any

import pytest
from aiohttp import web

from responses_gateway.hosted.interface import ToolFailure
from responses_gateway.hosted.search.providers import Domains, Location, Query, Results, WebResult
from responses_gateway.hosted.search.service_provider import ServiceProvider
from responses_gateway.hosted.search.services import SERVICES
from tests.hosted.websites import SearchEngine, Website, never, open_site
from tests.server.running_gateway import run
from tests.waiting import PATIENCE

KEY = "secret-of-the-service"
TODAY = date(2026, 11, 22)
PLACE = Location("FR", "Île-de-France", "Paris", "Europe/Paris")
FULL = Query("towers", 5, Domains(("example.com", "b.example"), ("bad.example",)), 7, PLACE)
Answering = Callable[[Website, ServiceProvider], Awaitable[None]]


def with_service(name: str, test: Answering, site: Website | None = None, timeout: float = PATIENCE) -> None:
    async def scene() -> None:
        website = site or Website()
        async with open_site(website):
            provider = ServiceProvider(SERVICES[name], url=website.url, key=KEY, timeout=timeout, today=lambda: TODAY)
            try:
                await test(website, provider)
            finally:
                await provider.close()

    run(scene())


async def refusal(provider: ServiceProvider) -> str:
    with pytest.raises(ToolFailure) as failure:
        await provider.search(Query("towers", 5))
    assert KEY not in str(failure.value)
    assert "127.0.0.1" not in str(failure.value)
    return str(failure.value)


def test_searxng_is_asked_as_its_manual_says() -> None:
    async def test(site: Website, provider: ServiceProvider) -> None:
        assert isinstance(site, SearchEngine)
        site.results = [
            {"url": "https://a.example/", "title": "A", "content": "about a", "publishedDate": "2026-11-20T00:00:00"},
            {"url": "https://b.example/", "title": "", "content": None, "publishedDate": None},
        ]
        results = await provider.search(FULL)
        assert results.found == [
            WebResult("A", "https://a.example/", "about a", "2026-11-20T00:00:00"),
            WebResult("https://b.example/", "https://b.example/", ""),
        ]
        assert [loss.partition(":")[0] for loss in results.losses] == ["user_location"]
        sites = "towers (site:example.com OR site:b.example) -site:bad.example"
        assert site.queries == [{"q": sites, "format": "json", "time_range": "week"}]

    with_service("searxng", test, SearchEngine())


def test_a_searxng_whose_engines_are_blocked_says_so() -> None:
    async def test(site: Website, provider: ServiceProvider) -> None:
        assert isinstance(site, SearchEngine)
        site.unresponsive = [["brave", "too many requests"]]
        assert "not all search engines have answered" in await refusal(provider)
        site.results = [{"url": "https://a.example/", "title": "A", "content": ""}]
        assert len((await provider.search(Query("towers", 5))).found) == 1
        site.unresponsive = []
        site.results = []
        assert (await provider.search(Query("towers", 5))).found == []

    with_service("searxng", test, SearchEngine())


@pytest.mark.parametrize(("days", "span"), [(0, "day"), (1, "day"), (3, "week"), (30, "month"), (90, "year"), (9999, "year")])
def test_days_become_the_nearest_span_that_has_them(days: int, span: str) -> None:
    assert SERVICES["searxng"].request(Query("x", 1, recency=days), "", TODAY).params["time_range"] == span


def test_brave_is_asked_as_its_manual_says() -> None:
    async def test(site: Website, provider: ServiceProvider) -> None:
        about = "It&#x27;s &lt;b&gt; in <strong>HTML</strong>: 1 < 2 > 0"
        result = {"title": "A &amp; B", "url": "https://a.example/", "description": about, "page_age": "2026-11-20"}
        site.page("/res/v1/web/search", json.dumps({"type": "search", "web": {"results": [result]}}), "application/json")
        results = await provider.search(FULL)
        assert results.found == [WebResult("A & B", "https://a.example/", "It's <b> in HTML: 1 < 2 > 0", "2026-11-20")]
        [request] = site.requests
        sites = "towers (site:example.com OR site:b.example) -site:bad.example"
        assert dict(request.query) == {"q": sites, "count": "5", "freshness": "pw", "text_decorations": "false"}
        assert request.headers["X-Subscription-Token"] == KEY
        places = {name: value for name, value in request.headers.items() if name.startswith("X-Loc-")}
        assert places == {"X-Loc-City": "Paris", "X-Loc-Country": "FR", "X-Loc-Timezone": "Europe/Paris"}
        assert [loss.partition(":")[0] for loss in results.losses] == ["user_location"]  # Île-de-France

    with_service("brave", test)


def test_brave_gets_no_more_words_and_characters_than_it_takes() -> None:
    few = Domains(("example.com",), ("bad.example",))
    many = Domains(tuple(f"{number}.example.com" for number in range(60)))
    for text in ("word " * 100, "long-word" * 100, "x"):
        for domains in (few, many, Domains()):
            request = SERVICES["brave"].request(Query(text, 5, domains), KEY, TODAY)
            asked = request.params["q"]
            assert (len(asked) <= 400, len(asked.split()) <= 50) == (True, True)
            assert asked.startswith(text[:4].strip())
            assert asked.endswith(" site:example.com -site:bad.example") == (domains is few)
            assert [loss.partition(":")[0] for loss in request.losses] == (["filters"] if domains is many else [])


def test_tavily_refuses_long_questions_so_it_gets_none() -> None:
    body = SERVICES["tavily"].request(Query("x" * 1000, 5), KEY, TODAY).body
    assert body is not None
    assert body["query"] == "x" * 400


def test_tavily_is_asked_as_its_manual_says() -> None:
    async def test(site: Website, provider: ServiceProvider) -> None:
        result = {"title": "A", "url": "https://a.example/", "content": "about", "score": 0.9}
        site.page("/search", json.dumps({"query": "towers", "results": [result]}), "application/json")
        results = await provider.search(FULL)
        assert results.found == [WebResult("A", "https://a.example/", "about")]
        assert [loss.partition(":")[0] for loss in results.losses] == ["user_location"]
        assert site.requests[0].headers["Authorization"] == f"Bearer {KEY}"
        assert json.loads(site.bodies[0]) == {
            "query": "towers",
            "max_results": 5,
            "include_domains": ["example.com", "b.example"],
            "exclude_domains": ["bad.example"],
            "start_date": "2026-11-15",
        }

    with_service("tavily", test)


def test_exa_is_asked_as_its_manual_says() -> None:
    async def test(site: Website, provider: ServiceProvider) -> None:
        result = {"title": "A", "url": "https://a.example/", "text": "about", "publishedDate": "2026-11-20"}
        site.page("/search", json.dumps({"results": [result]}), "application/json")
        results = await provider.search(FULL)
        assert results.found == [WebResult("A", "https://a.example/", "about", "2026-11-20")]
        assert [loss.partition(":")[0] for loss in results.losses] == ["user_location"]
        assert site.requests[0].headers["x-api-key"] == KEY
        assert json.loads(site.bodies[0]) == {
            "query": "towers",
            "numResults": 5,
            "contents": {"text": {"maxCharacters": 1000}},
            "includeDomains": ["example.com", "b.example"],
            "excludeDomains": ["bad.example"],
            "startPublishedDate": "2026-11-15T00:00:00.000Z",
            "userLocation": "FR",
        }

    with_service("exa", test)


@pytest.mark.parametrize("name", SERVICES)
def test_a_plain_question_asks_for_nothing_else(name: str) -> None:
    request = SERVICES[name].request(Query("towers", 5), KEY, TODAY)
    asked = {**request.params, **(request.body or {})}
    extra = set(asked) - {"q", "query", "format", "count", "max_results", "numResults", "contents", "text_decorations"}
    assert (extra, request.losses) == (set(), [])


@pytest.mark.parametrize(
    "body",
    [
        b"", b"null", b"[]", b"3", b'"text"', b"{}", b'{"results": null}', b'{"results": {}}',
        b'{"results": [1, null, [], "x"]}',
        b'{"results": [{"url": 5}, {"url": "javascript:alert(1)"}, {"url": "https://a b/"}, {"title": "no url"}]}',
        b'{"results": [{"url": "file:///etc/passwd", "title": "x"}]}', b"<html>", b"\xff\xfe", b"[" * 100_000,
        b'{"results": ' + b"[" * 100_000, b'{"results": [{"url": "https://a.example/' + b"x" * 5000 + b'"}]}',
    ],
)  # fmt: skip
def test_garbage_of_a_service_gives_no_results(body: bytes) -> None:
    async def test(site: Website, provider: ServiceProvider) -> None:
        site.page("/search", body, "application/json")
        try:
            outcome: Results | str = await provider.search(Query("towers", 5))
        except ToolFailure as failure:
            outcome = str(failure)
        assert "not JSON" in outcome if isinstance(outcome, str) else outcome.found == []

    with_service("searxng", test)


def test_a_text_that_a_service_has_cut_within_an_emoji_is_a_result() -> None:
    """Programs in JavaScript write half a surrogate pair there, as an escape."""

    async def test(site: Website, provider: ServiceProvider) -> None:
        entries = [
            {"url": "https://a.example/", "title": "A", "content": "high \ud83d"},
            {"url": "https://b.example/", "title": "B"},
        ]
        site.page("/search", json.dumps({"results": entries}), "application/json")
        results = await provider.search(Query("towers", 5))
        assert results.found == [WebResult("A", "https://a.example/", "high \ufffd"), WebResult("B", "https://b.example/", "")]

    with_service("searxng", test)


def test_fields_of_odd_types_and_sizes_are_tamed() -> None:
    async def test(site: Website, provider: ServiceProvider) -> None:
        entries: list[dict[str, Any]] = [
            {"url": "https://a.example/", "title": ["not", 5, "text"], "content": {"x": 1}, "publishedDate": 5},
            {"url": "https://b.example/", "title": "t" * 5000, "content": "c" * 5000, "publishedDate": "p" * 1000},
        ]
        site.page("/search", json.dumps({"results": entries * 100}), "application/json")
        results = await provider.search(Query("towers", 5))
        assert len(results.found) <= 100
        assert results.found[0] == WebResult("not … text", "https://a.example/", "")
        assert max(len(field) for found in results.found for field in found) <= 4000

    with_service("searxng", test)


def test_an_endless_answer_of_a_service_is_cut_off() -> None:
    async def test(site: Website, provider: ServiceProvider) -> None:
        sent = 0

        async def endless(request: web.Request) -> web.StreamResponse:
            nonlocal sent
            response = web.StreamResponse()
            await response.prepare(request)
            for _ in range(10_000):  # 1 GB
                await response.write(b"x" * 100_000)
                sent += 100_000
            return response

        site.pages["/search"] = endless
        assert "too large" in await refusal(provider)
        assert sent < 100_000_000

    with_service("searxng", test)


def test_a_service_that_hangs_is_given_up() -> None:
    async def test(site: Website, provider: ServiceProvider) -> None:
        async def hang(request: web.Request) -> web.StreamResponse:
            await never()
            return web.Response()

        site.pages["/search"] = hang
        assert "within 0.5 seconds" in await refusal(provider)

    with_service("searxng", test, timeout=0.5)


def test_the_key_is_not_sent_where_a_service_redirects_to() -> None:
    async def test(site: Website, provider: ServiceProvider) -> None:
        site.redirect("/search", "/elsewhere")
        assert "status 302" in await refusal(provider)
        assert [request.path for request in site.requests] == ["/search"]

    with_service("exa", test)


@pytest.mark.parametrize(("status", "said"), [(401, "key"), (403, "json"), (429, "too many"), (500, "500"), (204, "204")])
def test_refusals_of_a_service_are_told_in_words(status: int, said: str) -> None:
    async def test(site: Website, provider: ServiceProvider) -> None:
        site.page("/search", "Traceback: secret", "text/plain", status)
        message = await refusal(provider)
        assert said in message
        assert "Traceback" not in message

    with_service("tavily", test)


def test_a_service_that_is_not_there() -> None:
    async def scene() -> None:
        site = Website()
        async with open_site(site):
            pass
        provider = ServiceProvider(SERVICES["searxng"], url=site.url, key="", timeout=PATIENCE)
        assert "cannot be reached" in await refusal(provider)
        await provider.close()

    run(scene())


def test_compressed_answers_are_unpacked_within_the_limit() -> None:
    async def test(site: Website, provider: ServiceProvider) -> None:
        answer = json.dumps({"results": [{"url": "https://a.example/", "title": "A"}]}).encode()
        site.page("/search", gzip.compress(answer), "application/json", **{"Content-Encoding": "gzip"})
        assert [found.title for found in (await provider.search(Query("towers", 5))).found] == ["A"]
        site.page("/search", gzip.compress(b" " * 50_000_000), "application/json", **{"Content-Encoding": "gzip"})
        assert "too large" in await refusal(provider)
        site.page("/search", b"whatever", "application/json", **{"Content-Encoding": "zstd"})
        assert "compressed" in await refusal(provider)

    with_service("searxng", test)
