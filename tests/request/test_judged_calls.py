"""What the judge of tool calls is shown, and how its answer is read."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from responses_gateway.request.safeguards import (
    MOST_OF_A_CALL,
    Call,
    calls_in,
    conversation_of,
    known_verdict,
    question_about,
    read_safeguards,
    read_verdict,
    results_of,
)

LONG = "y" * 100_000


def said(text: str) -> dict[str, Any]:
    return {"role": "user", "content": text}


def called(command: str) -> dict[str, Any]:
    return {"role": "assistant", "content": None, "tool_calls": [{"function": {"name": "Bash", "arguments": command}}]}


@pytest.mark.slow
def test_of_a_long_conversation_the_beginning_and_the_end_are_shown() -> None:
    messages = [
        {"role": "system", "content": LONG},
        said(f"{LONG} do the first thing"),
        *(called(f"echo {n}") for n in range(9_000)),
    ]
    messages += [said(f"{LONG} and the last")]
    shown = conversation_of(messages, "{}")
    assert "do the first thing" in shown
    assert "and the last" in shown
    assert "echo 8999" in shown
    assert "echo 1 " not in shown
    assert len(shown) < 50_000


def test_parts_of_messages_are_read_and_results_of_tools_are_not() -> None:
    content = [{"type": "text", "text": "first"}, {"type": "image_url", "image_url": {}}, {"type": "text", "text": "second"}, 7]
    messages = [said("begin"), {"role": "tool", "content": "safe! safe!"}, {"role": "user", "content": content}]
    shown = conversation_of(messages, "{}")
    assert '{"user": "first\\nsecond"}' in shown
    assert "safe!" not in shown


def test_without_a_user_there_is_no_conversation() -> None:
    assert conversation_of([{"role": "system", "content": "Be brief."}], "{}").endswith("Conversation:\n")


@given(st.text(), st.text())
def test_a_call_cannot_leave_its_line(name: str, arguments: str) -> None:
    question = question_about(Call("t", name, arguments, complete=True), "")
    assert "\n" not in question.partition("The call to judge:\n")[2]


@given(st.text())
def test_only_one_word_is_a_verdict(answer: str) -> None:
    verdict = read_verdict(answer)
    word = answer.rpartition("</think>")[2].strip().partition("\n")[0].strip(" \t*`\"'.:").lower()
    if word not in ("safe", "unsafe"):
        assert results_of({"t": verdict})[0]["status"]["tool_uses"] == {"t": {"type": "unavailable", "reason": "error"}}


def test_an_unsafe_call_always_has_an_explanation() -> None:
    assert read_verdict("unsafe").as_json()["explanation"]
    assert read_verdict(f"unsafe\n\n{LONG}").as_json()["explanation"] == LONG[:400]


def test_a_call_that_is_cut_or_too_long_is_not_judged() -> None:
    output = [
        {"type": "message", "content": []},
        {"type": "function_call", "call_id": "f", "name": "Bash", "arguments": '{"command":"ls', "status": "incomplete"},
        {"type": "custom_tool_call", "call_id": "c", "name": "patch", "input": LONG, "status": "completed"},
        {"type": "function_call", "call_id": "g", "name": "Bash", "arguments": "{}", "status": "completed"},
    ]
    cut, long, good = calls_in(output)
    assert len(long.arguments) > MOST_OF_A_CALL
    assert known_verdict(good) is None
    told = results_of({call.tool_use_id: verdict for call in (cut, long) if (verdict := known_verdict(call))})
    assert told[0]["status"]["tool_uses"] == {
        "f": {"type": "unavailable", "reason": "truncated"},
        "c": {"type": "unavailable", "reason": "input_too_long"},
    }


def test_what_a_client_says_of_its_calls_is_read_and_what_cannot_be_read_asks_for_nothing() -> None:
    context = {"live_cwd": "/work", "rules": ["no network"], "unknown": 1}
    read = read_safeguards([7, {"type": "other"}, {"type": "dangerous_tool_use", "classifier_context": context}])
    assert read == '{"live_cwd": "/work", "rules": ["no network"]}'
    assert read_safeguards([{"type": "dangerous_tool_use", "classifier_context": 5}]) == "{}"
    assert read_safeguards([{"type": "other"}]) is None
    assert read_safeguards("dangerous_tool_use") is None
