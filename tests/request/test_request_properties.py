"""Property tests: the result for any items is a valid chat request or a 400 that names the field."""

from __future__ import annotations

from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from responses_gateway.request import ChatRequest, Policy, support, translate
from responses_gateway.request.input.calls import CALL_TYPES, OUTPUT_TYPES
from responses_gateway.request.input.item_reader import SILENT_ITEMS
from responses_gateway.wire.errors import ApiError
from responses_gateway.wire.requests import parse_request
from tests.request.chat_rules import complaints
from tests.thoroughness import examples

SUPPORTED = {(loss.kind, loss.name, loss.outcome) for loss in support()}
WORDS = st.sampled_from(["", "a", "hello", "é\n", "x" * 70])
IDS = st.sampled_from(["a", "b", "c", "a_2"])
# Of items of one response, in two turns of the model; and of some other server.
ITEM_IDS = st.sampled_from(["fc_" + "0" * 36, "fc_" + "0" * 36 + "02", "fc_1"])
NAMES = st.sampled_from(["f", "g", "f g", "n" * 70, "shell"])

PARTS = st.one_of(
    st.builds(lambda text: {"type": "input_text", "text": text}, WORDS),
    st.just({"type": "input_image", "image_url": "data:image/png;base64,AAAA", "detail": "auto"}),
    st.just({"type": "input_file", "file_data": "AAAA", "filename": "f"}),
)
CONTENT = WORDS | st.lists(PARTS, min_size=1, max_size=3)
RUN = {"stdout": "x", "stderr": "", "outcome": {"type": "exit", "exit_code": 0}}
GOOD_ITEMS = st.one_of(
    st.builds(lambda role, content: {"role": role, "content": content}, st.sampled_from(["user", "developer"]), CONTENT),
    st.builds(
        lambda text, item_id: {
            "type": "message",
            "id": item_id,
            "role": "assistant",
            "content": [{"type": "output_text", "text": text}],
        },
        WORDS,
        ITEM_IDS,
    ),
    st.builds(lambda text: {"type": "reasoning", "summary": [], "content": [{"type": "reasoning_text", "text": text}]}, WORDS),
    st.builds(
        lambda call_id, name, arguments: {"type": "function_call", "call_id": call_id, "name": name, "arguments": arguments},
        IDS,
        NAMES,
        st.sampled_from(["{}", '{"a": 1}', "{broken", "[]", ""]),
    ),
    st.builds(
        lambda call_id, item_id: {
            "type": "function_call",
            "id": item_id,
            "call_id": call_id,
            "name": "f",
            "arguments": "{}",
            "async": True,
        },
        IDS,
        ITEM_IDS,
    ),
    st.builds(lambda call_id, text: {"type": "function_call_output", "call_id": call_id, "output": text}, IDS, CONTENT),
    st.builds(lambda text: {"type": "function_call_output", "name": "automation_update", "output": text}, CONTENT),
    st.builds(lambda call_id, name: {"type": "custom_tool_call", "call_id": call_id, "name": name, "input": "x"}, IDS, NAMES),
    st.builds(lambda call_id: {"type": "shell_call", "call_id": call_id, "action": {"commands": ["ls"]}}, IDS),
    st.builds(lambda call_id: {"type": "shell_call_output", "call_id": call_id, "output": [RUN]}, IDS),
    st.builds(lambda call_id: {"type": "tool_search_call", "call_id": call_id, "arguments": {}}, IDS | st.none()),
    st.builds(
        lambda call_id, name: {"type": "tool_search_output", "call_id": call_id, "tools": [{"type": "function", "name": name}]},
        IDS | st.none(),
        NAMES,
    ),
    st.builds(lambda item_id: {"type": "mcp_call", "id": item_id, "server_label": "s", "name": "n", "output": "o"}, IDS),
    st.builds(lambda kind: {"type": kind}, st.sampled_from([*SILENT_ITEMS, "acme:thing"])),
)

ANY_JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | WORDS,
    lambda inner: st.lists(inner, max_size=2) | st.dictionaries(WORDS, inner, max_size=2),
    max_leaves=4,
)
KINDS = st.sampled_from(
    [*CALL_TYPES, *OUTPUT_TYPES, *SILENT_ITEMS, "message", "reasoning", "item_reference", "additional_tools", "agent_message"]
)
CALL_FIELDS = [
    "call_id",
    "name",
    "namespace",
    "arguments",
    "input",
    "action",
    "operation",
    "output",
    "code",
    "outputs",
    "results",
]
OTHER_FIELDS = [
    "id",
    "role",
    "content",
    "summary",
    "tools",
    "server_label",
    "author",
    "encrypted_content",
    "execution",
    "status",
]
FIELDS = st.sampled_from([*CALL_FIELDS, *OTHER_FIELDS])
BAD_ITEMS = st.builds(
    lambda kind, fields: {"type": kind, **fields}, KINDS, st.dictionaries(FIELDS, ANY_JSON | PARTS, max_size=5)
)
POLICIES = st.builds(
    Policy,
    system_messages=st.sampled_from(["merge", "keep"]),
    late_developer=st.sampled_from(["user", "system", "merge"]),
    user_messages=st.sampled_from(["keep", "merge"]),
    reasoning_field=st.sampled_from(["reasoning", "both", "none"]),
    strict=st.booleans(),
)


def answer(policy: Policy | None = None, **fields: Any) -> ChatRequest | ApiError:
    """Return the translation of these fields, or the refusal; anything else fails."""
    try:
        return translate(parse_request({"model": "m", "input": "hi", **fields}), policy)
    except ApiError as error:
        return error


def holds(found: ChatRequest | ApiError, field: str) -> None:
    """Check for a valid chat request, or a 400 that names something in `field`."""
    if isinstance(found, ApiError):
        assert found.status == 400
        assert (found.param or "").startswith(field)
        return
    assert complaints(found.body) == []
    assert {(loss.kind, loss.name, loss.outcome) for loss in found.losses} <= SUPPORTED
    made = [entry["id"] for message in found.body["messages"] for entry in message.get("tool_calls", [])]
    assert set(made) <= found.call_ids
    assert len(set(found.tools.values())) == len(found.tools)


@settings(max_examples=examples(250), deadline=None)
@given(st.lists(GOOD_ITEMS, max_size=10), POLICIES)
def test_good_items_in_any_order(items: list[Any], policy: Policy) -> None:
    holds(answer(policy, input=items), "input")


@settings(max_examples=examples(250), deadline=None)
@given(st.lists(BAD_ITEMS | GOOD_ITEMS, max_size=5), POLICIES)
def test_bad_items_in_any_order(items: list[Any], policy: Policy) -> None:
    holds(answer(policy, input=items), "input")


@settings(max_examples=examples(150), deadline=None)
@given(st.lists(GOOD_ITEMS, max_size=6), st.lists(GOOD_ITEMS, min_size=1, max_size=3))
def test_the_messages_of_a_closed_turn_never_change(history: list[Any], turn: list[Any]) -> None:
    """Check that the messages before the last user message stay the same when the conversation continues."""
    history = [*history, {"role": "user", "content": "go on"}]
    first = answer(input=history)
    second = answer(input=[*history, *turn])
    if isinstance(first, ApiError) or isinstance(second, ApiError):
        return
    before = first.body["messages"]
    after = second.body["messages"]
    unanswered = {"role": "tool", "content": "(The result of this call is missing. Whether it was carried out is not known.)"}
    if not any(unanswered.items() <= message.items() for message in before):  # a late output replaces the placeholder
        assert after[: len(before)] == before


TOOLS = st.recursive(
    st.builds(
        lambda kind, fields: {"type": kind, **fields},
        st.sampled_from(["function", "custom", "tool_search", "shell", "mcp"]),
        st.dictionaries(st.sampled_from(["name", "description", "parameters", "format", "execution"]), ANY_JSON | NAMES),
    ),
    lambda inner: st.builds(
        lambda name, tools: {"type": "namespace", "name": name, "tools": tools}, NAMES, st.lists(inner, max_size=3)
    ),
    max_leaves=6,
)
NAMED = st.builds(lambda name: {"type": "function", "name": name}, st.text(min_size=1, max_size=80))


@settings(max_examples=examples(200), deadline=None)
@given(st.lists(TOOLS | NAMED, max_size=5))
def test_any_tools(tools: list[Any]) -> None:
    holds(answer(tools=tools), "tools")


CHOICES = ANY_JSON | st.builds(
    lambda kind, fields: {"type": kind, **fields},
    st.sampled_from(["function", "custom", "allowed_tools", "shell", "mcp"]),
    st.dictionaries(st.sampled_from(["name", "namespace", "tools", "mode"]), ANY_JSON | NAMES),
)


@settings(max_examples=examples(150), deadline=None)
@given(CHOICES)
def test_any_tool_choice(choice: Any) -> None:
    tools = [{"type": "function", "name": "f"}, {"type": "shell"}, {"type": "mcp"}]
    holds(answer(tools=tools, tool_choice=choice), "tool_choice")


@settings(max_examples=examples(150), deadline=None)
@given(st.dictionaries(st.sampled_from(["format", "verbosity", "type", "name", "schema", "strict"]), ANY_JSON))
def test_any_text_format(fields: dict[str, Any]) -> None:
    holds(answer(text={"format": {"type": "json_schema", **fields}, "verbosity": fields.get("verbosity")}), "text")
