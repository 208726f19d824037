"""Which recorded requests contain a text: the program that reads them, the answer to a visitor, and the page."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from responses_gateway.server.window import search_process
from responses_gateway.simulator import create_app, serving
from tests.server.gateway_process import program as gateway_program
from tests.server.running_gateway import Reachable, ask, assert_error, gateway, post, run, simulated
from tests.server.scripted_backend import backend, streaming, text_stream
from tests.server.window.chromium import program
from tests.server.window.looking import bearer, last_ended, look
from tests.server.window.test_window_page import AXE, VIOLATIONS, count, visiting
from tests.server.window.test_window_workers import WORKERS, asked_of_both

in_a_browser = pytest.mark.skipif(program() is None, reason="no Chromium is installed: run scripts/install-browser")


async def search(served: Reachable, text: Any, **request: Any) -> Any:
    return (await look(served, "search", "POST", json={"text": text}, **request)).json


# ---- the answer -------------------------------------------------------------------------------------------------------


def test_a_text_is_found_in_requests_and_in_answers_of_both_apis(tmp_path: Path) -> None:
    async def test() -> None:
        async with simulated(record=tmp_path) as served:
            await post(served, input="Where is the\nGreen \N{LATIN SMALL LETTER O WITH DIAERESIS}l lamp?", stream=False)
            await post(served, input="scenario: demo hi", instructions="Be brief.")
            body = {"model": "m", "max_tokens": 50, "messages": [{"role": "user", "content": "hello"}], "stream": True}
            await ask(served, "POST", "/v1/messages", json=body)
            ids = [summary["id"] for summary in await last_ended(served, 3)]
            assert await search(served, "green  \N{LATIN CAPITAL LETTER O WITH DIAERESIS}L LAMP?") == {
                "found": [ids[0]], "searched": 3, "recorded": 3, "busy": 0,
            }  # fmt: skip
            assert (await search(served, "be brief"))["found"] == [ids[1]]
            for request_id in ids:
                answer = (await look(served, f"requests/{request_id}/answer")).json
                item = answer["items"][-1]
                text = item["so_far"] if "so_far" in item else item["content"][0]["text"]
                assert request_id in (await search(served, text))["found"], "an answer comes in many pieces"
            assert (await search(served, "hello"))["found"] == [ids[2]]
            assert (await search(served, "no such text"))["found"] == []

    run(test())


def test_a_text_is_found_in_an_answer_with_line_separators(tmp_path: Path) -> None:
    async def test() -> None:
        pieces = text_stream("one\u2028two\u0085three", " and a lamp")
        async with backend(streaming(*pieces)) as behind, gateway(behind.url, record=tmp_path) as served:
            await post(served)
            (summary,) = await last_ended(served)
            for text in ("lamp", "one two"):
                assert (await search(served, text))["found"] == [summary["id"]]

    run(test())


def test_arguments_and_results_are_contents_and_names_of_fields_are_not(tmp_path: Path) -> None:
    async def test() -> None:
        async with simulated(record=tmp_path) as served:
            call = {"type": "function_call", "call_id": "c", "name": "look", "arguments": '{"path": "a b.txt"}'}
            result = {"type": "function_call_output", "call_id": "c", "output": "permission denied"}
            await post(served, input=[{"role": "user", "content": "go"}, call, result])
            (summary,) = await last_ended(served)
            for text in ("permission denied", 'a b.txt"}'):
                assert (await search(served, text))["found"] == [summary["id"]]
            assert (await search(served, "call_id"))["found"] == []

    run(test())


def test_what_is_not_recorded_is_not_searched(tmp_path: Path) -> None:
    async def test() -> None:
        async with serving(create_app()) as url, gateway(url) as served:
            await post(served, input="a lamp")
            assert await search(served, "lamp") == {"found": [], "searched": 0, "recorded": 0, "busy": 0}
            await look(served, "recording", "POST", json={"minutes": 5})
            await post(served, input="a lamp")
            ids = [summary["id"] for summary in await last_ended(served, 2)]
            assert await search(served, "lamp") == {"found": ids[1:], "searched": 1, "recorded": 1, "busy": 0}

    run(test())


@pytest.mark.parametrize("text", [None, 7, " ", "x" * 501])
def test_what_is_no_text_is_refused(text: Any) -> None:
    async def test() -> None:
        async with simulated(ui="open") as served:
            assert_error(await look(served, "search", "POST", json={"text": text}), 400, "invalid_value")

    run(test())


def test_who_may_not_see_contents_cannot_search_them() -> None:
    async def test() -> None:
        async with simulated(admin_key="an-administrators-key") as served:
            assert_error(await look(served, "search", "POST", json={"text": "a"}), 401)
            assert (await search(served, "a", headers=bearer()))["found"] == []

    run(test())


@pytest.mark.slow
def test_records_of_all_workers_are_searched() -> None:
    async def test() -> None:
        async with serving(create_app()) as backend, gateway_program("--backend", backend, *WORKERS) as running:
            await look(running, "recording", "POST", json={"minutes": 5}, headers=bearer())
            ids = {summary["id"] for summary in await asked_of_both(running, instructions="Be brief.")}
            answer = await search(running, "be brief", headers=bearer())
            assert set(answer["found"]) == ids
            assert answer["searched"] == answer["recorded"] == len(ids)

    run(test())


def test_a_search_that_fails_says_so(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async def test() -> None:
        async with simulated(record=tmp_path) as served:
            await post(served)
            await last_ended(served)
            broken = tmp_path / "broken.py"
            broken.write_text("raise SystemExit(1)", encoding="utf-8")
            monkeypatch.setattr("responses_gateway.server.window.worker_view.SEARCH_PROCESS", broken)
            assert_error(await look(served, "search", "POST", json={"text": "a"}), 503, "search_failed")

    run(test())


# ---- the program ------------------------------------------------------------------------------------------------------


def test_records_that_are_gone_or_spoilt_contain_nothing(tmp_path: Path) -> None:
    good = tmp_path / "good"
    good.write_text(json.dumps({"request": '{"input": "a lamp"}'}) + "\n", encoding="utf-8")
    spoilt = tmp_path / "spoilt"
    spoilt.write_text('{"request": \n', encoding="utf-8")
    odd = tmp_path / "odd"
    odd.write_text('{"request": "a lamp, but no JSON"}\n{"call": "feed", "sent": {"base64": "AA=="}}\n', encoding="utf-8")
    deep = tmp_path / "deep"
    deep.write_text(json.dumps({"request": "[" * 100_000}) + "\n", encoding="utf-8")
    paths = [str(path) for path in (tmp_path / "none", spoilt, odd, deep, good)]
    question = json.dumps({"paths": paths, "text": "Lamp", "seconds": 60})
    done = subprocess.run(
        [sys.executable, "-I", search_process.__file__], input=question, capture_output=True, text=True, check=True
    )
    assert json.loads(done.stdout) == [False, False, True, False, True]


def test_no_more_is_searched_once_the_time_is_over() -> None:
    assert search_process.search({"paths": ["a", "b"], "text": "a", "seconds": -1}) == []


# ---- the page ---------------------------------------------------------------------------------------------------------


@pytest.mark.slow
@in_a_browser
def test_a_visitor_searches_contents_with_the_keyboard(profile: Path) -> None:
    async def test() -> None:
        async with simulated(ui="open") as served:
            for text in ("a red lamp", "a green lamp", "a green door"):
                await post(served, input=text)
            ids = [summary["id"] for summary in await last_ended(served, 3)]
            async with visiting(served, profile) as page:
                shown = "[...document.querySelectorAll('#rows tr')].map(row => row.dataset.id)"
                result = "document.querySelector('#search-result').innerText"
                await page.holds(f"{count('#rows tr')} === 3")
                await page.press("c")
                await page.holds("document.activeElement.id === 'search'")
                await page.type("Green Lamp")
                await page.press("Enter")
                await page.holds(f"{result} === '1 found in 3 recorded'")
                assert await page.value(shown) == [ids[1]]
                await post(served, input="another green lamp")
                await last_ended(served, 4)
                assert await page.value(shown) == [ids[1]], "the answer stands until the next search"
                await page.press("Enter")
                await page.holds(f"{result} === '2 found in 4 recorded'")
                await page.value("document.querySelector('#search').select()")
                await page.type("no such thing")
                await page.press("Enter")
                await page.holds(f"{result} === '0 found in 4 recorded'")
                assert await page.value("document.querySelector('#unmatched').checkVisibility()")
                if AXE.exists():
                    await page.value(AXE.read_text(encoding="utf-8") + "; undefined")
                    for width in (1280, 380):
                        await page.resize(width, 800)
                        assert await page.value(VIOLATIONS) == []
                await page.value("document.querySelector('#search').select()")
                await page.value("document.execCommand('delete')")
                await page.holds(f"{count('#rows tr')} === 4 && {result} === ''", "without a text all are shown")

    run(test())


@pytest.mark.slow
@in_a_browser
def test_who_sees_no_contents_has_nothing_to_search_them_with(profile: Path) -> None:
    async def test() -> None:
        async with serving(create_app()) as url, gateway(url, ui="open") as served:
            await post(served)
            async with visiting(served, profile) as page:
                await page.holds(f"{count('#rows tr')} === 1")
                allowed = (await look(served)).json["contents"]
                assert await page.value("document.querySelector('#search').checkVisibility()") == allowed

    run(test())
