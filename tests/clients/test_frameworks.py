"""Frameworks above the OpenAI SDK: each test looks at the deed of its name in `frameworks.py`."""

from __future__ import annotations

from typing import Any

PROGRAM = "frameworks.py"
PLAIN = "A plain answer to “scenario: plain”."
WEATHER = "The tools answered:\n\n- 22 degrees in Paris"


def is_city(value: Any) -> bool:
    return isinstance(value["name"], str) and isinstance(value["inhabitants"], int)


def test_prompted_json(got: Any) -> None:
    assert is_city(got)


def test_pydantic_ai_text(got: Any) -> None:
    assert got == PLAIN


def test_pydantic_ai_tool(got: Any) -> None:
    assert got == WEATHER


def test_pydantic_ai_structured(got: Any) -> None:
    assert is_city(got)


def test_pydantic_ai_stream(got: Any) -> None:
    assert "".join(got) == PLAIN
    assert len(got) > 2


def test_agno_text(got: Any) -> None:
    assert got == PLAIN


def test_agno_tool(got: Any) -> None:
    assert got == WEATHER
