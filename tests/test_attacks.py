"""The list of attacks in tests/attacks.md: every test that it names exists."""

from __future__ import annotations

import re
from pathlib import Path

TESTS = Path(__file__).parent
DOCUMENT = TESTS / "attacks.md"
_NAMED = re.compile(r"`([a-z0-9_/]+\.py)::(test_[a-z0-9_]+)`")


def _attacks() -> list[str]:
    rows = [line for line in DOCUMENT.read_text().splitlines() if line.startswith("| ")]
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
