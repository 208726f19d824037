"""What Claude Code has really sent: every captured request is accepted, and a conversation keeps its beginning."""

from __future__ import annotations

import json
from functools import cache
from itertools import pairwise
from typing import Any

import pytest

from responses_gateway.request import Policy
from responses_gateway.request.tools.hosted_tools import HostedTools
from tests.data_folder import BESIDE
from tests.request.messages_bodies import Fields, assistant, call, reading_of, result, text, thought, translated, user

FOLDER = BESIDE / "claude" / "requests"
CAN_SEARCH = HostedTools(frozenset({"web_search"}))
POLICIES = [Policy(), Policy(late_developer="system"), Policy(user_messages="merge", reasoning_field="both")]

captured = pytest.mark.skipif(not FOLDER.exists(), reason="the captured requests of Claude Code are not here")


@cache
def captures() -> dict[str, Fields]:
    """Return the bodies by name; of a capture of several requests each has a number."""
    found = {}
    for path in sorted(FOLDER.glob("*.json")):
        content = json.loads(path.read_bytes())
        requests = content if isinstance(content, list) else [content]
        found |= {f"{path.stem}-{number}": _whole(request["body"]) for number, request in enumerate(requests)}
    return found


def _whole(body: Fields) -> Fields:
    """Return a body with what the file leaves out, where the requests differ in their fields alone."""
    tools = [{"input_schema": {"type": "object"}, **tool} if "type" not in tool else tool for tool in body.get("tools", [])]
    return {"messages": [user("hi")], **body, "tools": tools}


@captured
@pytest.mark.parametrize("policy", POLICIES, ids=["folded", "in place", "merged"])
def test_every_captured_request_is_accepted(policy: Policy) -> None:
    assert len(captures()) >= 19
    for body in captures().values():
        translated(body, policy, CAN_SEARCH)


@captured
def test_strict_refuses_nothing_that_claude_code_sends_by_itself() -> None:
    for body in captures().values():
        translated(body, Policy(strict=True), CAN_SEARCH)


@captured
def test_the_title_and_the_classifier_do_not_think() -> None:
    for name in ("13-tui-title-0", "15-auto-mode-classifier-0", "11-web-search-0"):
        body = captures()[name]
        assert reading_of(body, hosted={"web_search"}).thinking == "hidden"
        assert translated(body, hosted=CAN_SEARCH).body["reasoning_effort"] == "none"


@captured
def test_the_second_request_of_a_turn_begins_like_the_first() -> None:
    """Compare the captures up to the question, which differs: there the system message is a list, here a string."""
    first, second = (translated(captures()[f"{name}-0"]).body for name in ("01-first-turn", "02-after-tool-result"))
    assert first["tools"] == second["tools"]
    asked = [body["messages"][1]["content"].replace("Run echo hi", "Say hello") for body in (first, second)]
    assert asked[0] == asked[1]
    assert first["messages"][0] == second["messages"][0]


def conversation(requests: int) -> list[Fields]:
    """Return the requests of a conversation as Claude Code sends them: a bill that is new each time, a system message that is
    a list while it is last and a string later, marks for the cache that move, what is left of a budget after each result."""
    history: list[Fields] = [user(text("<system-reminder>r</system-reminder>"), text("Do it")), _system("environment")]
    bodies = []
    for number in range(requests):
        bill = f"x-anthropic-billing-header: cc_version=2.1.330.{number:03x}; cch={number:05x};"
        bodies.append({"model": "m", "max_tokens": 9, "system": [text(bill), text("You help.")], "messages": _as_sent(history)})
        first, second = f"toolu_{number}a", f"toolu_{number}b"
        history += [
            assistant(thought(f"Step {number}."), f"I do {number}.", call(first, n=number), call(second, n=number)),
            user(result(second, "second"), result(first, [text("first")])),
            _system(f"<total_tokens>{10_000 - number} tokens left</total_tokens>"),
        ]
        if number % 5 == 4:
            history += [assistant(f"Done with {number}."), user(f"Go on {number}")]
    return bodies


def _system(words: str) -> Fields:
    return {"role": "system", "content": words}


def _as_sent(history: list[Fields]) -> list[Fields]:
    last: Any = history[-1]
    content = last["content"]
    blocks = [text(content)] if isinstance(content, str) else [dict(block) for block in content]
    blocks[-1]["cache_control"] = {"type": "ephemeral"}
    return [*history[:-1], {**last, "content": blocks}]


@pytest.mark.parametrize("policy", POLICIES, ids=["folded", "in place", "merged"])
def test_each_prompt_of_a_conversation_begins_with_the_one_before(policy: Policy) -> None:
    prompts = [json.dumps(translated(body, policy).body["messages"])[:-1] for body in conversation(30)]
    assert all(later.startswith(earlier) for earlier, later in pairwise(prompts))
    assert len(set(prompts)) == len(prompts)
