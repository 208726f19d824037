"""Sessions in the window, as a visitor sees them in a real browser."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.server.features.test_sessions import play
from tests.server.running_gateway import post, run, simulated
from tests.server.window.chromium import program
from tests.server.window.looking import look
from tests.server.window.test_window_page import AXE, VIOLATIONS, count, visiting

pytestmark = pytest.mark.skipif(program() is None, reason="no Chromium is installed: run scripts/install-browser")


FITS = "Math.max(document.documentElement.scrollWidth, document.querySelector('main').scrollWidth) <= innerWidth"


def test_a_session_is_a_row_that_opens_as_a_tree_and_leads_to_its_requests_and_back(profile: Path) -> None:
    async def test() -> None:
        async with simulated(ui="open") as served:
            requests = await play(served, "codex-nested")
            await post(served, headers={"x-session-id": "another"})
            async with visiting(served, profile) as page:
                await page.press("6")
                await page.holds(f"{count('#session-rows tr')} === 2")
                await page.press("j")
                await page.press("j")
                await page.press("Enter")
                await page.holds(f"{count('#session-detail .line')} === {len(requests)}")
                assert await page.value(count("#session-detail .threads .threads .threads")) == 1
                assert (
                    await page.value("document.querySelector('#session-detail h2').textContent")
                    == requests[0]["expect"]["session"]
                )
                await page.click("#session-detail .line a")
                await page.holds("location.hash.startsWith('#/requests/')")
                await page.holds(f"{count('#detail .facts a')} === 1")
                await page.value("document.querySelector('#detail .facts a').click()")
                await page.holds(f"{count('#session-detail .line')} === {len(requests)}")
                await page.press("Escape")
                await page.holds("location.hash === '#/sessions'")
                # The page takes notice of its new address a moment later.
                await page.holds("document.activeElement.closest('tr') !== null", "the row has the focus")

    run(test())


def test_sessions_are_live_and_fit_a_phone(profile: Path) -> None:
    async def test() -> None:
        async with simulated(ui="open") as served:
            await play(served, "claude-nested-hints")
            async with visiting(served, profile, width=360, height=640) as page:
                await page.value("location.hash = '#/sessions'")
                await page.holds(f"{count('#session-rows tr')} === 1")
                assert await page.value(FITS)
                await post(served, headers={"x-session-id": "new <b>session</b>"})
                await page.holds(f"{count('#session-rows tr')} === 2")
                assert await page.value(count("#session-rows b")) == 0
                await page.click("#session-rows tr:last-child")
                await page.holds(f"{count('#session-detail .line')} === 6")
                assert await page.value(FITS)

    run(test())


def test_a_thousand_sessions_are_shown(profile: Path) -> None:
    async def test() -> None:
        async with simulated(ui="open") as served:
            await post(served, headers={"x-session-id": "s"})
            (row,) = (await look(served, "sessions")).json["data"]
            async with visiting(served, profile) as page:
                await page.value("location.hash = '#/sessions'")
                await page.holds(f"{count('#session-rows tr')} === 1")
                rows = json.dumps(
                    [{**row, "id": f"sess_{number}", "session": f"s {number}", "waiting": 7} for number in range(1, 1000)]
                )
                answer = f"new Response(JSON.stringify({{data: {rows}, now: Date.now() / 1000}}))"
                chosen = f"path.startsWith('api/sessions?') ? Promise.resolve({answer}) : new Promise(() => 0)"
                await page.value(f"window.fetch = (path) => {chosen}; 0")
                await page.holds(f"{count('#session-rows tr')} === 1000")
                waits = (
                    "[...document.querySelectorAll('#session-rows tr')].filter((row) => row.cells[13].textContent === '7.00 s')"
                )
                await page.holds(f"{waits}.length === 999")

    run(test())


@pytest.mark.skipif(not AXE.exists(), reason="axe-core is not installed: run scripts/install-browser")
def test_axe_finds_nothing_in_sessions(profile: Path) -> None:
    async def test() -> None:
        async with simulated(ui="open") as served:
            await play(served, "codex-nested")
            async with visiting(served, profile) as page:
                await page.value(AXE.read_text(encoding="utf-8") + "; undefined")
                await page.value("location.hash = '#/sessions'")
                await page.holds(f"{count('#session-rows tr')} === 1")
                opened = await page.value("document.querySelector('#session-rows tr').dataset.id")
                found = []
                for width, scheme in ((1280, "light"), (380, "dark")):
                    await page.resize(width, 800)
                    await page.prefer(scheme)
                    for view, ready in (("sessions", "#session-rows tr"), (f"sessions/{opened}", "#session-detail .line")):
                        await page.value(f"location.hash = '#/{view}'")
                        await page.holds(f"{count(ready)} > 0", view)
                        found += [f"{view}, {scheme}: {one}" for one in await page.value(VIOLATIONS)]
                assert found == []

    run(test())
