"""Which sources of earlier searches a conversation has shown to the model."""

from __future__ import annotations

from typing import Any

import pytest

from responses_gateway.wire.hosted import CitedSource
from responses_gateway.wire.search_results import shown_sources

TOWER = "【3】 【New】 The tower\nhttp://tower.test/\nIt is high."


def output(text: object, call_id: str = "ws_1") -> dict[str, Any]:
    return {"type": "function_call_output", "call_id": call_id, "output": text}


def test_sources_are_those_at_the_beginning_of_a_line_in_results_of_server_tools() -> None:
    items = [output(f"Untrusted.\n\n{TOWER}"), output(TOWER, "toolu_1"), output([TOWER]), "no item"]
    assert shown_sources(items) == [CitedSource(3, "【New】 The tower", "http://tower.test/")]


@pytest.mark.parametrize(
    "text", ["As it says 【1】 here\nhttp://x.test/", "【1】 A title alone\n\nhttp://x.test/", "【12345】 a\nb"]
)
def test_what_only_looks_like_a_source_is_none(text: str) -> None:
    assert shown_sources([output(text)]) == []


def test_a_line_of_nothing_but_numbers_is_searched_once() -> None:
    """A search from each of them would take hours."""
    assert shown_sources([output("【1】 x" * 1_000_000)]) == []
