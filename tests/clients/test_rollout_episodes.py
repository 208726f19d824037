"""An episode of each coding agent: its record has every call as the backend sent it (`make episodes` plays ten)."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.claude.claude_code import BINARY as CLAUDE
from tests.codex.codex_cli import BINARY as CODEX
from tests.codex.servers import Background
from tests.trainers.episodes import Task, play

BINARIES = {"Codex": CODEX, "Claude Code": CLAUDE}


@pytest.fixture
def background() -> Iterator[Background]:
    background = Background()
    yield background
    background.stop()


@pytest.mark.parametrize("client", BINARIES)
def test_the_record_of_an_episode_is_complete_and_exact(background: Background, client: str) -> None:
    if not BINARIES[client].exists():
        pytest.skip(f"{client} is not installed: run scripts/install-codex, scripts/install-claude")
    episode = play(background, client, Task(["scenario: subagent"], token_true=True))
    assert episode.problems == []
    assert episode.calls >= 3
    assert episode.with_spans == episode.calls
    assert episode.token_true >= 1
