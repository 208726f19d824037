"""Which gateway this is: its version, and the commit that it was built from.

The commit stands in a file that the build writes beside this one (`hatch_build.py`; the image writes it itself). In a checkout
git knows it. Anywhere else the version has to do.
"""

from __future__ import annotations

import subprocess
from functools import cache
from pathlib import Path

from proxy import __version__

_ROOM = Path(__file__).parent
_DIGITS = 7
_GIT_TIMEOUT = 2.0


def version_line() -> str:
    """`0.1.0 (abc1234)`, or `0.1.0` where no commit is known. Never fails."""
    found = commit()
    return f"{__version__} ({found})" if found else __version__


@cache
def commit() -> str:
    """Seven hexadecimal digits, empty where no commit is known."""
    return read_commit(_ROOM)


def read_commit(room: Path) -> str:
    """The commit of a package: from the file of its build, else from the checkout it stands in."""
    try:
        written = (room / "commit.txt").read_text(encoding="ascii").strip()
    except (OSError, ValueError):
        written = _from_git(room.parent)
    short = written[:_DIGITS].lower()
    return short if short and set(short) <= set("0123456789abcdef") else ""


def _from_git(checkout: Path) -> str:
    if not (checkout / ".git").exists():  # a repository further up is not ours
        return ""
    command = ["git", "-C", str(checkout), "rev-parse", "HEAD"]
    try:
        return subprocess.run(command, capture_output=True, text=True, timeout=_GIT_TIMEOUT, check=True).stdout.strip()
    except (OSError, subprocess.SubprocessError, ValueError):
        return ""
