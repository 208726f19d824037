"""The table of clients in the README says what is installed and tested."""

from __future__ import annotations

import importlib.metadata
import re

import pytest

from tests.clients.client_programs import ROOT

_ROW = re.compile(r"^\| (?P<names>[^|]+) \| (?P<versions>\d[^|]*) \|", re.MULTILINE)


def _table() -> dict[str, str]:
    """Client → versions, as the README has them."""
    return {row["names"]: row["versions"] for row in _ROW.finditer((ROOT / "README.md").read_text())}


def _pinned(script: str, package: str) -> str:
    found = re.search(rf"[ (]{re.escape(package)}(?:@|==)([0-9.]+)", (ROOT / "scripts" / script).read_text())
    assert found, f"{script} does not name {package}"
    return found[1]


@pytest.mark.parametrize(
    ("client", "packages"),
    [
        ("`openai` (npm)", ["openai"]),
        ("`anthropic` (Python)", ["anthropic"]),
        ("`@anthropic-ai/sdk` (npm)", ["@anthropic-ai/sdk"]),
        ("`@ai-sdk/anthropic` (npm), `langchain-anthropic` (Python)", ["@ai-sdk/anthropic", "langchain-anthropic"]),
        ("`openai-agents` (Python)", ["openai-agents"]),
        ("`ai` with `@ai-sdk/openai` (npm)", ["ai", "@ai-sdk/openai"]),
        ("`langchain-openai` (Python)", ["langchain-openai"]),
        ("`instructor`, `pydantic-ai-slim`, `agno` (Python)", ["instructor", "pydantic-ai-slim[openai]", "agno"]),
        (
            "`llama-index-llms-openai`, `strands-agents`, `dspy` (Python)",
            ["llama-index-llms-openai", "strands-agents[openai]", "dspy"],
        ),
        (
            "`opencode-ai`, `@earendil-works/pi-coding-agent` (npm)",
            ["opencode-$platform", "@earendil-works/pi-coding-agent"],
        ),
    ],
)
def test_the_libraries(client: str, packages: list[str]) -> None:
    assert _table()[client] == ", ".join(_pinned("install-clients", package) for package in packages)


def test_codex_and_the_sdk() -> None:
    script = (ROOT / "scripts" / "install-codex").read_text()
    assert f"version={_table()['Codex CLI']}\n" in script
    assert f"sdk={_table()['`@openai/codex-sdk` (npm)']}\n" in script
    assert _table()["`openai` (Python)"] == importlib.metadata.version("openai")


def test_claude_code() -> None:
    assert f"version={_table()['Claude Code']}\n" in (ROOT / "scripts" / "install-claude").read_text()
