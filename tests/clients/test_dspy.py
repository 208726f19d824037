"""DSPy: each test looks at the deed of its name in `dspy_programs.py`."""

from __future__ import annotations

from typing import Any

import pytest

PROGRAM = "dspy_programs.py"
PARIS = {"name": "Ada", "inhabitants": 3, "size": "small", "rivers": ["example"]}


def test_text(got: Any) -> None:
    assert got == "A plain answer to “scenario: plain”."


@pytest.mark.parametrize("deed", ["typed", "as_json"])
def test_fields(deed: str, output: Any) -> None:
    assert output.results[deed] == PARIS


def test_reasoned(got: Any) -> None:
    assert set(got) == {"reasoning", "answer"}


def test_stream(got: Any) -> None:
    assert "".join(got) == "Hello from the simulator."
    assert len(got) > 1
