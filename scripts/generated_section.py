"""A section that a script writes into a document: its first and last lines are comments, which mark its place."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path


def updated(document: str, section: str) -> str:
    """Return the document with this section in the place of the old one. Raise `ValueError` where a marker is missing."""
    begin, *_, end = section.splitlines()
    before, rest = document.split(begin)
    _, after = rest.split(end)
    return before + section + after


def check_or_write(target: Path, section: str, arguments: Sequence[str]) -> int:
    """Compare the document with the section or, with `--write`, update it; return the exit code: 1 if it is out of date."""
    document = target.read_text(encoding="utf-8")
    wanted = updated(document, section)
    if "--write" in arguments:
        target.write_text(wanted, encoding="utf-8")
        return 0
    return int(wanted != document)
