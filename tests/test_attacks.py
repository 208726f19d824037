"""The list of attacks in docs/security.md: every test that it names exists."""

from __future__ import annotations

import re
from pathlib import Path

TESTS = Path(__file__).parent
DOCUMENT = TESTS.parent / "docs" / "security.md"
_NAMED = re.compile(r"`([a-z0-9_/]+\.py)::(test_[a-z0-9_]+)`")


def _attacks() -> list[str]:
    section = DOCUMENT.read_text().split("## Attacks and their tests", 1)[1].split("\n## ", 1)[0]
    rows = [line for line in section.splitlines() if line.startswith("| ")]
    return rows[1:]  # without the heading


def test_every_attack_has_a_test_that_exists() -> None:
    rows = _attacks()
    assert len(rows) > 30
    for row in rows:
        named = _NAMED.findall(row)
        assert named, row
        for file, name in named:
            path = TESTS / file
            assert path.is_file(), file
            assert re.search(rf"^def {name}\(", path.read_text(), re.MULTILINE), f"{file}::{name}"
