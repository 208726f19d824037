"""`responses-gateway replay` as its user sees it: today's code on yesterday's exchanges."""

from __future__ import annotations

import argparse
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from responses_gateway.commands import replay
from responses_gateway.request.parameters import parameters
from responses_gateway.server.generation import replay as replaying
from responses_gateway.server.recording.recorder import PATTERN
from responses_gateway.simulator import DIALECTS, SimulatorOptions
from responses_gateway.stream.lifecycle.machine import Lifecycle
from responses_gateway.stream.writer.responses import ResponsesWriter
from tests.request.example_grammars import PATCHES
from tests.server import running_gateway
from tests.server.running_gateway import ask, gateway, post, simulated
from tests.server.scripted_backend import SECRET_HEADERS, backend, chunk, refusing, streaming

Record = Callable[..., Path]
WEATHER = {
    "type": "function",
    "name": "get_weather",
    "parameters": {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]},
}


@pytest.fixture(autouse=True)
def _wide(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "200")


def run(*argv: object) -> int:
    parser = argparse.ArgumentParser()
    replay.add_arguments(parser)
    return replay.run(parser.parse_args([str(word) for word in argv]))


@pytest.fixture
def record(tmp_path: Path) -> Record:
    """Ask a gateway in front of the simulator, and return the folder of the records."""

    def recorded(*requests: dict[str, Any], dialect: str = "vllm", **settings: Any) -> Path:
        async def test() -> None:
            options = SimulatorOptions(models=("simulator",), dialect=DIALECTS[dialect])
            async with simulated(options, record=tmp_path / "kept", **settings) as served:
                for request in requests:
                    await post(served, **request)

        running_gateway.run(test())
        return tmp_path / "kept"

    return recorded


EXCHANGES: dict[str, dict[str, Any]] = {
    "streamed": {"input": "hi"},
    "whole": {"input": "think", "stream": False},
    "call": {"input": "What is the weather?", "tools": [WEATHER]},
    "parallel calls": {"input": "scenario: parallel", "tools": [WEATHER]},
    "unicode": {"input": "scenario: unicode", "tools": [WEATHER]},
    "summary": {"input": "think", "reasoning": {"summary": "auto"}},
    "Codex": {"input": "hi", "max_output_tokens": 30, "headers": {"originator": "codex_exec"}},
    "Codex in an editor": {"input": "fault: overflow", "headers": {"originator": "an editor", "x-codex-window-id": "t:0"}},
    "cut": {"input": "hi", "max_output_tokens": 5},
    "broken": {"input": "fault: drop"},
    "broken and whole": {"input": "fault: drop", "stream": False},
    "malformed": {"input": "fault: malformed"},
    "error chunk": {"input": "fault: error"},
    "refused by the backend": {"input": "fault: status=429"},
    "too long": {"input": "fault: overflow", "headers": {"originator": "codex_exec"}},
    "refused by the gateway": {"input": 5},
    "key of an MCP server": {"tools": [{"type": "mcp", "server_label": "x", "server_url": "u", "authorization": "k" * 20}]},
}


@pytest.mark.parametrize("name", EXCHANGES)
def test_a_recorded_exchange_replays_identically(name: str, record: Record, capsys: pytest.CaptureFixture[str]) -> None:
    folder = record(EXCHANGES[name])
    assert run(folder) == 0, capsys.readouterr().out
    out = capsys.readouterr().out
    assert ": identical, " in out
    assert "response." in out or "HTTP 4" in out or "HTTP 5" in out


@pytest.mark.parametrize("scenario", ["patch", "wrong_patch"])
def test_a_verdict_on_a_custom_tool_replays(scenario: str, record: Record, capsys: pytest.CaptureFixture[str]) -> None:
    """Nobody judges again: what was decided is in the record."""
    layout = {"type": "grammar", "syntax": "lark", "definition": PATCHES}
    tools = [{"type": "custom", "name": "apply_patch", "format": layout}]
    folder = record({"input": f"scenario: {scenario}", "tools": tools}, repair_custom_tools="once")
    assert run(folder) == 0, capsys.readouterr().out
    assert ": identical, " in capsys.readouterr().out


@pytest.mark.parametrize("dialect", ["vllm-raw", "sglang", "llamacpp", "ollama", "vllm-interleaved", "legacy"])
def test_so_does_one_of_any_backend(dialect: str, record: Record, capsys: pytest.CaptureFixture[str]) -> None:
    settings: dict[str, Any] = {"reasoning_parser": "qwen3", "tool_call_parser": "hermes"} if "raw" in dialect else {}
    request = {"input": "What is the weather?", "tools": [WEATHER]}
    assert run(record(request, dialect=dialect, **settings)) == 0, capsys.readouterr().out
    assert ": identical, " in capsys.readouterr().out


def test_and_one_with_settings_of_its_own(record: Record) -> None:
    settings = {"system_messages": "keep", "reasoning_events": "spec", "max_tokens_field": "max_tokens"}
    assert run(record({"input": "hi", "instructions": "Be brief.", "max_output_tokens": 300}, **settings)) == 0


def test_a_backend_that_answers_in_one_piece(tmp_path: Path) -> None:
    completion = {"object": "chat.completion", "choices": [{"message": {"content": "Hello"}, "finish_reason": "stop"}]}

    async def test() -> None:
        answer = refusing(200, json.dumps(completion).encode())
        async with backend(answer) as behind, gateway(behind.url, record=tmp_path) as served:
            assert (await post(served)).final["status"] == "completed"

    running_gateway.run(test())
    assert run(tmp_path) == 0


def test_several_files_are_told_apart(record: Record, capsys: pytest.CaptureFixture[str]) -> None:
    folder = record({"input": "one"}, {"input": "fault: drop"})
    first, second = sorted(folder.glob(PATTERN))
    assert run(first, second) == 0
    lines = capsys.readouterr().out.splitlines()
    assert [line.partition(":")[0] for line in lines] == [first.name, second.name]
    assert lines[0].endswith("response.completed")
    assert lines[1].endswith("response.failed")


def test_a_folder_ends_with_its_sum(record: Record, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(record({"input": "one"}, {"input": "two"})) == 0
    assert capsys.readouterr().out.splitlines()[-1] == "2 exchanges: 2 identical, 0 different"


# ---- differences ------------------------------------------------------------------------------------------------------


def change_finish(monkeypatch: pytest.MonkeyPatch) -> None:
    """Today's translator gives up each answer as it ends: it closes nothing."""

    def gives_up(_lifecycle: Lifecycle) -> None:
        raise RuntimeError("It was given up.")

    monkeypatch.setattr(Lifecycle, "close_next", gives_up)


def test_a_changed_translator_is_shown_as_a_diff(
    record: Record, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = record({"input": "hi"})
    change_finish(monkeypatch)
    assert run(folder) == 1
    out = capsys.readouterr().out
    assert ": different (events)" in out
    removed = [line for line in out.splitlines() if line.strip().startswith("- ")]
    added = [line for line in out.splitlines() if line.strip().startswith("+ ")]
    assert any("response.completed" in line for line in removed)
    assert any("response.failed" in line for line in added)


def test_one_changed_word_is_shown_at_its_place(
    record: Record, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = record({"input": "hi"})
    original = ResponsesWriter.snapshot

    def changed(self: ResponsesWriter, kind: bytes, number: int, response: bytes) -> bytes:
        changed = response.replace(b'"parallel_tool_calls":true', b'"parallel_tool_calls":"yes"')
        return original(self, kind, number, changed)

    monkeypatch.setattr(ResponsesWriter, "snapshot", changed)
    assert run(folder) == 1
    out = capsys.readouterr().out
    assert '"parallel_tool_calls":true' in out
    assert '"parallel_tool_calls":"yes"' in out
    assert "delta" not in out  # what is the same is not shown


def test_json_has_the_whole_diff(record: Record, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    folder = record({"input": "hi"})
    change_finish(monkeypatch)
    assert run("--json", folder) == 1
    (report,) = json.loads(capsys.readouterr().out)
    assert report["identical"] is False
    assert report["ending"] == "response.failed"
    (difference,) = report["differences"]
    assert difference["place"] == "events"
    assert any(line.startswith("+") and "response.failed" in line for line in difference["diff"])


def test_a_changed_request_is_a_difference(
    record: Record, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = record({"input": "hi", "temperature": 0.5})
    original = parameters.chat_parameters

    def changed(*arguments: Any) -> dict[str, Any]:
        return {**original(*arguments), "temperature": 0.9}

    monkeypatch.setattr("responses_gateway.request.translation.chat_parameters", changed)
    assert run(folder) == 1
    out = capsys.readouterr().out
    assert "different (request)" in out
    assert "0.5" in out
    assert "0.9" in out


def test_a_changed_error_is_a_difference(record: Record, capsys: pytest.CaptureFixture[str]) -> None:
    folder = record({"input": "fault: status=429"})
    path = next(folder.glob(PATTERN))
    path.write_text(path.read_text().replace("Too many requests. Please slow down.", "Slow down.", 1))
    assert run(folder) == 1
    assert "different (error" in capsys.readouterr().out


def test_code_that_fails_on_a_record_is_a_difference(
    record: Record, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = record({"input": "hi"})

    def failing(*_: Any) -> None:
        raise KeyError("gone")

    monkeypatch.setattr(replaying, "translate", failing)
    assert run(folder) == 1
    assert "KeyError: 'gone'" in capsys.readouterr().out


def test_a_defect_of_the_translator_is_named(
    record: Record, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = record({"input": "hi"})

    def failing(*_: Any) -> None:
        raise KeyError("gone")

    monkeypatch.setattr(Lifecycle, "step", failing)
    assert run(folder) == 1
    assert "the translator failed: KeyError: 'gone'" in capsys.readouterr().out


def test_control_characters_do_not_reach_the_terminal(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    async def test() -> None:
        pieces = (chunk({"content": "\x1b[31m\u202e"}), chunk({}, "stop"), b"data: [DONE]\n\n")
        async with backend(streaming(*pieces)) as behind, gateway(behind.url, record=tmp_path) as served:
            await post(served)

    running_gateway.run(test())
    change_finish(monkeypatch)
    assert run(tmp_path) == 1
    out = capsys.readouterr().out
    assert "\x1b" not in out
    assert "\u202e" not in out


# ---- what cannot be replayed ------------------------------------------------------------------------------------------


def test_a_record_that_was_cut_is_compared_so_far(
    record: Record, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("responses_gateway.server.recording.recording.EXCHANGE_LIMIT", 8000)
    assert run(record({"input": "hi"})) == 0
    out = capsys.readouterr().out
    assert "no terminal event" in out
    assert "the record is truncated" in out


def test_a_request_that_was_too_large_is_said(
    record: Record, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("responses_gateway.server.recording.recording.EXCHANGE_LIMIT", 10)
    assert run(record({"input": "hi"})) == 2
    assert "too large to be recorded" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("content", "said"),
    [
        ("", "not a record"),
        ("hello", "not a record"),
        ("[" * 100_000, "not a record"),
        ('{"some": "thing"}', "not a record"),
        ("[1]", "not a record"),
        ('{"record": 99}', "format 99"),
        ('{"record": 1}', "a record of format 1; this version reads format 2"),
    ],
)
def test_what_is_no_record_ends_with_2(tmp_path: Path, content: str, said: str, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "exchange.jsonl"
    path.write_text(content)
    assert run(path) == 2
    assert said in capsys.readouterr().err


def test_nothing_there_ends_with_2(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(tmp_path) == 2
    assert run(tmp_path / "gone.jsonl") == 2
    err = capsys.readouterr().err
    assert "no records in " in err
    assert "No such file" in err


def test_settings_of_another_version_are_left_out(record: Record, capsys: pytest.CaptureFixture[str]) -> None:
    folder = record({"input": "hi"})
    path = next(folder.glob(PATTERN))
    path.write_text(path.read_text().replace('"settings": {', '"settings": {"of_the_future": 1, ', 1))
    assert run(folder) == 0
    assert "of_the_future" in capsys.readouterr().out


def test_tokens_that_a_tokenizer_counted_are_not_compared(record: Record, capsys: pytest.CaptureFixture[str]) -> None:
    folder = record({"input": "hi"})
    path = next(folder.glob(PATTERN))
    text = path.read_text().replace('\\"usage\\":{\\"input_tokens\\":', '\\"usage\\":{\\"input_tokens\\":9')
    path.write_text(text)
    assert run(folder) == 1
    path.write_text(text.replace('"tokenizer": false', '"tokenizer": true'))
    assert run(folder) == 0
    assert "usage is not compared" in capsys.readouterr().out


def test_what_the_backend_let_slip_is_not_in_a_record(tmp_path: Path) -> None:
    async def test() -> None:
        async with backend(refusing(500, b"{}")) as behind, gateway(behind.url, record=tmp_path) as served:
            await ask(served, "POST", "/v1/responses", json={"model": "m", "input": "hi"})

    running_gateway.run(test())
    (path,) = tmp_path.glob(PATTERN)
    for part in SECRET_HEADERS.decode().split():
        assert part not in path.read_text()
    assert run(tmp_path) == 0
