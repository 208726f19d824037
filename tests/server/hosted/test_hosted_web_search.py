"""`web_search` of a request, from end to end: a model that searches, opens what it found, and cites what it read."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest

from tests.hosted.websites import SearchEngine, Website, searched_web
from tests.server.running_gateway import Served, post, run, simulated

QUESTION = {"input": "scenario: research How high is the tower?", "tools": [{"type": "web_search"}]}


@asynccontextmanager
async def scene(**settings: Any) -> AsyncIterator[tuple[Served, SearchEngine, Website]]:
    async with searched_web() as web, simulated(**web.settings, **settings) as served:
        yield served, web.engine, web.site


def test_the_model_searches_opens_a_page_and_cites_it() -> None:
    async def test() -> None:
        async with scene() as (served, engine, site):
            page = f"{site.url}/tower"
            final = (await post(served, QUESTION)).final
            calls = [item for item in final["output"] if item["type"] == "web_search_call"]
            assert [call["status"] for call in calls] == ["completed", "completed"]
            assert [call["action"]["type"] for call in calls] == ["search", "open_page"]
            assert (calls[0]["action"]["query"], calls[1]["action"]["url"]) == ("How high is the tower?", page)
            [part] = final["output"][-1]["content"]
            assert part["text"].startswith('The page says: "The tower of Example is 321 metres high')
            assert "【" not in part["text"]
            [citation] = part["annotations"]
            assert (citation["type"], citation["url"]) == ("url_citation", page)
            assert "321 metres" in part["text"][citation["start_index"] : citation["end_index"]]
            assert [query["q"] for query in engine.queries] == ["How high is the tower?"]
            assert [request.path for request in site.requests] == ["/tower"]

    run(test())


@pytest.mark.parametrize(
    ("tool", "said"),
    [
        ({"filters": {"allowed_domains": ["other.example"]}}, "found nothing"),
        ({"external_web_access": False}, "only search results may be used"),
    ],
)
def test_what_the_request_restricts_is_not_read(tool: dict[str, Any], said: str) -> None:
    async def test() -> None:
        async with scene() as (served, _, site):
            final = (await post(served, QUESTION, tools=[{"type": "web_search", **tool}])).final
            assert final["status"] == "completed"
            assert said in final["output"][-1]["content"][0]["text"]
            assert site.requests == []

    run(test())


@pytest.mark.parametrize(
    ("tool", "param"),
    [
        ({"filters": {"allowed_domains": "example.com"}}, "tools[0].filters.allowed_domains"),
        ({"filters": {"blocked_domains": [{}]}}, "tools[0].filters.blocked_domains[0]"),
    ],
)
def test_a_restriction_that_cannot_be_read_is_refused(tool: dict[str, Any], param: str) -> None:
    """Without it, all the web would be searched."""

    async def test() -> None:
        async with scene() as (served, engine, _):
            answer = await post(served, QUESTION, tools=[{"type": "web_search", **tool}])
            assert (answer.status, answer.json["error"]["param"]) == (400, param)
            assert engine.queries == []

    run(test())


def test_a_failing_search_is_an_item_and_no_failed_response() -> None:
    async def test() -> None:
        async with scene() as (served, engine, _):
            engine.page("/search", "<html>", status=500)
            final = (await post(served, QUESTION)).final
            assert final["status"] == "completed"
            [call] = [item for item in final["output"] if item["type"] == "web_search_call"]
            assert call["status"] == "failed"
            assert call["action"]["query"] == "How high is the tower?"
            assert "status 500" in final["output"][-1]["content"][0]["text"]

    run(test())
