"""LlamaIndex: each test looks at the deed of its name in `llama_index_agents.py`."""

from __future__ import annotations

from typing import Any

from tests.clients.client_programs import Output

PROGRAM = "llama_index_agents.py"
PLAIN = "A plain answer to “scenario: plain”."


def test_nothing_is_complained_about(output: Output) -> None:
    assert output.errors == []


def test_text(got: Any) -> None:
    assert got == PLAIN


def test_stream(got: Any) -> None:
    assert "".join(got) == PLAIN
    assert len(got) > 2


def test_tool(got: Any) -> None:
    assert got == "The tools answered:\n\n- 22 degrees in Paris"


def test_structured(got: Any) -> None:
    assert got == {"name": "Ada", "inhabitants": 3}
