"""What names a rollout, which call a prompt continues, and what is new in a prompt."""

from __future__ import annotations

from array import array
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from responses_gateway.request.policy import Policy
from responses_gateway.request.rollout_names import divided, named_rollout, rollout_name
from responses_gateway.request.turns import answer_message
from responses_gateway.server.features.rollouts.links import answer_of_message, links_of
from responses_gateway.server.features.rollouts.token_prompt import Earlier, extended, misfit_of
from responses_gateway.wire.errors import ApiError

END = 9
DEFAULTS = Policy()


@pytest.mark.parametrize("name", ["a", "0", "A.b_c-d", "a" * 128])
def test_what_may_name_a_rollout(name: str) -> None:
    assert rollout_name(name) == name
    assert named_rollout({"X-Rollout-Id": name}) == name
    assert divided(f"key:with:{name}") == ("key:with", name)


@pytest.mark.parametrize("name", ["", "-a", ".a", "a b", "a/b", "a" * 129, "é", "a\n"])
def test_what_may_not(name: str) -> None:
    with pytest.raises(ApiError) as refused:
        named_rollout({"X-Rollout-Id": name})
    assert refused.value.status == 400


def test_a_key_alone_names_none() -> None:
    assert divided("key") == ("key", None)
    assert divided(":a") == (":a", None)
    assert named_rollout({}) is None


def messages(*said: str) -> dict[str, Any]:
    roles = ("user", "assistant")
    return {"model": "m", "messages": [{"role": roles[n % 2], "content": text} for n, text in enumerate(said)]}


def test_a_prompt_has_links_to_what_it_continues() -> None:
    links = links_of(messages("q", "a", "q2", "a2", "q3"))
    assert links.places == [4, 2]
    assert links.answers[0] == (links_of(messages("q", "a", "q2")).prompt, answer_of_message({"content": "a2"}))
    assert links.answers[1].prompt == links_of(messages("q")).prompt
    assert links_of({**messages("q"), "tools": [1]}).prompt != links_of(messages("q")).prompt
    thought = messages("q", "a", "q2")
    thought["messages"][1]["reasoning"] = "hm"
    assert links_of(thought).prompt == links_of(messages("q", "a", "q2")).prompt
    assert len(links_of(messages(*"x" * 400)).answers) == 50


def test_an_answer_is_the_same_as_items_and_as_a_message() -> None:
    items = [
        {"type": "reasoning", "content": []},
        {"type": "message", "content": [{"type": "output_text", "text": "Look: "}, {"type": "refusal", "refusal": "no"}]},
        {"type": "function_call", "call_id": "1", "name": "f", "arguments": '{"b": 1, "a": 2}'},
        {"type": "custom_tool_call", "call_id": "2", "name": "g", "input": "ls"},
        {"type": "shell_call", "call_id": "3", "action": {"commands": ["ls"]}},
        {"type": "function_call", "call_id": "4", "name": "f", "arguments": "{cut"},
    ]
    calls = [("1", '{"a":2,"b":1}'), ("2", '{"input": "ls"}'), ("3", '{"commands": ["ls"]}'), ("4", "{}")]
    tool_calls = [{"id": name, "function": {"arguments": arguments}} for name, arguments in calls]
    message = {"content": [{"type": "text", "text": "Look:\nno"}], "tool_calls": tool_calls}
    assert answered_with(items) == answer_of_message(message)
    assert answer_of_message({"content": None}) == answered_with([])
    assert answered_with(items[-1:]) != answered_with([])


def answered_with(items: list[dict[str, Any]], policy: Policy = DEFAULTS, calls_before: int = 0) -> bytes:
    """Return the digest of an answer with these items, whose roles and ids are not looked at."""
    whole = [{"role": "assistant", "id": f"i_{number}", **item} for number, item in enumerate(items)]
    return answer_of_message(answer_message(whole, {}, policy, calls_before))


@pytest.mark.parametrize(("call_ids", "expected"), [("keep", "abc"), ("numbered", "functions.f:3")])
def test_an_answer_has_the_ids_of_calls_that_later_requests_have(call_ids: Any, expected: str) -> None:
    items = [{"type": "function_call", "call_id": "abc", "name": "f", "arguments": "{}"}]
    message = {"content": None, "tool_calls": [{"id": expected, "function": {"arguments": "{}"}}]}
    assert answered_with(items, Policy(call_ids=call_ids), 3) == answer_of_message(message)


@given(st.lists(st.lists(st.integers(0, 8), max_size=4), min_size=1, max_size=4), st.lists(st.integers(0, 8), min_size=1))
def test_what_is_new_stands_behind_the_last_answer(turns: list[list[int]], new: list[int]) -> None:
    before = [number for turn in turns for number in (*turn, END)]
    found = extended(array("q", before), [*before, *new])
    assert found is not None
    assert (found.ids, found.certain) == ([*before, *new], True)
    other = [number for turn in turns for number in (*reversed(turn), 1, END)]  # as a template may write it
    found = extended(array("q", before), [*other, *new])
    assert found is not None
    assert (found.ids, found.certain, found.ends) == ([*before, *new], False, len(turns))


def test_a_prompt_without_the_end_or_without_more_does_not_fit() -> None:
    assert extended(array("q", [1, END]), [1, 2]) is None
    assert extended(array("q", [1, END]), [1, END]) is None


@pytest.mark.parametrize(
    ("body", "earlier", "misfit"),
    [
        (messages("q"), Earlier(array("q", [1]), array("q", [2]), "stop", 1), None),
        (messages("q"), Earlier(None, array("q", [2]), "stop", 1), "no_token_ids"),
        (messages("q"), Earlier(array("q", [1]), array("q", [2]), "length", 1), "answer_cut"),
        ({"messages": [{"content": [{"type": "image_url"}]}]}, Earlier(array("q", [1]), array("q", [2]), "stop", 1), "media"),
        ({**messages("q"), "echo": True}, Earlier(array("q", [1]), array("q", [2]), "tool_calls", 1), "parameter"),
    ],
)
def test_why_a_prompt_is_sent_as_messages(body: dict[str, Any], earlier: Earlier, misfit: str | None) -> None:
    assert misfit_of(body, earlier) == misfit
