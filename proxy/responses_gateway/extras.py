"""How the extras of the gateway are installed: one line, for all messages and documents; and where they are."""

from __future__ import annotations

import importlib.util
from functools import cache
from pathlib import Path

# What pip is given: a checkout until the first release, then the name on the package index (docs/releasing.md).
SOURCE = "."


def install_command(extra: str) -> str:
    """Return what a user types to install an extra."""
    return f"pip install '{SOURCE}[{extra}]'"


def how_to_install(extra: str) -> str:
    """Return the same for a message, which is read anywhere."""
    place = " (in the checkout of the gateway)" if SOURCE == "." else ""
    return f"{install_command(extra)}{place}"


@cache
def packages_with(name: str) -> str | None:
    """Return the folder of a package and those beside it, for a process without this one's environment; None if it is not
    installed."""
    package = importlib.util.find_spec(name)
    return None if package is None or package.origin is None else str(Path(package.origin).parents[1])
