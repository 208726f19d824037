"""The version of the gateway, and the commit that it was built from.

The build writes the commit to a file beside this one (`hatch_build.py`; the image writes it itself). In a checkout, git
knows it. Otherwise only the version is known.
"""

from __future__ import annotations

import subprocess
from functools import cache
from pathlib import Path

__version__ = "0.1.0"

_PACKAGE = Path(__file__).parent
_DIGITS = 7
_GIT_TIMEOUT = 2.0


def version_line() -> str:
    """Return `0.1.0 (abc1234)`, or `0.1.0` if the commit is not known. Never fails."""
    revision = commit()
    return f"{__version__} ({revision})" if revision else __version__


@cache
def commit() -> str:
    """Return seven hexadecimal digits, or an empty text if the commit is not known."""
    return read_commit(_PACKAGE)


def read_commit(package: Path) -> str:
    """Return the commit of a package: from the file of its build, else from the checkout that contains it."""
    try:
        written = (package / "commit.txt").read_text(encoding="ascii").strip()
    except (OSError, ValueError):
        written = _from_git(package.parents[1])
    short = written[:_DIGITS].lower()
    return short if short and set(short) <= set("0123456789abcdef") else ""


def _from_git(checkout: Path) -> str:
    if not (checkout / ".git").exists():  # a repository further up is another one
        return ""
    command = ["git", "-C", str(checkout), "rev-parse", "HEAD"]
    try:
        return subprocess.run(command, capture_output=True, text=True, timeout=_GIT_TIMEOUT, check=True).stdout.strip()
    except (OSError, subprocess.SubprocessError, ValueError):
        return ""
