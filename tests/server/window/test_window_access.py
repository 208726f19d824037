"""Who may look through the window, and who may not: other machines, other pages, names that resolve to this machine."""

from __future__ import annotations

import re
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from aiohttp import web

from responses_gateway.server.app import create_app, create_operations_app
from responses_gateway.server.window import pages, permissions
from responses_gateway.settings.keys import hash_of
from tests.server.running_gateway import Served, ask, assert_error, gateway, run, simulated
from tests.server.window.looking import KEY, bearer, last_ended, look

NOWHERE = "http://127.0.0.1:9/v1"
STATIC = Path(pages.__file__).parent / "static"
API = [
    ("GET", "state"), ("GET", "live"), ("GET", "backends"), ("GET", "plots"), ("GET", "usage?days=7"), ("GET", "requests/x-1"),
    ("GET", "requests/x-1/live-steps"), ("GET", "requests/x-1/contents"), ("GET", "requests/x-1/steps"),
    ("GET", "requests/x-1/answer"),
    ("GET", "requests/x-1/record"), ("POST", "requests/x-1/replay"), ("POST", "backends/127.0.0.1:9/examine"),
    ("POST", "recording"),
]  # fmt: skip


@pytest.fixture(autouse=True)
def _second_machine(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let 127.0.0.2 be the address of a machine that others can reach."""
    is_loopback = permissions.is_loopback
    monkeypatch.setattr(permissions, "is_loopback", lambda text: text != "127.0.0.2" and is_loopback(text))


@asynccontextmanager
async def elsewhere(served: Served, *, operations: bool = False) -> AsyncIterator[Served]:
    """Serve the same gateway to other machines as well."""
    runner = web.AppRunner(create_operations_app(served.parts) if operations else create_app(served.parts))
    await runner.setup()
    try:
        await web.TCPSite(runner, "127.0.0.2", 0).start()
        yield Served(f"http://127.0.0.2:{runner.addresses[0][1]}", served.parts)
    finally:
        await runner.cleanup()


# ---- the page ---------------------------------------------------------------------------------------------------------


def test_the_page_and_its_files_forbid_everything_inline_and_from_elsewhere() -> None:
    async def test() -> None:
        async with gateway(NOWHERE) as served:
            moved = await ask(served, "GET", "/ui", allow_redirects=False)
            assert (moved.status, moved.headers["location"]) == (308, "ui/")
            for path in ("/ui/", *(f"/ui/{file.name}" for file in STATIC.iterdir())):
                answer = await ask(served, "GET", path)
                assert answer.status == 200, path
                policy = answer.headers["content-security-policy"]
                assert "default-src 'none'" in policy
                assert "unsafe" not in policy
                assert "frame-ancestors 'none'" in policy
                assert answer.headers["x-content-type-options"] == "nosniff"

    run(test())


def test_no_file_has_a_script_or_a_style_within_it_or_names_another_machine() -> None:
    for file in STATIC.iterdir():
        text = file.read_text(encoding="utf-8")
        assert not re.search(r"https?://(?!www\.w3\.org/)", text), file.name
        assert not re.search(r"innerHTML|outerHTML|insertAdjacentHTML|document\.write|eval\(|new Function", text), file.name
    page = (STATIC / "index.html").read_text(encoding="utf-8")
    assert not re.search(r"<style|style=|\son\w+=|javascript:|<script(?![^>]*\bsrc=)", page)


@pytest.mark.parametrize("name", ["../resource.py", "%2e%2e/resource.py", "resource.py", "..%2fresource.py", "window.css/"])
def test_nothing_else_is_served(name: str) -> None:
    async def test() -> None:
        async with gateway(NOWHERE, relay=False) as served:
            assert (await ask(served, "GET", f"/ui/{name}")).status == 404

    run(test())


def test_a_browser_is_led_to_the_window_and_nobody_else() -> None:
    async def test() -> None:
        keys = {"alice": {"hash": [hash_of("sk-alice-has-a-long-key")]}}
        browsers = {"Accept": "text/html,application/xhtml+xml;q=0.9,*/*;q=0.8"}
        async with gateway(NOWHERE) as served, gateway(NOWHERE, api_keys=keys) as with_keys:
            for gateway_ in (served, with_keys):
                led = await ask(gateway_, "GET", "/", headers=browsers, allow_redirects=False)
                assert (led.status, led.headers["location"], led.headers["vary"]) == (302, "ui/", "Accept")
            assert_error(await ask(served, "GET", "/"), 404, "not_found")
            assert_error(await ask(served, "POST", "/", headers=browsers), 404, "not_found")
            assert_error(await ask(with_keys, "GET", "/"), 401, "invalid_api_key")
        for settings in ({"ui": "off"}, {"operations_port": 0}):
            async with gateway(NOWHERE, **settings) as served:
                assert_error(await ask(served, "GET", "/", headers=browsers), 404, "not_found")

    run(test())


def test_it_can_be_switched_off() -> None:
    async def test() -> None:
        async with gateway(NOWHERE, ui="off", relay=False) as served:
            for path in ("/ui", "/ui/", "/ui/api/state"):
                assert_error(await ask(served, "GET", path), 404, "not_found")
            assert served.parts.responses.reports.history is None

    run(test())


# ---- with an admin key ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("headers", [{}, bearer("not-the-key-at-all"), {"Authorization": KEY}, {"Cookie": f"key={KEY}"}])
def test_with_an_admin_key_nothing_is_told_without_it(headers: dict[str, str]) -> None:
    async def test() -> None:
        async with gateway(NOWHERE, admin_key=KEY) as served:
            for method, path in API:
                assert_error(await look(served, path, method, headers=headers), 401, "invalid_api_key")

    run(test())


def test_with_an_admin_key_whoever_has_it_may_look_from_everywhere() -> None:
    async def test() -> None:
        keys = {"alice": {"hash": [hash_of("sk-alice-has-a-long-key")]}}
        async with gateway(NOWHERE, admin_key=KEY, api_keys=keys) as served, elsewhere(served) as outside:
            state = await look(outside, headers=bearer())
            assert state.json["contents"] is True
            assert_error(await look(outside, headers=bearer("sk-alice-has-a-long-key")), 401)

    run(test())


# ---- without one ------------------------------------------------------------------------------------------------------


def test_without_an_admin_key_this_machine_may_look_and_no_other() -> None:
    async def test() -> None:
        async with gateway(NOWHERE) as served, elsewhere(served) as outside:
            assert (await look(served)).json["contents"] is True
            for method, path in API:
                message = assert_error(await look(outside, path, method), 403, "admin_key_required")
                assert "admin_key" in message

    run(test())


@pytest.mark.parametrize("header", ["X-Forwarded-For", "Forwarded", "Via", "X-Real-IP", "X-Forwarded-Host"])
def test_who_comes_through_a_reverse_proxy_is_not_on_this_machine(header: str) -> None:
    async def test() -> None:
        async with gateway(NOWHERE) as served:
            assert_error(await look(served, headers={header: "192.0.2.7"}), 403, "admin_key_required")

    run(test())


@pytest.mark.parametrize("host", ["evil.example.com", "gateway", "gateway.internal", "127.0.0.1.example.com", "192.0.2.1", ""])
def test_a_name_that_may_be_that_of_a_page_does_not_open_the_window(host: str) -> None:
    async def test() -> None:
        async with gateway(NOWHERE, allowed_hosts=["*"]) as served:
            assert_error(await look(served, headers={"Host": host}), 403)

    run(test())


@pytest.mark.parametrize(
    "headers",
    [
        {"Origin": "https://evil.example.com"},
        {"Origin": "null"},
        {"Origin": "http://127.0.0.1:1"},
        {"Sec-Fetch-Site": "cross-site"},
        {"Sec-Fetch-Site": "same-site"},
    ],
)
def test_no_other_page_may_look_whatever_the_key_and_cors(headers: dict[str, str]) -> None:
    async def test() -> None:
        for settings in ({}, {"admin_key": KEY}):
            async with gateway(NOWHERE, cors_origins=["*"], **settings) as served:
                for method, path in API:
                    answer = await look(served, path, method, headers={**headers, **bearer()})
                    assert_error(answer, 403, "origin_not_allowed")

    run(test())


def test_where_clients_have_keys_the_window_needs_the_admin_key_on_their_port() -> None:
    async def test() -> None:
        keys = {"alice": {"hash": [hash_of("sk-alice-has-a-long-key")]}}
        async with gateway(NOWHERE, api_keys=keys) as served:
            message = assert_error(await look(served, headers=bearer("sk-alice-has-a-long-key")), 403, "admin_key_required")
            assert "this machine" not in message  # which is where the visitor is
            assert "Set `admin_key`" in message

    run(test())


def test_this_machine_may_record_without_an_admin_key_and_no_other() -> None:
    async def test() -> None:
        async with gateway(NOWHERE) as served, elsewhere(served) as outside:
            assert (await look(served, "recording", "POST", json={"minutes": 1})).json["until"] > 0
            for headers in ({"X-Forwarded-For": "192.0.2.7"}, {"Host": "gateway.internal"}, {"Sec-Fetch-Site": "cross-site"}):
                assert_error(await look(served, "recording", "POST", json={"minutes": 1}, headers=headers), 403)
            assert_error(await look(outside, "recording", "POST", json={"minutes": 1}), 403, "admin_key_required")

    run(test())


# ---- in front of a simulated backend ----------------------------------------------------------------------------------


def test_an_open_window_shows_contents_to_every_machine_and_to_no_other_page() -> None:
    async def test() -> None:
        async with gateway(NOWHERE, ui="open", allowed_hosts=["*"]) as served, elsewhere(served) as outside:
            state = (await look(outside)).json
            assert (state["contents"], state["recording"]["always"]) == (True, True)
            for headers in ({"Host": "evil.example.com"}, {"Origin": "https://evil.example.com"}, {"Origin": "null"}):
                assert_error(await look(outside, headers=headers), 403)

    run(test())


def test_an_open_window_is_not_open_where_anybody_needs_a_key() -> None:
    async def test() -> None:
        keys = {"alice": {"hash": [hash_of("sk-alice-has-a-long-key")]}}
        async with gateway(NOWHERE, ui="open", api_keys=keys) as served, elsewhere(served) as outside:
            assert_error(await look(outside), 403, "admin_key_required")
        async with gateway(NOWHERE, ui="open", admin_key=KEY) as served, elsewhere(served) as outside:
            assert_error(await look(outside), 401)

    run(test())


# ---- the port for operators -------------------------------------------------------------------------------------------


def test_on_the_port_for_operators_others_see_shapes_and_no_contents(tmp_path: Path) -> None:
    async def test() -> None:
        settings: dict[str, Any] = {"operations_port": 0, "record": tmp_path, "allowed_hosts": ["*"]}
        async with simulated(**settings) as served, elsewhere(served, operations=True) as operators:
            assert_error(await ask(served, "GET", "/ui/"), 404)  # not on the port for clients
            await ask(served, "POST", "/v1/responses", json={"model": "m", "input": "a secret of the client"})
            (summary,) = await last_ended(operators)
            state = (await look(operators)).json
            assert (state["contents"], state["client_port"]) == (False, 9000)
            assert (await look(operators, f"requests/{summary['id']}")).json["outcome"] == "completed"
            for method, what in (("GET", "contents"), ("GET", "steps"), ("GET", "record"), ("POST", "replay")):
                answer = await look(operators, f"requests/{summary['id']}/{what}", method)
                assert_error(answer, 403, "admin_key_required")
            assert_error(await look(operators, "backends/x/examine", "POST"), 403, "admin_key_required")
            assert_error(await look(operators, headers={"Host": "evil.example.com"}), 403, "admin_key_required")

    run(test())


def test_where_metrics_need_a_key_so_does_the_window() -> None:
    async def test() -> None:
        settings: dict[str, Any] = {"operations_port": 0, "metrics": "key"}
        async with gateway(NOWHERE, **settings) as served, elsewhere(served, operations=True) as operators:
            assert_error(await look(operators), 403, "admin_key_required")

    run(test())


def test_only_so_many_may_look_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    async def test() -> None:
        async with gateway(NOWHERE) as served:
            monkeypatch.setattr("responses_gateway.server.window.resource.MOST_VISITORS", 0)
            assert_error(await look(served, "live"), 503, "too_many_visitors")

    run(test())
