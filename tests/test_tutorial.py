"""docs/tutorial.md, typed by a reader from its first command to its last, in one shell.

Only what lies outside is replaced: the GPU server is a simulated one, what comes from a package index is here already
(`tests/test_installation.py` installs the wheel), and Docker Compose, which needs a daemon, resolves the services that it would
start."""

from __future__ import annotations

import json
import os
import re
import shlex
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.codex.codex_cli import BINARY as CODEX
from tests.deploy.checking_programs import compose_command
from tests.ports import free_port
from tests.waiting import PATIENCE

ROOT = Path(__file__).parents[1]
PAGE = (ROOT / "docs" / "tutorial.md").read_text(encoding="utf-8")
BLOCKS: list[str] = re.findall(r"^```sh\n(.*?)^```", PAGE, re.MULTILINE | re.DOTALL)
_MARK = "---- the next block of the page ----"
# `responses-gateway serve` has a terminal of its own, in which Ctrl-C is typed before the next one is started.
TERMINALS = r"""
set -euo pipefail
started=()
stop() { for one in "${started[@]}"; do kill -INT "$one"; wait "$one"; done; started=(); }
trap stop EXIT
wait_for() { until curl --silent --fail --output /dev/null "$1"; do kill -0 "$2"; sleep 0.05; done; }

command responses-gateway simulate --port "$BACKEND_PORT" --model qwen3 >simulator.log 2>&1 &
simulator=$!
trap 'stop; kill "$simulator"' EXIT
wait_for "http://127.0.0.1:$BACKEND_PORT/health" "$simulator"

responses-gateway() {
    case "$*" in
        *--check*) command responses-gateway "$@" ;;
        serve*)
            stop
            command responses-gateway "$@" --port "$PORT" >>gateway.log 2>&1 &
            started=($!)
            wait_for "http://127.0.0.1:$PORT/ready" "${started[0]}" ;;
        "codex --url"*) run_codex "${@:2}" ;;
        codex*) run_codex --url "http://127.0.0.1:$PORT" "${@:2}" ;;
        *) command responses-gateway "$@" ;;
    esac
}
run_codex() { [ -z "$CODEX" ] || command responses-gateway codex "$@" </dev/null; }
npm() { [ "$*" = "install -g @openai/codex" ]; }
uv() { [ "$*" = "tool install ." ]; }
docker() {
    shift
    profiles=()
    while [ "$1" = --profile ]; do profiles+=("$1" "$2"); shift 2; done
    [ -z "$COMPOSE" ] || command $COMPOSE "${profiles[@]}" config
}
"""


@pytest.fixture
def checkout(tmp_path: Path) -> Path:
    """Return a folder with what the page needs of a checkout, and the command that step 1 installs beside it."""
    folder = tmp_path / "checkout"
    folder.mkdir()
    (folder / "docker-compose.yml").write_bytes((ROOT / "docker-compose.yml").read_bytes())
    command = tmp_path / "programs" / "responses-gateway"
    command.parent.mkdir()
    call = f'PYTHONPATH={shlex.quote(str(ROOT / "proxy"))} exec {shlex.quote(sys.executable)} -m responses_gateway "$@"'
    command.write_text(f"#!/bin/sh\n{call}\n", encoding="utf-8")
    command.chmod(0o755)
    return folder


def typed(checkout: Path, compose: str) -> list[str]:
    """Type the blocks of the page one after the other. Returns what each of them printed."""
    port, backend_port = free_port(), free_port()
    environment = {
        "PATH": os.pathsep.join([str(checkout.parent / "programs"), str(CODEX.parent), os.environ["PATH"]]),
        "HOME": str(checkout.parent),
        "LANG": "C.UTF-8",
        "PORT": str(port),
        "BACKEND_PORT": str(backend_port),
        "CODEX": "yes" if CODEX.exists() else "",
        "COMPOSE": compose,
    }
    page = "".join(f"echo '{_MARK}'\n{block}" for block in BLOCKS)
    page = page.replace("http://gpu-server:8000", f"http://127.0.0.1:{backend_port}")
    page = page.replace("http://127.0.0.1:9000", f"http://127.0.0.1:{port}")
    with subprocess.Popen(
        ["bash", "-c", f"{TERMINALS}\n{page}"],
        cwd=checkout, env=environment, text=True, stdout=subprocess.PIPE, stderr=subprocess.PIPE, start_new_session=True,
    ) as shell:  # fmt: skip
        try:
            said, complaints = shell.communicate(timeout=PATIENCE)
        except subprocess.TimeoutExpired:
            os.killpg(shell.pid, signal.SIGKILL)
            raise
    assert shell.returncode == 0, said[-3000:] + complaints[-3000:]
    return said.split(f"{_MARK}\n")[1:]


def said_by(said: list[str], command: str) -> str:
    """Return what the one block printed that has this command."""
    (text,) = (text for block, text in zip(BLOCKS, said, strict=True) if command in block)
    return text


def installed_compose() -> str:
    """Return the command of Docker Compose, empty where there is none."""
    try:
        return shlex.join(compose_command())
    except pytest.skip.Exception:
        return ""


def test_every_command_does_what_the_page_says(checkout: Path, subtests: pytest.Subtests) -> None:
    compose = installed_compose()
    said = typed(checkout, compose)

    assert "invariants: ok" in said_by(said, "demo")
    assert re.search(r"^model +qwen3\b", said_by(said, "doctor"), re.MULTILINE)
    events = re.findall(r"^event: (\S+)$", said_by(said, "Why is the sky blue?"), re.MULTILINE)
    assert events.index("response.completed") == len(events) - 1

    key = re.search(r"^API_KEYS=alice=(\w{64})$", (checkout / ".env").read_text(encoding="utf-8"), re.MULTILINE)
    assert key
    assert key[1] not in (checkout / "gateway.yaml").read_text(encoding="utf-8")
    assert said_by(said, "--check") == "The settings can be used.\n"
    refused, answered = said_by(said, "authorization: Bearer").split("}}", 1)
    assert json.loads(refused + "}}")["error"]["code"] == "invalid_api_key"
    assert [model["id"] for model in json.loads(answered)["data"]] == ["qwen3"]

    with subtests.test("Codex"):
        if not CODEX.exists():
            pytest.skip("the Codex CLI is not installed: run scripts/install-codex")
        assert "simulated model" in said_by(said, "npm install")
        assert "simulated model" in said_by(said, "--env-key ALICE_KEY exec")
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
    found: dict[str, Any] = yaml.safe_load(said)["services"]
    return found


def test_the_ports_of_the_page_are_those_of_compose() -> None:
    text = (ROOT / "docker-compose.yml").read_text(encoding="utf-8")
    published = set(re.findall(r'"(?:127\.0\.0\.1|\$\{ADDRESS:-127\.0\.0\.1\}):\$\{\w+:-(\d+)\}', text))
    assert set(re.findall(r"http://127\.0\.0\.1:(\d+)", PAGE)) - {"8000"} == published
