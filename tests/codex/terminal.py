"""A terminal without a screen: the client's text interface inside tmux, typed at and looked at."""

from __future__ import annotations

import os
import shutil
import subprocess
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory

from tests.codex.codex_cli import BINARY, Codex
from tests.waiting import PATIENCE

TMUX = shutil.which("tmux")
_SESSION = "client"
_SIZE = ("-x", "120", "-y", "50")
_INTERVAL = 0.05


class Terminal:
    """One window of one private tmux server."""

    def __init__(self, environment: dict[str, str]) -> None:
        self._environment = environment

    def screen(self) -> str:
        """Return what is to be seen, with what has scrolled away."""
        return self.tmux("capture-pane", "-p", "-S", "-", "-t", _SESSION)

    def type(self, text: str) -> None:
        """Type text and press Enter."""
        self.tmux("send-keys", "-t", _SESSION, "-l", text)
        eventually(lambda: text[:60] in self.screen(), self.screen)
        self.press("Enter")

    def press(self, key: str) -> None:
        """Press one key, by tmux's name for it."""
        self.tmux("send-keys", "-t", _SESSION, key)

    def wait_for(self, *texts: str) -> str:
        """Return the screen as soon as all texts are on it."""
        eventually(lambda: all(text in self.screen() for text in texts), self.screen)
        return self.screen()

    def wait_for_turns(self, number: int) -> str:
        """Return the screen once so many turns have ended: an answer is to be seen before its turn is over."""
        eventually(lambda: self.screen().count("Worked for") >= number, self.screen)
        return self.screen()

    def tmux(self, *arguments: str) -> str:
        """Return the output of one tmux command."""
        command = [str(TMUX), "-f", os.devnull, *arguments]
        done = subprocess.run(command, env=self._environment, capture_output=True, text=True, timeout=PATIENCE, check=True)
        return done.stdout


@contextmanager
def running(codex: Codex, *arguments: str) -> Iterator[Terminal]:
    """Run `codex ARGUMENTS…` in a terminal while the block runs."""
    codex.configure()
    client = [str(BINARY), "--no-daemon", "--dangerously-bypass-approvals-and-sandbox", *arguments]
    with in_terminal(client, codex.workspace, codex.environment) as terminal:
        yield terminal


@contextmanager
def in_terminal(client: Sequence[str], workspace: Path, environment: Mapping[str, str]) -> Iterator[Terminal]:
    """Run a client in a terminal while the block runs."""
    with TemporaryDirectory(prefix="tmux-") as folder:  # for its socket, whose path must be short
        terminal = Terminal({**environment, "TERM": "screen-256color", "TMUX_TMPDIR": folder})
        terminal.tmux("new-session", "-d", "-s", _SESSION, "-c", str(workspace), *_SIZE, "--", *client)
        try:
            yield terminal
        finally:
            terminal.tmux("kill-server")


def eventually(condition: Callable[[], bool], explain: Callable[[], object]) -> None:
    """Wait for a condition; fails with the explanation when patience is at its end."""
    deadline = time.monotonic() + PATIENCE
    while not condition():
        assert time.monotonic() < deadline, explain()
        time.sleep(_INTERVAL)
