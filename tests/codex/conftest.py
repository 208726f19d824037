"""The real Codex CLI against the gateway in front of the simulator. `scripts/install-codex` puts the client where it is looked
for; without it these tests are skipped. Whatever a test is about, every stream that it caused is judged at its end."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any

import pytest

from responses_gateway.simulator import SimulatorOptions
from tests.codex.codex_cli import BINARY, Codex
from tests.codex.servers import Background, Stage, StartStage, open_stage


def pytest_configure(config: pytest.Config) -> None:
    config.addinivalue_line("markers", "codex: drives the real Codex CLI")


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    absent = pytest.mark.skip(reason="the Codex CLI is not installed: run scripts/install-codex")
    for item in items:
        if item.nodeid.startswith("tests/codex/"):
            item.add_marker(pytest.mark.codex)
            if not BINARY.exists():
                item.add_marker(absent)


@pytest.fixture(scope="session")
def background() -> Iterator[Background]:
    servers = Background()
    yield servers
    servers.stop()


@pytest.fixture
def start_stage(background: Background) -> Iterator[StartStage]:
    """Start servers: `start_stage(options=SimulatorOptions(…), backends=[url], **settings)`."""
    stack = AsyncExitStack()
    stages: list[Stage] = []

    def start(options: SimulatorOptions | None = None, backends: Sequence[str] = (), **overrides: Any) -> Stage:
        opening = stack.enter_async_context(open_stage(options or SimulatorOptions(), list(backends), overrides))
        stages.append(background.run(opening))
        return stages[-1]

    yield start
    background.run(stack.aclose())
    assert [complaint for stage in stages for complaint in stage.complaints()] == []


@pytest.fixture
def stage(start_stage: StartStage) -> Stage:
    return start_stage()


@pytest.fixture
def codex(tmp_path: Path, stage: Stage) -> Codex:
    return Codex(tmp_path, stage.url)
