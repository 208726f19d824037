"""Calls with one slip in their markup, in every dialect: a call that is complete has the arguments that the model meant."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from itertools import pairwise
from typing import Any

import pytest
from markup_outcome import TOOLS, Outcome, characters, play, whole
from markup_rendering import FAMILIES, Item, render

from responses_gateway.parsers import parser
from tests.thoroughness import one_in

FILE = {"path": "/tmp/x", "content": "if a < b:\n    go()"}
TURNS: list[list[Item]] = [
    [("call", "write_file", FILE)],
    [("call", "search", {"query": "two words", "filters": {"tags": ["new", "old"], "exact": True}, "limit": 3})],
    [("call", "get_weather", {"city": "Rome"}), ("call", "write_file", FILE)],
    [("call", "list_files", {}), ("call", "get_weather", {"city": "Rome", "unit": "celsius"})],
]
# Of all variants those that still complete a call with other arguments: these numbers only go down.
LEFT = dict.fromkeys(FAMILIES, 1) | {
    "deepseek_v3": 5,
    "deepseek_v31": 6,
    **dict.fromkeys(["deepseek_v32", "deepseek_v4", "deepseek_v41", "dots", "minimax_m2"], 9),
    **dict.fromkeys(["glm45", "poolside_v1", "hy_v4"], 5),
    **dict.fromkeys(["hy_v3", "solar_open2"], 15),
    "k2_horizon": 20,
    "kimi_k3": 25,
    **dict.fromkeys(["mimo", "minicpm5", "qwen3_coder", "seed_oss"], 12),
    "minimax_m3": 32,
    **dict.fromkeys(["muse", "muse_glimmer"], 39),
    "step3": 19,
}
_MARKER = re.compile(
    r"""<\|(?:open|close)\|>[^<]*<\|sep\|>|(?:\]<\]minimax\[>\[)?</?[^<>\n]+>|\[/?[A-Z_]{3,}\]|```(?:json)?|functools|[{}\[\]():=,"']"""
)
_NAME = re.compile(r"[A-Za-z]{4,}")
_NAMED = re.compile(r"(?<==)[^<>]*|(?<=\[<)(?!/|invoke|tool_call)\w+")  # the tool or the parameter that a marker names
_STRING_MARKS = ('<|"|>', "<escape>")
_ENDS = ("</", "]<]minimax[>[</", "<|close|>", "<|tool_arg:end|>")


def markers_in(text: str) -> list[tuple[int, int]]:
    """Return where the markers of a text stand: tags, tokens, and the brackets and quotes of arguments that are not in tags."""
    written = [form for value in ("two words", *FILE.values()) for form in (value, json.dumps(value)[1:-1], repr(value)[1:-1])]
    values = [found.span() for form in written for found in re.finditer(re.escape(form), text)]
    places = [found.span() for found in _MARKER.finditer(text)]
    places = [(at, end) for at, end in places if not any(start <= at < last for start, last in values)]
    in_tags = 'arguments"' not in text and any(text[at:].startswith(_ENDS) for at, _ in places)
    return [(at, end) for at, end in places if end - at > 1 or not in_tags]


def misspelt(marker: str) -> Iterator[str]:
    """Write one marker wrongly: not at all, twice, cut, in capitals, with other letters, blanks or slashes."""
    yield ""
    yield marker * 2
    if len(marker) == 1:
        return
    yield from (marker[1:], marker[:-1], marker[: len(marker) // 2], marker.upper())
    name = _NAME.search(marker)
    if name is not None:
        start, end = name.span()
        middle = (start + end) // 2
        yield marker[: middle - 1] + marker[middle] + marker[middle - 1] + marker[middle + 1 :]
        yield marker[:middle] + marker[middle + 1 :]
        yield f"{marker[:start]} {marker[start:]}"
        yield f"{marker[:end]}\n{marker[end:]}"
    if "</" in marker:
        yield from (marker.replace("</", slash) for slash in ("<", "<\\", "<//"))


def slips(text: str) -> Iterator[str]:
    """Write a text with one marker misspelt, in the place of another, in front of another, exchanged with the next, or behind
    other text."""
    for start, end in markers_in(text):
        for form in misspelt(text[start:end]):
            yield text[:start] + form + text[end:]
    places = [(start, end) for start, end in markers_in(text) if end - start > 1 and text[start:end] not in _STRING_MARKS]
    known = sorted({text[start:end] for start, end in places})
    before = 0
    for start, end in places:
        marker = text[start:end]
        for other in known:
            if _NAMED.sub("", other) != _NAMED.sub("", marker):
                yield text[:start] + other + text[end:]
            if other != marker and not text[:start].endswith(_STRING_MARKS):
                yield text[:start] + other + text[start:]
        if not text[before:start].strip():
            yield f"{text[:start]}\n{text[start:]}"
            yield f"{text[:start]} and {text[start:]}"
        before = end
    for (first, middle), (second, end) in pairwise(places):
        yield text[:first] + text[second:end] + text[middle:second] + text[first:middle] + text[end:]


def read(name: str, text: str, *, by_character: bool = False) -> Outcome:
    family = FAMILIES[name]
    subject = parser(family.reasoning, family.tools, schemas=TOOLS, thinking_open=False)
    return play(subject, characters(text) if by_character else whole(text))


def trimmed(value: Any) -> Any:
    """Return a value without the white space around its texts: whose it is cannot be told where a tag is missing."""
    if isinstance(value, dict):
        return {key: trimmed(item) for key, item in value.items()}
    if isinstance(value, list):
        return [trimmed(item) for item in value]
    return value.strip() if isinstance(value, str) else value


def false_calls(outcome: Outcome, turn: list[Item]) -> list[dict[str, str]]:
    """Return the complete calls of tools whose arguments are not those of the turn. What is no JSON runs nowhere."""
    meant = [(name, trimmed(arguments)) for _, name, arguments in turn]
    found: list[dict[str, str]] = []
    for item in outcome.items:
        if item.get("call") not in TOOLS or "cut" in item:
            continue
        try:
            arguments = json.loads(item["arguments"])
        except ValueError:
            continue
        if (item["call"], trimmed(arguments)) not in meant:
            found.append(item)
    return found


@pytest.mark.untraced  # thousands of short texts: the tests of vectors run the same lines
@pytest.mark.parametrize("name", sorted(FAMILIES))
def test_one_slip_makes_no_call_with_other_arguments(name: str) -> None:
    false: list[str] = []
    for turn in TURNS:
        written = render(FAMILIES[name], turn)
        for text in one_in(4, sorted({*slips(written)} - {written})):
            if false_calls(read(name, text), turn):
                false.append(text)
    assert len(false) <= LEFT[name], false


@pytest.mark.untraced  # likewise
@pytest.mark.parametrize("name", sorted(FAMILIES))
def test_a_slip_is_read_alike_however_it_is_cut(name: str) -> None:
    for turn in TURNS:
        for text in one_in(4, sorted(slips(render(FAMILIES[name], turn)))[::8]):
            assert read(name, text) == read(name, text, by_character=True), text


@pytest.mark.parametrize(
    ("name", "end"),
    [("kimi_k2", "<|tool_call_end|>"), ("deepseek_v3", "<｜tool▁call▁end｜>"), ("deepseek_v31", "<｜tool▁call▁end｜>")],
)
def test_an_object_behind_the_end_of_a_call_makes_it_incomplete(name: str, end: str) -> None:
    text = render(FAMILIES[name], [("call", "write_file", FILE)])
    outcome = read(name, text.replace(end, end + '{"content": "x"}' + end, 1))
    assert [item.get("cut") for item in outcome.items] == ["yes"]


HERMES_CALL = '{"name": "get_weather", "arguments": {"city": "Rome"}}'
QWEN_CALL = "<function=get_weather>\n<parameter=city>\nRome\n</parameter>\n</function>"


@pytest.mark.parametrize(
    ("name", "call"),
    [
        ("hermes", f"<tool_call>\n{HERMES_CALL}\n</tool_call>"),
        ("hermes", HERMES_CALL),
        ("hermes", f"[{HERMES_CALL}]"),
        ("qwen3_coder", f"<tool_call>\n{QWEN_CALL}\n</tool_call>"),
        ("qwen3_coder", QWEN_CALL),
        ("mimo", f"<tool_call>{QWEN_CALL}</tool_call>".replace("\n", "")),
    ],
)
@pytest.mark.parametrize("written", ["<tool_calls>{0}</tool_calls>", "<tool_calls>\n{0}\n</tool_calls>", "<tool_calls>{0}"])
def test_tags_around_calls_are_not_shown(name: str, call: str, written: str) -> None:
    text = f"Let me see.\n{written.format(call)}"
    outcome = read(name, text)
    assert [item.get("call") or item.get("text") for item in outcome.items] == ["Let me see.", "get_weather"]
    assert json.loads(outcome.items[1]["arguments"]) == {"city": "Rome"}
    assert read(name, text, by_character=True) == outcome
    mention = "Calls stand in <tool_calls> tags, up to </tool_calls>."
    assert [item.get("text") for item in read(name, mention).items] == [mention]


def test_a_value_ends_in_no_token_of_its_own_markup_but_in_any_other() -> None:
    text = render(FAMILIES["kimi_k3"], [("call", "write_file", {"path": "a", "content": "the end: VALUE"})])
    assert [item.get("cut") for item in read("kimi_k3", text.replace("VALUE", "<|open|>")).items] == ["yes"]
    assert [item.get("cut") for item in read("kimi_k3", text.replace("VALUE", "<|im_end|>")).items] == [None]
    assert [item.get("cut") for item in read("kimi_k3", text.replace("VALUE", "<|sep|> and <|open|>, no more")).items] == [None]
