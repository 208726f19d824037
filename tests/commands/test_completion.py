"""`responses-gateway completion`: what a real shell completes with its script."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest

from responses_gateway.cli import COMMANDS, main
from tests.waiting import PATIENCE

# Completes the last of the words that are given, as bash does when somebody presses Tab behind it.
COMPLETE = """
source "$1"
shift
COMP_WORDS=("$@")
COMP_CWORD=$(($# - 1))
COMP_LINE="$*"
COMP_POINT=${#COMP_LINE}
function=$(complete -p responses-gateway | sed 's/.*-F \\([^ ]*\\) .*/\\1/')
"$function" responses-gateway "${COMP_WORDS[COMP_CWORD]}" "${COMP_WORDS[COMP_CWORD - 1]}"
printf '%s\\n' "${COMPREPLY[@]}"
"""


@pytest.fixture
def scripts(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> Path:
    """A folder with the script of each shell."""
    for shell in ("bash", "zsh", "fish"):
        assert main(["completion", shell]) == 0
        (tmp_path / shell).write_text(capsys.readouterr().out, encoding="utf-8")
    return tmp_path


def completed(scripts: Path, *words: str) -> set[str]:
    """Return what bash offers for the last of these words."""
    command = ["bash", "-c", COMPLETE, "bash", str(scripts / "bash"), "responses-gateway", *words]
    done = subprocess.run(command, cwd=scripts, capture_output=True, text=True, check=True, timeout=PATIENCE)
    assert done.stderr == ""
    return {line.strip() for line in done.stdout.splitlines()} - {""}


def test_bash_completes_commands(scripts: Path) -> None:
    assert set(COMMANDS) <= completed(scripts, "")
    assert completed(scripts, "re") == {"reload", "replay"}


def test_bash_completes_options_and_their_values(scripts: Path) -> None:
    assert completed(scripts, "serve", "--tool-call-p") == {"--tool-call-parser"}
    assert completed(scripts, "stop", "--") == {"--help", "--now", "--pid", "--port"}
    assert completed(scripts, "key", "") >= {"new", "hash", "add"}
    assert completed(scripts, "completion", "z") == {"zsh"}
    assert completed(scripts, "codex", "--simul") == {"--simulator"}


def test_bash_completes_files(scripts: Path) -> None:
    (scripts / "gateway.yaml").touch()
    assert completed(scripts, "serve", "--config", "gate") == {"gateway.yaml"}


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_each_script_can_be_read_by_its_shell_and_names_all_commands(scripts: Path, shell: str) -> None:
    script = scripts / shell
    text = script.read_text(encoding="utf-8")
    assert [name for name in COMMANDS if name not in text] == []
    if shutil.which(shell):
        subprocess.run([shell, "-n", script], check=True, timeout=PATIENCE)


def test_a_shell_that_is_not_known_is_wrong_usage(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["completion", "tcsh"]) == 2
    assert "choose from bash, zsh, fish" in capsys.readouterr().err.replace("'", "")
