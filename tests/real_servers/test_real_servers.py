"""What `make servers` itself must get right: it needs no server for that."""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Callable
from pathlib import Path

import httpx
import psutil
import pytest

from tests.judges.streams import Event, Script, encode
from tests.real_servers import matrix, table
from tests.real_servers.conversation import Conversation, Refusal, Wrong, sum_of_samples
from tests.real_servers.doctor_cases import CASES, Case, differences
from tests.real_servers.gateway import Diagnosis
from tests.real_servers.matrix import CHECKS, Cell
from tests.real_servers.processes import NotReady, plain_environment, running
from tests.real_servers.programs import Server
from tests.real_servers.results import Found, Results, fingerprint, load
from tests.real_servers.settings import SETTINGS, Setting
from tests.real_servers.table import BEGIN, END
from tests.waiting import PATIENCE

_SETTING = Setting("one", "vLLM", cannot={"call": "no calls here"}, left_out={"cancel": "no metrics here"})
_DOCUMENT = Path(__file__).parents[2] / "docs" / "servers.md"


def conversation(answer: Callable[[httpx.Request], httpx.Response]) -> Conversation:
    """Return a conversation with a gateway that answers so."""
    client = httpx.Client(transport=httpx.MockTransport(answer))
    return Conversation(_SETTING, Server("http://server", "m", None), "http://gateway", client)


def answered(body: bytes, status: int = 200) -> Conversation:
    return conversation(lambda _request: httpx.Response(status, content=body))


def hello() -> list[Event]:
    return Script().open().message("Hello! ", "How can I help you today?").end()


def test_a_right_answer_passes() -> None:
    assert answered(encode(hello())).ask("hello").text == "Hello! How can I help you today?"


def test_a_stream_that_breaks_a_rule_fails_though_its_words_are_right() -> None:
    events = hello()
    events[3]["sequence_number"] = 7
    with pytest.raises(Wrong, match="violates") as caught:
        answered(encode(events)).ask("hello")
    assert caught.value.broken


def test_an_error_is_told_from_an_answer() -> None:
    refused = answered(b'{"error": {"code": "context_length_exceeded", "message": "too long"}}', 400).try_asking("hello")
    assert isinstance(refused, Refusal)
    assert str(refused) == "HTTP 400 context_length_exceeded: too long"


def cells(check: Callable[[Conversation], None], monkeypatch: pytest.MonkeyPatch) -> dict[str, Cell]:
    """Run a matrix in which every check is this one."""
    monkeypatch.setattr(matrix, "CHECKS", dict.fromkeys(CHECKS, check))
    return matrix.run(answered(b""), lambda _name, _cell: None)


def failing(*, broken: bool = False) -> Callable[[Conversation], None]:
    def check(_with: Conversation) -> None:
        raise Wrong("seen", broken=broken)

    return check


def test_what_the_server_cannot_do_is_no_failure(monkeypatch: pytest.MonkeyPatch) -> None:
    found = cells(failing(), monkeypatch)
    assert found["text"].mark == "✗"
    assert found["text"].note == "seen"
    assert found["call"] == Cell("–", "no calls here")
    assert found["cancel"] == Cell("–", "no metrics here")


def test_a_broken_stream_is_a_failure_even_where_the_server_cannot_do_it(monkeypatch: pytest.MonkeyPatch) -> None:
    assert cells(failing(broken=True), monkeypatch)["call"].mark == "✗"


def test_what_a_server_does_against_expectation_counts(monkeypatch: pytest.MonkeyPatch) -> None:
    found = cells(lambda _with: None, monkeypatch)
    assert found["call"].mark == "✓"
    assert found["cancel"].mark == "–"


def test_an_answer_of_another_shape_is_a_failure(monkeypatch: pytest.MonkeyPatch) -> None:
    def check(_with: Conversation) -> None:
        raise KeyError("usage")

    assert cells(check, monkeypatch)["text"].mark == "✗"


def some_results() -> Results:
    cell = Cell("✗", "the text has <think>")
    row = {**dict.fromkeys(CHECKS, Cell("✓")), "text": cell, "call": cell}
    cells = {"zero": row, "advised": dict.fromkeys(CHECKS, Cell("✓"))}
    return Results("abc", "2026-05-04", {"vLLM": "1.2"}, {SETTINGS[0].name: Found("works", ["says `this`"], cells)})


def test_the_table_has_each_note_once_and_shows_markup_as_it_is() -> None:
    results = some_results()
    section = table.section(results)
    assert "Tried on 2026-05-04: vLLM 1.2." in section
    assert "without any setting: ✗ text<sup>1</sup>, ✗ call<sup>1</sup>; " in section
    assert "; with the settings that `doctor` recommends: nothing |" in section
    assert section.count("1. the text has &lt;think>") == 1
    assert "| works ✗<sup>2</sup> |" in section
    assert results.failures == 3
    assert table.updated(f"before\n{BEGIN}\nold\n{END}\nafter\n", results) == f"before\n{section}\nafter\n"


def test_a_run_is_continued_only_for_the_same_gateway(tmp_path: Path) -> None:
    results = some_results()
    results.save(tmp_path / "new" / "results.json")
    assert load(tmp_path / "new" / "results.json", "abc", "2026-06-05") == results
    assert load(tmp_path / "new" / "results.json", "abd", "2026-06-05").found == {}
    assert load(tmp_path / "none.json", "abc", "2026-06-05").found == {}


def test_a_changed_file_is_another_gateway(tmp_path: Path) -> None:
    (tmp_path / "a.py").write_text("x = 1")
    before = fingerprint(tmp_path.iterdir())
    assert fingerprint(tmp_path.iterdir()) == before
    (tmp_path / "a.py").write_text("x = 2")
    assert fingerprint(tmp_path.iterdir()) != before


def test_the_document_can_be_written_and_has_the_columns_of_today() -> None:
    document = _DOCUMENT.read_text(encoding="utf-8")
    written = document.split(BEGIN)[1].split(END)[0].splitlines()
    heads = [line for line in written if line.startswith("| server |")]
    assert heads in ([], [f"| {' | '.join(table.HEAD)} |"])  # empty before the first run
    named = {name for line in written for name in re.findall(r"[✗–] ([\w ]+)<sup>", line)}
    assert named <= set(CHECKS)
    assert table.updated(document, some_results()).count("| server |") > 1


def test_every_setting_has_its_diagnosis_and_names_checks_that_there_are() -> None:
    assert [setting.name for setting in SETTINGS] == list(CASES)
    for setting in SETTINGS:
        assert set(setting.cannot) | set(setting.left_out) <= set(CHECKS)


def test_a_diagnosis_is_compared_with_the_expected_one() -> None:
    findings = [{"level": "warning", "text": "Tools are refused.", "advice": "Start it with --jinja."}]
    report = {"verdict": "works", "findings": findings, "settings": {"backend": "u"}, "profile": {"stops": False}}
    found = Diagnosis(0, report, Path("none"))
    assert differences(Case(("works",), says=("--jinja",)), found) == []
    case = Case(("broken",), says=("--raw",), never=("--jinja",), recommends=(("rescue", True),), facts={"stops": True})
    assert differences(case, found) == [
        "verdict `works` instead of `broken`",
        "does not say `--raw`",
        "says `--jinja`",
        "recommends `rescue: None` instead of `True`",
        "finds `stops: False` instead of `True`",
    ]


def test_metrics_are_added_up_by_name() -> None:
    text = '# HELP a\na{engine="0"} 1.0\na{engine="1"} 2.0\na_created 5\nb 4\n'
    assert sum_of_samples(text, "a", "c") == 3.0


def test_no_process_is_left_when_a_run_is_interrupted(tmp_path: Path) -> None:
    program = "import signal, subprocess, sys;"
    program += (
        "child = subprocess.Popen([sys.executable, '-c', 'import signal; signal.pause()']); print(child.pid, flush=True);"
    )
    program += "signal.pause()"
    children: list[psutil.Process] = []

    def interrupted() -> None:
        with running([sys.executable, "-c", program], plain_environment(tmp_path), tmp_path / "log") as process:
            process.wait_until(lambda: process.printed().endswith("\n"), PATIENCE)
            children.append(psutil.Process(int(process.printed())))
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        interrupted()
    _, alive = psutil.wait_procs(children, PATIENCE)
    assert len(children) == 1
    assert [child for child in alive if child.status() != psutil.STATUS_ZOMBIE] == []


def test_a_server_that_ends_at_once_is_reported_with_its_log(tmp_path: Path) -> None:
    program = [sys.executable, "-c", "print('no such flag'); raise SystemExit(3)"]
    with (
        running(program, dict(os.environ), tmp_path / "log") as process,
        pytest.raises(NotReady, match=r"(?s)status 3.*no such flag"),
    ):
        process.wait_until(lambda: False, PATIENCE)
