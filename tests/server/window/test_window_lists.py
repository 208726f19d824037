"""The lists of the window, as a visitor sorts and searches them in a real browser, the timelines of refused
requests, the buttons of backends, keys and dialogs."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Any

import pytest

from responses_gateway.settings.keys import hash_of
from responses_gateway.simulator import create_app, serving
from tests.server.running_gateway import Served, ask, gateway, post, run, simulated, until
from tests.server.scripted_backend import HEAD, Connection, backend, chunk, refusing
from tests.server.window.chromium import Page, program
from tests.server.window.looking import KEY, bearer, last_ended, look
from tests.server.window.test_window_page import AXE, VIOLATIONS, count, give_key, visiting
from tests.waiting import PATIENCE

pytestmark = pytest.mark.skipif(program() is None, reason="no Chromium is installed: run scripts/install-browser")


async def column(page: Page, rows: str, number: int) -> Any:
    return await page.value(f"[...document.querySelectorAll('{rows} tr')].map(row => row.cells[{number}].innerText)")


async def sorting_of(page: Page, table: str) -> Any:
    return await page.value(
        f"[...document.querySelectorAll('{table} th[aria-sort]')].map(head => [head.innerText, head.ariaSort].join(' '))"
    )


def test_requests_are_sorted_by_the_column_that_is_clicked(profile: Path) -> None:
    async def test() -> None:
        async with simulated(relay=False) as served:
            for tokens in (20, 9, 100):
                await post(served, input=f"tokens: {tokens} tps: 2000")
            await post(served, input=["wrong"])
            await last_ended(served, 4)
            async with visiting(served, profile, width=1600) as page:
                await page.holds(f"{count('#rows tr')} === 4")
                assert await sorting_of(page, ".requests") == ["Time descending"]
                newest_first = await column(page, "#rows", 7)
                await page.click(".requests th:nth-child(8) button")
                assert await sorting_of(page, ".requests") == ["Tokens descending"]
                largest_first = [int(tokens or 0) for tokens in await column(page, "#rows", 7)]
                assert largest_first == sorted(largest_first, reverse=True)
                assert largest_first[-1] == 0
                await page.click(".requests th:nth-child(8) button")
                assert await sorting_of(page, ".requests") == ["Tokens ascending"]
                smallest_first = await column(page, "#rows", 7)
                assert smallest_first == [str(tokens) for tokens in sorted(largest_first)]
                for _ in range(2):
                    await page.click(".requests th:nth-child(6) button")
                    assert (await column(page, "#rows", 5))[-1] == "", "what has no value comes last in both orders"
                await page.click(".requests th:nth-child(8) button")
                await page.click(".requests th:nth-child(8) button")
                await post(served, input="tokens: 50 tps: 2000")
                await page.holds(f"{count('#rows tr')} === 5", "a new request takes its place")
                await page.holds(f"{count('#rows .state.completed')} === 4")
                places = [int(tokens) for tokens in await column(page, "#rows", 7)]
                assert places == sorted(places)
                await page.click(".requests th:nth-child(2) button")
                assert (await column(page, "#rows", 1))[-1].startswith("rejected")
                await page.click(".requests th:nth-child(1) button")
                assert await sorting_of(page, ".requests") == ["Time ascending"]
                assert (await column(page, "#rows", 7))[:4] == newest_first[::-1]

    run(test())


def test_the_filter_finds_the_text_of_an_error(profile: Path) -> None:
    async def test() -> None:
        async with simulated(relay=False) as served:
            await post(served)
            await post(served, input="scenario: plain fault: drop@3")
            failed = next(summary for summary in await last_ended(served, 2) if summary.get("error"))
            async with visiting(served, profile) as page:
                await page.holds(f"{count('#rows tr')} === 2")
                await page.click("#filter")
                await page.type(failed["error"])
                await page.holds(f"{count('#rows tr')} === 1")
                assert await page.value("document.querySelector('#rows tr').dataset.id") == failed["id"]

    run(test())


def test_sessions_and_usage_are_sorted_too(profile: Path) -> None:
    async def test() -> None:
        async with simulated(ui="open", store="memory") as served:
            for session, tokens in (("one", 9), ("two", 90), ("three", 30)):
                await post(
                    served, input=f"tokens: {tokens} tps: 2000", model=f"model-{session}", headers={"x-session-id": session}
                )
            await last_ended(served, 3)
            async with visiting(served, profile, width=1600) as page:
                await page.press("6")
                await page.holds(f"{count('#session-rows tr')} === 3")
                assert await column(page, "#session-rows", 2) == ["three", "two", "one"]
                await page.click("table.sessions th:nth-child(9) button")
                assert await column(page, "#session-rows", 2) == ["two", "three", "one"]
                await page.press("4")
                table = '[aria-label="By key and model"]'
                await page.holds(f"{count(f'{table} tbody tr')} === 3")
                await page.click(f"{table} th:nth-child(2) button")
                assert await column(page, f"{table} tbody", 1) == ["model-one", "model-three", "model-two"]
                await page.click(f"{table} th:nth-child(2) button")
                assert await column(page, f"{table} tbody", 1) == ["model-two", "model-three", "model-one"]
                if AXE.exists():
                    await page.value(AXE.read_text(encoding="utf-8") + "; undefined")
                    assert await page.value(VIOLATIONS) == []

    run(test())


def test_a_backend_is_drained_and_resumed_and_others_are_found(profile: Path) -> None:
    async def test() -> None:
        async with serving(create_app()) as one, serving(create_app()) as other:
            backends = {"first": {"url": one}, "second": {"url": other}}
            async with gateway(backends=backends, admin_key=KEY) as served, visiting(served, profile) as page:
                await give_key(page)
                await page.value("location.hash = '#/backends'")
                await page.holds(f"{count('#cards .card')} === 2")
                drain = "[aria-label=first] .buttons button"
                assert await page.text(drain) == "Drain"
                await page.click(drain)
                await page.holds("document.querySelector('[aria-label=first]').innerText.includes('draining')")
                assert await page.text(drain) == "Resume"
                for _ in range(4):
                    await post(served)
                assert {summary["backend"] for summary in await last_ended(served, 4, headers=bearer())} == {"second"}
                async with asyncio.timeout(PATIENCE):  # an answer is shared by all who ask within a moment
                    while [backend["draining"] for backend in await shown(served)] != [True, False]:
                        pass
                await page.value("document.querySelector('#cards .card').dataset.old = 'yes'")
                await page.holds(
                    f"{count('#cards .card')} === 2 && {count('#cards .card[data-old]')} === 0", "it is drawn anew"
                )
                assert await page.value("document.activeElement.innerText") == "Resume", "with the focus where it was"
                await page.press("Enter")
                await page.holds("!document.querySelector('[aria-label=first]').innerText.includes('draining')")
                assert await page.text(drain) == "Drain"
                await page.click("#backend-filter")
                await page.type("SECOND")
                await page.holds(f"{count('#cards .card')} === 1")
                assert await page.text("#cards h3") == "second"
                await page.type(" nowhere")
                await page.holds("document.querySelector('#cards').innerText === 'No backend matches the filter.'")

    run(test())


async def shown(served: Served) -> list[dict[str, Any]]:
    """Return the backends that the window shows."""
    backends: list[dict[str, Any]] = (await look(served, "backends", headers=bearer())).json
    return backends


def test_without_an_admin_key_there_is_nothing_to_drain_with(profile: Path) -> None:
    async def test() -> None:
        async with simulated() as served, visiting(served, profile) as page:
            await page.press("2")
            await page.holds(f"{count('#cards .card')} === 1")
            assert await page.text("#cards .buttons") == "Examine"

    run(test())


def test_a_refused_request_has_a_timeline_of_what_there_is(profile: Path) -> None:
    steps = "[...document.querySelectorAll('.steps tbody tr')].map(row => [...row.cells].map(cell => cell.innerText.trim()))"
    refusal = b'{"error": {"message": "too long", "code": "context_length_exceeded"}}'

    async def test() -> None:
        keys = {"alice": {"hash": [hash_of("sk-alice-has-a-long-key")], "requests_per_minute": 2}}
        async with (
            backend(refusing(400, refusal)) as behind,
            gateway(behind.url, api_keys=keys, admin_key=KEY, adapt=False, relay=False) as served,
            visiting(served, profile) as page,
        ):
            await give_key(page)
            alice = {"Authorization": "Bearer sk-alice-has-a-long-key"}
            await post(served, input="hi", headers=alice)
            await post(served, input=["wrong"], headers=alice)
            await post(served, headers={"Authorization": "Bearer sk-of-nobody"})
            await ask(served, "POST", "/responses", json={}, headers=alice)
            await post(served, input="hi", headers=alice)
            expected = [  # the newest first
                ("", "rejected 429\nrate_limit_exceeded: "),
                ("", "rejected 404\nnot_found: "),
                ("", "rejected 401\ninvalid_api_key: "),
                ("no backend was asked", "rejected 400\ninvalid_type"),
                ("", "rejected 400\ncontext_length_exceeded"),
            ]
            await page.holds(f"{count('#rows tr')} === {len(expected)}")
            for number, (left, right) in enumerate(expected, start=1):
                await page.click(f"#rows tr:nth-child({number})")
                await page.holds(f"{steps}.at(-1)?.[2].startsWith({json.dumps(right)})")
                assert await page.value("document.querySelector('.steps').checkVisibility()")
                first, *asked, last = await page.value(steps)
                assert first == ["0.000 s", "the gateway received the request", ""]
                assert [row[1].startswith("the request was sent to ") for row in asked] == [True] * (number == len(expected))
                assert last[1] == left
                assert float(last[0].removesuffix(" s")) >= 0
                assert "refused before a response began" in await page.text("#detail")
                await page.click(".detail .close")

    run(test())


@pytest.mark.parametrize("width", [1600, 1280, 800, 390])
def test_the_cells_of_every_row_stand_below_their_headings(profile: Path, width: int) -> None:
    lefts = """[...document.querySelectorAll('.requests tr')].map(
        row => [...row.cells].map(cell => cell.checkVisibility() ? Math.round(cell.getBoundingClientRect().left) : null))"""
    waits = asyncio.Event()

    async def play(connection: Connection) -> None:
        connection.write(HEAD)
        connection.send(chunk({"content": "one"}))
        await waits.wait()
        connection.send(chunk({"content": "two"}, "stop"), b"data: [DONE]\n\n")
        connection.end()

    async def test() -> None:
        async with backend(play) as behind, gateway(behind.url, adapt=False) as served, visiting(served, profile) as page:
            await page.resize(width, 800)
            body = {"model": "m", "stream": True}
            relayed = {**body, "messages": [{"role": "user", "content": "hi"}]}
            asking = asyncio.gather(
                ask(served, "POST", "/v1/chat/completions", json=relayed),
                ask(served, "POST", "/v1/responses", json={**body, "input": "hi"}),
            )
            await ask(served, "POST", "/v1/responses", json={**body, "input": ["wrong"]})
            await page.holds(f"{count('#rows .state.running')} === 2 && {count('#rows tr')} === 3")
            for ended in (False, True):
                if ended:
                    waits.set()
                    await asking
                    await page.holds(f"{count('#rows .state.completed')} === 2")
                headings, *rows = await page.value(lefts)
                assert rows == [headings] * 3

    run(test())


# ---- keys and dialogs -------------------------------------------------------------------------------------------------


def test_a_list_that_is_held_is_filtered_and_every_view_has_its_filter_at_one_key(profile: Path) -> None:
    async def test() -> None:
        async with simulated() as served, visiting(served, profile) as page:
            for _ in range(2):
                await post(served, input="hi")
            await page.holds(f"{count('#rows tr')} === 2")
            await page.press("h")
            await page.press("/")
            await page.type("nothing")
            await page.holds(f"{count('#rows tr')} === 0", "the filter works")
            for view, name, filtered in (
                ("2", "backends", "backend-filter"),
                ("6", "sessions", "session-filter"),
                ("1", "requests", "filter"),
            ):
                await page.press("Escape")
                await page.press(view)
                await page.holds(f"!document.querySelector('#{name}').hidden")
                await page.press("/")
                await page.holds(f"document.activeElement.id === '{filtered}'")

    run(test())


def test_a_visitor_who_dismisses_the_question_for_the_key_is_asked_again(profile: Path) -> None:
    async def test() -> None:
        async with simulated(admin_key=KEY) as served, visiting(served, profile) as page:
            for _ in range(3):
                await page.holds("document.querySelector('#key-dialog').open")
                await page.press("Escape")
            await give_key(page)
            await page.holds("document.querySelector('#connection').innerText === 'live'")
            assert not await page.value("document.querySelector('#key-dialog').open")

    run(test())


def test_a_key_that_is_typed_slowly_stays_while_the_page_asks_for_its_data(profile: Path) -> None:
    async def test() -> None:
        async with simulated(admin_key=KEY) as served, visiting(served, profile) as page:
            await page.holds("document.querySelector('#key-dialog').open")
            await page.value("location.hash = '#/sessions'")
            await page.type(KEY[:9])
            asked = "/ui/api/sessions"
            await until(lambda: sum(asked in address for address in page.addresses) >= 3, "it has asked for the sessions again")
            await page.type(KEY[9:])
            await page.press("Enter")
            await page.holds("document.querySelector('#connection').innerText === 'live'")

    run(test())


def test_enter_records_and_the_header_fits_a_phone_that_says_so(profile: Path) -> None:
    async def test() -> None:
        async with simulated() as served, visiting(served, profile, width=320, height=640) as page:
            await page.holds("document.querySelector('#connection').innerText === 'live'")
            await page.click("#record")
            await page.value("document.querySelector('#minutes').focus()")
            await page.press("Enter")
            await page.holds("document.querySelector('#recording').checkVisibility()")
            await page.holds("!document.querySelector('#record-dialog').open")
            assert await page.value("document.documentElement.scrollWidth") == 320

    run(test())
