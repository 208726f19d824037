"""Web pages at the front door: what a browser is told, and which page may open a WebSocket."""

from __future__ import annotations

import aiohttp
import pytest

from responses_gateway.settings.keys import hash_of
from tests.server.running_gateway import Served, ask, assert_error, post, run, simulated

KEY = "rp_alice-0123456789"
PAGE = "https://chat.example.com"
EVIL = "https://evil.example"
ASKING = {"Access-Control-Request-Method": "POST", "Access-Control-Request-Headers": "authorization,content-type"}


def test_off_a_browser_is_told_nothing() -> None:
    async def test() -> None:
        async with simulated(api_keys={"alice": hash_of(KEY)}) as served:
            headers = {"Origin": PAGE, "Authorization": f"Bearer {KEY}"}
            for answer in (
                await post(served, headers=headers),
                await ask(served, "GET", "/v1/models", headers=headers),
            ):
                assert answer.status == 200
                assert not [name for name in answer.headers if name.startswith("access-control")]
            assert_error(await ask(served, "OPTIONS", "/v1/responses", headers={"Origin": PAGE, **ASKING}), 401)

    run(test())


@pytest.mark.parametrize("path", ["/v1/responses", "/v1/chat/completions", "/v1/responses/resp_1", "/v1/models"])
def test_a_preflight_needs_no_key_and_reaches_nobody(path: str) -> None:
    async def test() -> None:
        async with simulated(cors_origins=[PAGE], api_keys={"alice": hash_of(KEY)}, requests_per_minute=1) as served:
            answer = await ask(served, "OPTIONS", path, headers={"Origin": PAGE, **ASKING})
            assert (answer.status, answer.body) == (204, b"")
            assert answer.headers["access-control-allow-origin"] == PAGE
            assert "POST" in answer.headers["access-control-allow-methods"]
            assert answer.headers["access-control-allow-headers"] == "authorization,content-type"
            assert "origin" in answer.headers["vary"].lower()
            assert "access-control-allow-credentials" not in answer.headers
            other = await ask(served, "OPTIONS", path, headers={"Origin": EVIL, **ASKING})
            assert not [name for name in other.headers if name.startswith("access-control")]

    run(test())


@pytest.mark.parametrize("stream", [True, False])
def test_a_page_of_the_settings_may_read_answers_and_errors(stream: bool) -> None:
    async def test() -> None:
        async with simulated(cors_origins=[PAGE + "/"], api_keys={"alice": hash_of(KEY)}) as served:
            headers = {"Origin": PAGE, "Authorization": f"Bearer {KEY}"}
            for answer, status in (
                (await post(served, stream=stream, headers=headers), 200),
                (await post(served, stream=stream, input=7, headers=headers), 400),
                (await post(served, stream=stream, headers={"Origin": PAGE}), 401),
                (await ask(served, "GET", "/no/such", headers=headers), 404),
            ):
                assert answer.status == status
                assert answer.headers["access-control-allow-origin"] == PAGE
                exposed = answer.headers["access-control-expose-headers"].split(", ")
                assert {"X-Request-Id", "Retry-After", "X-Should-Retry"} <= set(exposed)
                assert answer.headers["vary"] == "Origin"
            for origin in (EVIL, "null", PAGE + ".evil.example", "http://chat.example.com", "https://chat.example.com:444"):
                answer = await post(served, stream=stream, headers={**headers, "Origin": origin})
                assert "access-control-allow-origin" not in answer.headers

    run(test())


def test_a_star_is_every_page() -> None:
    async def test() -> None:
        async with simulated(cors_origins=["*"]) as served:
            assert (await post(served, headers={"Origin": EVIL})).headers["access-control-allow-origin"] == "*"
            assert "access-control-allow-origin" not in (await post(served)).headers

    run(test())


# ---- WebSockets -------------------------------------------------------------------------------------------------------


async def opens(served: Served, headers: dict[str, str]) -> int:
    """Return the status of the answer to a handshake."""
    async with aiohttp.ClientSession() as session:
        try:
            async with session.ws_connect(served.url + "/v1/responses", headers=headers):
                return 101
        except aiohttp.WSServerHandshakeError as refused:
            return refused.status


def test_a_page_of_another_origin_cannot_open_a_websocket() -> None:
    async def test() -> None:
        async with simulated() as served:
            own = served.url  # some libraries send this
            assert await opens(served, {}) == 101
            assert await opens(served, {"Origin": own}) == 101
            for origin in (EVIL, PAGE, "null", "", "http://localhost", f"{own}.evil.example", "http://127.0.0.1:1", "file://"):
                assert await opens(served, {"Origin": origin}) == 403

    run(test())


def test_a_name_that_an_attacker_points_here_is_not_our_own() -> None:
    """DNS rebinding: the page's origin and the Host agree, and both are the attacker's."""

    async def test() -> None:
        async with simulated() as served:
            host = f"evil.example:{served.port}"
            assert await opens(served, {"Origin": f"http://{host}", "Host": host}) == 403
            local = f"localhost:{served.port}"
            assert await opens(served, {"Origin": f"http://{local}", "Host": local}) == 101
        async with simulated(api_keys={"alice": hash_of(KEY)}) as served:  # such a page has no key
            host = f"gateway.example:{served.port}"
            headers = {"Origin": f"http://{host}", "Host": host}
            assert await opens(served, headers) == 401
            assert await opens(served, {**headers, "Authorization": f"Bearer {KEY}"}) == 101

    run(test())


def test_a_page_of_the_settings_can() -> None:
    async def test() -> None:
        async with simulated(cors_origins=[PAGE]) as served:
            assert await opens(served, {"Origin": PAGE}) == 101
            assert await opens(served, {"Origin": EVIL}) == 403

    run(test())
