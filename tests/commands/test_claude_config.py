"""`responses-gateway claude-config`: what it prints, and what becomes of the settings of Claude Code."""

from __future__ import annotations

import json
import re
import subprocess
from collections.abc import Iterator
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any

import pytest

from responses_gateway.cli import main
from responses_gateway.commands.claude_config import environment, warn, with_key
from responses_gateway.commands.gateway_offer import Offer
from responses_gateway.simulator import SimulatorOptions
from tests.codex.servers import Background, open_stage

ROOT = Path(__file__).parents[2]
NOWHERE = "http://127.0.0.1:9"
WRITE = ["claude-config", "--url", NOWHERE, "--model", "m", "--write", "--default"]


@pytest.fixture(autouse=True)
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("CLAUDE_CONFIG_DIR", str(tmp_path / "claude"))
    (tmp_path / "claude").mkdir()
    return tmp_path / "claude"


@pytest.fixture
def url() -> Iterator[str]:
    """The gateway in front of a server that wants a key and has a model that nobody can talk to."""
    servers = Background()
    stack = AsyncExitStack()
    options = SimulatorOptions(models=("bge-m3", "qwen3"), api_key="right")
    yield servers.run(stack.enter_async_context(open_stage(options, [], {}))).url
    servers.run(stack.aclose())
    servers.stop()


def settings(home: Path) -> dict[str, Any]:
    found: dict[str, Any] = json.loads((home / "settings.json").read_text(encoding="utf-8"))
    return found


def test_what_is_printed_is_for_a_shell(
    url: str, home: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("MY_KEY", "right")
    assert main(["claude-config", "--url", url, "--env-key", "MY_KEY"]) == 0
    printed = capsys.readouterr()
    assert printed.err == ""
    assert "right" not in printed.out
    done = subprocess.run(
        ["sh"], input=printed.out + "\nenv", env={"MY_KEY": "right"}, capture_output=True, text=True, check=True
    )
    read = dict(line.split("=", 1) for line in done.stdout.splitlines())
    assert read["ANTHROPIC_BASE_URL"] == url.removesuffix("/v1")
    assert (read["ANTHROPIC_MODEL"], read["ANTHROPIC_AUTH_TOKEN"]) == ("qwen3", "right")
    assert int(read["CLAUDE_CODE_MAX_CONTEXT_TOKENS"]) > 0
    assert list(home.iterdir()) == []


@pytest.mark.parametrize(("window", "output"), [(1_000_000, "32000"), (32_768, "8192"), (2, "1")])
def test_an_answer_is_a_part_of_the_window(window: int, output: str) -> None:
    found = environment("http://g/v1", "m", Offer(("m",), {"m": window}))
    assert (found["CLAUDE_CODE_MAX_CONTEXT_TOKENS"], found["CLAUDE_CODE_MAX_OUTPUT_TOKENS"]) == (str(window), output)


@pytest.mark.parametrize(
    ("argv", "status", "said"),
    [
        (["--url", NOWHERE], 1, f"no gateway answers at {NOWHERE}/v1: start one"),
        (["--url", "127.0.0.1:9000"], 2, "--url: "),
        (["--model", "m", "--env-key", "NOT_SET_ANYWHERE"], 1, "--env-key: the variable NOT_SET_ANYWHERE is not set"),
        (["--env-key", "$(rm x)"], 2, "--env-key: expected the name of an environment variable"),
        (["--model", "m"], 0, "warning: Claude Code will assume a context window of a million tokens, because"),
    ],
)
def test_what_cannot_be_is_said(argv: list[str], status: int, said: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["claude-config", "--url", NOWHERE, *argv]) == status
    assert capsys.readouterr().err.startswith(f"responses-gateway: {said}")


def test_what_was_there_stays_and_a_second_time_changes_nothing(home: Path, capsys: pytest.CaptureFixture[str]) -> None:
    before = {"theme": "dark", "env": {"EDITOR": "vi", "ANTHROPIC_AUTH_TOKEN": "of another server"}, "model": "opus"}
    file = home / "settings.json"
    file.write_text(json.dumps(before), encoding="utf-8")
    assert main(WRITE) == 0
    assert capsys.readouterr().out == f"Wrote {file}; the previous file is {file}.bak.\n"
    after = settings(home)
    assert after == {**before, "env": {"EDITOR": "vi", **with_key(environment(NOWHERE, "m", Offer()), None)}}
    assert json.loads((home / "settings.json.bak").read_text(encoding="utf-8")) == before
    assert main(WRITE) == 0
    assert capsys.readouterr().out == f"{file} is up to date.\n"
    assert len(list(home.iterdir())) == 2


def test_a_key_is_read_when_claude_code_starts_and_stays(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MY_KEY", "secret")
    assert main(WRITE) == 0
    assert main([*WRITE, "--env-key", "MY_KEY"]) == 0
    with_helper = settings(home)
    assert with_helper["apiKeyHelper"] == "printenv MY_KEY"
    assert "ANTHROPIC_AUTH_TOKEN" not in with_helper["env"]
    assert main(WRITE) == 0
    assert settings(home) == with_helper
    assert "secret" not in str([path.read_text(encoding="utf-8") for path in home.iterdir()])


def test_credentials_of_another_server_are_said(home: Path, capsys: pytest.CaptureFixture[str]) -> None:
    before = {"apiKeyHelper": "get-key", "env": {"ANTHROPIC_API_KEY": "sk-ant", "CLAUDE_CODE_USE_BEDROCK": ""}}
    (home / "settings.json").write_text(json.dumps(before), encoding="utf-8")
    assert main(WRITE) == 0
    assert "Note: ANTHROPIC_API_KEY, apiKeyHelper in this file is for another server" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ('{"env": {}, // mine\n}', "is not valid JSON, so nothing was changed: Expecting"),
        ("[]", "is not a JSON object"),
        ('{"env": "x"}', "`env` in"),
        ("[" * 100_000, "is not valid JSON"),
        ("\xff", "settings.json: 'utf-8' codec"),
    ],
)
def test_a_file_that_cannot_be_used_is_left_alone(text: str, said: str, home: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (home / "settings.json").write_text(text, encoding="latin-1")
    assert main(WRITE) == 1
    assert said in capsys.readouterr().err
    assert (home / "settings.json").read_text(encoding="latin-1") == text
    assert len(list(home.iterdir())) == 1


def test_the_guide_shows_what_the_command_gives() -> None:
    guide = (ROOT / "docs" / "claude-code.md").read_text(encoding="utf-8")
    shown = dict(re.findall(r"^export (\w+)=(\S+)", guide, re.MULTILINE))
    offer = Offer(("qwen3",), {"qwen3": 131072})
    assert shown == with_key(environment("http://gateway:9000/v1", "qwen3", offer), None)


@pytest.mark.parametrize(("window", "warned"), [(8192, True), (131072, False)])
def test_a_context_that_is_too_small_is_told_before_the_start(
    window: int, warned: bool, capsys: pytest.CaptureFixture[str]
) -> None:
    warn("qwen3", Offer(("qwen3",), {"qwen3": window}))
    assert (f"has {window:,} tokens, of which Claude Code's first request" in capsys.readouterr().err) is warned
