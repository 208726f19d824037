"""Conversations for templates that want turns to alternate: every template of that kind takes them, and nothing is left out."""

from __future__ import annotations

import json
import re
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from responses_gateway.request import Policy
from responses_gateway.request.input.template_forms import alternating, forms_wanted
from tests.request.builders import Item, assistant, call, chat_request, developer, image, messages, output, user
from tests.thoroughness import examples

ALTERNATE = Policy(user_messages="alternate")
_LETTERS = {"system": "s", "user": "u", "assistant": "a", "tool": "t"}
# Devstral's template: turns alternate, calls and results aside. Ministral's: the assistant answers results.
TEMPLATES = (r"s?[ct]*(u[ct]*a[ct]*)*(u[ct]*)?", r"(?!.*t[us]).*")


def roles(sent: list[dict[str, Any]]) -> str:
    return "".join("c" if message.get("tool_calls") else _LETTERS[message["role"]] for message in sent)


def fits(sent: list[dict[str, Any]]) -> bool:
    return all(re.fullmatch(template, roles(sent)) for template in TEMPLATES)


@pytest.mark.parametrize(
    ("items", "form"),
    [
        ([user("q")], "u"),
        ([user("q"), user("r"), assistant("A"), user("s")], "uau"),
        ([user("q"), call("c1"), output("c1"), user("stop")], "uctau"),
        ([user("q"), call("c1"), output("c1"), developer("late")], "uctau"),
        ([user("q"), call("c1"), user("stop")], "uctau"),  # the call has no result
        ([user("q"), call("c1"), output("c1", [image()])], "uctau"),
        ([assistant("hello"), user("q")], "uau"),
        ([developer("first"), developer("second"), assistant("hello")], "suau"),
        ([user("q"), assistant("A")], "uau"),
        ([developer("only")], "su"),
        ([call("c1"), output("c1"), assistant("A"), user("q")], "uctau"),
        ([user("q"), call("c1"), output("c1"), assistant("A"), call("c2"), output("c2"), user("r")], "uctctau"),
    ],
)
def test_each_order_has_a_form_that_such_templates_take(items: list[Item], form: str) -> None:
    sent = messages(*items, policy=ALTERNATE)
    assert roles(sent) == form
    assert fits(sent)


def test_what_alternates_already_is_sent_as_it_is() -> None:
    items = [developer("note"), user("q"), call("c1"), output("c1"), assistant("A"), user("r")]
    assert messages(*items, policy=ALTERNATE) == messages(*items)


def test_an_answer_that_continues_the_last_message_stays_last() -> None:
    policy = Policy(user_messages="alternate", continues_last_message=True)
    sent = messages(user("q"), call("c1"), output("c1"), user("more"), assistant("It is"), policy=policy)
    assert roles(sent) == "uctaua"
    assert sent[-1]["content"] == "It is"
    assert roles(messages(user("q"), assistant("It is"), user("more"), policy=policy)) == "uau"


def test_a_change_is_reported() -> None:
    changed = chat_request(user("q"), call("c1"), output("c1"), user("stop"), policy=ALTERNATE)
    assert ("turns", "adapted") in [(loss.name, loss.outcome) for loss in changed.losses]
    plain = chat_request(user("q"), call("c1"), output("c1"), policy=ALTERNATE)
    assert "turns" not in [loss.name for loss in plain.losses]


def test_late_system_messages_are_the_users() -> None:
    policy = Policy(user_messages="alternate", late_developer="system", system_messages="keep")
    sent = messages(developer("one"), developer("two"), user("q"), call("c1"), output("c1"), developer("late"), policy=policy)
    assert roles(sent) == "suctau"
    assert "late" in sent[-1]["content"]
    assert sent[0]["content"] == "one\n\ntwo"


@st.composite
def chats(draw: st.DrawFn) -> list[dict[str, Any]]:
    """Return chat messages as the translation arranges them, each with a text of its own."""
    kinds = draw(st.lists(st.sampled_from(["user", "picture", "system", "assistant", "calls"]), max_size=12))
    chat: list[dict[str, Any]] = []
    for number, kind in enumerate(kinds):
        text = f"text-{number}."
        if kind == "calls":
            ids = [f"call-{number}-{index}" for index in range(draw(st.integers(1, 3)))]
            calls = [{"id": name, "type": "function", "function": {"name": "f", "arguments": "{}"}} for name in ids]
            chat.append({"role": "assistant", "content": text, "reasoning": f"thought-{number}.", "tool_calls": calls})
            chat += [{"role": "tool", "tool_call_id": name, "content": f"result of {name}."} for name in ids]
        elif kind == "picture":
            chat.append({"role": "user", "content": [{"type": "image_url", "image_url": {"url": text}}]})
        else:
            chat.append({"role": kind, "content": text})
    return chat


@given(chats())
@settings(max_examples=examples(300), derandomize=True, deadline=None)
def test_any_conversation_is_taken_whole(chat: list[dict[str, Any]]) -> None:
    sent = alternating(chat)
    assert fits(sent)
    assert alternating(sent) == sent
    written = json.dumps(sent)
    told = re.findall(r"(?:text-\d+|thought-\d+|result of call-[\d-]+)\.", json.dumps(chat))
    places = [written.index(text) for text in told]
    assert len(set(places)) == len(told)
    behind = [place for place, text in zip(places, told, strict=True) if text.startswith("text")]
    assert behind == sorted(behind)  # in the order in which it was said
    ids = [entry["id"] for message in sent for entry in message.get("tool_calls", ())]
    assert ids == [message["tool_call_id"] for message in sent if message["role"] == "tool"]


@pytest.mark.parametrize(
    "refusal",
    [
        "Jinja Exception: After the optional system message, conversation roles must alternate user and assistant roles",
        "Unexpected role 'user' after role 'tool'",
        "Conversation roles must alternate user/assistant/user/assistant/...",
        'messages: roles must alternate between "user" and "assistant", but found multiple "user" roles in a row',
        "A conversation must start with a user message. Try again with a conversation that starts with a user message.",
        "Expected last role User or Tool (or Assistant with prefix True) for serving but got assistant",
        "After the (optional) system message(s), user or tool message(s) should alternate with assistant message(s).",
        "Error rendering prompt with jinja template",
        "An assistant message with 'tool_calls' must be followed by tool messages",
        "No user query found in messages.",
        "System message must be at the beginning.",
    ],
)
def test_refusals_of_the_order_are_recognised(refusal: str) -> None:
    assert forms_wanted(refusal.encode()) == {"alternating"}


@pytest.mark.parametrize("refusal", ["The model does not exist.", "temperature must be at most 2", "", "\xff"])
def test_other_refusals_are_not_about_the_order(refusal: str) -> None:
    assert not forms_wanted(refusal.encode("latin-1"))
