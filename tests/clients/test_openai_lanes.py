"""The session helper of the OpenAI SDK, in Python: each test looks at the deed of its name in `openai_lanes.py`."""

from __future__ import annotations

from typing import Any

from tests.clients.client_programs import Output

PROGRAM = "openai_lanes.py"
PLAIN = "A plain answer to “scenario: plain”."


def test_nothing_is_complained_about(output: Output) -> None:
    assert output.errors == []


def test_lanes(got: Any) -> None:
    assert got["order"][-1] == "slow"
    assert got["default"] == PLAIN


def test_forks(got: Any) -> None:
    assert got["text"] == [PLAIN, PLAIN]
    assert got["codes"] == ["previous_response_not_found", "context_length_exceeded", "previous_response_not_found"]


def test_warmed(got: Any) -> None:
    assert got == {"warm": [], "text": PLAIN}


def test_steered(got: Any) -> None:
    assert got == {"reason": "steered", "text": PLAIN, "continues": True}


def test_snapshots(got: Any) -> None:
    assert got == {"same": True}
