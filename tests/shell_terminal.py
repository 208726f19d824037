"""A shell in a pseudo-terminal, as a person types into it."""

from __future__ import annotations

import fcntl
import os
import pty
import re
import select
import signal
import struct
import subprocess
import sys
import termios
import time
from collections.abc import Mapping
from pathlib import Path
from types import TracebackType

from tests.waiting import PATIENCE

_READY = "[ready for a command] "
_MORE = "[ready for the next line] "
_COLUMNS = 120
_LINES = 50
# Sequences by which programs move the cursor, choose colours and name the window.
_ESCAPES = re.compile(r"\x1b(?:\[[0-9;?<>=]*[a-zA-Z]|\][^\x07\x1b]*(?:\x07|\x1b\\)|[()][A-Z0-9]|[=>78])")
_CTRL_C = b"\x03"
# Makes the terminal that of its session, and is a shell then.
_SHELL = """
import fcntl, os, termios
fcntl.ioctl(0, termios.TIOCSCTTY, 0)
os.execlp("bash", "bash", "--norc", "--noprofile", "--noediting", "-i")
"""


class ShellTerminal:
    """An interactive bash that is the leader of a terminal's session."""

    def __init__(self, folder: Path, environment: Mapping[str, str]) -> None:
        self.runs = False  # a program that does not end by itself
        self._terminal, its = pty.openpty()
        fcntl.ioctl(its, termios.TIOCSWINSZ, struct.pack("HHHH", _LINES, _COLUMNS, 0, 0))
        quiet = {"TERM": "xterm-256color", "PS1": _READY, "PS2": _MORE, "INPUTRC": os.devnull, "HISTFILE": os.devnull}
        self._shell = subprocess.Popen(
            [sys.executable, "-c", _SHELL],
            cwd=folder, env={**environment, **quiet}, stdin=its, stdout=its, stderr=its,
            start_new_session=True,
        )  # fmt: skip
        os.close(its)
        self._wait_for(_READY)

    def type(self, line: str) -> str:
        """Type a line, and wait until the shell wants another one. Return what was shown meanwhile."""
        os.write(self._terminal, line.encode() + b"\n")
        return self._wait_for(_READY, _MORE)

    def start(self, line: str, shown: str) -> str:
        """Type the command of a program that goes on until Ctrl-C, and wait until it shows something. Return what it has."""
        os.write(self._terminal, line.encode() + b"\n")
        self.runs = True
        return self._wait_for(shown)

    def interrupt(self) -> str:
        """Type Ctrl-C, and wait until the program has ended."""
        os.write(self._terminal, _CTRL_C)
        said = self._wait_for(_READY)
        self.runs = False
        return said

    def _wait_for(self, *ends: str) -> str:
        deadline = time.monotonic() + PATIENCE
        said = ""
        while not said.endswith(ends) if _READY in ends else not any(end in said for end in ends):
            ready, _, _ = select.select([self._terminal], [], [], max(0.0, deadline - time.monotonic()))
            assert ready, f"nothing more came behind:\n{said[-3000:]}"
            said += os.read(self._terminal, 65536).decode(errors="replace")
        return _ESCAPES.sub("", said).replace("\r\n", "\n")

    def __enter__(self) -> ShellTerminal:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        if self.runs:
            os.write(self._terminal, _CTRL_C)
            os.write(self._terminal, b"exit\n")
        else:
            self._shell.send_signal(signal.SIGHUP)
        os.close(self._terminal)
        self._shell.wait(timeout=PATIENCE)
