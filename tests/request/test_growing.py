"""Requests of a growing thread: nobody can tell that what was known of one was not read and translated again."""

from __future__ import annotations

import json
from itertools import chain
from typing import Any

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from responses_gateway.request import ChatRequest, Policy, translate
from responses_gateway.request.growing import Grown, TranslatedTurns, encoded, translate_growing
from responses_gateway.server.generation.preparation.known_inputs import SMALLEST, Growing, KnownInputs
from responses_gateway.server.protocols.responses import RESPONSES
from responses_gateway.wire.errors import ApiError
from responses_gateway.wire.requests import ResponsesRequest, parse_request
from tests.thoroughness import examples

Item = dict[str, Any]
# Long enough that each body is worth being kept.
LONG = "Follow the house rules. " * (SMALLEST // 20)
TOOLS = [
    {"type": "function", "name": name, "parameters": {"type": "object", "properties": {"input": {"default": 1}}}}
    for name in ("read", "write")
]
# Equal to Python, and others to a model.
TRUE_TOOLS = json.loads(json.dumps(TOOLS).replace("1", "true"))
POLICIES = (
    Policy(),
    Policy(late_developer="system", system_messages="keep", call_ids="numbered"),
    Policy(late_developer="merge", call_ids="nine", reasoning_field="both"),
    Policy(user_messages="merge"),
    Policy(user_messages="alternate"),
    Policy(max_input_items=12),
    Policy(url_inputs="public"),
    Policy(strict=True),
)
ITEMS = st.one_of(
    st.builds(lambda text: {"type": "message", "role": "user", "content": text}, st.text(max_size=5)),
    st.builds(lambda text: {"role": "developer", "content": [{"type": "input_text", "text": text}]}, st.text(max_size=5)),
    st.builds(lambda text: {"type": "message", "role": "assistant", "content": text}, st.text(max_size=5)),
    st.builds(
        lambda text, key: {"type": "reasoning", "id": f"rs_{key}", "summary": [], "content": text},
        st.sampled_from([None, [{"type": "reasoning_text", "text": "Hm."}]]),
        st.integers(0, 3),
    ),
    st.builds(
        lambda number, name, text: {"type": "function_call", "call_id": f"c{number}", "name": name, "arguments": text},
        st.integers(0, 9),
        st.sampled_from(["read", "write", "gone"]),
        st.sampled_from(["{}", '{"input": "x"}', "no JSON"]),
    ),
    st.builds(
        lambda number, text: {"type": "function_call_output", "call_id": f"c{number}", "output": text},
        st.integers(0, 9),
        st.sampled_from(["done", [{"type": "input_text", "text": "seen"}], 5]),
    ),
    st.builds(
        lambda number: {"type": "custom_tool_call", "call_id": f"c{number}", "name": "patch", "input": "x"}, st.integers(0, 9)
    ),
    st.sampled_from(
        [{"type": "item_reference", "id": "x"}, {"type": "additional_tools", "tools": TOOLS}, "text", {"type": "new"}]
    ),
)
# What no model has called.
ITEMS |= st.builds(
    lambda told: {"type": "function_call_output", "id": "fco_1", "name": "automation_update", "output": told},
    st.sampled_from(["look", [{"type": "input_image", "image_url": "http://10.0.0.1/a.png"}], 5]),
)
# Pictures, of which the policies that look at URLs refuse one.
ITEMS |= st.builds(
    lambda url: {"role": "user", "content": [{"type": "input_image", "image_url": url}]},
    st.sampled_from(["http://10.0.0.1/a.png", "https://example.com/a.png", "data:image/png;base64,AA=="]),
)
# A whole step of an agent, whose call has an output.
STEPS = st.builds(
    lambda number, text: [
        {"type": "reasoning", "summary": [], "content": [{"type": "reasoning_text", "text": text}]},
        {"type": "function_call", "call_id": f"step{number}", "name": "read", "arguments": "{}"},
        {"type": "function_call_output", "call_id": f"step{number}", "output": text},
    ],
    st.integers(0, 10_000),
    st.text(min_size=1, max_size=5),
)
MORE = st.lists(st.one_of(STEPS, STEPS, ITEMS.map(lambda item: [item])), max_size=4).map(
    lambda parts: list(chain.from_iterable(parts))
)


class Thread:
    """Translates each request twice: as a whole, and as the next one of its thread."""

    def __init__(self) -> None:
        self.known = KnownInputs(1 << 26)
        self.continued = 0
        self.with_known_tools = 0

    def ask(self, body: bytes, policy: Policy, tenant: str = "a") -> None:
        assert self.grown(body, policy, tenant) == whole(body, policy)

    def grown(self, body: bytes, policy: Policy, tenant: str) -> object:
        assert self.known.keeps(body)
        continued = self.known.read(tenant, body, RESPONSES.body)
        try:
            growing = Growing(body, RESPONSES.body, parse_request(body)) if continued is None else continued
            request = growing.asked
            beginning = growing.beginning
            items = request.input
            rest = items[beginning.items if beginning else 0 :] if isinstance(items, list) else None
            others = self.known.beginnings(tenant)
            found = None if rest is None else translate_growing(request, policy, rest, beginning, None, others)
            if found is None:
                return outcome(translate(request, policy))
            written, later = encoded(found, found.chat.body)
            self.continued += found.known is not None
            self.with_known_tools += found.known is None and found.alike is not None
            if later is not None and isinstance(items, list):
                self.known.keep(tenant, growing, later)
            return outcome(found.chat, written.data)
        except ApiError as error:
            return error.body()


class Chain:
    """Translates each request of a chain twice: with all of its history, and with what is new of it."""

    def __init__(self, policy: Policy) -> None:
        self.policy = msgspec.structs.replace(policy, stores_responses=True)
        self.history: list[Any] = []
        self.known: TranslatedTurns | None = None
        self.continued = 0

    def ask(self, sent: list[Any] | str, answer: list[Any]) -> None:
        body = {"model": "m", "instructions": LONG, "input": sent, "tools": TOOLS, "previous_response_id": "resp_1"}
        request = parse_request(json.dumps(body).encode())
        items = [{"type": "message", "role": "user", "content": sent}] if isinstance(sent, str) else sent
        refusals: list[object] = []
        expected = None
        grown = None
        try:
            expected = outcome(translate(request, self.policy, None, self.history))
        except ApiError as error:
            refusals.append(error.body())
        try:
            grown = self.grown(request, items)
        except ApiError as error:
            refusals.append(error.body())
        if refusals:  # the chain stays what it was
            assert (expected, grown) == (None, None)
            assert refusals == refusals[:1] * len(refusals)
            return
        if grown is None:
            self.known = None
        else:
            self.continued += grown.known is not None
            written, self.known = encoded(grown, grown.chat.body)
            assert outcome(grown.chat, written.data) == expected
        self.history += [*items, *answer]

    def grown(self, request: ResponsesRequest, items: list[Any]) -> Grown | None:
        before = 0 if self.known is None else self.known.items
        return translate_growing(request, self.policy, items, self.known, None, (), self.history[before:])


def whole(body: bytes, policy: Policy) -> object:
    try:
        return outcome(translate(parse_request(body), policy))
    except ApiError as error:
        return error.body()


def outcome(chat: ChatRequest, data: bytes | None = None) -> object:
    return chat, msgspec.json.encode(chat.body) if data is None else data


def body_of(items: list[Any], **fields: Any) -> bytes:
    return json.dumps({"model": "m", "instructions": LONG, "input": items, "tools": TOOLS, "stream": True, **fields}).encode()


@settings(max_examples=examples(60), deadline=None)
@given(first=MORE, growth=st.lists(MORE, min_size=1, max_size=5), policy=st.sampled_from(POLICIES))
def test_a_growing_thread_asks_for_the_same(first: list[Any], growth: list[list[Any]], policy: Policy) -> None:
    thread = Thread()
    items = first
    thread.ask(body_of(items), policy)
    for more in growth:
        items = items + more
        changing = {"client_metadata": {"turn": len(items)}} if len(items) % 2 else {}
        thread.ask(body_of(items, **changing), policy)


@settings(max_examples=examples(60), deadline=None)
@given(
    turns=st.lists(st.tuples(st.one_of(MORE, st.text(max_size=5)), MORE), min_size=2, max_size=6),
    policy=st.sampled_from(POLICIES),
)
def test_a_chain_asks_for_the_same(turns: list[tuple[list[Any] | str, list[Any]]], policy: Policy) -> None:
    thread = Chain(policy)
    for sent, answer in turns:
        thread.ask(sent, [item for item in answer if isinstance(item, dict)])


def test_a_chain_goes_on_from_what_was_translated() -> None:
    thread = Chain(Policy())
    for number in range(5):
        call = {"type": "function_call", "call_id": f"c{number}", "name": "read", "arguments": "{}"}
        output = [{"type": "function_call_output", "call_id": f"c{number - 1}", "output": "done"}] if number else "Do it."
        thread.ask(output, [call])
    assert thread.continued == 2  # the first two have no turn yet that is over


@settings(max_examples=examples(60), deadline=None)
@given(
    items=st.lists(STEPS, min_size=2, max_size=6).map(lambda steps: list(chain.from_iterable(steps))),
    place=st.integers(0, 100),
    other=MORE,
    change=st.sampled_from(
        ["item", "cut", "tools", "truth", "model", "policy", "tenant", "instructions", "twice", "tool_choice"]
    ),
)
def test_an_edit_anywhere_is_seen(items: list[Any], place: int, other: list[Any], change: str) -> None:
    thread = Thread()
    question = {"type": "message", "role": "user", "content": "Do it. " * 20_000}
    items = [question, *items]
    thread.ask(body_of(items), Policy())
    place = place % len(items)
    fields: dict[str, Any] = {}
    policy = Policy()
    tenant = "a"
    later = [*items, *other]
    if change == "item":
        later = [*items[:place], *other, *items[place + 1 :]]
    elif change == "cut":
        later = items[:place]
    elif change == "tools":
        fields = {"tools": TOOLS[:1]}
    elif change == "truth":
        fields = {"tools": TRUE_TOOLS}
    elif change == "model":
        fields = {"model": "other"}
    elif change == "instructions":
        fields = {"instructions": LONG + "!"}
    elif change == "tool_choice":
        fields = {"tool_choice": "required"}
    elif change == "policy":
        policy = Policy(reasoning_field="none")
    elif change == "tenant":
        tenant = "b"
    body = body_of(later, **fields)
    if change == "twice":  # a second `input` counts
        body = body[:-1] + b', "input": ' + json.dumps(other).encode() + b"}"
    thread.ask(body, policy, tenant)
    thread.ask(body_of([*items, {"type": "message", "role": "user", "content": "More"}]), Policy())


@pytest.mark.parametrize(
    "middle",
    [
        b'], "input": [{"role": "user", "content": "Another"}',
        b'], "metadata": {"a": "b"}, "x": [',
        b'], "model": "other", "x": [1',
        b', {"role": "user", "content": "More"}], "tool_choice": "required", "input": ["text"',
        b", ",
        b", 1",
        b'{"role": "user"}',
        b', {"role": "user", "content": "\xff"}',
        b', {"role": "user", "content": "\\ud800"}',
        b' \n, {"role": "user", "content": "More"} ',
        b"",
    ],
)
def test_what_only_looks_like_more_items_is_read_as_it_is(middle: bytes) -> None:
    thread = Thread()
    items = [{"role": role, "content": f"{role} " * 9_000} for role in ("user", "assistant", "user")]
    body = body_of(items)
    thread.ask(body, Policy())
    before, end, behind = body.rpartition(b'], "tools"')
    assert end
    thread.ask(before + middle + end + behind, Policy())
    thread.ask(body_of([*items, {"role": "assistant", "content": "Done."}, {"role": "user", "content": "More"}]), Policy())


def test_a_thread_of_an_agent_is_continued() -> None:
    thread = Thread()
    items: list[Any] = [{"type": "message", "role": "user", "content": "Do it."}]
    for number in range(20):
        items.append({"type": "reasoning", "summary": [], "content": [{"type": "reasoning_text", "text": "Hm."}]})
        items.append({"type": "function_call", "call_id": f"c{number}", "name": "read", "arguments": "{}"})
        items.append({"type": "function_call_output", "call_id": f"c{number}", "output": "x" * 5000})
        thread.ask(body_of(items, client_metadata={"turn": number}), Policy())
    assert thread.continued >= 15


@settings(max_examples=examples(60), deadline=None)
@given(
    items=MORE,
    tools=st.sampled_from([TOOLS, TOOLS[:1], TRUE_TOOLS, [], None, [*TOOLS, {"type": "web_search"}]]),
    policy=st.sampled_from(POLICIES),
    choice=st.sampled_from(["auto", "required", {"type": "function", "name": "read"}, {"type": "function", "name": "gone"}]),
)
def test_another_thread_with_these_tools_or_others_asks_for_the_same(
    items: list[Any], tools: list[Any] | None, policy: Policy, choice: Any
) -> None:
    thread = Thread()
    for known in (TOOLS, [*TOOLS, {"type": "web_search"}]):
        for number in range(2):
            step = [{"role": role, "content": f"{number} {len(known)}"} for role in ("user", "assistant", "user")]
            thread.ask(body_of(step, tools=known), policy if number else Policy())
    thread.ask(body_of([{"role": "user", "content": "Now"}, *items], tools=tools, tool_choice=choice), policy)
    thread.ask(body_of([{"role": "user", "content": "Now"}, *items], tools=tools, tool_choice=choice), policy, "another")


def test_tools_are_read_once_for_all_threads_of_a_tenant() -> None:
    thread = Thread()
    steps = [[{"role": role, "content": name} for role in ("user", "assistant", "user")] for name in ("one", "two", "three")]
    thread.ask(body_of(steps[0]), Policy())
    assert thread.with_known_tools == 0
    thread.ask(body_of(steps[1]), Policy())
    assert thread.with_known_tools == 1
    thread.ask(body_of(steps[2]), Policy(), "another")
    thread.ask(body_of(steps[2]), Policy(late_developer="merge"))
    thread.ask(body_of(steps[1], tools=TRUE_TOOLS), Policy())
    assert thread.with_known_tools == 1


def test_a_url_in_what_is_new_is_looked_at() -> None:
    thread = Thread()
    policy = Policy(url_inputs="public")
    items: list[Any] = [
        {"role": "user", "content": "Do it. " * 10_000},
        {"role": "assistant", "content": "Done."},
        {"role": "user", "content": "More"},
    ]
    thread.ask(body_of(items), policy)
    items.append({"role": "assistant", "content": "Done."})
    thread.ask(body_of(items), policy)
    assert thread.continued == 1
    picture = {"type": "input_image", "image_url": "http://169.254.169.254/latest"}
    body = body_of([*items, {"role": "user", "content": [picture]}])
    assert "error" in whole(body, policy)
    thread.ask(body, policy)


def test_memory_is_bounded_and_no_tenant_takes_that_of_others() -> None:
    known = KnownInputs(40 * SMALLEST)
    bodies = [body_of([{"type": "message", "role": "user", "content": f"{number} " * 9_000}] * 3) for number in range(30)]
    small = body_of([{"type": "message", "role": "user", "content": "quiet"}])

    def keep(tenant: str, body: bytes) -> None:
        request = parse_request(body)
        assert isinstance(request.input, list)
        grown = translate_growing(request, Policy(), request.input, None)
        assert grown is not None
        beginning = grown.next or msgspec.structs.replace(_any_beginning(), request=request)
        known.keep(tenant, Growing(body, RESPONSES.body, request), beginning)

    keep("quiet", small)
    for body in bodies:
        if known.keeps(body):
            keep("loud", body)
        assert known.size <= 40 * SMALLEST
    assert known.read("quiet", small, RESPONSES.body) is not None
    assert known.read("another", small, RESPONSES.body) is None
    known.clear()
    assert known.size == 0
    assert known.read("quiet", small, RESPONSES.body) is None


@pytest.mark.parametrize(("text", "times"), [("plain", 4), ("\u201cquoted\u201d", 6)])
def test_texts_that_are_not_ascii_take_more_of_the_memory(text: str, times: int) -> None:
    thread = Thread()
    items: list[Any] = [{"role": role, "content": f"{text} " * 9_000} for role in ("user", "assistant", "user")]
    for _ in range(2):  # the second one takes the place of the first
        body = msgspec.json.encode(json.loads(body_of(items)))  # not escaped
        thread.ask(body, Policy())
        assert thread.known.size == times * len(body)
        items += [{"role": "assistant", "content": "Done."}, {"role": "user", "content": "More"}]
    assert thread.continued == 1


def _any_beginning() -> Any:
    steps = [
        {"type": "message", "role": "user", "content": "a"},
        {"type": "message", "role": "assistant", "content": "b"},
        {"type": "message", "role": "user", "content": "c"},
    ]
    request = parse_request(body_of(steps))
    assert isinstance(request.input, list)
    grown = translate_growing(request, Policy(), request.input, None)
    assert grown is not None
    assert grown.next is not None
    return grown.next
