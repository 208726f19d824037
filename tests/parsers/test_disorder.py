"""Markup with a tag too many or an end too few: a call that is complete has the model's arguments, however the text is cut."""

from __future__ import annotations

import json
import re
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from markup_outcome import TOOLS, Outcome, Piece, at_random, characters, halves, play, whole
from markup_rendering import FAMILIES, render

from responses_gateway.parsers import parser
from tests.thoroughness import THOROUGH, examples, one_in

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


def step(places: int) -> int:
    """Return how far cuts are apart: so many places, or three times as many."""
    return places if THOROUGH else 3 * places


def spoken(arguments: dict[str, Any]) -> dict[str, Any]:
    """Return arguments without the line break behind a text that was left open: whose it is cannot be told."""
    return {key: value.removesuffix("\n") if isinstance(value, str) else value for key, value in arguments.items()}


@pytest.mark.parametrize("name", TAGGED)
def test_a_call_in_disorder_has_the_arguments_of_the_model_or_is_none(name: str) -> None:
    for text in disorders(name):
        outcome = read(name, whole(text))
        calls = [item for item in outcome.items if "call" in item and "cut" not in item]
        assert [spoken(json.loads(call["arguments"])) for call in calls] in ([], [ARGUMENTS]), (text, outcome)


@pytest.mark.untraced  # the test above runs the same lines
@pytest.mark.parametrize("name", TAGGED)
def test_disorder_is_read_alike_however_it_is_cut(name: str) -> None:
    for text in disorders(name):
        outcome = read(name, whole(text))
        for pieces in (characters(text), *halves(text, step(3)), *(at_random(text, seed) for seed in range(3))):
            assert read(name, pieces) == outcome, text


@pytest.mark.parametrize("name", TAGGED)
def test_a_tag_written_wrongly_is_no_part_of_a_value(name: str) -> None:
    for text in slips(name):
        outcome = read(name, whole(text))
        completed = [item["arguments"] for item in outcome.items if "call" in item and "cut" not in item]
        assert not any("<" in arguments for arguments in completed), (text, outcome)


@pytest.mark.untraced  # the test above runs the same lines
@pytest.mark.parametrize("name", TAGGED)
def test_a_tag_written_wrongly_is_read_alike_however_it_is_cut(name: str) -> None:
    for text in one_in(3, slips(name)):
        outcome = read(name, whole(text))
        for pieces in (characters(text), at_random(text, len(text))):
            assert read(name, pieces) == outcome, text


# Two values of which each holds what belongs to neither where a tag between them cannot be read.
FILE = {"path": "/tmp/x", "content": "if a < b:\n    go()"}
_TAG_NAME = re.compile(r"[A-Za-z_]{5,}")


def misspelt(tag: str) -> list[str]:
    """Return a tag as models write it wrongly: left out, in capitals, without a bracket, with letters that are not its own."""
    name = _TAG_NAME.search(tag)
    assert name is not None
    middle = (name.start() + name.end()) // 2
    swapped = tag[: middle - 1] + tag[middle] + tag[middle - 1] + tag[middle + 1 :]
    shorter = tag[:middle] + tag[middle + 1 :]
    return [
        "",
        tag.upper(),
        tag.title(),
        tag[1:],
        tag[:-1],
        swapped,
        shorter,
        f"< {tag[1:]}",
        tag.replace("</", "<\\"),
        f"{tag[:-1]}\n>",
    ]


def misspellings(name: str) -> list[str]:
    """Return a call with each of its tags written wrongly, or with a parameter behind its end or that of the block."""
    text = render(FAMILIES[name], [("call", "write_file", FILE)])
    tags = list(_TAG.finditer(text))
    ends = [tag for tag in tags if "</" in tag.group()][-2:]
    texts = [text[: tag.start()] + form + text[tag.end() :] for tag in tags for form in misspelt(tag.group())]
    second = next(tag.start() for tag in tags if tag.start() > text.index("/tmp/x") and "</" not in tag.group())
    behind = text[second : ends[0].start() if len(ends) > 1 else ends[-1].start()]
    return [*texts, *(text[:second] + text[end.start() : end.end()] + behind + text[end.end() :] for end in ends)]


@pytest.mark.parametrize("name", sorted(set(TAGGED) - {"minimax_m3"}))
def test_a_misspelt_tag_gives_no_call_with_other_arguments(name: str) -> None:
    for text in misspellings(name):
        outcome = read(name, whole(text))
        calls = [item for item in outcome.items if "call" in item and "cut" not in item]
        assert [spoken(json.loads(call["arguments"])) for call in calls] in ([], [FILE]), (text, outcome)


@pytest.mark.untraced  # the test above runs the same lines
@pytest.mark.parametrize("name", sorted(set(TAGGED) - {"minimax_m3"}))
def test_a_misspelt_tag_is_read_alike_however_it_is_cut(name: str) -> None:
    for text in one_in(3, misspellings(name)):
        outcome = read(name, whole(text))
        for pieces in (characters(text), *halves(text, step(7))):
            assert read(name, pieces) == outcome, text


# Other markup, code and prose about tags; no line that only an end tag of the family makes up.
_INSIDE = st.just("see </parameter> and </arg_value> there.") | st.lists(
    st.sampled_from(
        [
            "<p>hi</p>",
            "</html>\n",
            "<param>x</param>",
            "if a < b > c:\n",
            "`</parameter>`",
            "'</arg_value>'",
            "<arg_key>k</arg_key><arg_value>v</arg_value>",
            "<parameter=k>\n1\n</parameter>\n",
            "<parameter=k>\n1\n</parameter>\n<parameter=j>\n2\n</parameter>\n",
            '<parameter name="k">1</parameter>\n',
            "/parameter>",
            "</value>",
            "Parameter: x",
            "\n",
            "/tmp/x",
        ]
    ),
    min_size=1,
    max_size=5,
    unique=True,
).map("".join)


@pytest.mark.parametrize("name", ["glm45", "qwen3_coder", "seed_oss", "minimax_m2", "deepseek_v32"])
@given(value=_INSIDE)
@settings(
    max_examples=examples(60), deadline=None, derandomize=True, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
def test_a_value_comes_out_as_it_was_written(name: str, value: str) -> None:
    written = {"path": "/tmp/x", "content": f"{value}."}
    outcome = read(name, whole(render(FAMILIES[name], [("call", "write_file", written)])))
    assert [json.loads(item["arguments"]) for item in outcome.items if "cut" not in item] == [written]


@pytest.mark.parametrize("written", ['"query"', "'query'", "`query`"])
def test_quotes_around_a_key_are_not_a_part_of_it(written: str) -> None:
    text = render(FAMILIES["glm45"], [("call", "search", ARGUMENTS)]).replace("<arg_key>query", f"<arg_key>{written}")
    assert [json.loads(item["arguments"]) for item in read("glm45", whole(text)).items] == [ARGUMENTS]


@pytest.mark.parametrize("end", ["<function=write_file>", ""])
def test_an_opening_in_the_place_of_an_end_begins_no_other_call(end: str) -> None:
    text = render(FAMILIES["qwen3_coder"], [("call", "write_file", FILE)]).replace("</function>", end)
    outcome = read("qwen3_coder", whole(text))
    assert [json.loads(item["arguments"]) for item in outcome.items] == [FILE]
    assert read("qwen3_coder", characters(text)) == outcome
