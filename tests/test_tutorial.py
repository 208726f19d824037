"""docs/tutorial.md as a reader types it: in two terminals, each block in the one that it names, from the first command to the
last; each shows the output that the page shows.

The GPU server is a simulated one, and ports are free ones. Blocks that the page's source marks as untested are left out: what
they install is here already (`tests/test_installation.py` installs the wheel), and Docker Compose resolves what they start."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
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
    """Commands, the terminal in which the page has them typed, the output that it shows, and why a test does not type them."""

    untested: str
    terminal: str
    commands: str
    shown: str


_MARKED = re.compile(
    r"^(?:<!-- untested: ([^\n]+) -->\n)?\*\*(\w+) terminal\*\*\n\n```sh\n(.*?)^```\n(?:\n```text\n(.*?)^```\n)?",
    re.MULTILINE | re.DOTALL,
)
BLOCKS = [Block(*found) for found in _MARKED.findall(PAGE)]
TYPED = [block for block in BLOCKS if not block.untested]
# What a test cannot do, and so the page may leave untested.
_OUTSIDE = {"uv": "installs from a package index", "npm": "installs from a package index", "docker": "starts Docker"}
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

    def __init__(self, folder: Path, port: int, backend_port: int, temporary: str) -> None:
        self.checkout = folder / "checkout"
        self.checkout.mkdir()
        install_programs(folder / "programs")
        self.home = folder / "home"
        self.home.mkdir()
        self._port = port
        self.backend_port = backend_port
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
            "TMPDIR": temporary,  # gateways of other tests are not those of the reader
        }

    def read(self) -> list[str]:
        """Type the blocks of the page, one after the other. Return what each of them printed."""
        said: list[str] = []
        with ExitStack() as stack:
            terminals: dict[str, ShellTerminal] = {}
            for block in TYPED:
                if block.terminal not in terminals:
                    terminals[block.terminal] = stack.enter_context(ShellTerminal(self.checkout, self._environment))
                said.append(self._type(terminals[block.terminal], self.here(block.commands)))
        return said

    def here(self, text: str) -> str:
        """Return a text of the page with the addresses that its servers have here."""
        text = text.replace("http://gpu-server:8000", f"http://127.0.0.1:{self.backend_port}")
        return text.replace("http://127.0.0.1:9000", f"http://127.0.0.1:{self._port}")

    def _type(self, terminal: ShellTerminal, commands: str) -> str:
        if terminal.runs:  # only the gateway does, which the page has stopped with Ctrl-C before the next command there
            terminal.interrupt()
        said = ""
        for line in commands.splitlines():
            if line.startswith("responses-gateway serve") and "--check" not in line:
                said += terminal.start(line, "The gateway is ready at")
            else:
                said += terminal.type(line)
        return said


def said_by(said: list[str], command: str) -> str:
    """Return what the one block printed that has this command."""
    (text,) = (text for block, text in zip(TYPED, said, strict=True) if command in block.commands)
    return text


def pattern(shown: str) -> str:
    """Return the pattern of an output as the page shows it, with an ellipsis for what differs from run to run."""
    return "^" + ".*?".join(map(re.escape, shown.rstrip("\n").split("…")))


@pytest.fixture(scope="module")
def reader(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Reader]:
    with TemporaryDirectory(prefix="reader-") as temporary:  # for the gateway's control socket, whose path must be short
        yield Reader(tmp_path_factory.mktemp("reader"), free_port(), free_port(), temporary)


@pytest.fixture(scope="module")
def said(reader: Reader) -> list[str]:
    with simulated_server(reader.home, reader.backend_port):
        return reader.read()


def test_each_block_names_its_terminal() -> None:
    assert len(BLOCKS) == len(re.findall(r"^```sh$", PAGE, re.MULTILINE))
    assert {block.terminal for block in BLOCKS} == {"First", "Second"}


def test_only_what_lies_outside_is_untested() -> None:
    for block in BLOCKS:
        programs = {line.split()[0] for line in block.commands.splitlines()}
        assert {_OUTSIDE.get(program, "") for program in programs} == {block.untested}
    assert len([block for block in BLOCKS if block.shown]) == len(re.findall(r"^```text$", PAGE, re.MULTILINE))
    assert not any(block.untested and block.shown for block in BLOCKS)


@pytest.mark.parametrize("block", [block for block in TYPED if block.shown], ids=lambda block: block.commands.splitlines()[0])
def test_the_page_shows_what_the_reader_sees(block: Block, reader: Reader, said: list[str]) -> None:
    seen = re.sub(r" +$", "", said[TYPED.index(block)], flags=re.MULTILINE)
    assert re.search(pattern(reader.here(block.shown)), seen, re.MULTILINE | re.DOTALL), seen[-3000:]


def test_every_command_does_what_the_page_says(reader: Reader, said: list[str], subtests: pytest.Subtests) -> None:
    assert "invariants: ok" in said_by(said, "demo")
    assert re.search(r"^model +qwen3\b", said_by(said, "doctor"), re.MULTILINE)
    events = re.findall(r"^event: (\S+)$", said_by(said, "Why is the sky blue?"), re.MULTILINE)
    assert events.index("response.completed") == len(events) - 1

    settings = (reader.home / "gateway" / "gateway.yaml").read_text(encoding="utf-8")
    assert key_of_alice(reader) not in settings
    assert sorted(yaml.safe_load(settings)["api_keys"]) == ["alice", "bob"]
    assert "The settings can be used." in said_by(said, "--check")
    refused, answered = re.findall(r"^\{.*", said_by(said, "authorization: Bearer"), re.MULTILINE)
    assert '"code": "invalid_api_key"' in refused
    assert answered.startswith('{"object":"list","data":[{"id":"qwen3"')
    assert len(answered) < 80, "it is longer than a terminal"

    with subtests.test("Codex"):
        if not CODEX.exists():
            pytest.skip("the Codex CLI is not installed: run scripts/install-codex")
        assert "simulated model" in said_by(said, "git init")
        assert "simulated model" in said_by(said, "--env-key RESPONSES_GATEWAY_KEY exec")
    with subtests.test("Claude Code"):
        if not CLAUDE.exists():
            pytest.skip("Claude Code is not installed: run scripts/install-claude")
        for block in ("git init", "--env-key RESPONSES_GATEWAY_KEY exec"):
            assert said_by(said, block).count("simulated model") >= 1 + CODEX.exists()


def key_of_alice(reader: Reader) -> str:
    """Return the key that the reader has written down for Docker Compose."""
    (key,) = re.findall(r"^API_KEYS=alice=(\w{64})$", (reader.checkout / ".env").read_text(encoding="utf-8"), re.MULTILINE)
    return str(key)


@pytest.mark.usefixtures("said")
def test_compose_resolves_what_the_page_starts(reader: Reader) -> None:
    compose = compose_command()
    (reader.checkout / "docker-compose.yml").write_bytes((ROOT / "docker-compose.yml").read_bytes())
    environment = {"PATH": os.environ["PATH"], "HOME": str(reader.home)}
    keys = f"alice={key_of_alice(reader)}"
    replicas = 0
    for block in BLOCKS:
        if not block.commands.startswith("docker compose "):
            continue
        profiles = re.findall(r"--profile (\w+)", block.commands)
        command = [*compose, *(word for profile in profiles for word in ("--profile", profile)), "config"]
        done = subprocess.run(command, cwd=reader.checkout, env=environment, capture_output=True, text=True, check=True)
        services: dict[str, Any] = yaml.safe_load(done.stdout)["services"]
        started = set(block.commands.split("--detach")[1].split()) or {"gateway", "prometheus", "grafana"}
        assert started <= set(services)
        assert services["gateway"]["environment"]["RESPONSES_GATEWAY_API_KEYS"] == keys
        if "scale" in profiles:
            assert services["replica"]["environment"]["RESPONSES_GATEWAY_API_KEYS"] == keys
            replicas = services["replica"]["deploy"]["replicas"]
    assert replicas == 2


def test_the_ports_of_the_page_are_those_of_compose() -> None:
    text = (ROOT / "docker-compose.yml").read_text(encoding="utf-8")
    published = set(re.findall(r'"(?:127\.0\.0\.1|\$\{ADDRESS:-127\.0\.0\.1\}):\$\{\w+:-(\d+)\}', text))
    assert set(re.findall(r"http://127\.0\.0\.1:(\d+)", PAGE)) - {"8000"} == published
