"""The real Claude Code against the gateway in front of the simulator. `scripts/install-claude` puts the client where it is
looked for; without it these tests are skipped. Whatever a test is about, every stream that it caused is judged at its end."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import AsyncExitStack
from pathlib import Path

import pytest

from responses_gateway.simulator import SimulatorOptions
from tests.claude.claude_code import BINARY, ClaudeCode
from tests.codex.servers import Background, Stage, open_stage


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    absent = pytest.mark.skip(reason="Claude Code is not installed: run scripts/install-claude")
    for item in items:
        if item.nodeid.startswith("tests/claude/") and not BINARY.exists():
            item.add_marker(absent)


@pytest.fixture
def stage() -> Iterator[Stage]:
    servers = Background()
    stack = AsyncExitStack()
    stage = servers.run(stack.enter_async_context(open_stage(SimulatorOptions(), [], {})))
    yield stage
    servers.run(stack.aclose())
    servers.stop()
    assert stage.complaints() == []


@pytest.fixture
def claude(stage: Stage, tmp_path: Path) -> ClaudeCode:
    return ClaudeCode(tmp_path, stage.url)
