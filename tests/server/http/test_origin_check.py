"""Web pages of other origins: they may not use a gateway without keys, not even blindly. Programs are not affected."""

from __future__ import annotations

import json
from typing import Any

import pytest

from responses_gateway.settings.keys import hash_of
from tests.server.running_gateway import Answer, Served, ask, assert_error, run, simulated

PAGE = "https://chat.example.com"
QUESTION = json.dumps({"model": "simulator", "input": "hi"}).encode()
KEY = "rp_alice-0123456789"
# What browsers send along with requests of pages that do not belong to the gateway.
FOREIGN: list[dict[str, str]] = [
    {"Sec-Fetch-Site": "cross-site", "Sec-Fetch-Mode": "no-cors", "Origin": PAGE},
    {"Sec-Fetch-Site": "same-site", "Sec-Fetch-Mode": "cors", "Origin": "http://127.0.0.1:1"},
    {"Sec-Fetch-Site": "cross-site", "Sec-Fetch-Mode": "navigate", "Origin": "null"},
    {"Origin": PAGE},  # without TLS, browsers leave Sec-Fetch-Site out for other machines
    {"Origin": "null"},
]
OWN: list[dict[str, str]] = [{"Sec-Fetch-Site": "same-origin"}, {"Sec-Fetch-Site": "none"}]


async def sent(served: Served, headers: dict[str, str], kind: str | None = "application/json", **more: Any) -> Answer:
    """Send the question with a content type."""
    typed = {**headers, **({} if kind is None else {"Content-Type": kind})}
    return await ask(served, "POST", more.pop("path", "/v1/responses"), data=QUESTION, headers=typed, **more)


@pytest.mark.parametrize("headers", FOREIGN)
def test_without_keys_pages_of_other_origins_are_refused_everywhere(headers: dict[str, str]) -> None:
    async def test() -> None:
        async with simulated() as served:
            for path in ("/v1/responses", "/v1/conversations", "/v1/chat/completions", "/v1/embeddings", "/tokenize"):
                for kind in ("text/plain", "application/json"):
                    assert_error(await sent(served, headers, kind, path=path), 403, "origin_not_allowed")
            for method in ("OPTIONS", "DELETE", "PUT"):
                assert_error(await ask(served, method, "/v1/adapters", headers=headers), 403, "origin_not_allowed")
            assert served.metric("access_refusals_total", reason="origin") >= 13
            assert served.metric("backend_requests_total", backend=served.parts.settings.backend[0][7:-3]) == 0

    run(test())


def test_links_to_the_gateway_work() -> None:
    async def test() -> None:
        async with simulated() as served:
            headers = {"Sec-Fetch-Site": "cross-site", "Sec-Fetch-Mode": "navigate"}
            assert (await ask(served, "GET", "/ui/", headers=headers)).status == 200

    run(test())


def test_pages_that_the_settings_name_and_its_own_may_use_it() -> None:
    async def test() -> None:
        async with simulated(cors_origins=[PAGE]) as served:
            own = {"Origin": served.url}
            for headers in (FOREIGN[0], FOREIGN[3], own, *({**own, **more} for more in OWN), *OWN):
                assert (await sent(served, headers)).status == 200, headers

    run(test())


@pytest.mark.parametrize("kind", ["text/plain", "text/plain;charset=UTF-8", "multipart/form-data; boundary=x", None])
def test_a_browser_has_to_say_that_it_sends_json(kind: str | None) -> None:
    """A page can send all other types to any address without being asked."""

    async def test() -> None:
        async with simulated(cors_origins=["*"], store="memory") as served:
            for path in ("/v1/responses", "/v1/conversations", "/v1/responses/input_tokens"):
                answer = await sent(served, FOREIGN[0], kind, path=path, skip_auto_headers=["Content-Type"])
                assert_error(answer, 415, "unsupported_media_type")

    run(test())


@pytest.mark.parametrize("kind", ["application/json", "text/plain", "application/x-www-form-urlencoded", None])
def test_programs_may_say_what_they_like(kind: str | None) -> None:
    async def test() -> None:
        async with simulated() as served:
            assert (await sent(served, {}, kind, skip_auto_headers=["Content-Type"])).status == 200

    run(test())


def test_with_keys_it_is_the_key_that_counts() -> None:
    async def test() -> None:
        async with simulated(api_keys={"alice": hash_of(KEY)}) as served:
            assert_error(await sent(served, FOREIGN[0]), 401, "invalid_api_key")
            assert (await sent(served, {**FOREIGN[0], "Authorization": f"Bearer {KEY}"})).status == 200

    run(test())
