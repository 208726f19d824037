"""The table of the lifecycle: complete, and the document shows it as it is."""

from __future__ import annotations

from typing import get_args

import pytest

from proxy.stream import lifecycle
from proxy.stream.lifecycle import TABLE
from proxy.wire import deltas
from scripts.lifecycle_diagram import BEGIN, END, TARGET, section, updated

#: All kinds of deltas: the vocabulary, and two that are told apart by what is in them.
KINDS = {*get_args(deltas.Delta), lifecycle.Blank, lifecycle.ForbiddenCall}


def test_every_state_knows_what_to_do_with_every_delta() -> None:
    assert set(TABLE) == set(get_args(lifecycle.State))
    assert {state: set(row) for state, row in TABLE.items()} == dict.fromkeys(TABLE, KINDS)
    assert all(actions for row in TABLE.values() for actions in row.values())


def test_one_item_is_closed_before_another_opens() -> None:
    """In the table itself: from any state but idle an opening action stands behind a closing one."""
    for state, row in TABLE.items():
        for actions in row.values():
            names = [action.__name__ for action in actions]
            for opening in [name for name in names if name.startswith("_open")]:
                assert state == "idle" or "_close_item" in names[: names.index(opening)]


def test_the_document_shows_the_table() -> None:
    document = TARGET.read_text(encoding="utf-8")
    assert updated(document) == document, "run scripts/lifecycle_diagram.py --write"


def test_a_document_behind_the_table_is_brought_up_to_date() -> None:
    assert updated(f"# A\n\n{BEGIN}\nold\n{END}\n\nrest\n") == f"# A\n\n{section()}\n\nrest\n"
    with pytest.raises(ValueError, match="not enough values"):
        updated("# no markers")
