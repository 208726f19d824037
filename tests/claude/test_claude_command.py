"""`responses-gateway claude` with the real program."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

from tests.claude.claude_code import BINARY, ClaudeCode
from tests.waiting import PATIENCE

ROOT = Path(__file__).parents[2]


def test_one_command_answers(tmp_path: Path) -> None:
    """A settings file of the user that leads elsewhere makes no difference."""
    environment = {**ClaudeCode(tmp_path, "http://127.0.0.1:9").environment, "PYTHONPATH": str(ROOT / "proxy")}
    environment["PATH"] = f"{BINARY.parent}:{environment['PATH']}"
    workspace = tmp_path / "workspace"
    (workspace / ".claude").mkdir()
    elsewhere = {"ANTHROPIC_BASE_URL": "http://127.0.0.1:9", "ANTHROPIC_AUTH_TOKEN": "theirs", "ANTHROPIC_API_KEY": "theirs"}
    settings = {"apiKeyHelper": "false", "env": elsewhere}
    (workspace / ".claude" / "settings.json").write_text(json.dumps(settings))
    done = subprocess.run(
        [sys.executable, "-m", "responses_gateway", "claude", "--simulator", "--claude-home", "../claude", "-p", "hello"],
        cwd=workspace,
        env=environment,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=2 * PATIENCE,
        check=False,
    )
    complaints = [line for line in done.stderr.splitlines() if not line.startswith("[claude-code:unrecognized_model]")]
    assert (done.returncode, complaints) == (0, [])
    assert "You said “hello" in done.stdout
    assert (tmp_path / "claude" / "projects").is_dir()
