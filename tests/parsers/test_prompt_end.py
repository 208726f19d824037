"""Whether a prompt ends inside reasoning, by the ids of its last tokens."""

from __future__ import annotations

import pytest

from responses_gateway.parsers import reasoning_markers
from responses_gateway.parsers.thought_tokens import ends_open, prompt_end_of

THINK, LINE, LINES, WORD, CLOSE = 1505, 198, 483, 77, 1506
OPENINGS, _ = reasoning_markers("auto")
# As a tokenizer with byte-level BPE writes them; one of the markers is several tokens.
TOKENS = [
    (THINK, "<think>"),
    (LINE, "Ċ"),
    (LINES, "ĊĊ"),
    (12, "<"),
    (13, "longcat"),
    (14, "_think"),
    (15, ">"),
    (CLOSE, "</think>"),
]


@pytest.mark.parametrize(
    ("last_ids", "opens"),
    [
        ([WORD, THINK], True),
        ([WORD, THINK, LINE], True),
        ([THINK, LINE, LINES], True),
        ([THINK, LINES, CLOSE, LINES], False),  # thinking is off
        ([THINK, WORD, LINE], False),  # the user has spoken of it
        ([WORD], False),
        ([LINE], None),
        ([], None),
    ],
)
def test_the_last_ids_tell(last_ids: list[int], opens: bool | None) -> None:
    assert prompt_end_of(TOKENS, OPENINGS).opens(last_ids, OPENINGS) is opens


def test_a_marker_of_several_tokens_tells_nothing() -> None:
    assert prompt_end_of(TOKENS, OPENINGS).opens([WORD, 15], ("<longcat_think>",)) is None


@pytest.mark.parametrize(
    ("prompt", "opens"), [("assistantĊ<think>Ċ", True), ("[INST] a <think> b [/INST]", False), ("", False)]
)
def test_the_text_of_a_prompt_tells_too(prompt: str, opens: bool) -> None:
    assert ends_open(prompt, OPENINGS) is opens
