"""Instructor: each test looks at the deed of its name in `instructor_schemas.py`."""

from __future__ import annotations

from typing import Any

PROGRAM = "instructor_schemas.py"


def test_structured(got: Any) -> None:
    assert isinstance(got["name"], str)
    assert isinstance(got["inhabitants"], int)
