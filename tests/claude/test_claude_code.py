"""What a user of Claude Code sees: it works in several steps, and nothing half-done is ever run."""

from __future__ import annotations

from responses_gateway.cli import main
from responses_gateway.commands.claude_config import PROFILE
from tests.claude.claude_code import ClaudeCode
from tests.codex.servers import GREETING, Stage

TASK = "scenario: agent. Write a program that greets the world."


def test_it_writes_reads_edits_and_runs_a_file_and_goes_on_in_the_same_conversation(claude: ClaudeCode, stage: Stage) -> None:
    run = claude.run(TASK)
    assert (run.code, run.complaints, run.failed_tools) == (0, [], [])
    assert run.tools == ["Write", "Read", "Edit", "Bash"]
    assert (claude.workspace / "greeting.py").read_text() == GREETING
    assert "Hello, world!" in run.result
    assert len(stage.chats) == 5

    again = claude.run("scenario: plain. And now?", "--continue")
    assert (again.code, again.complaints) == (0, [])
    assert "A plain answer" in again.result
    calls = [call["id"] for message in stage.chats[-1]["messages"] for call in message.get("tool_calls") or ()]
    assert len(calls) == len(set(calls)) == 4


def test_half_a_call_is_never_run_where_the_backend_breaks_off(claude: ClaudeCode, stage: Stage) -> None:
    run = claude.run(f"{TASK} fault: drop=call,once,step=0")
    assert (run.code, run.complaints, run.failed_tools) == (0, [], [])
    assert run.tools == ["Write", "Read", "Edit", "Bash"]
    assert (claude.workspace / "greeting.py").read_text() == GREETING
    broken = [exchange for exchange in stage.exchanges if b"event: error" in exchange.body]
    assert len(broken) == 1
    assert b"event: message_stop" not in broken[0].body


def test_an_answer_that_was_cut_at_its_limit_is_gone_on_with(claude: ClaudeCode, stage: Stage) -> None:
    run = claude.run("scenario: plain. Tell a story. fault: length=3,once")
    assert (run.code, run.complaints) == (0, [])
    assert "Output token limit hit" in str(stage.chats[-1]["messages"])


def test_a_busy_backend_is_asked_again(claude: ClaudeCode) -> None:
    run = claude.run("scenario: plain. Hello. fault: status=503,times=4")
    assert (run.code, run.complaints) == (0, [])
    assert "A plain answer" in run.result


def test_a_file_of_settings_uses_the_gateway_and_all_other_sessions_stay_as_they_are(claude: ClaudeCode, stage: Stage) -> None:
    home = claude.home / ".claude"
    url = claude.environment.pop("ANTHROPIC_BASE_URL")
    for name in ("ANTHROPIC_AUTH_TOKEN", "ANTHROPIC_MODEL"):
        claude.environment.pop(name)
    write = ["claude-config", "--url", f"{url}/v1", "--claude-home", str(home)]
    assert main([*write, "--write"]) == 0
    run = claude.run("scenario: plain. Hello.", "--settings", str(home / PROFILE))
    assert (run.code, run.complaints) == (0, [])
    assert "A plain answer" in run.result
    assert not (home / "settings.json").exists()
    assert main([*write, "--restore"]) == 0
    assert not (home / PROFILE).exists()
