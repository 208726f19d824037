"""docs/tutorial.md as a reader types it: in two terminals, each block in the one that it names, from the first command to the
last.

Only what lies outside is replaced: the GPU server is a simulated one, what comes from a package index is here already
(`tests/test_installation.py` installs the wheel), ports are free ones, and Docker Compose, which needs a daemon, resolves the
services that it would start."""

from __future__ import annotations

import json
import os
import re
import shlex
import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any, NamedTuple

import pytest
import yaml

from tests.claude.claude_code import BINARY as CLAUDE
from tests.codex.codex_cli import BINARY as CODEX
from tests.deploy.checking_programs import compose_command
from tests.ports import free_port
from tests.shell_terminal import ShellTerminal

ROOT = Path(__file__).parents[1]
PAGE = (ROOT / "docs" / "tutorial.md").read_text(encoding="utf-8")


class Block(NamedTuple):
    """Commands, and the terminal in which the page has them typed."""

    terminal: str
    commands: str


BLOCKS = [Block(*found) for found in re.findall(r"^\*\*(\w+) terminal\*\*\n\n```sh\n(.*?)^```", PAGE, re.MULTILINE | re.DOTALL)]
# The programs of the page by their names, on the path of both terminals. What has a port gets one that is free.
PROGRAMS = {
    "responses-gateway": """
case "$1 $*" in
    serve*--check*) ;;
    serve*) set -- "$@" --port "$PORT" ;;
    codex*--url*|claude*--url*) ;;
    codex*|claude*) program=$1; shift; set -- "$program" --url "http://127.0.0.1:$PORT" "$@" ;;
esac
case "$1" in codex) [ -x "$CODEX" ] || exit 0 ;; claude) [ -x "$CLAUDE" ] || exit 0 ;; esac
PYTHONPATH="$SOURCES" exec "$PYTHON" -m responses_gateway "$@"
""",
    "uv": '[ "$*" = "tool install ." ]',
    "npm": '[ "$*" = "install -g @openai/codex @anthropic-ai/claude-code" ]',
    "docker": """
shift
profiles=
while [ "$1" = --profile ]; do profiles="$profiles $1 $2"; shift 2; done
[ -z "$COMPOSE" ] || $COMPOSE $profiles config
""",
}


def install_programs(folder: Path) -> None:
    folder.mkdir()
    for name, script in PROGRAMS.items():
        program = folder / name
        program.write_text(f"#!/bin/sh\n{script}", encoding="utf-8")
        program.chmod(0o755)


@contextmanager
def simulated_server(folder: Path, port: int) -> Iterator[None]:
    """Run the model server of the page while the block runs."""
    command = [sys.executable, "-m", "responses_gateway", "simulate", "--port", str(port), "--model", "qwen3"]
    environment = {**os.environ, "PYTHONPATH": str(ROOT / "proxy")}
    with (folder / "simulator.log").open("wb") as log:
        process = subprocess.Popen(command, env=environment, stdout=log, stderr=log)
        try:
            yield
        finally:
            process.terminate()
            process.wait()


class Reader:
    """A person at two terminals with the page."""

    def __init__(self, folder: Path, port: int, backend_port: int, compose: str) -> None:
        self.checkout = folder / "checkout"
        self.checkout.mkdir()
        (self.checkout / "docker-compose.yml").write_bytes((ROOT / "docker-compose.yml").read_bytes())
        install_programs(folder / "programs")
        self.home = folder / "home"
        self.home.mkdir()
        self._port = port
        self._backend_port = backend_port
        clients = [str(program.parent) for program in (CODEX, CLAUDE)]
        self._environment = {
            "PATH": os.pathsep.join([str(folder / "programs"), *clients, os.environ["PATH"]]),
            "HOME": str(self.home),
            "LANG": "C.UTF-8",
            "PORT": str(port),
            "SOURCES": str(ROOT / "proxy"),
            "PYTHON": sys.executable,
            "CODEX": str(CODEX),
            "CLAUDE": str(CLAUDE),
            "COMPOSE": compose,
        }

    def read(self) -> list[str]:
        """Type the blocks of the page, one after the other. Return what each of them printed."""
        said: list[str] = []
        with ExitStack() as stack:
            terminals: dict[str, ShellTerminal] = {}
            for terminal, commands in BLOCKS:
                if terminal not in terminals:
                    terminals[terminal] = stack.enter_context(ShellTerminal(self.checkout, self._environment))
                said.append(self._type(terminals[terminal], commands))
        return said

    def _type(self, terminal: ShellTerminal, commands: str) -> str:
        if terminal.runs:  # only the gateway does, which the page has stopped with Ctrl-C before the next command there
            terminal.interrupt()
        commands = commands.replace("http://gpu-server:8000", f"http://127.0.0.1:{self._backend_port}")
        commands = commands.replace("http://127.0.0.1:9000", f"http://127.0.0.1:{self._port}")
        said = ""
        for line in commands.splitlines():
            if line.startswith("responses-gateway serve") and "--check" not in line:
                said += terminal.start(line, "The gateway is ready at")
            else:
                said += terminal.type(line)
        return said


def said_by(said: list[str], command: str) -> str:
    """Return what the one block printed that has this command."""
    (text,) = (text for block, text in zip(BLOCKS, said, strict=True) if command in block.commands)
    return text


def installed_compose() -> str:
    """Return the command of Docker Compose, empty where there is none."""
    try:
        return shlex.join(compose_command())
    except pytest.skip.Exception:
        return ""


def test_each_block_names_its_terminal() -> None:
    assert len(BLOCKS) == len(re.findall(r"^```", PAGE, re.MULTILINE)) / 2
    assert {block.terminal for block in BLOCKS} == {"First", "Second"}


def test_every_command_does_what_the_page_says(tmp_path: Path, subtests: pytest.Subtests) -> None:
    compose = installed_compose()
    backend_port = free_port()
    reader = Reader(tmp_path, free_port(), backend_port, compose)
    with simulated_server(tmp_path, backend_port):
        said = reader.read()

    assert "invariants: ok" in said_by(said, "demo")
    assert re.search(r"^model +qwen3\b", said_by(said, "doctor"), re.MULTILINE)
    events = re.findall(r"^event: (\S+)$", said_by(said, "Why is the sky blue?"), re.MULTILINE)
    assert events.index("response.completed") == len(events) - 1

    key = re.search(r"^API_KEYS=alice=(\w{64})$", (reader.checkout / ".env").read_text(encoding="utf-8"), re.MULTILINE)
    assert key
    settings = (reader.home / "gateway" / "gateway.yaml").read_text(encoding="utf-8")
    assert key[1] not in settings
    assert sorted(yaml.safe_load(settings)["api_keys"]) == ["alice", "bob"]
    assert "The settings can be used." in said_by(said, "--check")
    refused, answered = re.findall(r"^\{.*\}", said_by(said, "authorization: Bearer"), re.MULTILINE)
    assert json.loads(refused)["error"]["code"] == "invalid_api_key"
    assert [model["id"] for model in json.loads(answered)["data"]] == ["qwen3"]

    with subtests.test("Codex"):
        if not CODEX.exists():
            pytest.skip("the Codex CLI is not installed: run scripts/install-codex")
        assert "simulated model" in said_by(said, "npm install")
        assert "simulated model" in said_by(said, "--env-key RESPONSES_GATEWAY_KEY exec")
    with subtests.test("Claude Code"):
        if not CLAUDE.exists():
            pytest.skip("Claude Code is not installed: run scripts/install-claude")
        for block in ("npm install", "--env-key RESPONSES_GATEWAY_KEY exec"):
            assert said_by(said, block).count("simulated model") >= 1 + CODEX.exists()
    with subtests.test("Compose"):
        if not compose:
            pytest.skip("no docker-compose here: scripts/install-servers installs it")
        observed = services(said_by(said, "--profile observe up"))
        assert observed["gateway"]["environment"]["RESPONSES_GATEWAY_API_KEYS"] == f"alice={key[1]}"
        replicated = services(said_by(said, "up --detach balancer"))
        assert replicated["replica"]["environment"]["RESPONSES_GATEWAY_API_KEYS"] == f"alice={key[1]}"
        assert replicated["replica"]["deploy"]["replicas"] == 2


def services(said: str) -> dict[str, Any]:
    """Return the services that Compose has resolved."""
    resolved, _ = said[said.index("\nservices:") :].rsplit("\n", 1)
    found: dict[str, Any] = yaml.safe_load(resolved)["services"]
    return found


def test_the_ports_of_the_page_are_those_of_compose() -> None:
    text = (ROOT / "docker-compose.yml").read_text(encoding="utf-8")
    published = set(re.findall(r'"(?:127\.0\.0\.1|\$\{ADDRESS:-127\.0\.0\.1\}):\$\{\w+:-(\d+)\}', text))
    assert set(re.findall(r"http://127\.0\.0\.1:(\d+)", PAGE)) - {"8000"} == published
