"""The forms in which the templates of some models want a conversation: each says the same, and says it again the same way."""

from __future__ import annotations

from typing import Any

import pytest

from responses_gateway.request.input.template_forms import forms_wanted, in_forms

Messages = list[dict[str, Any]]


def call(call_id: str) -> dict[str, Any]:
    return {"id": call_id, "type": "function", "function": {"name": "read", "arguments": "{}"}}


def result(call_id: str) -> dict[str, Any]:
    return {"role": "tool", "tool_call_id": call_id, "content": f"result of {call_id}"}


CHAT: Messages = [
    {"role": "system", "content": "Be good."},
    {"role": "user", "content": "Do it."},
    {"role": "assistant", "content": "Both.", "reasoning": "Two files.", "tool_calls": [call("c1"), call("c2")]},
    result("c1"),
    result("c2"),
    {"role": "system", "content": "Hurry."},
    {"role": "assistant", "content": "", "reasoning": "One more.", "tool_calls": [call("abcdefgh9")]},
    result("abcdefgh9"),
    {"role": "assistant", "content": "Done.", "reasoning": "All read."},
]


@pytest.mark.parametrize(
    ("refusal", "form"),
    [
        ("This model only supports single tool-calls at once!", "single_calls"),
        ("Multiple tool calls are not supported by this template", "single_calls"),
        ("Jinja Exception: Cannot pass both content and thinking in an assistant message with tool calls!", "joined_thoughts"),
        ("System role not supported", "no_system"),
        ("Developer instruction is not enabled for models/gemma-3-27b-it", "no_system"),
        ("Tool call IDs should be alphanumeric strings with length 9!", "short_ids"),
        ("Tool call id was call_1 but must be a-z, A-Z, 0-9, with a length of 9.", "short_ids"),
    ],
)
def test_refusals_name_a_form(refusal: str, form: str) -> None:
    assert forms_wanted(refusal.encode()) == {form}


@pytest.mark.parametrize(
    "refusal", ["Unknown parameter: 'parallel_tool_calls'.", "The prompt is not supported", "No tool call"]
)
def test_other_refusals_name_none(refusal: str) -> None:
    assert forms_wanted(refusal.encode()) == frozenset()


def test_each_call_is_followed_by_its_result() -> None:
    sent = in_forms(CHAT, {"single_calls"})
    assert sent[:2] == CHAT[:2]
    assert sent[2] == {**CHAT[2], "tool_calls": [call("c1")]}
    assert sent[3:6] == [result("c1"), {"role": "assistant", "content": "", "tool_calls": [call("c2")]}, result("c2")]
    assert sent[6:] == CHAT[5:]


def test_a_call_without_a_result_stays() -> None:
    sent = in_forms([{**CHAT[2], "tool_calls": [call("a"), call("b")]}, result("b")], {"single_calls"})
    assert [(message.get("tool_calls") or [{}])[0].get("id", "result") for message in sent] == ["a", "b", "result"]


def test_a_thought_and_the_text_before_a_call_are_one_text() -> None:
    sent = in_forms(CHAT, {"joined_thoughts"})
    assert sent[2] == {"role": "assistant", "content": "Two files.\n\nBoth.", "tool_calls": CHAT[2]["tool_calls"]}
    assert sent[:2] + sent[3:] == CHAT[:2] + CHAT[3:]  # a thought alone, and one before an answer, are no trouble


def test_the_user_says_what_the_system_message_does() -> None:
    sent = in_forms(CHAT, {"no_system"})
    assert sent[0] == {"role": "user", "content": "Be good.\n\nDo it."}
    assert sent[4] == {"role": "user", "content": "<system_message>\nHurry.\n</system_message>"}
    assert in_forms(CHAT[:1] + CHAT[2:5], {"no_system"})[0] == {"role": "user", "content": "Be good."}


def test_ids_have_nine_characters_and_still_belong_together() -> None:
    sent = in_forms(CHAT, {"short_ids"})
    made = [entry["id"] for message in sent for entry in message.get("tool_calls", ())]
    assert made == [message["tool_call_id"] for message in sent if message["role"] == "tool"]
    assert {len(made_id) for made_id in made} == {9}
    assert len(set(made)) == 3
    assert made[2] == "abcdefgh9"


@pytest.mark.parametrize("forms", [{"no_system", "alternating"}, {"single_calls", "short_ids", "joined_thoughts"}])
def test_a_conversation_that_has_the_forms_stays_as_it_is(forms: set[str]) -> None:
    sent = in_forms(CHAT, forms)
    assert in_forms(sent, forms) == sent
