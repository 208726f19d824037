"""`POST /v1/alpha/search`: Codex's searches, and whatever else may come there."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest

from responses_gateway.server.lifespan import open_parts
from responses_gateway.settings import ApiKey, Settings
from responses_gateway.settings.keys import hash_of
from tests.hosted.websites import ARTICLE, SearchEngine, Website, never, open_site
from tests.server.running_gateway import Answer, Served, ask, assert_error, gateway, run, simulated
from tests.waiting import until

PATH = "/v1/alpha/search"
NOWHERE = "http://127.0.0.1:9"
KEY = "a-key-of-this-gateway"


class Scene:
    """A gateway with a search engine and a site."""

    def __init__(self, served: Served, engine: SearchEngine, site: Website) -> None:
        self.served = served
        self.engine = engine
        self.site = site
        self.page = f"{site.url}/tower"

    async def send(self, body: object, **headers: str) -> Answer:
        return await ask(self.served, "POST", PATH, json=body, headers=headers)

    async def output(self, commands: dict[str, Any], **fields: Any) -> str:
        answer = await self.send({"id": "s", "model": "m", "commands": commands, **fields})
        assert answer.status == 200, answer.body
        assert set(answer.json) == {"output"}
        return str(answer.json["output"])


@asynccontextmanager
async def scene(**settings: Any) -> AsyncIterator[Scene]:
    site = Website()
    engine = SearchEngine()
    async with open_site(site), open_site(engine):
        site.page("/tower", ARTICLE)
        engine.results = [
            {"url": f"{site.url}/tower", "title": "The tower", "content": "All about it."},
            {"url": "https://other.example/", "title": "Other", "content": "Something else."},
        ]
        wanted = {"web_search_url": engine.url, "web_fetch_private_hosts": [site.host], **settings}
        async with gateway(NOWHERE, adapt=False, **wanted) as served:
            yield Scene(served, engine, site)


@pytest.mark.slow
def test_a_session_of_several_posts_needs_no_memory() -> None:
    """What one gateway found, another opens: the references are the URLs."""

    async def test() -> None:
        async with scene() as first:
            found = await first.output({"search_query": [{"q": "towers"}]})
            assert f"The tower\nref_id: {first.page}\nAll about it." in found
            async with gateway(
                NOWHERE, adapt=False, web_search_url=first.engine.url, web_fetch_private_hosts=[first.site.host]
            ) as other:
                second = Scene(other, first.engine, first.site)
                opened = await second.output({"open": [{"ref_id": first.page}]})
                assert "L2: The tower of Example is 321 metres high" in opened
                assert f"[2] Visit ({first.site.url}/visit)" in opened
                assert "sixty tonnes" in await second.output({"find": [{"ref_id": first.page, "pattern": "Sixty"}]})
                first.site.page("/visit", "Open from nine to five.", "text/plain")
                assert "nine to five" in await second.output({"click": [{"ref_id": first.page, "id": 2}]})
                paths = [request.path for request in first.site.requests]
                assert paths == ["/tower", "/visit"]  # the page was read once

    run(test())


def test_what_codex_asks_for_reaches_the_engine() -> None:
    async def test() -> None:
        async with scene() as here:
            query = {"q": "towers", "recency": 30, "domains": ["127.0.0.1"]}
            found = await here.output({"search_query": [query], "response_length": "short"})
            assert here.engine.queries[0] == {"q": "towers site:127.0.0.1", "format": "json", "time_range": "month"}
            assert here.page in found
            assert "other.example" not in found
            filters = {"filters": {"allowed_domains": ["other.example"]}}
            found = await here.output({"search_query": [{"q": "towers"}]}, settings=filters)
            assert here.page not in found
            refused = await here.output({"open": [{"ref_id": here.page}]}, settings=filters)
            assert "may not be read" in refused
            cached = await here.output({"open": [{"ref_id": here.page}]}, settings={"external_web_access": False})
            assert "only search results" in cached
            assert here.site.requests == []

    run(test())


@pytest.mark.slow
def test_many_commands_are_answered_in_order_and_what_fails_says_so() -> None:
    async def test() -> None:
        async with scene() as here:
            commands = {
                "search_query": [{"q": "towers"}, {"q": ""}],
                "open": [{"ref_id": here.page, "lineno": 4}, {"ref_id": "turn0search0"}, {"ref_id": "http://169.254.169.254/"}],
                "click": [{"ref_id": here.page, "id": 99}],
                "find": [{"ref_id": here.page, "pattern": " "}],
                "time": [{"utc_offset": "+03:00"}, {"utc_offset": "noon"}],
                "weather": [{"location": "Paris"}],
                "image_query": None,
            }
            output = await here.output(commands)
            said = [
                "All about it.", "nothing was searched", "L4: It is painted", "every ref_id is a full URL", "Only public pages",
                "no link 99", "pattern is empty", "Time at +03:00: ", "utc_offset is not known", "Not available here: weather.",
            ]  # fmt: skip
            places = [output.find(words) for words in said]
            assert -1 not in places, said[places.index(-1)]
            assert places == sorted(places)
            assert "image_query" not in output
            counted = [
                here.served.metric("hosted_calls_total", tool="web_search", outcome=each) for each in ("completed", "failed")
            ]
            assert counted == [3, 7]
            assert "No command" in await here.output({})
            assert "first 16 commands" in await here.output(
                {"time": [{"utc_offset": "+01:00"}] * 9, "search_query": [{"q": "x"}] * 9}
            )

    run(test())


@pytest.mark.slow
def test_the_answer_is_as_long_as_codex_wants_it() -> None:
    async def test() -> None:
        async with scene() as here:
            here.site.page("/long", "Grüße aus Wörth " * 5000, "text/plain")
            long = {"open": [{"ref_id": f"{here.site.url}/long"}], "find": [{"ref_id": here.page, "pattern": "lift"}]}
            whole = await here.output(long)
            assert len(whole) > 15_000
            bounded = await here.output(long, max_output_tokens=1000)
            assert len(bounded.encode()) <= 4000
            assert "by lift" in bounded  # the last command has its share
            assert len((await here.output(long, max_output_tokens=50)).encode()) <= 200

    run(test())


@pytest.mark.parametrize(
    ("body", "param"),
    [
        ([], None), ("x", None), ({"commands": []}, "commands"), ({"commands": {"open": {}}}, "commands.open"),
        ({"commands": {"open": [{"ref_id": 5}]}}, "commands.open[0].ref_id"),
        ({"commands": {"open": ["x"]}}, "commands.open[0]"),
        ({"commands": {"search_query": [{}]}}, "commands.search_query[0].q"),
        ({"commands": {"search_query": [{"q": "x", "recency": -1}]}}, "commands.search_query[0].recency"),
        ({"commands": {"search_query": [{"q": "x"}] * 17}}, "commands.search_query"),
        ({"commands": {"search_query": [{"q": "x" * 9000}]}}, "commands.search_query[0].q"),
        ({"commands": {"response_length": "huge"}}, "commands.response_length"), ({"settings": []}, "settings"),
        ({"max_output_tokens": 0}, "max_output_tokens"), ({"max_output_tokens": "x"}, "max_output_tokens"),
    ],
)  # fmt: skip
def test_bodies_that_are_no_search_are_refused_by_field(body: object, param: str | None) -> None:
    async def test() -> None:
        async with scene() as here:
            answer = await here.send(body)
            assert_error(answer, 400)
            assert answer.json["error"]["param"] == param
            assert here.engine.requests == []

    run(test())


@pytest.mark.parametrize("value", [None, [], {}, 5, "x", {"filters": 5, "user_location": [], "search_context_size": {}}])
def test_odd_settings_and_unknown_commands_are_no_errors(value: Any) -> None:
    async def test() -> None:
        async with scene() as here:
            settings = {"settings": value} if isinstance(value, dict) else {}
            output = await here.output({"time": [{"utc_offset": "-05"}], "new_command": value, "x" * 500: value}, **settings)
            assert "Time at -05" in output
            assert len(output) < 1000

    run(test())


def test_without_a_provider_the_answer_names_the_setting() -> None:
    async def test() -> None:
        async with gateway(NOWHERE, adapt=False) as served:
            answer = await ask(served, "POST", PATH, json={"commands": {}})
            assert "web_search_url" in assert_error(answer, 404, "web_search_not_configured")
            assert_error(await ask(served, "GET", PATH), 405)

    run(test())


def test_keys_and_limits_hold_for_searches() -> None:
    async def test() -> None:
        keys = {"ada": ApiKey(hash=hash_of(KEY))}
        async with scene(api_keys=keys, requests_per_minute=2) as here:
            body = {"commands": {"time": [{"utc_offset": "+00:00"}]}}
            assert_error(await here.send(body), 401, "invalid_api_key")
            allowed = {"Authorization": f"Bearer {KEY}", "X-Request-Id": "mine"}
            answer = await here.send(body, **allowed)
            assert (answer.status, answer.headers["x-request-id"]) == (200, "mine")
            assert (await here.send(body, **allowed)).status == 200
            assert_error(await here.send(body, **allowed), 429)

    run(test())


@pytest.mark.slow
def test_one_tenant_does_not_see_what_another_has_read() -> None:
    async def test() -> None:
        async with scene() as here:
            body = {"commands": {"open": [{"ref_id": here.page}]}}
            for name in ("ada", "bob", "ada"):
                assert (await here.send(body, Authorization=f"Bearer {name}")).status == 200
            assert len(here.site.requests) == 2

    run(test())


def test_a_client_that_leaves_stops_the_search() -> None:
    async def test() -> None:
        async with scene() as here:
            left = asyncio.Event()

            async def hang(request: Any) -> Any:
                try:
                    await never()
                finally:
                    left.set()

            here.engine.pages["/search"] = hang
            asking = asyncio.create_task(here.send({"commands": {"search_query": [{"q": "x"}]}}))
            await until(lambda: here.engine.requests, "the search has begun")
            asking.cancel()
            await asyncio.wait([asking])
            await until(left.is_set, "the search engine is left alone")

    run(test())


@pytest.mark.parametrize(
    ("settings", "named"),
    [
        ({"web_search_provider": "searxng"}, "web_search_url"),
        ({"web_search_provider": "brave"}, "web_search_api_key"),
        ({"web_search_provider": "tavily"}, "web_search_api_key"),
        ({"web_search_api_key": "k"}, "web_search_api_key needs the setting web_search_provider"),
        ({"web_search_provider": "mcp:docs/search"}, "no MCP server"),
    ],
)
def test_a_provider_that_cannot_be_used_is_named_at_the_start(settings: dict[str, Any], named: str) -> None:
    async def test() -> None:
        with pytest.raises(ValueError, match=named):
            async with open_parts(Settings(backend=[NOWHERE], store="none", adapt=False, **settings)):
                pass

    run(test())


@pytest.mark.parametrize(
    "wrong",
    [
        {"web_search_provider": "google"}, {"web_search_provider": "mcp:nothing"}, {"web_search_url": "searxng:8080"},
        {"web_search_url": "http://user:pass@searxng"},
        {"web_fetch_private_hosts": ["http://10.0.0.1"]}, {"web_fetch_private_hosts": ["*"]},
        {"web_fetch_private_hosts": ["wiki.lan:99999"]}, {"web_fetch_private_hosts": ["*.lan"]},
    ],
)  # fmt: skip
def test_settings_that_make_no_sense(wrong: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match=next(iter(wrong))):
        Settings(backend=[NOWHERE], **wrong)


def test_the_list_of_models_tells_whether_there_is_a_search() -> None:
    async def test() -> None:
        for settings, tools in (({}, []), ({"web_search_url": NOWHERE}, ["web_search"])):
            async with simulated(**settings) as served:
                assert (await ask(served, "GET", "/v1/models")).json["hosted_tools"] == tools

    run(test())
