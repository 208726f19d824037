"""Claude Code under test: a private home, a private workspace, and what a run of it printed."""

from __future__ import annotations

import json
import os
import signal
import subprocess
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tests.codex.terminal import Terminal, in_terminal
from tests.waiting import PATIENCE

BINARY = Path(__file__).parents[2] / ".cache" / "claude" / "node_modules" / ".bin" / "claude"
# A port that nobody listens on: what would leave the machine fails at once.
_NOWHERE = "http://127.0.0.1:9"
# It asks for no permission.
_UNASKED = ("--dangerously-skip-permissions",)
# The one warning that cannot be avoided: the name of the model is not one of Anthropic's.
_UNKNOWN_MODEL = "[claude-code:unrecognized_model]"


@dataclass(frozen=True)
class ClaudeRun:
    """One `claude -p`: its exit code, the events of `stream-json`, and the lines of stderr."""

    code: int
    events: list[dict[str, Any]]
    stderr: list[str]

    @property
    def result(self) -> str:
        """The text that the user gets."""
        return str(self.events[-1]["result"])

    @property
    def tools(self) -> list[str]:
        """The names of the tools that were called, in order."""
        return [block["name"] for block in self._blocks("assistant") if block["type"] == "tool_use"]

    @property
    def failed_tools(self) -> list[str]:
        """The texts of the results that are errors."""
        results = [block for block in self._blocks("user") if block["type"] == "tool_result"]
        return [str(block["content"]) for block in results if block.get("is_error")]

    @property
    def complaints(self) -> list[str]:
        """What the user saw beside the answer."""
        lines = [line for line in self.stderr if line and not line.startswith(_UNKNOWN_MODEL)]
        return lines + [event["subtype"] for event in self.events if event["type"] == "result" and event["is_error"]]

    def _blocks(self, kind: str) -> list[dict[str, Any]]:
        contents = [event["message"]["content"] for event in self.events if event["type"] == kind]
        return [block for content in contents if isinstance(content, list) for block in content]


class ClaudeCode:
    """Runs it against the gateway at `url`, with the environment that users are told to set."""

    def __init__(self, folder: Path, url: str) -> None:
        self.home = folder / "home"
        self.workspace = folder / "workspace"
        for path in (self.home, self.workspace):
            path.mkdir(parents=True)
        self.environment = {
            "PATH": os.environ["PATH"],
            "HOME": str(self.home),
            "TMPDIR": str(self.home),
            "IS_SANDBOX": "1",  # it refuses to run without questions as root elsewhere
            "ANTHROPIC_BASE_URL": url.removesuffix("/v1"),
            "ANTHROPIC_AUTH_TOKEN": "sk-of-the-client",
            "ANTHROPIC_MODEL": "qwen3",
            "CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC": "1",
            "CLAUDE_CODE_MAX_CONTEXT_TOKENS": "131072",
            "HTTPS_PROXY": _NOWHERE,
            "HTTP_PROXY": _NOWHERE,
            "NO_PROXY": "127.0.0.1",
            "LANG": "C.UTF-8",
        }

    def run(self, prompt: str, *arguments: str) -> ClaudeRun:
        """Run `claude -p PROMPT ARGUMENTS…` to its end. Raises `subprocess.TimeoutExpired` if it does not end."""
        command = [str(BINARY), "-p", prompt, "--output-format", "stream-json", "--verbose", "--dangerously-skip-permissions"]
        with subprocess.Popen(
            [*command, *arguments], cwd=self.workspace, env=self.environment, text=True, start_new_session=True,
            stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
        ) as process:  # fmt: skip
            try:
                output, errors = process.communicate(timeout=2 * PATIENCE)
            except subprocess.TimeoutExpired:
                os.killpg(process.pid, signal.SIGKILL)
                raise
        events = [json.loads(line) for line in output.splitlines() if line.startswith("{")]
        return ClaudeRun(process.returncode, events, errors.splitlines())

    @contextmanager
    def terminal(self, mode: Sequence[str] = _UNASKED, shown: str = "bypass permissions on") -> Iterator[Terminal]:
        """Run it in a terminal while the block runs, as one who has answered what it asks at its first start. `mode` are the
        arguments for its permission mode, as which it shows `shown`."""
        self.answer_first_questions(self.home)
        with in_terminal([str(BINARY), *mode], self.workspace, self.environment) as terminal:
            terminal.wait_for(shown)
            yield terminal

    def answer_first_questions(self, home: Path) -> None:
        """Write what Claude Code keeps of the answers that its user gives at the first start."""
        answered = {"hasCompletedOnboarding": True, "theme": "dark", "bypassPermissionsModeAccepted": True}
        trusted = {"projects": {str(self.workspace): {"hasTrustDialogAccepted": True}}}
        (home / ".claude.json").write_text(json.dumps({**answered, **trusted}))
