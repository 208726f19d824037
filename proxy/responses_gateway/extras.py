"""How the extras of the gateway are installed: one line, for all messages and documents; and where they are."""

from __future__ import annotations

import importlib.util
import sys
import tomllib
from functools import cache
from pathlib import Path

# What pip is given: a checkout until the first release, then the name on the package index (docs/releasing.md).
SOURCE = "."
_PACKAGE = "responses-gateway"
# Where uv keeps how it installed a tool.
_UV_RECEIPT = "uv-receipt.toml"


def install_command(extra: str) -> str:
    """Return what a user types to install an extra."""
    return f"pip install '{SOURCE}[{extra}]'"


def how_to_install(extra: str) -> str:
    """Return the same for a message, which is read anywhere: as the command of the installer that this copy came from, because
    another one would install it elsewhere."""
    return _install_here(extra, Path(sys.prefix))


def _install_here(extra: str, prefix: Path) -> str:
    """Return the command for an environment. uv and pipx replace a tool as a whole: uv tells what it had, pipx does not."""
    receipt = prefix / _UV_RECEIPT
    if receipt.is_file():
        source, extras = _installed_by_uv(receipt)
        together = ",".join(sorted({*extras, extra}))
        return _in_words("uv tool install --reinstall", source, together)
    if (prefix / "pipx_metadata.json").is_file():
        return _in_words("pipx install --force", SOURCE, extra)
    return _in_words("pip install" if importlib.util.find_spec("pip") else "uv pip install", SOURCE, extra)


def _in_words(installer: str, source: str, extras: str) -> str:
    place = " (in the checkout of the gateway)" if source == "." else ""
    return f"{installer} '{source}[{extras}]'{place}"


def _installed_by_uv(receipt: Path) -> tuple[str, list[str]]:
    """Return what uv was given, a folder or a name, and its extras."""
    try:
        requirements = tomllib.loads(receipt.read_text(encoding="utf-8"))["tool"]["requirements"]
        own = next(requirement for requirement in requirements if requirement["name"] == _PACKAGE)
        source = own.get("directory") or own.get("editable") or SOURCE
        return str(source), [str(extra) for extra in own.get("extras", ())]
    except (OSError, ValueError, KeyError, TypeError, StopIteration):  # of another version of uv
        return SOURCE, []


@cache
def packages_with(name: str) -> str | None:
    """Return the folder of a package and those beside it, for a process without this one's environment; None if missing."""
    package = importlib.util.find_spec(name)
    return None if package is None or package.origin is None else str(Path(package.origin).parents[1])
