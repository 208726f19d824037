"""The comparison with other bridges: its judge, its page, and this gateway in front of the streams that all of them get."""

from __future__ import annotations

import asyncio
import json
import re
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

from scripts.generated_section import updated
from tests.bridges import messages_of_vllm, messages_table, recordings
from tests.bridges.backend import Backend, serving
from tests.bridges.bridges import BRIDGES, OURS, ROOT, started
from tests.bridges.document import BEGIN, END, section
from tests.bridges.judging import Answer, judge
from tests.bridges.messages_checks import ALL, FAST
from tests.bridges.official_sdk import sdk_error
from tests.bridges.playing import Found, play
from tests.bridges.scenarios import Scenario, Truth, scenarios
from tests.foreign_streams import needs_them
from tests.judges.streams import Script, encode

DOCUMENT = ROOT / "docs" / "comparison.md"
SLOW = {scenario.name for scenario in scenarios() if scenario.delay}


def stream(*texts: str) -> bytes:
    return encode(Script().open().message(*texts).end())


def verdict_on(body: bytes, truth: Truth, status: int = 200, *, refused: bool = False) -> list[str]:
    found = judge(Answer(status, body), truth, refused=refused)
    assert found.form == []
    return found.content


def test_this_gateway_passes_everything_that_it_is_compared_by(tmp_path: Path) -> None:
    found = asyncio.run(played_here(tmp_path / "ours"))
    wrong = {name: (verdict.content, verdict.form, verdict.everywhere) for name, verdict in found.verdicts.items()}
    assert {name: problems for name, problems in wrong.items() if any(problems)} == {}
    assert found.unreadable == {}
    assert found.stopped


async def played_here(folder: Path) -> Found:
    """Play all but the slow streams through this gateway."""
    (ours,) = [bridge for bridge in BRIDGES if bridge.name == OURS]
    played = [scenario for scenario in scenarios() if scenario.name not in SLOW]
    backend = Backend()
    found = Found(ours.version)
    async with serving(backend) as behind:
        with ExitStack() as stack:
            url = await asyncio.to_thread(stack.enter_context, started(ours, behind, folder))
            await play(url, ours.model, backend, played, found)
            await asyncio.to_thread(stack.close)
    return found


def test_this_gateway_passes_what_endpoints_for_the_messages_api_are_compared_by(tmp_path: Path) -> None:
    (ours,) = [bridge for bridge in BRIDGES if bridge.name == OURS]
    found = asyncio.run(messages_table.checked(ours, tmp_path / "ours", FAST))
    assert {sentence: problem for sentence, problem in found.items() if problem} == {}
    assert len(found) == len(FAST)


@pytest.mark.parametrize("module", [messages_table, messages_of_vllm])
def test_the_page_names_the_checks_as_they_are(module: Any) -> None:
    checks = ALL if module is messages_table else messages_of_vllm.CHECKS
    page = DOCUMENT.read_text(encoding="utf-8")
    part = page.partition(module.BEGIN)[2].partition(module.END)[0]
    rows = re.findall(r"^\| `(\w+)` \| (.+) \|$", part, re.MULTILINE)
    assert {name for name, _ in rows} <= {check.__name__ for check in checks}
    ours = {cells.split(" | ")[0 if module is messages_table else -1] for _, cells in rows}
    assert ours == {"✓"}
    assert re.search(rf"^\| kept \|.* {len(checks)} of {len(checks)} \|", part, re.MULTILINE)


def test_each_scenario_is_another_one() -> None:
    assert (
        len({scenario.name for scenario in scenarios()})
        == len({scenario.title for scenario in scenarios()})
        == len(scenarios())
    )


@pytest.mark.parametrize(
    ("truth", "problems"),
    [
        (Truth([("text", "Hello there.")]), []),
        (Truth([("text", "Hello.")]), ["wrong text"]),
        (Truth([("reasoning", "Hm."), ("text", "Hello there.")]), ["items: text"]),
        (Truth([("text", "Hello there.")], ("incomplete",)), ["`completed`"]),
        (Truth([("text", "Hello there. And more")], cut=True), []),
        (Truth([("text", "Another beginning")], cut=True), ["wrong text"]),
        (Truth(None), []),
    ],
)
def test_the_content_of_a_stream_is_judged_by_what_the_model_said(truth: Truth, problems: list[str]) -> None:
    assert verdict_on(stream("Hello", " there."), truth) == problems


def test_an_http_error_is_right_only_where_the_backend_refused() -> None:
    error = b'{"error": {"message": "no"}}'
    assert verdict_on(error, Truth(None, ("failed",)), 400, refused=True) == []
    assert verdict_on(error, Truth(None, ("failed",)), 400) == ["HTTP 400"]
    assert verdict_on(b"", Truth(None), 0) == ["no answer"]


def test_a_stream_without_its_end_is_noticed_by_judge_and_rules() -> None:
    body = stream("Hello").partition(b"event: response.completed")[0]
    found = judge(Answer(200, body), Truth(None), refused=False)
    assert found.content == ["no terminal event"]
    assert "terminal_missing" in found.form


def test_what_breaks_every_stream_is_not_counted_with_each() -> None:
    body = b"\n".join(line for line in stream("Hello").splitlines() if not line.startswith(b"event:")) + b"\n"
    found = judge(Answer(200, body), Truth([("text", "Hello")]), refused=False)
    assert found.right
    assert found.everywhere == ["event_name"]


def test_the_sdk_stumbles_over_deltas_without_an_item_and_not_over_errors() -> None:
    events: list[dict[str, Any]] = Script().open().message("Hello").end()
    orphans = [event for event in events if event["type"] != "response.output_item.added"]
    assert sdk_error(Answer(200, encode(events))) is None
    assert sdk_error(Answer(200, encode(orphans))) is not None
    assert sdk_error(Answer(429, json.dumps({"error": {"message": "Too many."}}).encode())) is None


def test_the_page_is_of_these_scenarios_and_bridges() -> None:
    page = DOCUMENT.read_text(encoding="utf-8")
    generated = page.partition(BEGIN)[2].partition(END)[0]
    assert [scenario.title for scenario in scenarios() if scenario.title not in generated] == []
    assert [bridge.name for bridge in BRIDGES if f"{bridge.name} " not in generated] == []
    lines = (ROOT / "tests" / "bridges" / "requirements.txt").read_text(encoding="utf-8").splitlines()
    pinned = {line.partition("==")[0].partition("[")[0]: line.partition("==")[2] for line in lines if "==" in line}
    for bridge in BRIDGES:
        assert bridge.name == OURS or f"{bridge.name} {pinned[bridge.package]}" in generated


def test_a_run_replaces_the_generated_part_alone() -> None:
    scenario = Scenario("one", "a text", lambda _offered: b"", Truth(None))
    found = Found("2.0", {"one": judge(Answer(200, stream("Hello")), Truth([("text", "Bye")]), refused=False)}, stopped=True)
    page = updated(f"before\n{BEGIN}\nold\n{END}\nafter\n", section({"other": found}, [scenario]))
    assert page.startswith(f"before\n{BEGIN}\n")
    assert page.endswith(f"{END}\nafter\n")
    assert "| a text | wrong text |" in page
    assert "| streams with the right items and the right ending | 0 of 1 |" in page
    assert "old" not in page


def test_the_score_of_a_bridge_has_the_three_levels() -> None:
    events = Script().open().reasoning("Hm.").message("Hello").end(completed_at=None)
    events[2]["item"]["status"] = "completed"
    scenario = Scenario("one", "a text", lambda _offered: b"", Truth(None))
    found = Found("2.0", {"one": judge(Answer(200, encode(events)), Truth(None), refused=False)})
    page = section({"other": found}, [scenario])
    assert "(`--level breaks`) | 1 of 1 |" in page
    assert "(`spec`) | 0 of 1 |" in page
    assert "| other 2.0 | none | `item_status` | `completed_at` |" in page


@needs_them
def test_the_page_says_what_comes_of_the_recorded_streams() -> None:
    page = DOCUMENT.read_text(encoding="utf-8")
    part = page[page.index(recordings.BEGIN) : page.index(recordings.END) + len(recordings.END)]
    day = re.search(r"Measured on (\S+)\.", part)
    assert day is not None
    assert part == recordings.section(day[1]), "run `python -m tests.bridges --recorded`"
