"""What a client has decided about calls of MCP tools, in the items of its requests."""

from __future__ import annotations

import time
from typing import Any

import pytest

from responses_gateway.request.fields import Entry
from responses_gateway.request.input.approvals import INTERRUPTED, Approvals, read_approvals
from responses_gateway.request.input.call_matching import open_items
from responses_gateway.wire.errors import ApiError

REQUEST = {"type": "mcp_approval_request", "id": "mcpr_1", "server_label": "bank", "name": "pay", "arguments": "{}"}
YES = {"type": "mcp_approval_response", "approval_request_id": "mcpr_1", "approve": True}
NO = {**YES, "approve": False, "reason": "Too dear."}
CALL = {"type": "mcp_call", "id": "mcp_1", "approval_request_id": "mcpr_1"}
SAID = {"type": "message", "role": "assistant", "content": "Paid."}


def read(*items: dict[str, Any]) -> Approvals:
    return read_approvals(Entry(f"input[{index}]", item["type"], item) for index, item in enumerate(items))


def test_an_approved_call_is_to_be_run() -> None:
    (approval,) = read(REQUEST, YES).approved.values()
    assert approval == ("input[1]", "mcpr_1", "bank", "pay", "{}", False)


def test_a_call_that_was_made_is_not_run_again() -> None:
    found = read(REQUEST, YES, CALL, YES)
    assert (dict(found.approved), list(found.made)) == ({}, ["mcpr_1"])


def test_a_refusal_is_told_to_the_model_and_the_last_word_counts() -> None:
    assert read(REQUEST, YES, NO).not_run == {"mcpr_1": "The user did not approve this call. Too dear."}
    assert list(read(REQUEST, NO, YES).approved) == ["mcpr_1"]


def test_an_approval_behind_which_the_model_went_on_runs_nothing() -> None:
    found = read(REQUEST, YES, SAID)
    assert (dict(found.approved), found.not_run) == ({}, {"mcpr_1": INTERRUPTED})


@pytest.mark.parametrize(
    ("items", "param", "code"),
    [
        ([YES], "input[0].approval_request_id", "approval_request_not_found"),
        ([REQUEST, {**YES, "approve": None}], "input[1].approve", "missing_required_parameter"),
        ([REQUEST, {**REQUEST, "arguments": '{"all": 1}'}], "input[1].id", "duplicate_approval_request"),
    ],
)
def test_what_cannot_be_decided_is_refused(items: list[dict[str, Any]], param: str, code: str) -> None:
    with pytest.raises(ApiError) as refused:
        read(*items)
    assert (refused.value.status, refused.value.param, refused.value.code) == (400, param, code)


def test_open_approvals_are_those_without_a_decision_or_without_their_call() -> None:
    assert open_items([SAID, REQUEST, "odd"]) == {1}
    assert open_items([REQUEST, YES]) == {0, 1}
    assert open_items([REQUEST, YES, CALL]) == set()
    assert open_items([REQUEST, NO]) == set()


def test_thousands_of_approvals_and_messages_hold_nobody_up() -> None:
    asked = [{**REQUEST, "id": f"mcpr_{number}"} for number in range(3_000)]
    decided = [{**YES, "approval_request_id": f"mcpr_{number}"} for number in range(3_000)]
    said = [{"type": "message", "role": "user", "content": "go on"}] * 3_000
    begun = time.process_time()
    found = read(*asked, *decided[:-1], *said, decided[-1]).approved
    assert time.process_time() - begun < 1
    assert [approval.followed for approval in found.values()] == [True] * 2_999 + [False]
