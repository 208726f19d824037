"""Markup with a tag too many or an end too few: a call that is complete has the model's arguments, however the text is cut."""

from __future__ import annotations

import json
import re
from typing import Any

import pytest
from markup_outcome import TOOLS, Outcome, Piece, at_random, characters, halves, play, whole
from markup_rendering import FAMILIES, render

from responses_gateway.parsers import parser

ARGUMENTS = {"query": "two words", "limit": 3}
TAGGED = ("glm45", "qwen3_coder", "seed_oss", "minimax_m2", "minimax_m3", "deepseek_v32", "deepseek_v4", "deepseek_v41")
_TAG = re.compile(r"(?:\]<\]minimax\[>\[)?<[^<>]+>")


def disorders(name: str) -> list[str]:
    """Return a call with each of its tags written twice, and without each of its ends."""
    text = render(FAMILIES[name], [("call", "search", ARGUMENTS)])
    tags = list(_TAG.finditer(text))
    twice = [text[: tag.end()] + tag.group() + text[tag.end() :] for tag in tags]
    left_open = [text[: tag.start()] + text[tag.end() :] for tag in tags if "</" in tag.group()]
    return [*twice, *left_open]


def slips(name: str) -> list[str]:
    """Return a call with each of its end tags written wrongly, replaced by another tag or beside it, or beside text."""
    text = render(FAMILIES[name], [("call", "search", ARGUMENTS)])
    tags = list(_TAG.finditer(text))
    texts: list[str] = []
    for tag in tags:
        written = tag.group()
        if "</" not in written:
            continue
        bare = written[:-1]
        forms = [bare, f"{bare}=", f"{bare} x>", f"{bare}=x>", f"{bare[:-1]}>", written.replace("</", "<")]
        forms += [written.upper()] if written.startswith("<") else []
        forms += [f"{written} and ", f" and {written}", f"={written}"]
        forms += [form for other in tags for form in (other.group(), other.group() + written, written + other.group())]
        texts += [text[: tag.start()] + form + text[tag.end() :] for form in forms]
    return texts


def read(name: str, pieces: list[Piece]) -> Outcome:
    family = FAMILIES[name]
    return play(parser(family.reasoning, family.tools, schemas=TOOLS, thinking_open=False), pieces)


def spoken(arguments: dict[str, Any]) -> dict[str, Any]:
    """Return arguments without the line break behind a text that was left open: whose it is cannot be told."""
    return {key: value.removesuffix("\n") if isinstance(value, str) else value for key, value in arguments.items()}


@pytest.mark.parametrize("name", TAGGED)
def test_a_call_in_disorder_has_the_arguments_of_the_model_or_is_none(name: str) -> None:
    for text in disorders(name):
        outcome = read(name, whole(text))
        calls = [item for item in outcome.items if "call" in item and "cut" not in item]
        assert [spoken(json.loads(call["arguments"])) for call in calls] in ([], [ARGUMENTS]), (text, outcome)


@pytest.mark.parametrize("name", TAGGED)
def test_disorder_is_read_alike_however_it_is_cut(name: str) -> None:
    for text in disorders(name):
        outcome = read(name, whole(text))
        for pieces in (characters(text), *halves(text, 3), *(at_random(text, seed) for seed in range(3))):
            assert read(name, pieces) == outcome, text


@pytest.mark.parametrize("name", TAGGED)
def test_a_tag_written_wrongly_is_no_part_of_a_value(name: str) -> None:
    for text in slips(name):
        outcome = read(name, whole(text))
        completed = [item["arguments"] for item in outcome.items if "call" in item and "cut" not in item]
        assert not any("<" in arguments for arguments in completed), (text, outcome)
        for pieces in (characters(text), at_random(text, len(text))):
            assert read(name, pieces) == outcome, text
