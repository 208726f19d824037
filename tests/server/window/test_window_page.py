"""The window as a visitor sees it, in a real browser. `scripts/install-browser` installs one; without it the tests are skipped.

With WRITE_IMAGES=1 in the environment the pictures in docs/images are made anew."""

from __future__ import annotations

import asyncio
import json
import os
import re
import shlex
import shutil
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import aiohttp
import pytest

from responses_gateway.backend.member import Member
from responses_gateway.server.generation.request_log.recent_requests import (
    RELAYED_REMEMBERED,
    REMEMBERED,
)
from responses_gateway.settings.keys import hash_of
from responses_gateway.simulator import CacheModel, SimulatorOptions, WeakModel
from tests.codex.codex_cli import BINARY, Codex
from tests.server.ended_requests import NO_LATENCIES, ended_facts, relayed, remember_intervals
from tests.server.running_gateway import Served, ask, gateway, post, run, simulated, until
from tests.server.scripted_backend import backend, chunk, streaming
from tests.server.window.chromium import Page, browser, program
from tests.server.window.looking import KEY, last_ended, look
from tests.waiting import PATIENCE

IMAGES = Path(__file__).parents[3] / "docs" / "images"
AXE = Path(__file__).parents[3] / ".cache" / "axe" / "node_modules" / "axe-core" / "axe.min.js"
STREAMS = 200
# The views, and what is there once each is complete.
VIEWS = {
    "requests": "#rows tr",
    "backends": "#cards .card",
    "plots": "#charts .card",
    "usage": "#usage-report tbody tr",
    "try": "#try-models option",
}
# What axe-core finds wrong, the rules that are only advice included.
VIOLATIONS = """axe.run(document, {resultTypes: ["violations"]}).then(found => found.violations.flatMap(
    rule => rule.nodes.map(node => `${rule.id}: ${node.html.slice(0, 120)} ${node.failureSummary}`)))"""
pytestmark = pytest.mark.skipif(program() is None, reason="no Chromium is installed: run scripts/install-browser")
# The models and keys of many streams, for the picture's sake.
MODELS = ("qwen3-32b", "gpt-oss-120b", "glm-4.6")
KEYS = {"alice": "sk-alice-has-a-long-key", "bob": "sk-bob-has-a-long-key", "ci": "sk-of-the-client"}  # Codex has the last one
# The words in the cells of tables that stand on several lines.
BROKEN_WORDS = """[...document.querySelectorAll(".plain :is(th, td)")].flatMap(cell => {
    const text = cell.firstChild;
    const range = document.createRange();
    return [...text.data.matchAll(/\\S+/g)].filter(word => {
        range.setStart(text, word.index);
        range.setEnd(text, word.index + word[0].length);
        return range.getClientRects().length > 1;
    }).map(word => word[0]);
})"""
WEATHER = {
    "type": "function",
    "name": "get_weather",
    "parameters": {"type": "object", "properties": {"city": {"type": "string"}}},
}
HOSTILE = "<img src=x onerror=\"document.title='taken'\"><script>document.title='taken'</script>"


@asynccontextmanager
async def visiting(served: Served, profile: Path, **size: int) -> AsyncIterator[Page]:
    """Open the window; at the end nothing may have gone wrong in the page, and nothing come from elsewhere."""
    async with browser(profile, **size) as page:
        await page.open(f"{served.url}/ui/")
        yield page
        assert [problem for problem in page.problems if "401" not in problem] == []
        assert [address for address in page.addresses if not address.startswith((served.url, "blob:"))] == []


async def give_key(page: Page, key: str = KEY) -> None:
    await page.holds("document.querySelector('#key-dialog').open", "the page asks for the key")
    await page.type(key)
    await page.press("Enter")


@asynccontextmanager
async def many_streams(served: Served, number: int, **fields: Any) -> AsyncIterator[None]:
    """Let so many clients read streams while the block runs."""

    async def ask(session: aiohttp.ClientSession, place: int) -> None:
        body = {"model": MODELS[place % 3], "input": "tokens: 2000 tps: 4", "stream": True, "store": False, **fields}
        headers = {"Authorization": f"Bearer {list(KEYS.values())[place % 3]}"}
        async with session.post(f"{served.url}/v1/responses", json=body, headers=headers) as answer:
            await answer.read()

    connector = aiohttp.TCPConnector(limit=0)
    async with aiohttp.ClientSession(connector=connector, timeout=aiohttp.ClientTimeout(None)) as session:
        asking = [asyncio.create_task(ask(session, place)) for place in range(number)]
        yield
        for task in asking:
            task.cancel()
        await asyncio.gather(*asking, return_exceptions=True)


async def record_of_the_last(served: Served, number: int) -> Any:
    """Return the recorded body of the request that ended last, once there are so many."""
    summary = max(await last_ended(served, number), key=lambda ended: ended["started"])
    return json.loads((await look(served, f"requests/{summary['id']}/contents")).json["request"]["text"])


def count(selector: str) -> str:
    return f"document.querySelectorAll({json.dumps(selector)}).length"


# ---- many streams, and Codex ------------------------------------------------------------------------------------------


def test_two_hundred_streams_and_codex_at_work(profile: Path, tmp_path: Path) -> None:
    async def test() -> None:
        keys = {name: {"hash": [hash_of(key)]} for name, key in KEYS.items()}
        settings: dict[str, Any] = {"api_keys": keys, "admin_key": KEY, "record": tmp_path / "records"}
        async with (
            simulated(SimulatorOptions(), **settings) as served,
            many_streams(served, STREAMS),
            visiting(served, profile, width=1440, height=1010) as page,
        ):
            await give_key(page)
            await page.holds(f"{count('#rows .state.running')} === {STREAMS}", "all streams are in the list")
            await page.holds("parseInt(document.querySelector('#totals').innerText) === 200")
            tokens = "[...document.querySelectorAll('#rows td:nth-child(8)')].every(cell => parseInt(cell.innerText) > 4)"
            await page.holds(tokens, "each of them goes on")
            if BINARY.exists():
                await codex_works(served, tmp_path, page)
            await page.press("3")
            await page.holds(f"{count('#charts svg path')} >= 6", "plots")
            await page.press("2")
            await page.holds(f"{count('#cards .card')} === 1", "the backend")
            assert f"{STREAMS}" in await page.text("#cards .facts")

    run(test())


async def codex_works(served: Served, tmp_path: Path, page: Page) -> None:
    """Let Codex write a file meanwhile, and look at one of its requests."""
    codex = Codex(tmp_path / "codex", f"{served.url}/v1")
    working = asyncio.create_task(asyncio.to_thread(codex.run, "scenario: agent"))
    await page.press("/")
    await page.type("codex")
    await page.holds(f"{count('#rows tr')} >= 4 && {count('#rows .state.completed')} >= 4", "its requests are in the list")
    done = await working
    assert (done.code, done.errors) == (0, [])
    await page.click("#rows tr:nth-child(2)")
    await page.holds(f"{count('.steps tbody tr')} > 5", "the time line")
    await page.holds(
        "[...document.querySelectorAll('.detail summary')].some(found => found.innerText.includes('as sent to the backend'))"
    )
    detail = await page.text("#detail")
    assert "codex_exec" in detail
    assert "response.function_call_arguments.delta" in detail
    await page.value(
        "document.querySelector('#filter').value = ''; document.querySelector('#filter').dispatchEvent(new Event('input'))"
    )
    await write_image(page, "window.png")


async def write_image(page: Page, name: str) -> None:
    if os.environ.get("WRITE_IMAGES"):
        await page.holds(f"{count('#rows tr')} > 100")
        await page.screenshot(IMAGES / name)


# ---- hostile text -----------------------------------------------------------------------------------------------------


def test_what_models_and_clients_write_is_never_markup(profile: Path, tmp_path: Path) -> None:
    async def test() -> None:
        pieces = [chunk({"reasoning": HOSTILE}), chunk({"content": HOSTILE}), chunk({}, HOSTILE), b"data: [DONE]\n\n"]
        async with backend(streaming(*pieces)) as behind, gateway(behind.url, record=tmp_path / "records") as served:
            headers = {"originator": HOSTILE, "x-request-id": HOSTILE.replace(" ", "")[:100]}
            await post(served, model=HOSTILE, input=HOSTILE, stream=True, headers=headers)
            async with visiting(served, profile) as page:
                await page.click("#rows tr")
                await page.holds(f"{count('.steps tbody tr')} >= 2", "the time line")
                await page.holds(f"{count('.detail details')} > 5")
                await page.value("document.querySelectorAll('.detail details').forEach(each => each.open = true)")
                await page.holds("document.querySelector('#detail').innerText.split('onerror').length > 4", "the text is shown")
                assert await page.value(count("#requests img, #requests script, #requests [onerror]")) == 0
                assert await page.value("document.title") == "Responses gateway"

    run(test())


# ---- using it ---------------------------------------------------------------------------------------------------------


def test_it_can_be_used_with_the_keyboard_alone(profile: Path) -> None:
    async def test() -> None:
        async with simulated() as served:
            for _ in range(3):
                await post(served, input="hi")
            async with visiting(served, profile) as page:
                await page.holds(f"{count('#rows tr')} === 3")
                await page.press("j")
                await page.press("j")
                assert (
                    await page.value("[...document.querySelectorAll('#rows tr')].findIndex(row => row.ariaSelected === 'true')")
                    == 1
                )
                await page.press("Enter")
                await page.holds("document.querySelector('#detail').innerText.includes('Response id')", "it is open")
                opened = await page.value("location.hash")
                await page.press("j")
                await page.holds(f"location.hash !== {json.dumps(opened)}", "the next one is open")
                closed = json.dumps((await page.value("location.hash")).rpartition("/")[2])
                await page.holds("document.activeElement.id === 'detail'", "the request has the focus")
                await page.press("Escape")
                await page.holds("document.querySelector('#detail').hidden")
                await page.holds(f"document.activeElement.closest('tr')?.dataset.id === {closed}", "its row has the focus")
                await page.press("k")
                await page.holds(f"{count('#rows tr:nth-child(2)[aria-selected=true]')} === 1", "the previous one is selected")
                await page.press("?")
                await page.holds("document.querySelector('#help-dialog').open")
                await page.press("Escape")
                await page.press("/")
                await page.type("no such thing")
                await page.holds(f"{count('#rows tr')} === 0")
                await page.press("Escape")
                await page.holds("document.activeElement.matches('.list, .list *')", "the list has the focus")
                for key, view in (("2", "backends"), ("3", "plots"), ("4", "usage"), ("5", "try"), ("1", "requests")):
                    await page.press(key)
                    await page.holds(f"!document.querySelector('#{view}').hidden")
                    await page.press("Escape")
                    assert not await page.value(f"document.querySelector('#{view}').hidden")

    run(test())


def test_plots_show_the_minutes_that_there_are_and_their_values_to_the_keyboard(profile: Path) -> None:
    async def test() -> None:
        async with simulated() as served:
            remember_intervals(served.parts.responses.reports.history, (120, 10, 3), (60, 10, 7), (0, 10, 1))
            async with visiting(served, profile) as page:
                await page.press("3")
                await page.holds("document.querySelector('#charts svg')?.textContent.includes('−5 min')", "five minutes")
                await page.value("document.querySelector('[role=slider][aria-label=\"Requests in flight\"]').focus()")
                said = "document.activeElement.ariaValueText"
                assert (await page.value(said)).startswith("now: maximum ")
                await page.press("Home")
                assert (await page.value(said)).endswith(": maximum 3")
                await page.press("ArrowRight")
                assert (await page.value(said)).endswith(": maximum 7")
                await page.press("ArrowLeft")
                assert (await page.value(said)).endswith(": maximum 3")
                await page.value("document.querySelector('#charts').dataset.drawn = 'yes'")
                await page.value("document.querySelector('#range').value = '60'")
                await page.value("document.querySelector('#range').dispatchEvent(new Event('change'))")
                await page.holds("document.querySelector('#charts svg').textContent.includes('−60 min')", "an hour")
                assert (await page.value(said)).endswith(": maximum 3"), "it still has the focus"

    run(test())


def test_how_turns_end_is_a_column_a_filter_and_a_table_by_model(profile: Path) -> None:
    tools = [{"type": "function", "name": "get_weather", "parameters": {"type": "object", "properties": {}}}]

    async def test() -> None:
        async with simulated(SimulatorOptions(weak=WeakModel(1, {"finish_without_call": 100}))) as served:
            await post(served, input="What is the weather?", tools=tools)
            await post(served, input="scenario: plain", tools=tools)
            await post(served, input="scenario: plain")
            async with visiting(served, profile) as page:
                await page.holds(f"{count('#rows tr')} === 3")
                turns = await page.value("[...document.querySelectorAll('#rows td:nth-child(11)')].map(cell => cell.innerText)")
                assert turns == ["", "final", "finish without call"]
                await page.value("document.querySelector('#turns').value = 'early'")
                await page.value("document.querySelector('#turns').dispatchEvent(new Event('change'))")
                await page.holds(f"{count('#rows tr')} === 1", "the turn that ended early")
                await page.press("3")
                await page.holds(f"{count('#behaviour tbody tr')} === 1")
                row = (await page.text("#behaviour tbody tr")).split()
                assert row == ["simulator", "2", "1", "(50", "%)", "0", "0"]

    run(test())


def test_quotas_are_shown_with_what_is_used_of_them(profile: Path) -> None:
    keys = {
        "alice": {"hash": [hash_of(KEYS["alice"])], "team": "red", "tokens_per_day": 1},
        "bob": {"hash": [hash_of(KEYS["bob"])]},
    }
    teams = {"red": {"soft_tokens_per_month": 1_000_000}}

    async def test() -> None:
        async with simulated(store="memory", admin_key=KEY, api_keys=keys, teams=teams) as served:
            answer = await post(served, input="hi", headers={"Authorization": f"Bearer {KEYS['alice']}"})
            used = answer.final["usage"]["total_tokens"]
            async with visiting(served, profile) as page:
                await give_key(page)
                await page.value("location.hash = '#/usage'")
                await page.holds(f"{count('[aria-label=Quotas] tbody tr')} === 2")
                shown = await page.text("[aria-label=Quotas] tbody")
                assert f"{100 * used} %), used up" in shown
                assert all(text in shown for text in ("key alice", "today", "team red", "this month", "(0 %)"))
                if AXE.exists():
                    await page.value(AXE.read_text(encoding="utf-8") + "; undefined")
                    for width, scheme in ((1280, "light"), (380, "dark")):
                        await page.resize(width, 800)
                        await page.prefer(scheme)
                        assert await page.value(VIOLATIONS) == []

    run(test())


def test_usage_is_a_chart_and_a_table(profile: Path) -> None:
    async def test() -> None:
        async with simulated(store="memory") as served:
            for number in (10, 20):
                await post(served, input=f"tokens: {number} tps: 2000")
            async with visiting(served, profile) as page:
                await page.press("4")
                await page.holds(f"{count('#usage-report .card')} === 2")
                row = "[...document.querySelectorAll('#usage-report .card:last-child tbody tr')].map(row => row.innerText)"
                (shown,) = await page.value(row)
                assert shown.replace("\n", "").split("\t")[:3] == ["no key", "simulator", "2"]
                assert await page.value(count("#usage-report .chart rect")) == 60
                await page.holds("!document.querySelector('#usage-csv').disabled")
                made = "import('/ui/usage.js').then(({csv}) => csv([{key: '', model: '=HYPERLINK(\"x\")', requests: 2}]))"
                lines = (await page.value(made)).split("\r\n")
                assert lines[0].startswith("key,team,model,requests,input_tokens,")
                assert lines[1].startswith('"","","\'=HYPERLINK(""x"")","2",'), "no formula"
                await page.value("document.querySelector('#usage-days').value = '7'")
                await page.value("document.querySelector('#usage-days').dispatchEvent(new Event('change'))")
                await page.holds(f"{count('#usage-report .chart rect')} === 14")

    run(test())


def test_long_names_and_characters_that_deceive_spoil_no_line(profile: Path) -> None:
    async def test() -> None:
        long = "a-family/of-models-" + 20 * "with-a-long-name-"
        async with simulated(SimulatorOptions(models=(long, "x")), record=profile.parent / "records") as served:
            await post(served, model=long, input="hi")
            await post(served, model="safe\u202egnol\u2066", input="\u202e\u200b")
            async with visiting(served, profile, width=380, height=700) as page:
                await page.holds(f"{count('#rows tr')} === 2")
                assert await page.text("#rows tr:first-child td:nth-child(3)") == "safe⟨U+202E⟩gnol⟨U+2066⟩"
                for row in (1, 2):
                    await page.value(f"document.querySelector('#rows tr:nth-child({row})').click()")
                    await page.holds(f"{count('.detail details')} > 5")
                    await page.value("document.querySelectorAll('.detail details').forEach(each => each.open = true)")
                    widths = "[document.documentElement, document.querySelector('main'), document.querySelector('.detail')]"
                    assert await page.value(f"{widths}.map(part => part.scrollWidth - part.clientWidth)") == [0, 0, 0]
                    assert not await page.value("/[\\u202a-\\u202e\\u2066-\\u2069\\u200b]/.test(document.body.textContent)")
                    assert not await page.value("/[\\u202a-\\u202e\\u2066-\\u2069]/.test(document.body.innerHTML)")

    run(test())


def test_an_address_that_is_not_encoded_correctly_opens_no_request(profile: Path) -> None:
    async def test() -> None:
        async with simulated() as served, visiting(served, profile) as page:
            await post(served, input="hi")
            await page.value("location.hash = '#/requests/%E0%A4%A'")
            await page.value("window.before = true")
            await page.value("location.reload()")
            await page.holds("!window.before && document.querySelector('#connection').innerText === 'live'")
            await page.holds(f"{count('#rows tr')} === 1 && document.querySelector('#detail').hidden")

    run(test())


def test_a_request_that_was_not_open_while_it_ran_says_why_it_has_no_timeline(profile: Path) -> None:
    async def test() -> None:
        async with simulated() as served, visiting(served, profile) as page:
            await post(served, input="hi")
            await page.click("#rows tr")
            await page.holds("document.querySelector('#detail').innerText.includes('No timeline: ')")
            assert not await page.value("document.querySelector('.steps').checkVisibility()")
            assert "Response id" in await page.text("#detail")

    run(test())


def test_a_request_opened_after_its_end_shows_its_whole_answer_where_a_simulated_backend_gave_it(profile: Path) -> None:
    async def test() -> None:
        async with simulated(ui="open", relay=False) as served:
            await post(served, input="scenario: demo What is the weather?", tools=[WEATHER])
            async with visiting(served, profile) as page:
                await page.click("#rows tr")
                await page.holds(f"{count('.detail .block')} === 3")
                reasoning, message, call = await page.value(
                    "[...document.querySelectorAll('.detail .block')].map(block => block.innerText)"
                )
                assert reasoning.startswith("reasoning\n")
                assert "Let me check that for you." in message
                assert call.startswith("function call get_weather".replace(" get", "\nget"))
                assert '"city"' in call

    run(test())


def test_a_visitor_of_this_machine_records_without_an_admin_key_and_sees_why_requests_were_refused(profile: Path) -> None:
    async def test() -> None:
        async with simulated(relay=False) as served, visiting(served, profile) as page:
            await page.click("#record")
            await page.click("#record-start")
            await page.holds("document.querySelector('#recording').innerText.startsWith('recording until')")
            await ask(served, "POST", "/responses", json={})
            await page.holds(f"{count('#rows tr')} === 1")
            assert (await page.text("#rows tr")).split("\t")[1:3] == ["rejected 404", "POST /responses"]
            assert "not_found" in await page.text("#rows tr")
            await page.click("#rows tr")
            await page.holds("document.querySelector('#detail').innerText.includes('The base URL should end in /v1')")
            await page.holds("document.querySelector('#detail').innerText.includes('refused before a response began')")

    run(test())


def test_an_empty_list_says_why_and_where_to_begin(profile: Path) -> None:
    async def test() -> None:
        async with simulated() as served, visiting(served, profile) as page:
            await page.holds("document.querySelector('#empty').innerText.startsWith('No requests yet.')")
            await post(served)
            await page.holds(f"{count('#rows tr')} === 1")
            assert await page.value("document.querySelector('#empty').hidden")
            await page.click("#filter")
            await page.type("no request has this word")
            await page.holds("document.querySelector('#unmatched').innerText === 'No request matches the filter.'")
            assert await page.value("document.querySelector('#empty').hidden")
            await page.value("location.hash = '#/try'")
            await page.holds("!document.querySelector('#try').hidden")

    run(test())


def test_beside_an_open_request_the_list_says_how_each_ended(profile: Path) -> None:
    async def test() -> None:
        async with simulated(relay=False) as served, visiting(served, profile) as page:
            await page.resize(1280, 800)
            await post(served, input=["wrong"])
            await page.click("#rows tr")
            await page.holds("!document.querySelector('#detail').hidden")
            list_ = "document.querySelector('.list').getBoundingClientRect().right"
            reason = "document.querySelector('#rows tr .reason').getBoundingClientRect().left"
            await page.holds(f"{reason} + 60 < {list_}")

    run(test())


def test_requests_that_are_only_relayed_are_rows_with_their_api_client_and_session(profile: Path) -> None:
    cells = "[...document.querySelectorAll('#rows tr:first-child td')].map(cell => cell.innerText)"

    async def test() -> None:
        async with simulated() as served:
            headers = {"User-Agent": "claude-cli/2.1.332", "X-Claude-Code-Session-Id": "0c9e8f53-6f3f-4d39-9c55-6b7b1f8f6a01"}
            message = {"model": "simulator", "messages": [{"role": "user", "content": "hi"}]}
            assert (await ask(served, "POST", "/v1/chat/completions", json=message)).status == 200
            async with visiting(served, profile) as page:
                await page.resize(1280, 800)
                await page.holds(f"{count('#rows tr')} === 1")
                row = await page.value(cells)
                assert [row[1], row[2], row[12]] == ["completed", "simulator", "/v1/chat/completions"]
                assert int(row[7]) > 0, "its tokens"
                await page.click("#rows tr")
                await page.holds("document.querySelector('.detail').innerText.includes('the answer was relayed as it came')")
                await page.click(".detail .close")
                await ask(served, "POST", "/v1/messages", json={**message, "max_tokens": 50}, headers=headers)
                await page.holds(f"{count('#rows tr')} === 2")
                row = await page.value(cells)
                assert row[12:] == ["Messages", "claude-cli"]
                end = "document.querySelector('#rows tr td:last-child').getBoundingClientRect().right"
                assert await page.value(f"{end} <= innerWidth"), "at 1,280 px all columns are there"
                await page.click("#rows tr:first-child td:last-child a")
                await page.holds("!document.querySelector('#sessions').hidden", "its session")

    run(test())


def test_what_came_out_of_the_cache_is_a_column(profile: Path) -> None:
    async def test() -> None:
        async with simulated(SimulatorOptions(cache=CacheModel()), store="memory") as served:
            fields = {"instructions": "word " * 200, "input": "scenario: plain", "store": True}
            first = (await post(served, **fields)).final["id"]
            await post(served, previous_response_id=first, **fields)
            async with visiting(served, profile) as page:
                await page.holds(f"{count('#rows tr')} === 2")
                cached = await page.value("[...document.querySelectorAll('#rows td:nth-child(9)')].map(cell => cell.innerText)")
                assert [re.fullmatch(r"[1-9]\d? %.*", text) is not None for text in cached] == [True, False]
                tools = [{"type": "function", "name": "f", "parameters": {"type": "object"}}]
                await post(served, previous_response_id=first, tools=tools, **fields)
                await page.holds(f"{count('#rows tr')} === 3")
                # Why the rest did not come out of it is told when the answer has ended.
                await page.holds("document.querySelector('#rows tr td:nth-child(9)').innerText.endsWith('tools changed')")

    run(test())


def test_relayed_requests_push_no_response_out_of_the_list(profile: Path) -> None:
    async def test() -> None:
        async with simulated() as served, visiting(served, profile) as page:
            await post(served)
            await page.holds(f"{count('#rows tr')} === 1")
            recent = served.parts.responses.reports.history
            assert recent is not None
            recent.add([relayed(f"x-{number}", "/v1/embeddings") for number in range(REMEMBERED + 5)])
            await page.holds(f"{count('#rows tr')} === {1 + RELAYED_REMEMBERED}")
            assert "Responses" in await page.text("#rows")

    run(test())


def test_labels_of_axes_are_whole_on_a_phone_and_a_peak_is_told(profile: Path) -> None:
    async def test() -> None:
        async with simulated() as served:
            latencies = [*NO_LATENCIES]
            latencies[10] = 5
            history = served.parts.responses.reports.history
            remember_intervals(history, (60, 2000, 105), (0, 2000, 0), first_token=latencies)
            async with visiting(served, profile, width=360, height=640) as page:
                await page.value("location.hash = '#/plots'")
                await page.holds(f"{count('#charts svg text')} > 0")
                cut = """[...document.querySelectorAll('#charts svg')].flatMap(chart => [...chart.querySelectorAll('text')]
                    .filter(text => text.getBoundingClientRect().left < chart.getBoundingClientRect().left - 0.5)
                    .map(text => text.textContent))"""
                assert await page.value(cut) == []
                flight = "document.querySelector('[aria-label=\"Requests in flight\"] .legend').innerText"
                assert (await page.value(flight)).endswith(", peak 105")
                zero = "document.querySelector('[aria-label=\"Requests per second\"] svg text').textContent"
                assert await page.value(zero) == "0"

    run(test())


def test_a_recording_that_does_not_run_cannot_be_stopped_and_a_refusal_says_why_there_are_no_items(
    profile: Path,
) -> None:
    async def test() -> None:
        async with simulated(relay=False) as served, visiting(served, profile) as page:
            await page.holds("document.querySelector('#connection').innerText === 'live'")
            await page.click("#record")
            await page.holds("document.querySelector('#record-dialog').open")
            assert await page.value("document.querySelector('#record-stop').hidden")
            await page.click("#record-cancel")
            await post(served, input=["wrong"])
            await page.value("location.hash = '#/requests'")
            await page.click("#rows tr")
            await page.holds("document.querySelector('.detail').innerText.includes('None: ')")
            assert "None yet" not in await page.text(".detail")

    run(test())


def test_the_number_of_ended_requests_counts_those_that_are_not_in_the_list_any_more(profile: Path) -> None:
    async def test() -> None:
        async with simulated() as served, visiting(served, profile) as page:
            recent = served.parts.responses.reports.history
            assert recent is not None
            for number in range(REMEMBERED + 5):
                recent.add([ended_facts(f"x-{number}")])
            await page.holds(f"document.querySelector('#totals').innerText.endsWith('; {REMEMBERED + 5} ended')")
            assert await page.value(count("#rows tr")) == REMEMBERED

    run(test())


def test_a_backend_is_examined_once_at_a_time(profile: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    examined: list[asyncio.Event] = []

    async def slowly(_: Member) -> dict[str, Any]:
        examined.append(asyncio.Event())
        await examined[-1].wait()
        return {"server": "vLLM", "seconds": 1.0, "rows": [], "findings": [], "settings": {}}

    monkeypatch.setattr("responses_gateway.server.window.worker_view.examine", slowly)

    async def test() -> None:
        async with simulated() as served, visiting(served, profile) as page:
            await page.value("location.hash = '#/backends'")
            await page.click("#cards button")
            await until(lambda: examined, "it is examined")
            await page.value("document.querySelector('#cards .card').dataset.old = 'yes'")
            for view in ("plots", "backends"):
                await page.value(f"location.hash = '#/{view}'")
            await page.holds(f"{count('#cards .card')} === 1 && {count('#cards .card[data-old]')} === 0", "another card")
            await page.click("#cards button")
            assert await page.value("document.querySelector('#cards button').disabled")
            examined[0].set()
            await page.holds("document.querySelector('#cards').innerText.includes('vLLM, examined in')")
            assert not await page.value("document.querySelector('#cards button').disabled")
            assert len(examined) == 1

    run(test())


def test_it_fits_a_narrow_screen_and_a_dark_room_and_tells_screen_readers_what_is_there(profile: Path, tmp_path: Path) -> None:
    async def test() -> None:
        async with simulated(record=tmp_path / "records") as served:
            await post(served, input="hi", truncation="auto", prompt_cache_retention="24h")
            async with visiting(served, profile, width=360, height=640) as page:
                widths = "document.documentElement.scrollWidth, document.querySelector('main').scrollWidth"
                fits = f"Math.max({widths}) <= innerWidth"
                await page.holds(f"{count('#rows tr')} === 1")
                assert await page.value(fits)
                await page.click("#rows tr")
                await page.holds(f"{count('.steps tbody tr')} >= 3")
                assert await page.value(fits)
                assert not await page.value("document.querySelector('.list').checkVisibility()")
                assert await page.value(BROKEN_WORDS) == []
                await page.click(".detail .close")
                await page.holds("document.querySelector('.list').checkVisibility()")
                for view in ("backends", "plots", "usage", "try"):
                    await page.value(f"location.hash = '#/{view}'")
                    await page.holds(f"{count(f'#{view} .card')} > 0")
                    assert await page.value(fits), view
                await page.prefer("dark")
                colours = "getComputedStyle(document.documentElement).backgroundColor + getComputedStyle(document.body).color"
                assert await page.value(colours) == "rgb(20, 23, 27)rgb(230, 233, 238)"
                seen = await page.accessibility()
                unnamed = [
                    node
                    for node in seen
                    if node["role"] in ("button", "link", "textbox", "image", "region") and not node["name"]
                ]
                assert unnamed == []
                assert {"main", "navigation", "banner"} <= {node["role"] for node in seen}

    run(test())


@pytest.mark.skipif(not AXE.exists(), reason="axe-core is not installed: run scripts/install-browser")
def test_axe_finds_nothing_in_any_view_wide_or_narrow_light_or_dark(profile: Path) -> None:
    async def test() -> None:
        async with simulated(ui="open") as served:
            await post(served, input="scenario: demo hi", tools=[WEATHER], truncation="auto")
            await ask(served, "GET", "/v1/responses/none")
            async with visiting(served, profile) as page:
                await page.value(AXE.read_text(encoding="utf-8") + "; undefined")
                await page.holds(f"{count('#rows tr')} === 2")
                opened = await page.value("document.querySelector('#rows tr:last-child').dataset.id")
                found = []
                for width, scheme in ((1280, "light"), (380, "dark")):
                    await page.resize(width, 800)
                    await page.prefer(scheme)
                    for view, ready in {**VIEWS, f"requests/{opened}": ".steps tbody tr"}.items():
                        await page.value(f"location.hash = '#/{view}'")
                        await page.holds(f"{count(ready)} > 0", view)
                        found += [f"{view}, {scheme}: {one}" for one in await page.value(VIOLATIONS)]
                for name in ("help", "record"):
                    await page.value(f"document.querySelector('#{name}-dialog').showModal()")
                    found += [f"{name}: {one}" for one in await page.value(VIOLATIONS)]
                    await page.value(f"document.querySelector('#{name}-dialog').close()")
                assert found == []

    run(test())


def test_a_visitor_tries_a_request_and_takes_it_elsewhere(profile: Path) -> None:
    async def test() -> None:
        async with simulated(ui="open") as served, browser(profile) as page:
            await page.open(served.url)
            await page.holds("location.pathname === '/ui/'", "a browser is led to the window")
            await page.press("5")
            await page.holds("document.querySelector('#try-model').value === 'simulator'")
            await page.value("document.querySelector('#try-text').value = ''")
            await page.value("document.querySelector('#try-text').focus()")
            await page.type("It's sunny in \\ \"Paris\"\nisn't it? scenario: demo")
            await page.click("#try-send")
            await page.holds("document.querySelector('#try-status').textContent.startsWith('completed, ')")
            await page.holds(f"{count('#try-answer .kind')} >= 6", "the last item is drawn, with the next frame")
            kinds = await page.value("[...document.querySelectorAll('#try-answer .kind')].map(kind => kind.textContent)")
            assert kinds == ["reasoning", "message", "function call", "function call output", "reasoning", "message"]
            assert "made up by this page" in await page.text("#try-answer")
            assert page.problems == []
            sent = await record_of_the_last(served, 2)
            for command in (await page.text("#try-curl"), f"-c {shlex.quote(await page.text('#try-python'))}"):
                process = await asyncio.create_subprocess_exec(
                    "bash", "-c", command if command.startswith("curl") else f"{sys.executable} {command}",
                    stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.DEVNULL,
                )  # fmt: skip
                output, _ = await asyncio.wait_for(process.communicate(), PATIENCE)
                assert b"response.completed" in output
                assert b"response.function_call_arguments.done" in output
            curl, python = [await record_of_the_last(served, number) for number in (3, 4)]
            assert curl["input"] == python["input"] == sent["input"][0]["content"]
            for client in ("codex", "claude"):
                offered = await page.text(f"#try-{client}")
                assert offered.startswith(f"responses-gateway {client} --url '{served.url}'")
                assert "'It'\\''s sunny in" in offered
            assert "Authorization" not in await page.text("#try-curl")

    run(test())


def test_a_visitor_who_tries_a_request_needs_the_key_of_a_client_and_sees_refusals(profile: Path) -> None:
    async def test() -> None:
        keys = {"alice": {"hash": [hash_of("sk-alice-has-a-long-key")]}}
        async with simulated(api_keys=keys, admin_key=KEY) as served, visiting(served, profile) as page:
            await give_key(page)
            await page.value("location.hash = '#/try'")
            await page.holds("document.querySelector('#try-key').checkVisibility()")
            await page.value("document.querySelector('#try-model').value = 'simulator'")
            await page.click("#try-send")
            await page.holds("document.querySelector('#try-status').textContent.startsWith(\"401 You didn't provide\")")
            await page.click("#try-key")
            await page.type("sk-alice-has-a-long-key")
            await page.click("#try-send")
            await page.holds("document.querySelector('#try-status').textContent.startsWith('completed, ')")
            assert KEY not in await page.text("#try")

    run(test())


def test_a_request_is_replayed_and_becomes_a_command(profile: Path, tmp_path: Path) -> None:
    async def test() -> None:
        async with simulated(record=tmp_path / "records") as served:
            await post(served, input='It\'s "quoted" $HOME `id`\n\\ done', stream=True)
            async with visiting(served, profile) as page:
                await page.click("#rows tr")
                await page.holds("document.querySelector('.actions button')?.disabled === false")
                await page.click(".actions button")
                await page.holds("document.querySelector('.command') !== null")
                command = await page.value("document.querySelector('.command').textContent")
                if shutil.which("curl"):
                    process = await asyncio.create_subprocess_exec(
                        "bash", "-c", command, stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.DEVNULL
                    )
                    output, _ = await asyncio.wait_for(process.communicate(), PATIENCE)
                    assert b"response.completed" in output
                    await page.holds(f"{count('#rows tr')} === 2")
                await page.click(".actions button:nth-child(3)")
                await page.holds("document.querySelector('#detail').innerText.includes('Identical: ')", "the replay")

    run(test())


def test_a_key_of_any_characters_can_be_given_and_a_wrong_one_corrected(profile: Path) -> None:
    async def test() -> None:
        async with simulated(admin_key="der-lange-schl\u00fcssel") as served, visiting(served, profile) as page:
            await give_key(page, "der\u2013lange\u2013schl\u00fcssel")  # with the dashes of a text
            await page.holds("document.querySelector('#key-reason').innerText.startsWith('That is not the admin key')")
            await give_key(page, "der-lange-schl\u00fcssel")
            await page.holds("document.querySelector('#connection').innerText === 'live'")
            assert not await page.value("document.querySelector('#key-dialog').open")

    run(test())


def test_a_link_to_a_recorded_request_opens_the_page_with_its_contents(profile: Path, tmp_path: Path) -> None:
    async def test() -> None:
        async with simulated(record=tmp_path / "records", admin_key=KEY) as served:
            await post(served, input="hi")
            (summary,) = await last_ended(served, headers={"Authorization": f"Bearer {KEY}"})
            async with browser(profile) as page:
                await page.open(f"{served.url}/ui/#/requests/{summary['id']}")
                await give_key(page)
                await page.holds("document.querySelector('#detail').innerText.includes('Request as received')")
                await page.holds(f"{count('.detail .block')} > 0", "the answer")

    run(test())


def test_a_visitor_gives_the_key_and_records_for_a_while(profile: Path) -> None:
    async def test() -> None:
        async with simulated(admin_key=KEY) as served, visiting(served, profile) as page:
            await give_key(page, "a-key-that-is-wrong")
            await page.holds("document.querySelector('#key-reason').innerText.includes('not the admin key')")
            await give_key(page)
            await page.holds("document.querySelector('#connection').innerText === 'live'")
            assert KEY not in await page.value("document.cookie + location.href")
            await page.click("#record")
            await page.click("#record-start")
            await page.holds("document.querySelector('#recording').innerText.startsWith('recording until')")
            await post(served, input="remember this")
            await page.click("#rows tr")
            await page.holds(
                "[...document.querySelectorAll('.detail details')].some(each => each.textContent.includes('remember this'))"
            )

    run(test())


def test_it_finds_back_to_a_gateway_that_was_away(profile: Path) -> None:
    async def test() -> None:
        async with simulated() as served, visiting(served, profile) as page:
            await page.holds("document.querySelector('#connection').innerText === 'live'")
            ending = served.parts.in_flight.ending
            ending.set()  # what a process does that is to end
            await page.holds("document.querySelector('#connection').innerText === 'not connected'")
            ending.clear()
            await page.holds("document.querySelector('#connection').innerText === 'live'")

    run(test())
