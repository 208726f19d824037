"""Conversations of the Messages API that grow: nobody can tell that what was known of one was not read and translated again."""

from __future__ import annotations

import json
from collections.abc import Sequence
from itertools import chain
from typing import Any

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from responses_gateway.request import Policy, translate
from responses_gateway.request.growing import encoded, translate_growing
from responses_gateway.request.messages import MessagesReading, read_known_messages, read_messages
from responses_gateway.server.generation.preparation.known_inputs import SMALLEST, Growing, KnownInputs
from responses_gateway.server.protocols.messages import MESSAGES
from responses_gateway.wire.errors import ApiError
from responses_gateway.wire.messages import MessagesRequest, parse_messages
from tests.thoroughness import examples

Message = dict[str, Any]
MARK = {"type": "ephemeral"}
# Long enough that each body is worth being kept.
LONG = "Follow the house rules. " * (SMALLEST // 20)
TOOLS = [{"name": name, "input_schema": {"type": "object", "default": 1}} for name in ("read", "write")]
# Equal to Python, and others to a model.
TRUE_TOOLS = json.loads(json.dumps(TOOLS).replace("1", "true"))
DEFERRED = {"name": "late", "input_schema": {"type": "object"}, "defer_loading": True}
POLICIES = (
    Policy(),
    Policy(late_developer="system", system_messages="keep", call_ids="numbered"),
    Policy(late_developer="merge", call_ids="nine", reasoning_field="both"),
    Policy(reasoning_field="none"),
    Policy(user_messages="merge"),
    Policy(max_input_items=9),
    Policy(url_inputs="public"),
    Policy(strict=True),
)
TEXTS = st.sampled_from(["", "a", "Error: gone", "é"])
PICTURES = st.sampled_from(["https://example.com/a.png", "http://10.0.0.1/a.png"]).map(
    lambda url: {"type": "image", "source": {"type": "url", "url": url}}
)
TEXT_BLOCKS = st.builds(lambda kind, text: {"type": kind, "text": text}, st.sampled_from(["text", "input_text"]), TEXTS)
BLOCKS = st.one_of(
    TEXT_BLOCKS,
    PICTURES,
    st.builds(lambda name: {"type": "tool_reference", "tool_name": name}, st.sampled_from(["late", "gone"])),
    st.sampled_from([{"type": "unheard_of"}, {"type": "search_result", "title": "t", "source": "s", "content": []}]),
)
RESULTS = st.builds(
    lambda number, content, failed: {
        "type": "tool_result",
        "tool_use_id": f"t{number}",
        "content": content,
        "is_error": failed,
    },
    st.integers(0, 4),
    st.one_of(TEXTS, st.lists(BLOCKS, max_size=2)),
    st.booleans(),
)
CALLS = st.builds(
    lambda number, name: {"type": "tool_use", "id": f"t{number}", "name": name, "input": {"a": number}},
    st.integers(0, 4),
    st.sampled_from(["read", "gone"]),
)
SAID = st.one_of(
    TEXT_BLOCKS,
    TEXTS.map(lambda text: {"type": "thinking", "thinking": text, "signature": "x"}),
    st.sampled_from(
        [{"type": "redacted_thinking", "data": "x"}, {"type": "server_tool_use", "id": "s", "name": "web_search", "input": {}}]
    ),
    CALLS,
)
MESSAGES_OF_ALL_KINDS = st.one_of(
    st.builds(
        lambda content: {"role": "user", "content": content}, st.one_of(TEXTS, st.lists(st.one_of(BLOCKS, RESULTS), max_size=3))
    ),
    st.builds(lambda content: {"role": "assistant", "content": content}, st.one_of(TEXTS, st.lists(SAID, max_size=3))),
    st.builds(lambda text: {"role": "system", "content": [{"type": "text", "text": text}]}, TEXTS),
    st.sampled_from([{"role": "nobody"}, "no message"]),
)
# A whole step of an agent; where a notice of the client follows, its content becomes a string in the next request.
STEPS = st.builds(
    lambda number, text, result, notice: [
        {"role": "assistant", "content": [
            {"type": "thinking", "thinking": text, "signature": "x"},
            {"type": "tool_use", "id": f"step{number}", "name": "read", "input": {"path": text}},
        ]},
        {"role": "user", "content": [{"type": "tool_result", "tool_use_id": f"step{number}", "content": result}]},
        *([{"role": "system", "content": [{"type": "text", "text": f"{number} tokens left"}]}] if notice else []),
    ],
    st.integers(0, 10_000),
    TEXTS,
    st.one_of(TEXTS, st.lists(BLOCKS, max_size=2)),
    st.booleans(),
)  # fmt: skip
MORE = st.lists(st.one_of(STEPS, STEPS, MESSAGES_OF_ALL_KINDS.map(lambda message: [message])), max_size=4).map(
    lambda parts: list(chain.from_iterable(parts))
)


class Conversation:
    """Reads and translates each request twice: as a whole, and as the next one of its conversation."""

    def __init__(self) -> None:
        self.known = KnownInputs(1 << 26)
        self.resumed = 0
        self.continued = 0

    def ask(self, body: bytes, policy: Policy, tenant: str = "a") -> None:
        assert self.grown(body, policy, tenant) == whole(body, policy)

    def grown(self, body: bytes, policy: Policy, tenant: str) -> object:
        form = MESSAGES.body
        growing = self.known.read(tenant, body, form)
        try:
            if growing is None:
                growing = Growing(body, form, parse_messages(body))
            reading = None
            if growing.turns is not None:
                reading = read_known_messages(growing.asked, growing.turns, "m", policy)
                self.resumed += reading is not None
            if reading is None:
                growing = Growing(body, form, growing.asked)
                reading = read_messages(growing.asked, "m", policy)
            return self.translated(growing, reading, tenant)
        except ApiError as error:
            return error.body()

    def translated(self, growing: Growing, reading: MessagesReading, tenant: str) -> object:
        turns = reading.turns
        items = reading.request.input
        assert isinstance(items, list)
        beginning = growing.beginning
        grown = None
        if turns is not None:
            rest = items[beginning.items if beginning is not None else 0 :]
            others = self.known.beginnings(tenant)
            grown = translate_growing(reading.request, reading.policy, rest, beginning, turns.items, others)
        if grown is None:
            return outcome(growing.asked, reading)
        written, later = encoded(grown, grown.chat.body)
        self.continued += grown.known is not None
        if later is not None and turns is not None and later.items == turns.items:
            self.known.keep(tenant, growing, later, turns)
        return told(reading), grown.chat, written.data


def whole(body: bytes, policy: Policy) -> object:
    try:
        asked = parse_messages(body)
        return outcome(asked, read_messages(asked, "m", policy))
    except ApiError as error:
        return error.body()


def outcome(asked: MessagesRequest, reading: MessagesReading) -> object:
    chat = translate(reading.request, reading.policy)
    return told(reading), chat, msgspec.json.encode(chat.body)


def told(reading: MessagesReading) -> object:
    """Return all of a reading but what the next one goes on from."""
    return msgspec.to_builtins(msgspec.structs.replace(reading, turns=None), enc_hook=repr)


def body_of(messages: Sequence[Any], *, indent: int | None = None, **fields: Any) -> bytes:
    """Return a body as Claude Code lays it out, with its mark on the last block, and what it writes in the past as strings."""
    system = [{"type": "text", "text": LONG, "cache_control": MARK}]
    return json.dumps({
        "model": "m", "messages": [*map(past, messages[:-1]), *map(marked, messages[-1:])], "system": system, "tools": TOOLS,
        "max_tokens": 9, **fields,
    }, indent=indent).encode()  # fmt: skip


def past(message: Any) -> Any:
    if isinstance(message, dict) and message.get("role") == "system":
        return {**message, "content": message["content"][0]["text"]}
    return message


def marked(message: Any) -> Any:
    content = message.get("content") if isinstance(message, dict) else None
    if not isinstance(content, list) or not content:
        return message
    return {**message, "content": [*content[:-1], {**content[-1], "cache_control": MARK}]}


def steps(number: int, size: int = 10) -> list[Message]:
    messages: list[Message] = [{"role": "user", "content": [{"type": "text", "text": "Do it."}]}]
    for step in range(number):
        call = {"type": "tool_use", "id": f"step{step}", "name": "read", "input": {}}
        messages.append({"role": "assistant", "content": [{"type": "thinking", "thinking": "Hm.", "signature": "x"}, call]})
        messages.append(
            {"role": "user", "content": [{"type": "tool_result", "tool_use_id": f"step{step}", "content": "x" * size}]}
        )
    return messages


@settings(max_examples=examples(150), deadline=None)
@given(first=MORE, growth=st.lists(MORE, min_size=1, max_size=5), policy=st.sampled_from(POLICIES), deferred=st.booleans())
def test_a_growing_conversation_asks_for_the_same(
    first: list[Any], growth: list[list[Any]], policy: Policy, deferred: bool
) -> None:
    conversation = Conversation()
    messages: list[Any] = [{"role": "user", "content": "Do it."}, *first]
    fields = {"tools": [*TOOLS, DEFERRED]} if deferred else {}
    conversation.ask(body_of(messages, **fields), policy)
    for more in growth:
        messages = messages + more
        changing = {"metadata": {"user_id": str(len(messages))}} if len(messages) % 2 else {}
        conversation.ask(body_of(messages, **changing, **fields), policy)


@settings(max_examples=examples(150), deadline=None)
@given(
    messages=st.lists(STEPS, min_size=2, max_size=6).map(lambda parts: list(chain.from_iterable(parts))),
    place=st.integers(0, 100),
    other=MORE,
    change=st.sampled_from(
        [
            "message",
            "cut",
            "tools",
            "truth",
            "tool_choice",
            "policy",
            "tenant",
            "system",
            "unmarked",
            "twice",
            "mark",
            "fork",
            "fork",
        ]
    ),
)
def test_an_edit_anywhere_is_seen(messages: list[Any], place: int, other: list[Any], change: str) -> None:
    conversation = Conversation()
    messages = [{"role": "user", "content": "Do it."}, *messages]
    conversation.ask(body_of(messages[:-2]), Policy())
    conversation.ask(body_of(messages), Policy())
    place = place % len(messages)
    fields: dict[str, Any] = {}
    policy = Policy()
    tenant = "a"
    later = [*messages, *other]
    if change == "message":
        later = [*messages[:place], *other, *messages[place + 1 :]]
    elif change == "fork":
        later = [*messages[: place + 1], *other]
    elif change == "cut":
        later = messages[: place + 1]
    elif change == "tools":
        fields = {"tools": [*TOOLS[:1], DEFERRED]}
    elif change == "truth":
        fields = {"tools": TRUE_TOOLS}
    elif change == "tool_choice":
        fields = {"tool_choice": {"type": "any"}}
    elif change == "system":
        fields = {"system": LONG + "!"}
    elif change == "unmarked":  # so that no loss was reported before the messages
        fields = {"system": [{"type": "text", "text": LONG}]}
    elif change == "mark":
        later = [*messages[:place], marked(messages[place]), *messages[place + 1 :], *other]
    elif change == "policy":
        policy = Policy(reasoning_field="none", late_developer="system")
    elif change == "tenant":
        tenant = "b"
    body = body_of(later, **fields)
    if change == "twice":  # the second list counts
        body = body[:-1] + b', "messages": ' + json.dumps(other).encode() + b"}"
    conversation.ask(body, policy, tenant)
    conversation.ask(
        body_of([*messages, {"role": "assistant", "content": "Done."}, {"role": "user", "content": "More"}]), Policy()
    )


@pytest.mark.parametrize("indent", [None, 0, 3])
@pytest.mark.parametrize("marks", [1, 2])
def test_a_conversation_of_an_agent_is_continued_though_its_marks_move(marks: int, indent: int | None) -> None:
    conversation = Conversation()
    for number in range(1, 20):
        messages = steps(number, 3000)
        if marks == 2:
            messages[-3] = marked(messages[-3])
        conversation.ask(body_of(messages, indent=indent), Policy())
    assert conversation.resumed == conversation.continued >= 15


def test_what_the_client_writes_of_a_late_system_message_is_continued() -> None:
    conversation = Conversation()
    messages: list[Any] = [{"role": "user", "content": "Do it."}]
    for number in range(12):
        call = {"type": "tool_use", "id": f"c{number}", "name": "read", "input": {}}
        messages.append({"role": "assistant", "content": [call]})
        messages.append(
            {"role": "user", "content": [{"type": "tool_result", "tool_use_id": f"c{number}", "content": "x" * 3000}]}
        )
        messages.append({"role": "system", "content": [{"type": "text", "text": f"{number} tokens left"}]})
        conversation.ask(body_of(messages), Policy())
    assert conversation.continued >= 8


def test_the_conversation_of_another_key_is_not_known() -> None:
    conversation = Conversation()
    for number in range(1, 6):
        conversation.ask(body_of(steps(number, 3000)), Policy())
    known = conversation.resumed
    assert known > 0
    conversation.ask(body_of(steps(6, 3000)), Policy(), "b")
    assert conversation.resumed == known


GONE = {"role": "assistant", "content": [{"type": "tool_use", "id": "other", "name": "gone", "input": {}}]}
CALL = {"role": "assistant", "content": [{"type": "tool_use", "id": "other", "name": "read", "input": {}}]}
RESULT = {"role": "user", "content": [{"type": "tool_result", "tool_use_id": "other", "content": "y"}]}
PICTURE = {"type": "image", "source": {"type": "url", "url": "https://example.com/a.png"}}


@pytest.mark.parametrize(
    ("tail", "other"),
    [
        ([], [{"role": "system", "content": [{"type": "text", "text": "now"}]}]),
        ([], [{"role": "assistant", "content": []}, {"role": "system", "content": [{"type": "text", "text": "now"}]}]),
        (
            [],
            [{"role": "assistant", "content": [{"type": "redacted_thinking", "data": "x"}]}, {"role": "user", "content": "b"}],
        ),
        ([], [{"role": "user", "content": [{"type": "tool_result", "tool_use_id": "step3", "content": "again"}]}]),
        ([GONE, RESULT], [CALL, RESULT]),
        ([CALL, {"role": "user", "content": [{**RESULT["content"][0], "content": [PICTURE]}]}], [CALL, RESULT]),
        ([CALL, {"role": "user", "content": "b"}, {"role": "assistant", "content": "c"}, RESULT], [CALL, RESULT]),
        ([CALL, {"role": "user", "content": "b"}, {"role": "assistant", "content": "c"}, RESULT], []),
        ([CALL, {"role": "assistant", "content": "c"}, RESULT], [CALL, {"role": "assistant", "content": "d"}, RESULT]),
        ([CALL, {"role": "user", "content": [{**RESULT["content"][0], "content": [PICTURE]}]}, CALL, RESULT], []),
        (
            [{"role": "assistant", "content": "b"}, {"role": "assistant", "content": "c"}],
            [{"role": "assistant", "content": "d"}],
        ),
    ],
)
@pytest.mark.untraced
@pytest.mark.parametrize("policy", [Policy(), Policy(reasoning_field="none"), Policy(late_developer="merge")])
def test_another_end_of_the_same_conversation_is_read_as_it_is(tail: list[Any], other: list[Any], policy: Policy) -> None:
    for number in range(5):
        conversation = Conversation()
        begun = steps(4, 3000)
        begun[0]["content"].append(PICTURE)
        conversation.ask(body_of(begun), policy)
        conversation.ask(body_of([*begun, *tail]), policy)
        conversation.ask(
            body_of([*begun, *tail, {"role": "assistant", "content": "e"}, {"role": "user", "content": "f"}]), policy
        )
        conversation.ask(body_of([*begun, *tail[:number], *other]), policy)
        conversation.ask(body_of([*begun, *tail[:number], *other, *steps(6)[9:]]), policy)
