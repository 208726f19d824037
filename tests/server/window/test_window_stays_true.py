"""What the window says stays true while an operator looks for long, in a real browser: networks that fail, days that end,
intervals that have just begun."""

from __future__ import annotations

import asyncio
import time
from pathlib import Path

import pytest

from responses_gateway.server.window import live_requests, workers
from responses_gateway.settings.keys import hash_of
from tests.server.ended_requests import ended_facts, remember_intervals
from tests.server.running_gateway import ask, gateway, post, run, simulated
from tests.server.scripted_backend import backend, call, chunk, streaming
from tests.server.window.chromium import Page, browser, program
from tests.server.window.looking import KEY, bearer, last_ended, look
from tests.server.window.test_window_page import WEATHER, count, give_key, visiting
from tests.server.window.test_window_sharing import FakeView, beside

pytestmark = pytest.mark.skipif(program() is None, reason="no Chromium is installed: run scripts/install-browser")
LIVE = "document.querySelector('#connection').innerText === 'live'"

ALICE = "sk-alice-has-a-long-key"
STEPS = 300  # that come at a time


async def go_offline(page: Page, offline: bool) -> None:
    speed = {"latency": 0, "downloadThroughput": -1, "uploadThroughput": -1}
    await page.send("Network.emulateNetworkConditions", offline=offline, **speed)


# ---- the connection ---------------------------------------------------------------------------------------------------


def test_a_connection_on_which_nothing_comes_is_not_called_live(profile: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async def test() -> None:
        async with simulated() as served, visiting(served, profile) as page:
            await page.holds(LIVE)
            with monkeypatch.context() as silent:
                silent.setattr(live_requests, "POLL_INTERVAL", 3600.0)
                await page.holds("document.querySelector('#connection').innerText === 'not connected'")
            await page.holds(LIVE)
            await post(served, input="hi")
            await page.holds(f"{count('#rows tr')} === 1", "it has another connection, on which updates come")

    run(test())


def test_it_says_that_a_process_is_left_out_and_when_it_is_there_again(
    profile: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(workers, "ANSWER_TIMEOUT", 0.2)

    async def test() -> None:
        there = FakeView("there")
        there.permitted = asyncio.Semaphore(0)
        async with beside(there, tmp_path) as served, visiting(served, profile) as page:
            await page.holds("document.querySelector('#connection').innerText === 'live, processes that do not answer: 1'")
            there.permitted = None
            await page.holds(LIVE)

    run(test())


def test_an_open_request_is_followed_to_its_end_through_a_network_that_fails(profile: Path) -> None:
    async def test() -> None:
        async with simulated() as served, visiting(served, profile) as page:
            asking = asyncio.create_task(post(served, input="tokens: 200 tps: 40", stream=True))
            await page.click("#rows tr")
            await page.holds(f"{count('.steps tbody tr')} > 3", "it is followed")
            await go_offline(page, True)
            await page.holds("document.querySelector('#detail [role=alert]').innerText.includes('cannot be reached')")
            await go_offline(page, False)
            await asking
            await page.holds("document.querySelector('#detail .state').innerText === 'completed'")
            assert await page.text("#detail [role=alert]") == ""
            page.problems.clear()  # the browser says that it was offline

    run(test())


# ---- one request ------------------------------------------------------------------------------------------------------


def test_steps_that_are_asked_for_twice_are_shown_once(profile: Path, tmp_path: Path) -> None:
    async def test() -> None:
        async with simulated(record=tmp_path / "records") as served:
            await post(served, input="tokens: 550 tps: 110", stream=True)  # what is read together is one step
            (summary,) = await last_ended(served)
            total = (await look(served, f"requests/{summary['id']}/steps")).json["total"]
            assert total > STEPS, "more than are shown at once"
            shown = min(total, 2 * STEPS)
            async with visiting(served, profile) as page:
                await page.click("#rows tr")
                more = "[...document.querySelectorAll('#detail button')].find(button => button.innerText.endsWith(' more'))"
                await page.holds(f"{more} !== undefined")
                await page.value(f"(button => {{ button.click(); button.click(); }})({more})")
                await page.holds(f"{count('.steps tbody tr')} >= {shown}", "the others are there")
                await asyncio.sleep(0.3)  # the second answer
                assert await page.value(count(".steps tbody tr")) == shown

    run(test())


def test_numbers_of_a_call_are_shown_as_they_were_written(profile: Path, tmp_path: Path) -> None:
    arguments = '{"city": 9007199254740993, "share": 1.0}'

    async def test() -> None:
        pieces = [chunk(call(arguments, id="call-1", type="function")), chunk({}, "tool_calls"), b"data: [DONE]\n\n"]
        async with backend(streaming(*pieces)) as behind, gateway(behind.url, record=tmp_path / "records") as served:
            await post(served, stream=True, tools=[WEATHER])
            async with visiting(served, profile) as page:
                await page.click("#rows tr")
                await page.holds(f"{count('.block.function_call pre')} === 1")
                assert await page.text(".block.function_call pre") == '{\n "city": 9007199254740993,\n "share": 1.0\n}'

    run(test())


def test_a_copied_command_asks_the_api_and_the_port_that_the_request_came_to(profile: Path, tmp_path: Path) -> None:
    async def test() -> None:
        keys = {"alice": {"hash": [hash_of(ALICE)]}}
        async with simulated(record=tmp_path / "records", api_keys=keys, admin_key=KEY) as served:
            message = {"model": "m", "max_tokens": 100, "messages": [{"role": "user", "content": "hi"}]}
            await ask(served, "POST", "/v1/messages", json=message, headers=bearer(ALICE))
            async with visiting(served, profile) as page:
                await give_key(page)
                await page.click("#rows tr")
                await page.holds("document.querySelector('.actions button')?.disabled === false")
                await page.click(".actions button")
                await page.holds("document.querySelector('.command') !== null")
                command = await page.text(".command")
                assert command.startswith(f"curl -N '{served.url}/v1/messages' ")
                assert "$RESPONSES_GATEWAY_KEY" in command
                assert ALICE not in command
                port = "import('./commands.js').then(({originOf}) => originOf(9000))"
                assert await page.value(port) == "http://127.0.0.1:9000"

    run(test())


def test_a_request_of_another_day_says_so_and_a_minute_has_sixty_seconds(profile: Path) -> None:
    async def test() -> None:
        async with simulated() as served:
            history = served.parts.responses.reports.history
            assert history is not None
            facts = ended_facts(history.new_id())
            facts.started = time.time() - 3 * 86_400
            facts.times.last, facts.ended = 119.6, facts.started + 119.6
            history.add([facts])
            async with visiting(served, profile) as page:
                day = await page.value(f"new Date({facts.started * 1000}).getDate()")
                await page.holds(f"{count('#rows tr')} === 1")
                assert (await page.text("#rows a")).startswith(f"{day} ")
                minutes = "import('./dom.js').then(({seconds}) => [119.6, 119.4, 120.4].map(seconds).join())"
                assert await page.value(minutes) == "2 min 0 s,1 min 59 s,2 min 0 s"

    run(test())


# ---- plots ------------------------------------------------------------------------------------------------------------


def test_a_rate_is_that_of_a_whole_interval(profile: Path) -> None:
    async def test() -> None:
        async with simulated() as served:
            remember_intervals(served.parts.responses.reports.history, (10, 50, 3), (-10, 1, 7))  # the second has just begun
            async with visiting(served, profile) as page:
                await page.press("3")
                await page.holds(f"{count('#charts .card')} === 6")
                assert (await page.text("[aria-label='Requests per second'] .legend")).startswith("successful 5.00")
                assert (await page.text("[aria-label='Requests in flight'] .legend")).startswith("maximum 7")

    run(test())


@pytest.mark.parametrize("ahead", [7200, -3600])
def test_a_browser_whose_clock_is_wrong_shows_the_last_minutes_and_whether_requests_are_recorded(
    profile: Path, ahead: int
) -> None:
    wrong = f"const right = Date.now.bind(Date); Date.now = () => right() + {ahead * 1000};"
    badge = "document.querySelector('#recording').checkVisibility()"

    async def test() -> None:
        async with simulated() as served, browser(profile) as page:
            remember_intervals(served.parts.responses.reports.history, (10, 50, 3))
            await page.send("Page.addScriptToEvaluateOnNewDocument", source=wrong)
            await page.open(f"{served.url}/ui/")
            await look(served, "recording", "POST", json={"minutes": 5})
            await page.holds(badge)
            await page.press("3")
            await page.holds(f"{count('#charts .card')} === 6")
            successful = (await page.text("[aria-label='Requests per second'] .legend")).splitlines()[0]
            assert "5.00" in successful  # now, or as the peak if ten seconds have passed
            await look(served, "recording", "POST", json={"minutes": 0})
            await page.holds(f"!{badge}")

    run(test())
