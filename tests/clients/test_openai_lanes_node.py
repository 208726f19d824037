"""The session helper of openai-node: each test looks at the deed of its name in `openai_lanes.mjs`."""

from __future__ import annotations

from typing import Any

from tests.clients.client_programs import Output

PROGRAM = "openai_lanes.mjs"
PLAIN = "A plain answer to “scenario: plain”."


def test_nothing_is_complained_about(output: Output) -> None:
    assert output.errors == []


def test_lanes(got: Any) -> None:
    assert got["order"][-1] == "slow"
    assert got["text"] == PLAIN


def test_forks(got: Any) -> None:
    assert got == {"text": [PLAIN, PLAIN], "missing": "previous_response_not_found"}
