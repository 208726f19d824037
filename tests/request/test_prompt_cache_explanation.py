"""Why a turn lost its cache, judged by numbers alone: every cause, the order of several, and what is kept in memory."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from responses_gateway.request.prompt_cache.context import Answer
from responses_gateway.request.prompt_cache.contexts import Asking, Contexts
from responses_gateway.request.prompt_cache.explanation import Explanation, Report
from responses_gateway.request.prompt_cache.prompt_print import Prompt, print_of_items, read_prompt, text_checksum

Message = dict[str, Any]
ASKING = Asking("tenant", "session", "thread")
SYSTEM = {"role": "system", "content": "Be an agent. " * 40}
NEW = {"role": "system", "content": "New."}
FIRST = {"role": "user", "content": "Do it. " * 20}
SAID = {"role": "assistant", "content": "Done.", "reasoning": "Hm."}
MORE = {"role": "user", "content": "And more. " * 20}
TOOLS = [{"type": "function", "function": {"name": "f"}}]


def prompt(*messages: Message, **fields: Any) -> Prompt:
    return read_prompt(msgspec.json.encode({"model": "m", "messages": messages, "tools": TOOLS, **fields}))


def answer(tokens: int = 100, thought: int = 40, text: str = "Done.") -> Answer:
    return Answer(tokens, thought, text_checksum(text), 0)


class Session:
    """A session whose turns are reported by hand."""

    def __init__(self) -> None:
        self.contexts = Contexts()

    def turn(
        self, *messages: Message, tokens: int, cached: int | None, server: str = "a", said: Answer | None = None, **fields: Any
    ) -> Explanation:
        report = Report(server, tokens, cached)
        return self.contexts.turn(ASKING, prompt(*messages, **fields), report, answer() if said is None else said)


def begun() -> Session:
    session = Session()
    first = session.turn(SYSTEM, FIRST, tokens=1000, cached=0)
    assert (first.cause, first.lost) == ("first", 0)
    return session


@pytest.mark.parametrize(
    ("messages", "fields", "reported", "cause", "lost", "item"),
    [
        ((SYSTEM, FIRST, SAID, MORE), {}, (1150, 1088), None, 0, ""),
        ((SYSTEM, FIRST, SAID, MORE), {}, (1150, None), "unreported", None, ""),
        ((SYSTEM, FIRST, SAID, MORE), {}, (1150, 0), "evicted", 1088, ""),
        ((SYSTEM, FIRST, SAID, MORE), {}, (1150, 512), "evicted", 576, ""),
        ((SYSTEM, FIRST, SAID, MORE), {}, (1110, 992), "template", 96, "messages[2]"),
        ((SYSTEM, FIRST, SAID, MORE), {}, (1050, 992), "template", 96, "messages[2]"),
        ((SYSTEM, FIRST, SAID, MORE), {"tools": []}, (1150, 0), "tools_changed", 1088, "tools"),
        ((NEW, FIRST, SAID, MORE), {}, (1150, 0), "instructions_changed", 1088, "messages[0]"),
        ((SYSTEM, FIRST, {"role": 5}, MORE), {}, (1150, 992), "input_changed", 96, "messages[2]"),
        ((SYSTEM, FIRST, {**SAID, "content": "Else."}, MORE), {}, (1150, 992), "input_changed", 96, "messages[2]"),
        ((SYSTEM, FIRST, {**SAID, "reasoning": ""}, MORE), {}, (1150, 992), "input_changed", 96, "messages[2]"),
        ((SYSTEM, FIRST), {}, (1000, 992), "input_changed", 96, "messages[2]"),
        ((SYSTEM, FIRST, MORE), {}, (1100, 992), "input_changed", 96, "messages[2]"),
        ((SYSTEM, FIRST, MORE), {}, (1100, 0), "evicted", 1088, ""),
        ((SYSTEM, FIRST, SAID, MORE), {"reasoning_effort": "low"}, (1150, 0), "template", 1088, "reasoning_effort"),
        ((SYSTEM, FIRST, SAID, MORE), {"server": "b"}, (1150, 0), "other_backend", 1088, ""),
        (({"role": "user", "content": "Title?"},), {"tools": []}, (50, 0), "first", 0, ""),
        ((SYSTEM, FIRST, SAID, MORE), {"model": "other"}, (1150, 0), "first", 0, ""),
    ],
)  # fmt: skip
def test_each_cause(
    messages: tuple[Message, ...],
    fields: dict[str, Any],
    reported: tuple[int, int | None],
    cause: str | None,
    lost: int | None,
    item: str,
) -> None:
    tokens, cached = reported
    found = begun().turn(*messages, tokens=tokens, cached=cached, **fields)
    assert (found.cause, found.lost, found.item) == (cause, lost, item)


def test_thoughts_within_a_cycle_are_not_taken_for_left_out() -> None:
    """Nobody has spoken since: no template leaves them out, so the server has dropped its blocks."""
    result = {"role": "tool", "tool_call_id": "1", "content": "found " * 30}
    session = begun()
    session.turn(SYSTEM, FIRST, SAID, result, tokens=1150, cached=1088)
    found = session.turn(SYSTEM, FIRST, SAID, result, SAID, result, tokens=1300, cached=992)
    assert found.cause == "evicted"


def test_what_opens_an_answer_may_have_another_form_in_the_past() -> None:
    """What is cached ends with a whole block before it, which may be the last but one of the prompt."""
    result = {"role": "tool", "tool_call_id": "1", "content": "found " * 30}
    session = begun()
    found = session.turn(SYSTEM, FIRST, SAID, result, tokens=1150, cached=976, said=answer())
    assert (found.cause, found.item) == ("template", "messages[2]")
    # The place of that answer is still known, where its thought is left out later.
    found = session.turn(SYSTEM, FIRST, SAID, result, SAID, MORE, tokens=1220, cached=976)
    assert (found.cause, found.item) == ("template", "messages[2]")


def test_what_stands_before_a_change_in_the_middle_can_be_cached() -> None:
    session = begun()
    session.turn(SYSTEM, FIRST, SAID, MORE, tokens=1150, cached=1088)
    found = session.turn(SYSTEM, FIRST, SAID, {"role": "user", "content": "Another."}, tokens=1100, cached=512)
    assert (found.cause, found.context) == ("evicted", 1250)
    assert 992 <= found.possible < 1150


def test_a_warm_prompt_has_no_answer_to_be_repeated() -> None:
    session = Session()
    session.turn(SYSTEM, tokens=900, cached=0, said=Answer())
    found = session.turn(SYSTEM, FIRST, tokens=1000, cached=896)
    assert (found.cause, found.lost) == (None, 0)


def test_a_title_in_between_does_not_hide_the_work() -> None:
    session = begun()
    title = session.turn({"role": "user", "content": "A title, please."}, tools=[], tokens=50, cached=0)
    assert title.cause == "first"
    found = session.turn(SYSTEM, FIRST, SAID, MORE, tokens=1150, cached=1088)
    assert (found.cause, found.lost) == (None, 0)


def test_a_sibling_shows_what_a_child_could_have_had() -> None:
    contexts = Contexts()
    contexts.turn(ASKING, prompt(SYSTEM, FIRST), Report("a", 1000, 0), answer())
    child = ASKING._replace(thread="child")
    found = contexts.turn(child, prompt(SYSTEM, FIRST, SAID, MORE), Report("a", 1150, 0), answer())
    assert (found.cause, found.lost, found.possible) == ("first", 0, 1088)
    elsewhere = contexts.turn(ASKING._replace(thread="other"), prompt(SYSTEM, FIRST), Report("b", 1000, 0), answer())
    assert elsewhere.possible == 0


@given(st.lists(st.tuples(st.integers(0, 3), st.integers(0, 2000), st.integers(1, 3000), st.booleans()), max_size=30))
def test_any_reports_are_explained_within_bounds(turns: list[tuple[int, int, int, bool]]) -> None:
    """Servers report what they like: nothing is lost twice, or more than there was, and memory is bounded."""
    contexts = Contexts(most=20_000)
    messages: list[Message] = [SYSTEM]
    for number, cached, tokens, edits in turns:
        messages = messages[:1] if edits else [*messages, SAID, {"role": "user", "content": "x" * number}]
        asking = Asking(f"t{number}", f"s{number}", f"h{number % 2}")
        found = contexts.turn(asking, prompt(*messages), Report(f"b{number % 2}", tokens, cached), answer())
        assert found.lost is not None
        assert 0 <= found.lost <= max(0, found.context)
        assert found.lost % 16 == found.possible % 16 == 0
        assert (found.cause in (None, "first")) == (found.lost == 0)
    contexts.forget("t0", "s0")
    contexts.forget("t0", "s0")
    contexts.forget("nobody", "s0")


def test_one_tenant_takes_no_room_of_another() -> None:
    contexts = Contexts(most=40_000)
    quiet = Asking("quiet", "s", "t")
    contexts.turn(quiet, prompt(SYSTEM, FIRST), Report("a", 1000, 0), answer())
    for number in range(500):
        contexts.turn(Asking("loud", f"s{number}", "t"), prompt(SYSTEM, FIRST), Report("a", 1000, 0), answer())
    found = contexts.turn(quiet, prompt(SYSTEM, FIRST, SAID, MORE), Report("a", 1150, 0), answer())
    assert found.cause == "evicted"
    again = contexts.turn(Asking("loud", "s0", "t"), prompt(SYSTEM, FIRST, SAID, MORE), Report("a", 1150, 0), answer())
    assert again.cause == "first"


@pytest.mark.slow
def test_a_session_of_many_threads_keeps_the_last_ones() -> None:
    contexts = Contexts()
    long = [SYSTEM, *({"role": "user", "content": str(number)} for number in range(2000))]
    for number in range(600):
        contexts.turn(ASKING._replace(thread=str(number)), prompt(*long), Report("a", 9000, 0), answer())
    more = prompt(*long, SAID, MORE)
    assert contexts.turn(ASKING._replace(thread="0"), more, Report("a", 9200, 0), answer()).cause == "first"
    assert contexts.turn(ASKING._replace(thread="599"), more, Report("a", 9200, 0), answer()).cause == "evicted"


def test_of_items_alone_what_the_store_added_counts_for_nothing_and_what_the_model_reads_does() -> None:
    item = {"type": "message", "role": "user", "content": "Do it."}
    added = {**item, "id": "msg_1", "status": "completed"}
    echo = {"tools": TOOLS, "instructions": "Be an agent.", "reasoning": {"effort": "low"}, "text": {"verbosity": "low"}}
    known = print_of_items("m", echo, [item])
    assert known == print_of_items("m", echo, [added])
    others = [
        print_of_items("another", echo, [item]),
        print_of_items("m", {**echo, "tools": []}, [item]),
        print_of_items("m", {**echo, "instructions": "Be none."}, [item]),
        print_of_items("m", {**echo, "reasoning": None}, [item]),
        print_of_items("m", {**echo, "text": None}, [item]),
        print_of_items("m", echo, [item, added]),
    ]
    assert known not in others
