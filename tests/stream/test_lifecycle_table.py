"""The table of the lifecycle: complete, and the document shows it as it is."""

from __future__ import annotations

from typing import get_args

import pytest

from responses_gateway.stream.items.hosted import CallOutcome
from responses_gateway.stream.lifecycle import machine as lifecycle
from responses_gateway.stream.lifecycle.machine import TABLE, Guarded, State, Transition
from responses_gateway.wire import deltas
from scripts.generated_section import updated
from scripts.lifecycle_diagram import BEGIN, END, TARGET, section
from tests.stream.stream_player import new_translator

# All kinds of deltas: the vocabulary, two that are told apart by what is in them, and the ends of a stream.
KINDS = {*get_args(deltas.Delta), lifecycle.Blank, lifecycle.ForbiddenCall, *get_args(lifecycle.End)}


def transitions(state: State, kind: type) -> list[Transition]:
    transition = TABLE[state][kind]
    return [transition.then, transition.otherwise] if isinstance(transition, Guarded) else [transition]


ALL = [(state, kind, transition) for state, row in TABLE.items() for kind in row for transition in transitions(state, kind)]


def names(transition: Transition) -> list[str]:
    return [action.__name__ for action in transition.actions]


def test_every_state_knows_what_to_do_with_every_delta() -> None:
    assert set(TABLE) == set(get_args(lifecycle.State))
    steps = {"call": {lifecycle.CallRuns, lifecycle.CallDone}, "ended": {lifecycle.NextTurn}}  # of the gateway itself
    assert {state: set(row) for state, row in TABLE.items()} == {state: KINDS | steps.get(state, set()) for state in TABLE}
    assert all(transition.target in TABLE for _, _, transition in ALL)


def test_only_behind_the_end_nothing_is_done() -> None:
    ignored = {(state, kind) for state, kind, transition in ALL if not transition.actions}
    nothing_to_close = {("idle", lifecycle.Stop), ("idle", lifecycle.Cut)}
    of_a_forbidden_call = {(state, deltas.ToolCallCut) for state in TABLE if state not in ("call", "ended")}
    assert ignored == nothing_to_close | of_a_forbidden_call | {("ended", kind) for kind in KINDS}


def test_every_state_is_reached_and_only_another_turn_leaves_the_last_one() -> None:
    ways = {(state, transition.target) for state, _, transition in ALL if state != transition.target}
    assert {target for _, target in ways} == set(TABLE) == {state for state, _ in ways}
    leaving = {(kind, transition.target) for state, kind, transition in ALL if state == "ended" != transition.target}
    assert leaving == {(lifecycle.NextTurn, "idle")}


def test_a_step_of_the_gateway_that_is_not_in_the_table_cannot_happen() -> None:
    playing = new_translator()
    for step in (lifecycle.CallRuns(), lifecycle.CallDone(CallOutcome()), lifecycle.NextTurn(may_call=True)):
        with pytest.raises(KeyError):
            playing.lifecycle.step(step)
    assert playing.lifecycle.state == "idle"


def test_an_end_leads_to_the_end() -> None:
    """Check the targets of the ends: after a call, what was held behind it comes first."""
    found = {(state, kind): transition.target for state, kind, transition in ALL if kind in get_args(lifecycle.End)}
    behind_a_call = {("call", end) for end in get_args(lifecycle.End)}
    assert {key for key, target in found.items() if target != "ended"} == behind_a_call
    assert {found[key] for key in behind_a_call} == {"idle"}


def test_one_item_is_closed_before_another_opens() -> None:
    """Check in the table itself that an opening action stands behind a closing one, except in `idle`."""
    for state, _, transition in ALL:
        closing = "_close_call" if state == "call" else "_close_item"
        for opening in [name for name in names(transition) if name.startswith("_open")]:
            assert state == "idle" or closing in names(transition)[: names(transition).index(opening)]


def test_an_item_that_opens_is_the_state_that_follows() -> None:
    opens = {"_open_reasoning": "reasoning", "_open_text": "text", "_open_refusal": "refusal", "_open_call": "call"}
    for _, _, transition in ALL:
        assert [opens[name] for name in names(transition) if name in opens] in ([], [transition.target])


def test_the_document_shows_the_table() -> None:
    document = TARGET.read_text(encoding="utf-8")
    assert updated(document, section()) == document, "run scripts/lifecycle_diagram.py --write"


def test_a_document_behind_the_table_is_brought_up_to_date() -> None:
    assert updated(f"# A\n\n{BEGIN}\nold\n{END}\n\nrest\n", section()) == f"# A\n\n{section()}\n\nrest\n"
    with pytest.raises(ValueError, match="not enough values"):
        updated("# no markers", section())
