"""What the checker makes of calls cut short, of the bytes around the events, and how it reports."""

from __future__ import annotations

import random
from typing import Any

import pytest

from responses_gateway.conformance.checker import RULES, Checker, Violation, check_stream, frames
from tests.judges.streams import Event, Script, encode, find, good, renumber


def broken(events: list[Event], *, unfinished_allowed: bool = False) -> set[str]:
    found = check_stream(encode(events), unfinished_allowed=unfinished_allowed)
    return {violation.rule for violation in found}


def cut_call(status: str) -> list[Event]:
    return Script().open().message("x").call('{"a', cut=True).end(status)


# ---- the cut call of clients that run every call ----------------------------------------------------------------------


@pytest.mark.parametrize("status", ["incomplete", "failed"])
def test_an_unfinished_call_at_the_end_passes_where_it_is_allowed(status: str) -> None:
    assert broken(cut_call(status), unfinished_allowed=True) == set()
    assert broken(cut_call(status)) == {"item_unfinished"}


def test_an_unfinished_call_is_never_allowed_in_a_completed_response() -> None:
    assert broken(cut_call("completed"), unfinished_allowed=True) == {"item_unfinished"}


@pytest.mark.parametrize("status", ["incomplete", "failed"])
def test_items_may_follow_an_unfinished_call_where_it_is_allowed(status: str) -> None:
    events = Script().open().call("{", cut=True).message("x").end(status)
    for event in events[find(events, "output_item.added", 1) : -1]:
        event["output_index"] = 1
    assert broken(events, unfinished_allowed=True) == set()
    assert broken(events) == {"call_overlap", "item_unfinished"}
    at = find(events, "output_item.added", 1) + 1
    late = {**events[find(events, "function_call_arguments.delta")]}
    assert broken(renumber([*events[:at], late, *events[at:]]), unfinished_allowed=True) == {"item_overlap"}


def test_items_may_follow_an_incomplete_call() -> None:
    assert broken(Script().open().call("{", status="incomplete").message("x").end("incomplete")) == set()


def test_any_item_may_be_unfinished_where_the_request_will_be_repeated() -> None:
    events = Script().open().message("x").end("failed")
    del events[find(events, "output_item.done")]
    events[-1]["response"]["output"] = []
    assert broken(renumber(events), unfinished_allowed=True) == set()
    assert broken(renumber(events)) == {"item_unfinished"}


def test_an_unfinished_call_passes_in_a_steered_response_where_it_is_allowed() -> None:
    events = cut_call("incomplete")
    events[-1]["response"]["incomplete_details"] = {"reason": "steered"}
    assert broken(events, unfinished_allowed=True) == set()
    assert broken(events) == {"item_unfinished"}


def test_only_calls_may_be_unfinished_at_the_token_limit() -> None:
    events = Script().open().message("x").end("incomplete")
    del events[find(events, "output_item.done")]
    events[-1]["response"]["output"] = []
    assert broken(renumber(events), unfinished_allowed=True) == {"item_unfinished"}


# ---- the bytes --------------------------------------------------------------------------------------------------------


def test_the_event_line_equals_the_type() -> None:
    data = encode(good())
    missing = data.replace(b"event: response.completed\n", b"")
    other = data.replace(b"event: response.completed", b"event: response.done")
    assert {violation.rule for violation in check_stream(missing)} == {"event_name"}
    assert {violation.rule for violation in check_stream(other)} == {"event_name"}


def test_a_missing_done_marker_is_noticed() -> None:
    found = check_stream(encode(good(), done=False))
    assert [violation.rule for violation in found] == ["done_marker"]


def test_an_event_after_the_done_marker_is_lost_to_clients() -> None:
    data = encode(good()[:-1]) + encode(good()[-1:], done=False)
    assert {violation.rule for violation in check_stream(data)} == {"after_terminal"}


@pytest.mark.parametrize("payload", [b"{", b"[]", b"{}", b'{"type":7}', b"hello", b"[" * 100_000])
def test_data_that_is_no_event_is_malformed(payload: bytes) -> None:
    data = encode(good(), done=False) + b"data: " + payload + b"\n\ndata: [DONE]\n\n"
    (violation,) = check_stream(data)
    assert (violation.rule, violation.event) == ("malformed", len(good()))
    assert len(violation.detail) < 200


def test_an_event_without_its_blank_line_is_lost_to_clients() -> None:
    found = check_stream(encode(good()).removesuffix(b"\n"))
    assert [violation.rule for violation in found] == ["malformed"]


def test_comments_other_line_ends_and_a_byte_order_mark_are_fine() -> None:
    data = b"\xef\xbb\xbf: hello\n\n" + encode(good()).replace(b"\n\n", b"\n: keep-alive\n\n")
    assert check_stream(data) == []
    assert check_stream(data.replace(b"\n", b"\r\n")) == []
    assert check_stream(data.replace(b"\n", b"\r")) == []


def test_frames_join_the_data_lines_of_an_event() -> None:
    body = b"event: a\ndata: 1\ndata:2\nid: 7\n\nevent: nothing\n\ndata: 3"
    assert list(frames(body)) == [("a", "1\n2", True), (None, "3", False)]


def test_nothing_at_all_lacks_its_terminal_event() -> None:
    assert {violation.rule for violation in check_stream(b"")} == {"terminal_missing", "done_marker"}


# ---- the report -------------------------------------------------------------------------------------------------------


def test_a_violation_says_where_and_what() -> None:
    events = good()
    events[find(events, "output_text.done")]["text"] = "Help"
    (violation,) = check_stream(encode(events))
    assert violation.event == find(events, "output_text.done")
    assert violation.detail == ('response.output_text.done, output_text: "p" at character 3, the deltas have "lo"')


def test_one_mistake_is_reported_once_and_the_rest_still_judged() -> None:
    events = good()
    for event in events[5:]:
        event["sequence_number"] += 1
    events[-1] = {**events[-1], "response": {**events[-1]["response"], "usage": 1}}
    assert [violation.rule for violation in check_stream(encode(events))] == ["sequence_gap", "usage"]


def test_the_checker_tells_at_each_event() -> None:
    checker = Checker()
    created, in_progress, *_ = good()
    assert checker.feed(created["type"], created) == []
    assert checker.feed(None, in_progress) == [Violation("event_name", 1, "event: None, type: response.in_progress")]
    assert [violation.rule for violation in checker.finish()] == ["terminal_missing"]


VALUES: list[Any] = [None, True, 0, -1, 3, 1.5, "", "x", "completed", [], {}, [None], ["x"], {"type": "x"}, [{"type": 1}]]


@pytest.mark.parametrize("seed", range(20))
def test_no_event_can_make_the_checker_fail(seed: int) -> None:
    """Change any field of any event, at any depth, to a value of any JSON type."""
    chance = random.Random(seed)
    for _ in range(20):
        events = good()
        for _ in range(chance.randint(1, 5)):
            spoil(chance.choice(events), chance)
        for violation in check_stream(encode(events)):
            assert violation.rule in RULES


def spoil(value: Any, chance: random.Random) -> None:
    keys = list(value) if isinstance(value, dict) else list(range(len(value)))
    if not keys:
        return
    key = chance.choice(keys)
    if isinstance(value[key], dict | list) and value[key] and chance.random() < 0.7:
        spoil(value[key], chance)
    else:
        value[key] = chance.choice(VALUES)
