"""Calls of tools that are more than functions: freeform input, and actions with items of their own."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from responses_gateway.stream.options import CODEX
from responses_gateway.stream.validity.call_rules import CallRules
from responses_gateway.wire.json_text import CustomInput, JsonScanner, StringDecoder
from responses_gateway.wire.tools import ToolTarget
from tests.stream.stream_player import Play, arguments, call, finish, play, text

PATCH = "*** Begin Patch\n*** Update File: a.py\n-print(\"old\")\n+print('\u00e9 \U0001f600 \\ / \t')\n*** End Patch\n"


def custom(*pieces: str, reason: str = "tool_calls", **options: Any) -> Play:
    """Play a call of the custom tool, its arguments in these pieces."""
    return play(call(0, "a", "patch"), *(arguments(0, piece) for piece in pieces if piece), finish(reason), **options)


# ---- freeform input ----------------------------------------------------------------------------------------------------


def test_the_input_streams_while_the_json_around_it_arrives() -> None:
    played = custom('{"in', 'put":', ' "ls', " -l\\", "n", '"}')
    assert played.said == [("custom", "patch", "ls -l\n")]
    assert played.deltas("custom_tool_call_input") == ["ls", " -l", "\n"]
    assert played.response["output"][0] == {
        "type": "custom_tool_call", "id": "ctc_a10000", "call_id": "a", "name": "patch", "input": "ls -l\n",
        "status": "completed",
    }  # fmt: skip


@pytest.mark.parametrize("ascii_only", [True, False])
def test_the_input_is_the_same_at_every_split(ascii_only: bool) -> None:
    whole = json.dumps({"input": PATCH}, ensure_ascii=ascii_only)
    for at in range(1, len(whole)):
        assert custom(whole[:at], whole[at:]).said == [("custom", "patch", PATCH)]
    assert custom(*whole).said == [("custom", "patch", PATCH)]


@pytest.mark.parametrize(
    ("written", "meant"),
    [
        ('{"input":""}', ""),
        ("{}", ""),
        ("", ""),
        ('{ "input" : "x" , "note": "}" }', "x"),
        ('{"note": 1, "input": "x"}', "x"),
        ('{"patch": "x"}', "x"),
        ('{"patch": "x", "note": "y"}', '{"patch": "x", "note": "y"}'),
        ('{"input": 5}', '{"input": 5}'),
        ('{"input": ["x"], "other": "y"}', "y"),
        ('{"patch": "two\nlines"}', "two\nlines"),
        ('{"patch": "half \\ud83d"}', "half ?"),
        ('"just a string"', "just a string"),
        ('"{\\"input\\": \\"ls -l\\\\n\\"}"', "ls -l\n"),  # encoded twice
        ('"{\\"patch\\": \\"x\\"}"', '{"patch": "x"}'),
        ('"{\\"input\\": \\"x\\"} y"', '{"input": "x"} y'),
        ('{"command": ["patch", "x"]}', "x"),  # as gpt-oss calls a program
        ('{"command": ["patch", "x", "y"]}', '{"command": ["patch", "x", "y"]}'),
        ('{"command": ["bash", "x"]}', '{"command": ["bash", "x"]}'),
        ("ls -l", "ls -l"),
        ("if [ -f x ]; then echo {}; fi", "if [ -f x ]; then echo {}; fi"),
        ("[]", ""),
        ("null", ""),
        ('{"input": "raw \t tab"}', "raw \t tab"),
        ('{"input": "\\x \\ud83d! \\ude00 \\u12"}', "\\x \ufffd! \ufffd \\u12"),
        ('{"input": "\\ud83d\\u0041\\ud83d\\"\\ud83d"}', '\ufffdA\ufffd"\ufffd'),
    ],
)
def test_what_a_model_may_write_instead(written: str, meant: str) -> None:
    assert custom(written).said == [("custom", "patch", meant)]
    assert custom(*written).said == [("custom", "patch", meant)]


def test_an_input_cut_at_the_token_limit() -> None:
    pieces = ['{"input":"ls -', "l \\u00"]
    assert custom(*pieces, reason="length").said == [("custom", "patch", "ls -l ", "incomplete")]
    assert custom(*pieces, reason="length", client=CODEX).said == []


def test_freeform_text_cut_at_the_token_limit_is_incomplete_too() -> None:
    assert custom("ls -", reason="length").said == [("custom", "patch", "ls -", "incomplete")]


@given(st.text(), st.data())
def test_the_decoder_reads_what_json_writes(value: str, data: st.DataObject) -> None:
    written = json.dumps(value, ensure_ascii=data.draw(st.booleans())) + " behind"
    cuts = sorted(data.draw(st.lists(st.integers(1, len(written)), max_size=5)))
    decoder = StringDecoder()
    read = "".join(decoder.feed(written[a:b]) for a, b in zip([1, *cuts], [*cuts, len(written)], strict=True))
    assert (read, decoder.closed) == (value.encode("utf-16", "surrogatepass").decode("utf-16", "replace"), True)


json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(), inner, max_size=4),
    max_leaves=10,
)


@given(st.dictionaries(st.text(), json_values, max_size=4))
def test_the_scanner_sees_the_end_of_an_object_and_not_before(value: dict[str, Any]) -> None:
    scanner = JsonScanner()
    written = json.dumps(value)
    for character in written[:-1]:
        scanner.feed(character)
        assert not scanner.closed
    scanner.feed(written[-1])
    assert scanner.closed


@given(st.text('{}[]"\\ux0:, inputd8', max_size=40), st.integers(0, 40))
def test_whatever_the_arguments_are_the_input_is_a_text_and_no_split_changes_it(written: str, at: int) -> None:
    def read(*pieces: str) -> str:
        decoder = CustomInput()
        return "".join(map(decoder.feed, pieces)) + decoder.finish(written)

    assert read(written[:at], written[at:]) == read(written) == read(*written)


# ---- actions -----------------------------------------------------------------------------------------------------------


def action(name: str, written: str | dict[str, Any], **options: Any) -> Play:
    written = written if isinstance(written, str) else json.dumps(written)
    return play(call(0, "a", name, written), finish("tool_calls"), **options)


@pytest.mark.parametrize(
    ("name", "written", "members"),
    [
        ("local_shell", {"command": ["ls"]}, {"action": {"type": "exec", "command": ["ls"], "env": {}}}),
        (
            "local_shell",
            {"command": ["ls", "-l"], "env": {"A": "b"}, "timeout_ms": 10, "user": None, "working_directory": "/"},
            {"action": {
                "type": "exec", "command": ["ls", "-l"], "env": {"A": "b"}, "timeout_ms": 10, "working_directory": "/",
            }},
        ),
        ("local_shell", {"command": ["ls"], "env": "A=b"}, {"action": {"type": "exec", "command": ["ls"], "env": {}}}),
        (
            "shell",
            {"commands": ["ls", "pwd"], "timeout_ms": 5},
            {"action": {"commands": ["ls", "pwd"], "timeout_ms": 5, "max_output_length": None}},
        ),
        (
            "apply_patch",
            {"operation": {"type": "update_file", "path": "a", "diff": "@@"}},
            {"operation": {"type": "update_file", "path": "a", "diff": "@@"}},
        ),
        (
            "apply_patch",
            {"type": "create_file", "path": "a", "diff": "+x", "note": 1},
            {"operation": {"type": "create_file", "path": "a", "diff": "+x"}},
        ),
        ("apply_patch", {"type": "delete_file", "path": "a"}, {"operation": {"type": "delete_file", "path": "a"}}),
        ("tool_search", {"query": "mail"}, {"execution": "client", "arguments": {"query": "mail"}}),
    ],
)  # fmt: skip
def test_an_action_becomes_an_item_of_its_type(name: str, written: dict[str, Any], members: dict[str, Any]) -> None:
    played = action(name, written)
    (item,) = played.response["output"]
    assert item == {"type": f"{name}_call", "id": item["id"], "call_id": "a", **members, "status": "completed"}
    assert played.kinds[2:-1] == ["output_item.added", "output_item.done"]


@pytest.mark.parametrize(
    ("name", "written"),
    [
        ("local_shell", '{"command": "ls"}'),
        ("local_shell", '{"command": []}'),
        ("local_shell", '{"command": ["ls", 1]}'),
        ("local_shell", '{"command": ["\\ud83d"]}'),
        ("local_shell", '["ls"]'),
        ("shell", '{"command": ["ls"]}'),
        ("apply_patch", '{"operation": "delete"}'),
        ("apply_patch", '{"type": "delete_file"}'),
        ("apply_patch", '{"type": "update_file", "path": "a"}'),
        ("apply_patch", '{"type": "rename_file", "path": "a", "diff": "x"}'),
        ("tool_search", "mail"),
        ("tool_search", "{'query': 1}"),
    ],
)
def test_what_does_not_fit_the_type_is_handed_over_as_a_function_call(name: str, written: str) -> None:
    assert action(name, written).said == [("call", name, written)]


def test_an_action_that_lacks_its_arguments_is_a_function_call_without_deltas() -> None:
    schema = {"type": "object", "properties": {"query": {"type": "string"}}, "required": ["query"]}
    declared = [{"type": "function", "function": {"name": "tool_search", "parameters": schema}}]
    played = action("tool_search", "", calls=CallRules(declared, repairs=True, drops_nulls=False))
    assert played.said == [("call", "tool_search", "")]
    assert played.deltas("function_call_arguments") == []


@pytest.mark.parametrize("client", [CODEX, None])
def test_a_cut_action_never_appears(client: Any) -> None:
    fields = {} if client is None else {"client": client}
    played = play(text("x"), call(0, "a", "shell", '{"commands":["rm -r'), finish("length"), **fields)
    assert (played.said, played.response["status"]) == ([("text", "x")], "incomplete")


def test_an_action_between_other_items_keeps_the_order() -> None:
    played = play(
        text("x"), call(0, "a", "shell", '{"commands":["ls"]}'), call(1, "b", "clock", "{}"), text("y"), finish(),
    )  # fmt: skip
    assert [said[0] for said in played.said] == ["text", "shell_call", "call", "text"]


def test_a_client_that_expects_encrypted_arguments_is_told_that_they_are_plain() -> None:
    tools = {"send": ToolTarget("function", "send", "agents", expects_ciphertext=True)}
    played = play(call(0, "a", "send"), arguments(0, '{"message":"hi"}'), finish("tool_calls"), tools=tools)
    [item] = played.response["output"]
    assert item["encrypted_function_args"] == []
    assert item["arguments"] == '{"message":"hi"}'
