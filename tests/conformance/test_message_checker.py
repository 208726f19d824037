"""Good streams of the Messages API pass; streams with one thing wrong break the rule about it and no other."""

from __future__ import annotations

from typing import get_args

import pytest

from responses_gateway.conformance.levels import LEVELS, MESSAGE_RULES, RULES, MessageRule
from responses_gateway.conformance.messages import check_message_stream
from tests.conformance.message_streams import BROKEN, GOOD, HELLO, encode


@pytest.mark.parametrize("name", GOOD)
def test_a_good_message_breaks_no_rule(name: str) -> None:
    assert check_message_stream(encode(GOOD[name])) == []


def test_a_broken_message_breaks_its_rule_and_no_other() -> None:
    found = [(rule, {violation.rule for violation in check_message_stream(encode(events()))}) for rule, events in BROKEN]
    assert [(rule, broken) for rule, broken in found if broken != {rule}] == []


def test_every_message_rule_has_a_broken_stream_a_level_and_a_reason() -> None:
    assert {rule for rule, _ in BROKEN} | {"message_event_name", "message_marker"} == set(MESSAGE_RULES)
    assert set(MESSAGE_RULES) == set(get_args(MessageRule))
    assert MESSAGE_RULES.keys().isdisjoint(RULES)
    for demand in MESSAGE_RULES.values():
        assert demand.level in LEVELS
        assert demand.text.endswith(".")
        assert demand.reason.endswith(".")


@pytest.mark.parametrize(
    ("body", "rule"),
    [
        (encode(HELLO).replace(b"event: ping\n", b""), "message_event_name"),
        (encode(HELLO) + b"data: [DONE]\n\n", "message_marker"),
        (encode(HELLO)[:-1], "message_malformed"),
        (encode(HELLO).replace(b'{"type": "ping"}', b"{ping"), "message_malformed"),
        (b"", "message_end"),
    ],
    ids=["no-name", "done", "no-blank-line", "no-json", "nothing"],
)
def test_what_surrounds_the_events_is_checked_too(body: bytes, rule: str) -> None:
    (violation,) = check_message_stream(body)
    assert (violation.rule, violation.level) == (rule, MESSAGE_RULES[violation.rule].level)  # type: ignore[index]
