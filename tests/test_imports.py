"""What a command does not need, it does not import: start-up is mostly imports, and each worker pays for it again. Nor does it
look for garbage among what imports make."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.waiting import PATIENCE

ROOT = Path(__file__).parents[1]

# Extras, and what only some settings or commands use.
EXTRAS = {
    "httpx2", "jinja2", "lark", "mcp", "openai", "opentelemetry", "psycopg", "re2", "redis", "tokenizers", "transformers",
    "vllm",
}  # fmt: skip
TOOLS = {"httpx", "rich", "tomlkit"}

# Ends the gateway once it listens, until when nothing may have been looked through for garbage.
SERVE = """
import gc
import logging
import signal
import sys

from responses_gateway.cli import main
from responses_gateway.telemetry import logs


class EndAfterStart(logging.Filter):
    def filter(self, record):
        if record.getMessage() == "listening":
            assert collections() == before
            signal.raise_signal(signal.SIGTERM)
        return True


def collections():
    return [generation["collections"] for generation in gc.get_stats()]


logs.logger().addFilter(EndAfterStart())
before = collections()
assert main(["serve", "--backend", "http://127.0.0.1:9/v1", "--port", "0", "--store", "none"]) == 0
print("loaded", *sys.modules)
"""

# Stops where the parent of workers would begin to start them.
PARENT = """
import sys

from responses_gateway.cli import main
from responses_gateway.server.process import supervisor

supervisor.supervise = lambda *unused: 0
assert main(["serve", "--backend", "http://127.0.0.1:9/v1", "--port", "0", "--workers", "2"]) == 0
print("loaded", *sys.modules)
"""


def loaded_by(code: str) -> set[str]:
    """Return all modules that a new process has loaded at the end of the code."""
    environment = {name: value for name, value in os.environ.items() if not name.startswith(("RESPONSES_GATEWAY_", "OTEL_"))}
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=ROOT, env=environment, capture_output=True, text=True, check=False, timeout=PATIENCE
    )
    assert done.returncode == 0, done.stderr
    loaded = done.stdout.splitlines()[-1].split()
    assert loaded[0] == "loaded"
    return set(loaded)


def test_a_plain_gateway_imports_what_it_uses_and_looks_for_no_garbage_while_it_starts() -> None:
    loaded = loaded_by(SERVE)
    assert {"responses_gateway.server.app", "responses_gateway.backend.pool"} <= loaded
    assert loaded & (EXTRAS | TOOLS | {"cryptography", "yaml", "responses_gateway.simulator"}) == set()


def test_the_parent_of_workers_imports_no_server() -> None:
    loaded = loaded_by(PARENT)
    assert "responses_gateway.server.process.supervisor" in loaded
    assert (
        loaded & (EXTRAS | TOOLS | {"aiohttp", "cryptography", "sqlite3", "uvloop", "yaml", "responses_gateway.simulator"})
        == set()
    )
    assert (
        loaded
        & {
            "responses_gateway.server.app",
            "responses_gateway.server.lifespan",
            "responses_gateway.backend.pool",
            "responses_gateway.stream.translator",
        }
        == set()
    )


@pytest.mark.parametrize(
    ("command", "unused"),
    [
        ("check", {"aiohttp", "pydantic", "msgspec", "tomlkit", "yaml", "responses_gateway.settings"}),
        ("codex", {"aiohttp", "cryptography", "msgspec", "yaml", "responses_gateway.server"}),
        ("codex-config", {"aiohttp", "cryptography", "msgspec", "yaml", "responses_gateway.server"}),
        (
            "doctor",
            {
                "cryptography",
                "prometheus_client",
                "sqlite3",
                "tomlkit",
                "responses_gateway.server",
                "responses_gateway.request",
            },
        ),
        ("key", {"aiohttp", "httpx", "pydantic", "rich", "yaml"}),
        ("serve", {"aiohttp", "cryptography", "httpx", "msgspec", "rich", "yaml", "responses_gateway.server"}),
        ("simulate", {"cryptography", "httpx", "msgspec", "pydantic", "rich", "yaml", "responses_gateway.server"}),
    ],
)
def test_the_help_of_a_command_imports_only_its_own(command: str, unused: set[str]) -> None:
    loaded = loaded_by(
        f"import sys; from responses_gateway.cli import main; main([{command!r}, '--help']); print('loaded', *sys.modules)"
    )
    assert loaded & (unused | EXTRAS) == set()
