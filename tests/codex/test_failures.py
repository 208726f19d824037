"""Backends that fail: the user reads why, what can be retried is retried, and no half call is ever run."""

from __future__ import annotations

import re
import socket
from pathlib import Path

import pytest

from responses_gateway.settings.keys import hash_of
from responses_gateway.simulator import SimulatorOptions
from tests.codex.codex_cli import Codex
from tests.codex.servers import GREETING, Stage, StartStage

_LIMIT = "Incomplete response returned, reason: max_output_tokens"
_NO_RETRIES = {"stream_max_retries": 0, "request_max_retries": 0}


@pytest.mark.parametrize("fault", ["drop", "eof", "error", "malformed", "no-finish", "reset", "status=503"])
def test_a_broken_answer_is_asked_for_again(codex: Codex, stage: Stage, fault: str) -> None:
    prompt = f"scenario: plain fault: {fault},once"
    run = codex.run(prompt)
    assert run.code == 0
    assert run.answers == [f"A plain answer to “{prompt}”."]  # and no half of it before
    assert len(stage.chats) == 2
    assert stage.chats[0]["messages"] == stage.chats[1]["messages"]


@pytest.mark.parametrize("fault", ["drop=call", "error=call", "eof=call"])
@pytest.mark.parametrize("freeform", [False, True])
def test_a_call_cut_by_a_broken_stream_is_run_once_and_whole(codex: Codex, fault: str, freeform: bool) -> None:
    if freeform:
        codex.use_catalog(apply_patch_tool_type="freeform")
    run = codex.run(f"scenario: agent fault: {fault},once")  # strikes once at each step of the work
    assert run.code == 0
    assert codex.files() == {"greeting.py": GREETING}
    assert len(run.commands) == 2
    assert len(run.items("file_change")) == 1
    assert run.stderr == []
    assert "in 3 tool calls" in run.answers[-1]


@pytest.mark.parametrize("fault", ["drop=call", "error=call", "eof=call", "malformed=call", "silence=4"])
@pytest.mark.parametrize("scenario", ["agent", "patch"])
def test_a_cut_call_is_never_run(tmp_path: Path, start_stage: StartStage, scenario: str, fault: str) -> None:
    impatience = {"idle_timeout": 1.0, "keepalive_event": 0.2} if fault.startswith("silence") else {}
    codex = Codex(tmp_path, start_stage(**impatience).url)
    codex.use_catalog(apply_patch_tool_type="freeform")
    codex.provider |= _NO_RETRIES
    run = codex.run(f"scenario: {scenario} fault: {fault}")
    assert run.code == 1
    assert run.commands + run.items("file_change") == []
    assert codex.files() == {}
    assert [error for error in run.errors if "codex_core::tools" in error] == []  # not even an attempt to run it
    assert re.search("backend|EngineCore", run.errors[-1])


# Arguments of a function that may be repaired are held until they are whole: its item alone shows that the call has begun.
@pytest.mark.parametrize(
    ("scenario", "length", "repair", "begun"),
    [
        ("agent", 60, "off", "arguments.delta"),
        ("agent", 75, "off", "arguments.delta"),
        ("agent", 60, "safe", "output_item.added"),
        ("agent", 75, "safe", "output_item.added"),
        ("patch", 45, "safe", "input.delta"),
        ("patch", 60, "safe", "input.delta"),
    ],
)
def test_a_call_cut_at_the_token_limit_is_not_run(
    tmp_path: Path, start_stage: StartStage, scenario: str, length: int, repair: str, begun: str
) -> None:
    stage = start_stage(repair_calls=repair)
    codex = Codex(tmp_path, stage.url)
    codex.use_catalog(apply_patch_tool_type="freeform")
    run = codex.run(f"scenario: {scenario} fault: length={length}")
    events = [event for event in stage.exchanges[0].events if event["type"].endswith(begun)]
    assert any(event.get("item", {"type": "function_call"})["type"] == "function_call" for event in events)
    assert run.commands + run.items("file_change") == []
    assert codex.files() == {}
    assert run.code == 1
    assert set(run.errors) == {_LIMIT}  # not even an attempt to run it
    assert len(stage.chats) == 1


def test_a_call_that_the_model_never_finished_is_not_run_and_the_model_is_told(codex: Codex, stage: Stage) -> None:
    run = codex.run("scenario: broken_arguments")
    assert (run.code, run.commands) == (0, [])
    assert len(stage.chats) == 2
    assert "failed to parse" in str(stage.chats[-1]["messages"][-1])


def test_text_cut_at_the_token_limit_is_shown(codex: Codex) -> None:
    run = codex.run("scenario: long fault: length=10")
    assert len(run.answers[0].split()) == 10
    assert set(run.errors) == {_LIMIT}


def test_a_content_filter_is_answered_with_guidance(codex: Codex, stage: Stage) -> None:
    run = codex.run("scenario: plain fault: filter,once")
    assert run.code == 0
    assert "content_filter_guidance" in str(stage.chats[-1]["messages"][-1])


def test_a_backend_that_is_down(tmp_path: Path, start_stage: StartStage) -> None:
    with socket.socket() as closed:
        closed.bind(("127.0.0.1", 0))  # bound but not listening: connections are refused
        stage = start_stage(backends=[f"http://127.0.0.1:{closed.getsockname()[1]}"])
        codex = Codex(tmp_path, stage.url)
        codex.provider |= _NO_RETRIES
        run = codex.run("scenario: plain")
    assert run.code == 1
    assert "unexpected status 502 Bad Gateway" in run.errors[-1]
    assert "The backend" in run.errors[-1]
    assert "request id: req_" in run.errors[-1]


@pytest.mark.parametrize("fault", ["status=429,retry-after=1", "status=429"])
def test_too_many_requests_are_waited_out(codex: Codex, fault: str) -> None:
    run = codex.run(f"scenario: plain fault: {fault},once")
    assert run.code == 0
    assert len(run.answers) == 1
    assert any("429 Too Many Requests" in error for error in run.errors)


def test_a_used_quota_is_told_once(tmp_path: Path, start_stage: StartStage) -> None:
    stage = start_stage(api_keys={"alice": {"hash": hash_of("sk-of-the-client"), "tokens_per_day": 1}})
    codex = Codex(tmp_path, stage.url)
    assert codex.run("scenario: plain").code == 0
    run = codex.run("scenario: plain")
    assert run.code == 1
    assert "Quota exceeded" in run.errors[-1]
    assert len(stage.chats) == 1
    assert [exchange.status for exchange in stage.exchanges if exchange.path.endswith("/responses")] == [200, 429]


def test_what_the_backend_does_not_accept_is_told_at_once(codex: Codex, stage: Stage) -> None:
    run = codex.run("scenario: plain fault: status=400")
    assert run.code == 1
    assert run.errors[-1] == "The request is invalid."
    assert len(stage.chats) == 1


def test_a_model_that_the_backend_does_not_have(tmp_path: Path, start_stage: StartStage) -> None:
    stage = start_stage(SimulatorOptions(models=("other",), strict_models=True))
    run = Codex(tmp_path, stage.url).run("scenario: plain")
    assert run.code == 1
    assert run.errors[-1].startswith("The model `qwen3` does not exist.")
    assert len(stage.chats) == 1
