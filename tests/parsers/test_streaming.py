"""Nothing waits longer than it must, and work grows with the length of the text alone."""

from __future__ import annotations

import json
import time
from typing import cast

import pytest
from markup_outcome import TOOLS, agree, at_random, characters, play, read_items, whole
from markup_rendering import FAMILIES, render

from responses_gateway.parsers import MarkupParser, parser
from responses_gateway.wire.deltas import Delta, FinishReason, Reasoning, Text, ToolArguments, ToolCall

LONG = "A line of text with <b>tags</b>, \"quotes\" and 'more'.\n"


def hermes(opened: bool = False) -> MarkupParser:
    return parser("qwen3", "hermes", schemas=TOOLS, thinking_open=opened)


def coder() -> MarkupParser:
    return parser("qwen3", "qwen3_coder", schemas=TOOLS, thinking_open=False)


def test_plain_text_passes_at_once() -> None:
    subject = hermes()
    assert [subject.feed(piece) for piece in ("Hel", "lo, a < b", " <i>.")] == [
        [Text("Hel")],
        [Text("lo, a < b")],
        [Text(" <i>.")],
    ]


def test_only_the_beginning_of_a_marker_is_held_back() -> None:
    subject = hermes()
    assert subject.feed("Look <tool") == [Text("Look ")]
    assert subject.feed("box>") == [Text("<toolbox>")]
    assert subject.feed("1 <") == [Text("1 ")]
    assert subject.feed("") == []
    assert subject.finish("stop") == [Text("<")]


def test_line_breaks_at_the_end_of_reasoning_wait_for_what_follows() -> None:
    subject = hermes(opened=True)
    assert subject.feed("\n\nOne.\n\n") == [Reasoning("One.")]
    assert subject.feed("\nTwo.\n") == [Reasoning("\n\n\nTwo.")]
    assert subject.feed("</think>\n\nDone.") == [Text("Done.")]


def test_json_arguments_stream_as_written() -> None:
    subject = hermes()
    assert subject.feed('<tool_call>\n{"name": "write_file", "argu') == []
    assert subject.feed('ments": {"pa') == [ToolCall(0, "", "write_file"), ToolArguments(0, '{"pa')]
    assert subject.feed('th": "a b') == [ToolArguments(0, 'th": "a b')]
    assert subject.feed('"') == [ToolArguments(0, '"')]
    assert subject.feed("}") == [ToolArguments(0, "}")]
    assert subject.feed("}\n</tool_call>") == []


def test_a_string_parameter_streams_piece_by_piece() -> None:
    subject = coder()
    assert subject.feed("<tool_call>\n<function=write_file>\n") == []
    assert subject.feed("<parameter=content>\n") == [ToolCall(0, "", "write_file"), ToolArguments(0, '{"content": "')]
    assert subject.feed("one\n") == [ToolArguments(0, "one")]
    assert subject.feed('"two" <b') == [ToolArguments(0, '\\n\\"two\\" <b')]
    assert subject.feed("\n</parameter>") == []
    assert subject.feed("\n</function>") == [ToolArguments(0, '"}')]


def test_a_typed_parameter_comes_when_it_is_complete() -> None:
    subject = coder()
    subject.feed("<tool_call>\n<function=search>\n")
    assert subject.feed("<parameter=limit>\n1") == [ToolCall(0, "", "search"), ToolArguments(0, '{"limit": ')]
    assert subject.feed("2\n</parameter>\n<para") == []
    assert subject.feed("meter=") == [ToolArguments(0, "12")]


@pytest.mark.parametrize(
    ("written", "shown"), [("I look.<tool", "I look."), ("I look.<tool_cal", "I look."), ("if a <", "if a <")]
)
def test_half_a_marker_of_a_call_is_left_out_where_the_stream_breaks(written: str, shown: str) -> None:
    for reason, text in (("error", shown), ("length", written), ("stop", written)):
        subject = coder()
        deltas = [*subject.feed(written), *subject.finish(cast(FinishReason, reason))]
        assert "".join(delta.text for delta in deltas if isinstance(delta, Text)) == text


def test_python_strings_stream_piece_by_piece() -> None:
    subject = parser(None, "pythonic", schemas=TOOLS)
    assert subject.feed("[write_file(content='one") == [
        ToolCall(0, "", "write_file"),
        ToolArguments(0, '{"content": "one'),
    ]
    assert subject.feed(" two\\") == [ToolArguments(0, " two")]
    assert subject.feed("n three") == [ToolArguments(0, "\\n three")]


def test_a_call_follows_its_reasoning_without_text_between() -> None:
    deltas = hermes().feed('<think>\nHm.\n</think>\n\n<tool_call>\n{"name": "list_files", "arguments": {}}\n</tool_call>\n')
    assert deltas == [Reasoning("Hm."), ToolCall(0, "", "list_files"), ToolArguments(0, "{}")]


def test_calls_follow_each_other_without_text_between() -> None:
    call = '<tool_call>\n{"name": "list_files", "arguments": {}}\n</tool_call>'
    kinds = [type(delta) for delta in hermes().feed(f"{call}\n{call}\n\n{call}")]
    assert kinds == [ToolCall, ToolArguments] * 3


@pytest.mark.parametrize("name", sorted(FAMILIES))
def test_the_arguments_are_valid_json_at_the_end_and_a_prefix_of_it_before(name: str) -> None:
    family = FAMILIES[name]
    content = "one \\ two \"three\" 'four'\tfive 六 🚀\nlast"
    text = render(family, [("call", "write_file", {"path": "a/b", "content": content})])
    subject = parser(family.reasoning, family.tools, schemas=TOOLS, thinking_open=False)
    deltas: list[Delta] = []
    for character in text:
        deltas += subject.feed(character)
    streamed = [delta.text for delta in deltas if isinstance(delta, ToolArguments)]
    assert json.loads("".join(streamed)) == {"path": "a/b", "content": content}
    assert len(streamed) > len(content) / 2, "a long string comes in pieces"


def seconds(subject: MarkupParser, pieces: list[tuple[str, None]]) -> float:
    start = time.process_time()  # other work on the machine does not count
    for piece, _ in pieces:
        subject.feed(piece)
    subject.finish("stop")
    return time.process_time() - start


@pytest.mark.untraced  # tracing would be what takes the time
@pytest.mark.parametrize("name", sorted(FAMILIES))
def test_time_grows_with_the_length_alone(name: str) -> None:
    """Ten times the text takes about ten times the time, not a hundred times."""
    family = FAMILIES[name]

    def cost(lines: int) -> float:
        text = render(family, [("call", "write_file", {"path": "a", "content": LONG * lines})])
        pieces = at_random(text, seed=1, longest=8)
        new = lambda: parser(family.reasoning, family.tools, schemas=TOOLS, thinking_open=False)  # noqa: E731
        return min(seconds(new(), pieces) for _ in range(3))

    assert cost(200) < 40 * cost(20)


@pytest.mark.untraced  # tracing would be what takes the time
@pytest.mark.parametrize(
    "text",
    [
        "\n" * 4_000,
        "<" * 4_000,
        "`" * 4_000,
        "<tool_call>" * 400,
        '<tool_call>{"arguments": {"a": "' * 150,
        '<tool_call>{"name": "write_file", "arguments": "' + "\\\\" * 2_000,
        "<tool_call>\n<function=write_file>\n<parameter=content>\n" + "</parameter>\n" * 350,
        "<tool_call>\n<function=write_file>\n<parameter=content>\n" + "</function>" * 350,
        "<tool_call>\n<function=write_file>\n<parameter=content>\n</parameter>" + " " * 4_000,
        "<tool_call>\n<function=" + "a" * 4_000,
        "<tool_call>\n<function=write_file>\n<parameter=" + "a" * 4_000,
        "<tool_call>" + " " * 4_000,
        "<think>" * 750,
        "[list_files" + " " * 4_000,
        "<|channel|>" * 400,
    ],
    ids=lambda text: text[:70].replace("\n", " ").strip() or "blank",
)
def test_hostile_text_takes_no_longer_than_it_is_long(text: str) -> None:
    """Fed by characters it takes about as long as plain text of the same length."""
    for tools in ("hermes", "qwen3_coder", "pythonic", "auto"):

        def cost(written: str, tools: str = tools) -> float:
            subjects = [parser("qwen3", tools, schemas=TOOLS, thinking_open=False) for _ in range(2)]
            return min(seconds(subject, characters(written)) for subject in subjects)

        assert cost(text) < 20 * cost("a" * len(text))


def test_hostile_text_is_the_same_however_it_is_cut() -> None:
    text = '<tool_call>{"arguments": {"a": "' * 200
    assert play(hermes(), whole(text)).items == play(hermes(), characters(text)).items


def test_a_parser_that_is_finished_gives_no_more() -> None:
    subject = hermes()
    subject.feed("Hello <")
    assert subject.finish("length") == [Text("<")]
    assert subject.finish("length") == []


def test_without_parsers_everything_is_text() -> None:
    text = "<think>\nHm.\n</think>\n<tool_call>{}</tool_call>\n"
    assert read_items(parser(None, "none", schemas={}).feed(text)) == [{"text": text.strip()}]


def test_reasoning_alone_leaves_calls_in_the_text() -> None:
    text = '<tool_call>\n{"name": "list_files", "arguments": {}}\n</tool_call>'
    outcome = play(parser("qwen3", None, schemas={}, thinking_open=True), whole(f"Hm.</think>{text}"))
    assert outcome.items == [{"reasoning": "Hm."}, {"text": text}]


def test_calls_alone_leave_reasoning_in_the_text() -> None:
    outcome = play(parser(None, "hermes", schemas=TOOLS, thinking_open=True), whole("<think>Hm.</think>Done."))
    assert outcome.items == [{"text": "<think>Hm.</think>Done."}]


def test_channels_with_one_part_alone() -> None:
    text = "<|channel|>analysis<|message|>Hm.<|end|><|start|>assistant to=functions.f<|channel|>commentary<|message|>{}<|call|>"
    assert play(parser("openai_gptoss", None, schemas={}), whole(text)).items == [{"reasoning": "Hm."}, {"text": "{}"}]
    assert agree(play(parser(None, "openai", schemas={}), whole(text)).items, [{"text": "Hm."}, {"call": "f", "arguments": {}}])
