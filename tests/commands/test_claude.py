"""What `responses-gateway claude` starts Claude Code with. The gateway that it starts is that of `responses-gateway codex`."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from responses_gateway.commands.claude import split_arguments
from tests.ports import free_port

ROOT = Path(__file__).parents[2]
# Writes down with what it was started and what the gateway answers.
CLAUDE = f"""#!{sys.executable}
import json, os, sys, urllib.request
from pathlib import Path
with urllib.request.urlopen(os.environ["ANTHROPIC_BASE_URL"] + "/v1/models") as answer:
    status = answer.status
Path(os.environ["SAID"]).write_text(json.dumps([status, sys.argv[1:], dict(os.environ)]))
sys.exit(7)
"""
OF_THE_USER = {
    "ANTHROPIC_API_KEY": "sk-ant-of-the-user",
    "ANTHROPIC_BASE_URL": "https://elsewhere.invalid",
    "CLAUDE_CODE_USE_BEDROCK": "1",
    "CLAUDE_CODE_USE_VERTEX": "1",
    "XDG_STATE_HOME": "state",
}


def claude(folder: Path, *arguments: str, **variables: str) -> subprocess.CompletedProcess[str]:
    """Run `responses-gateway claude` with a program in Claude Code's place, which writes to `said`."""
    (folder / "claude").write_text(CLAUDE, encoding="utf-8")
    (folder / "claude").chmod(0o755)
    environment = {**os.environ, **OF_THE_USER, "SAID": str(folder / "said"), **variables}
    environment["PATH"] = os.pathsep.join([str(folder), os.environ["PATH"]])
    return subprocess.run(
        [sys.executable, "-m", "responses_gateway", "claude", *arguments],
        cwd=folder,
        env={**environment, "PYTHONPATH": str(ROOT / "proxy")},
        capture_output=True,
        text=True,
        check=False,
        timeout=120,
    )


def test_it_gets_a_gateway_of_its_own_and_nothing_that_leads_elsewhere(tmp_path: Path) -> None:
    nobody = f"http://127.0.0.1:{free_port()}"
    done = claude(tmp_path, "--simulator", "--url", nobody, "--claude-home", "home", "-p", "hello", "--model", "theirs")
    assert (done.returncode, done.stderr) == (7, "")
    status, arguments, environment = json.loads((tmp_path / "said").read_text(encoding="utf-8"))
    assert status == 200
    flag, pinned, *passed_on = arguments
    assert (flag, passed_on) == ("--settings", ["--permission-mode", "default", "-p", "hello", "--model", "theirs"])
    assert "safeguards_model" in json.loads(pinned)["companyAnnouncements"][0]
    assert environment["CLAUDE_CONFIG_DIR"] == str(tmp_path / "home")
    assert environment["ANTHROPIC_MODEL"] == environment["ANTHROPIC_DEFAULT_HAIKU_MODEL"] == "simulator"
    assert environment["ANTHROPIC_AUTH_TOKEN"] == "none"
    assert int(environment["CLAUDE_CODE_MAX_CONTEXT_TOKENS"]) >= 4 * int(environment["CLAUDE_CODE_MAX_OUTPUT_TOKENS"]) > 0
    assert not environment.keys() & {"ANTHROPIC_API_KEY", "CLAUDE_CODE_USE_BEDROCK", "CLAUDE_CODE_USE_VERTEX"}
    settings = json.loads(pinned)["env"]
    assert json.loads(pinned)["apiKeyHelper"] == ""
    assert {name: settings[name] for name in settings if settings[name]} == {
        name: environment[name] for name in settings if settings[name]
    }
    assert settings["ANTHROPIC_API_KEY"] == settings["CLAUDE_CODE_USE_BEDROCK"] == ""
    log = (tmp_path / "home" / "gateway.log").read_text(encoding="utf-8")
    assert "stopped" in log


@pytest.mark.parametrize(
    "mode", [["--permission-mode", "plan"], ["--permission-mode=auto"], ["--dangerously-skip-permissions"]]
)
def test_a_permission_mode_that_the_user_chooses_stays(tmp_path: Path, mode: list[str]) -> None:
    done = claude(tmp_path, "--simulator", *mode)
    assert (done.returncode, done.stderr) == (7, "")
    _, arguments, _ = json.loads((tmp_path / "said").read_text(encoding="utf-8"))
    assert arguments[2:] == mode
    assert "companyAnnouncements" not in arguments[1]


def test_where_calls_are_judged_it_keeps_its_own_mode(tmp_path: Path) -> None:
    done = claude(tmp_path, "--simulator", "--claude-home", "home", RESPONSES_GATEWAY_SAFEGUARDS_MODEL="simulator")
    assert (done.returncode, done.stderr) == (7, "")
    _, arguments, _ = json.loads((tmp_path / "said").read_text(encoding="utf-8"))
    assert len(arguments) == 2
    assert "companyAnnouncements" not in arguments[1]


def test_a_model_that_is_not_served_is_refused_before_the_start(tmp_path: Path) -> None:
    nobody = f"http://127.0.0.1:{free_port()}"
    done = claude(tmp_path, "--simulator", "--url", nobody, "--claude-home", "home", "--model", "nope")
    assert done.returncode == 1
    assert "--model: nope is not served; choose one of: simulator" in done.stderr
    assert not (tmp_path / "said").exists()


def test_a_key_is_not_on_the_command_line(tmp_path: Path) -> None:
    done = claude(tmp_path, "--simulator", "--env-key", "MY_KEY", MY_KEY="sk-secret")
    assert (done.returncode, done.stderr) == (7, "")
    _, arguments, environment = json.loads((tmp_path / "said").read_text(encoding="utf-8"))
    assert environment["ANTHROPIC_AUTH_TOKEN"] == "sk-secret"
    assert environment["CLAUDE_CONFIG_DIR"] == str(tmp_path / "state" / "responses-gateway" / "claude")
    assert "sk-secret" not in str(arguments)
    settings = json.loads(arguments[1])
    assert settings["env"]["ANTHROPIC_AUTH_TOKEN"] == ""  # else one of the user's settings would go before
    assert environment[settings["apiKeyHelper"].removeprefix("printenv ")] == "sk-secret"


@pytest.mark.parametrize("model", [[], ["--model", "m"]])
def test_a_variable_that_is_not_set_is_named(tmp_path: Path, model: list[str]) -> None:
    done = claude(tmp_path, "--simulator", "--env-key", "NOT_SET_ANYWHERE", *model)
    assert done.returncode == 1
    assert done.stderr.startswith("responses-gateway: --env-key: the variable NOT_SET_ANYWHERE is not set")
    assert not (tmp_path / "said").exists()


def test_what_is_not_ours_goes_to_claude_code() -> None:
    ours = ["--backend", "http://a", "--claude-home=x"]
    assert split_arguments([*ours, "-p", "hi", "--url", "x"]) == (ours, ["-p", "hi", "--url", "x"])


def test_a_home_that_cannot_be_made_is_said(tmp_path: Path) -> None:
    done = claude(tmp_path, "--simulator", "--url", f"http://127.0.0.1:{free_port()}", XDG_STATE_HOME=os.devnull)
    assert done.returncode == 1
    assert done.stderr.startswith("responses-gateway: ")
    assert "/dev/null/responses-gateway" in done.stderr
