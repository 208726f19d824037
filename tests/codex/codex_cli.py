"""The Codex CLI under test: a private home, a private workspace, and what a run of it printed."""

from __future__ import annotations

import json
import os
import signal
import subprocess
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tests.waiting import PATIENCE

BINARY = Path(__file__).parents[2] / ".cache" / "codex" / "node_modules" / ".bin" / "codex"
# A port that nobody listens on: what would leave the machine fails at once.
_NOWHERE = "http://127.0.0.1:9"
# The one warning that cannot be avoided without a model catalog.
_METADATA = "Model metadata for"
# Flags with which `exec` works anywhere and asks nothing.
PLAIN = ("--skip-git-repo-check", "--dangerously-bypass-approvals-and-sandbox")
_STDIN = "Reading additional input from stdin..."


@dataclass(frozen=True)
class Run:
    """One `codex exec`: its exit code, the events of `--json`, and the lines of stderr."""

    code: int
    events: list[dict[str, Any]]
    stderr: list[str]

    def items(self, kind: str) -> list[dict[str, Any]]:
        """Return the finished items of a type, in order."""
        found = (event["item"] for event in self.events if event["type"] == "item.completed")
        return [item for item in found if item["type"] == kind]

    @property
    def answers(self) -> list[str]:
        """The messages of the model."""
        return [item["text"] for item in self.items("agent_message")]

    @property
    def commands(self) -> list[dict[str, Any]]:
        """The shell commands that were run."""
        return self.items("command_execution")

    @property
    def usage(self) -> dict[str, int]:
        """Tokens of the whole turn."""
        usage: dict[str, int] = self.events[-1]["usage"]
        return usage

    @property
    def errors(self) -> list[str]:
        """Every complaint that the user saw: error events, failed turns, and what went to stderr."""
        shown = [item["message"] for item in self.items("error")]
        shown += [event["message"] for event in self.events if event["type"] == "error"]
        shown += [event["error"]["message"] for event in self.events if event["type"] == "turn.failed"]
        return [text for text in [*shown, *self.stderr] if not text.startswith(_METADATA)]


class Codex:
    """`top`, `provider` and `tables` are written to `config.toml` before each run; change them at will."""

    def __init__(self, folder: Path, url: str) -> None:
        self.home = folder / "home"
        self.workspace = folder / "workspace"
        self._temporary = folder / "temporary"
        for path in (self.home, self.workspace, self._temporary):
            path.mkdir(parents=True)
        self.top: dict[str, Any] = {
            "model": "qwen3",
            "model_provider": "gateway",
            "model_context_window": 131072,
            "web_search": "disabled",
            "check_for_update_on_startup": False,
        }
        self.provider: dict[str, Any] = {
            "name": "gateway",
            "base_url": url,
            "wire_api": "responses",
            "env_key": "GATEWAY_KEY",
        }
        self.tables: dict[str, dict[str, Any]] = {
            "analytics": {"enabled": False},
            f"projects.{json.dumps(str(self.workspace))}": {"trust_level": "trusted"},
        }

    def use_catalog(self, **fields: Any) -> None:
        """Describe the model in a catalog file, as an operator would: then Codex has nothing to warn about."""
        entry = {
            "slug": self.top["model"],
            "display_name": "Simulated",
            "supported_reasoning_levels": [],
            "shell_type": "unified_exec",
            "visibility": "list",
            "supported_in_api": True,
            "priority": 1,
            "support_verbosity": False,
            "truncation_policy": {"mode": "tokens", "limit": 10000},
            "experimental_supported_tools": [],
            "base_instructions": "You are a coding agent.",
            "context_window": 131072,
            **fields,
        }
        path = self.home / "catalog.json"
        path.write_text(json.dumps({"models": [entry]}))
        self.top["model_catalog_json"] = str(path)
        self.top.pop("model_context_window", None)

    def configure(self) -> None:
        """Write `config.toml`."""
        tables = {"": self.top, **self.tables, "model_providers.gateway": self.provider}
        (self.home / "config.toml").write_text("".join(_table(name, values) for name, values in tables.items()))

    @property
    def environment(self) -> dict[str, str]:
        """Nothing of the surroundings but the search path."""
        return {
            "PATH": os.environ["PATH"],
            "HOME": str(self.home),
            "CODEX_HOME": str(self.home),
            "TMPDIR": str(self._temporary),
            "GATEWAY_KEY": "sk-of-the-client",
            "HTTPS_PROXY": _NOWHERE,
            "HTTP_PROXY": _NOWHERE,
            "NO_PROXY": "127.0.0.1",
            "LANG": "C.UTF-8",
        }

    def run(self, *arguments: str, command: str = "") -> Run:
        """Run `codex exec [COMMAND] ARGUMENTS…` to its end. Raises `subprocess.TimeoutExpired` if it does not end."""
        output, errors, code = self.execute("exec", *command.split(), "--json", *PLAIN, *arguments)
        events = [json.loads(line) for line in output.split("\n") if line.startswith("{")]
        return Run(code, events, [line for line in errors.splitlines() if line and line != _STDIN])

    def execute(self, *arguments: str) -> tuple[str, str, int]:
        """Run `codex ARGUMENTS…`; returns its stdout, stderr and exit code."""
        self.configure()
        with subprocess.Popen(
            [str(BINARY), *arguments],
            cwd=self.workspace,
            env=self.environment,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            start_new_session=True,
        ) as process:
            try:
                output, errors = process.communicate(timeout=PATIENCE)
            except subprocess.TimeoutExpired:
                os.killpg(process.pid, signal.SIGKILL)
                raise
        return output, errors, process.returncode

    def git(self, *arguments: str) -> None:
        """Run `git ARGUMENTS…` in the workspace."""
        author = ["-c", "user.name=Ada", "-c", "user.email=ada@example.com"]
        subprocess.run(["git", *author, *arguments], cwd=self.workspace, env=self.environment, check=True)

    def files(self) -> dict[str, str]:
        """Return the files of the workspace and their contents."""
        paths = (path for path in self.workspace.rglob("*") if path.is_file() and ".git" not in path.parts)
        return {str(path.relative_to(self.workspace)): path.read_text() for path in paths}


def _table(name: str, values: dict[str, Any]) -> str:
    head = f"\n[{name}]\n" if name else ""
    return head + "".join(f"{key} = {json.dumps(value)}\n" for key, value in values.items())  # JSON scalars are TOML
