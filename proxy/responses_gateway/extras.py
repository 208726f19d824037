"""How the extras of the gateway are installed: one line, for all messages and documents."""

from __future__ import annotations

# What pip is given: a checkout until the first release, then the name on the package index (docs/releasing.md).
SOURCE = "."


def install_command(extra: str) -> str:
    """Return what a user types to install an extra."""
    return f"pip install '{SOURCE}[{extra}]'"


def how_to_install(extra: str) -> str:
    """Return the same for a message, which is read anywhere."""
    place = " (in the checkout of the gateway)" if SOURCE == "." else ""
    return f"{install_command(extra)}{place}"
