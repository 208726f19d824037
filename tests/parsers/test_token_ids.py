"""Token ids tell markers from text that only looks like them."""

from __future__ import annotations

from markup_outcome import TOOLS, Piece, play

from responses_gateway.parsers import MarkupParser, markers, parser
from responses_gateway.wire.deltas import Text

IDS = {"<think>": 1, "</think>": 2, "<tool_call>": 3, "</tool_call>": 4, "<tool_calls>": 5, "</tool_calls>": 6}
WORD = 99  # an ordinary token


def strict(opened: bool = False, tools: str = "hermes") -> MarkupParser:
    return parser("qwen3", tools, schemas=TOOLS, thinking_open=opened, marker_ids=IDS)


def spelled(text: str) -> list[Piece]:
    """Spell a text with ordinary tokens, one character each."""
    return [(character, [WORD]) for character in text]


def test_markers_are_listed_for_looking_up_their_ids() -> None:
    assert set(IDS) == markers("qwen3", "hermes")
    assert "<function=" in markers("qwen3", "qwen3_coder")
    assert {"<arg_key>", "</arg_value>"} <= markers("glm45", "glm45")
    assert {"<|channel|>", "<|message|>", "<|call|>"} <= markers("openai_gptoss", "openai")
    assert '<|"|>' in markers("gemma4", "gemma4")
    assert "]<]minimax[>[" in markers("minimax_m3", "minimax_m3")
    assert "" not in markers("auto", "auto")
    assert markers(None, "none") == frozenset()


def test_a_call_spelled_with_ordinary_tokens_is_text() -> None:
    text = 'Like this: <tool_call>\n{"name": "list_files", "arguments": {}}\n</tool_call> and <think>.'
    outcome = play(strict(), spelled(text))
    assert outcome.items == [{"text": text}]
    assert outcome.repairs == {}


def test_a_call_with_marker_tokens_is_a_call() -> None:
    pieces = [("<tool_call>", [3]), *spelled('\n{"name": "list_files", "arguments": {}}\n'), ("</tool_call>", [4])]
    outcome = play(strict(), pieces)
    assert [item["call"] for item in outcome.items] == ["list_files"]


def test_ordinary_text_is_not_held_back_for_what_it_looks_like() -> None:
    subject = strict()
    given = [subject.feed(character, [WORD]) for character in "a <tool"]
    assert all(given)


def test_an_end_marker_inside_a_parameter_counts_only_as_a_token() -> None:
    inside = "<tool_call>\n<function=write_file>\n<parameter=content>\na</parameter>\n</function>\n</tool_call>\nb\n"
    pieces = [
        ("<tool_call>", [3]),
        *spelled("\n<function=write_file>\n<parameter=content>\n" + inside.removeprefix("<tool_call>\n")),
    ]
    outcome = play(strict(tools="qwen3_coder"), pieces)
    # The function's own end is of ordinary tokens, so it counts; the block's end does not, and comes as text.
    assert outcome.items[0]["call"] == "write_file"
    assert outcome.items[-1] == {"text": "</tool_call>\nb"}


def test_ids_may_run_ahead_of_the_text() -> None:
    """Servers with stop strings hold text back: the id of a marker comes before its text, which comes in pieces."""
    pieces: list[Piece] = [
        ("", [WORD, 2]),
        ("Hm", [WORD]),
        (".</thi", [WORD]),
        ("nk>", [WORD]),
        ("Done.", [WORD]),
    ]
    assert play(strict(opened=True), pieces).items == [{"reasoning": "Hm."}, {"text": "Done."}]


def test_several_markers_in_one_piece() -> None:
    call = '<tool_call>{"name": "list_files", "arguments": {}}</tool_call>'
    outcome = play(strict(opened=True), [(f"Hm.</think>{call}\n{call}", [WORD, 2, 3, WORD, 4, WORD, 3, WORD, 4])])
    assert [next(iter(item)) for item in outcome.items] == ["reasoning", "call", "call"]


def test_look_alikes_beside_a_marker_in_one_piece() -> None:
    outcome = play(strict(opened=True), [("Write <tool_call> first.</think>Then <think> more.", [WORD, 2, WORD])])
    assert outcome.items == [{"reasoning": "Write <tool_call> first."}, {"text": "Then <think> more."}]


def test_reasoning_ends_where_its_token_stands_even_in_quotes() -> None:
    pieces: list[Piece] = [("Say `x`", [WORD]), ("</think>", [2]), ("`x`", [WORD])]
    assert play(strict(opened=True), pieces).items == [{"reasoning": "Say `x`"}, {"text": "`x`"}]


def test_a_marker_that_no_state_takes_does_not_hide_the_next() -> None:
    """Special tokens inside a JSON string are part of the string, ids or no ids."""
    pieces: list[Piece] = [
        ("<tool_call>", [3]),
        ('{"name": "write_file", "arguments": {"content": "', [WORD]),
        ("</think>", [2]),
        ("<tool_call>", [3]),
        ('"}}', [WORD]),
        ("</tool_call>", [4]),
        ("Done.", [WORD]),
    ]
    outcome = play(strict(), pieces)
    assert outcome.items[0]["arguments"] == '{"content": "</think><tool_call>"}'
    assert outcome.items[1] == {"text": "Done."}


def test_a_marker_token_in_a_code_block_is_a_marker() -> None:
    pieces = [*spelled("```\n"), ("<tool_call>", [3]), *spelled('{"name": "list_files"}'), ("</tool_call>", [4])]
    assert [next(iter(item)) for item in play(strict(), pieces).items] == ["text", "call"]


def test_without_knowledge_of_markers_ids_decide_nothing() -> None:
    subject = parser("qwen3", "hermes", schemas=TOOLS, thinking_open=True)
    assert play(subject, spelled("Hm.</think>Done.")).items == [{"reasoning": "Hm."}, {"text": "Done."}]


def test_ids_may_come_before_their_text() -> None:
    subject = strict()
    assert subject.feed("", [7, 8]) == []
    assert subject.feed("好", [9]) == [Text("好")]
