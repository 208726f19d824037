"""The short way for plain pieces: the result is the same as when every piece is fed."""

from __future__ import annotations

import pytest
from markup_outcome import FAMILIES, TOOLS, Piece, at_random, characters, read_items

from responses_gateway.parsers import MarkupParser, parser
from responses_gateway.wire.deltas import Delta, Reasoning, Text
from tests.thoroughness import THOROUGH, one_in

IDS = {"<think>": 1, "</think>": 2, "<tool_call>": 3, "</tool_call>": 4}


def read_all(subject: MarkupParser, pieces: list[Piece], short: bool) -> tuple[list[Delta], int]:
    """Return the deltas, and how many pieces `plain` took."""
    deltas: list[Delta] = []
    shortened = 0
    for text, ids in pieces:
        if short and subject.plain(text, ids):
            deltas.append(Reasoning(text) if subject.text_kind == "reasoning" else Text(text))
            shortened += 1
        else:
            deltas += subject.feed(text, ids)
    return deltas + subject.finish("stop"), shortened


@pytest.mark.untraced  # the tests of vectors run the same lines
@pytest.mark.parametrize("auto", [False, True])
@pytest.mark.parametrize("name", FAMILIES)
def test_nothing_changes(name: str, auto: bool) -> None:
    family = FAMILIES[name]
    names = ("auto", "auto") if auto else (family.get("reasoning"), family.get("tools"))
    shortened = 0
    for vector in one_in(3, family["vectors"]):
        markup = vector["markup"]
        for pieces in (characters(markup), at_random(markup, 2)):
            subjects = [parser(*names, schemas=TOOLS, thinking_open=vector.get("open", False)) for _ in range(2)]
            (whole, _), (short, count) = (
                read_all(subject, pieces, short) for subject, short in zip(subjects, (False, True), strict=True)
            )
            assert read_items(short) == read_items(whole)
            assert subjects[1].repairs == subjects[0].repairs
            shortened += count
    assert shortened > (50 if THOROUGH else 10)


def test_it_is_asked_with_the_ids_where_markers_are_known_by_them() -> None:
    subject = parser("qwen3", "hermes", schemas=TOOLS, thinking_open=False, marker_ids=IDS)
    assert not subject.plain("a", [9])  # nothing has been said yet
    assert subject.feed("a", [9]) == [Text("a")]
    assert subject.plain(" <think> b", [9, 9])  # spelled with ordinary tokens
    assert not subject.plain(" <think> c")
    assert not subject.plain("d", [3])
    assert subject.feed("", [3, 9]) == []
    assert not subject.plain("e", [9])  # a marker is due
