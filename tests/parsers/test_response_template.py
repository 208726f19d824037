"""A checkpoint's own response template tells how its text is read."""

from __future__ import annotations

import sys
import time
from typing import Any

import pytest
from markup_outcome import HERE, TOOLS, agree, at_random, characters, halves, load_yaml, play, whole

from responses_gateway.parsers.template import TemplateError, TemplateParser, load, opens_reasoning
from responses_gateway.wire.deltas import Reasoning, Text, ToolArguments

TEMPLATES: dict[str, dict[str, Any]] = load_yaml(HERE / "response_templates.yaml")
CASES = [
    pytest.param(entry["template"], case, id=f"{name}-{case['name']}")
    for name, entry in TEMPLATES.items()
    for case in entry["cases"]
]
TAGS: dict[str, Any] = TEMPLATES["think_tags"]["template"]
CALL = '<tool_call>{"name": "list_files", "arguments": {}}</tool_call>'
SLOW = r"(?:x+x+)+y(?=z)"  # takes exponential time on many x


def new_parser(template: dict[str, Any], case: dict[str, Any]) -> TemplateParser:
    loaded = load(template)
    thinking_open = opens_reasoning(loaded, case["prompt"]) if "prompt" in case else None
    return TemplateParser(loaded, schemas=TOOLS, thinking_open=thinking_open)


def with_field(name: str, **field: Any) -> dict[str, Any]:
    return {**TAGS, "fields": {**TAGS["fields"], name: field}}


@pytest.mark.parametrize(("template", "case"), CASES)
def test_the_text_gives_its_items_however_it_is_cut(template: dict[str, Any], case: dict[str, Any]) -> None:
    text = case["text"]
    for pieces in (whole(text), characters(text), *halves(text), *(at_random(text, seed) for seed in range(3))):
        outcome = play(new_parser(template, case), pieces, case.get("finish", "stop"))
        assert agree(outcome.items, case["items"]), (pieces[:2], outcome)
        assert outcome.repairs == case.get("repairs", {}), (pieces[:2], outcome)


def test_text_is_given_out_as_it_arrives() -> None:
    parser = TemplateParser(load(TAGS), schemas=TOOLS)
    assert parser.feed("<think>One ") == [Reasoning("One ")]
    assert parser.feed("two</thi") == [Reasoning("two")]
    assert parser.feed("nk>Three <") == [Text("Three ")]
    assert parser.feed("4") == [Text("<4")]


def test_fields_that_are_not_asked_for_stay_text() -> None:
    parser = TemplateParser(load(TAGS), schemas={}, reasoning=False, tools=False)
    assert play(parser, whole(f"<think>Hm.</think>{CALL}")).items == [{"text": f"Hm.{CALL}"}]


def test_what_waits_for_more_text_is_held() -> None:
    parser = TemplateParser(load(TAGS), schemas=TOOLS)
    held = {}
    for piece in ("<thi", "nk>Hm.", "</think>", "Look. <", "tool_call>{", '"name": "f", "arguments": {}}', "</tool_call>"):
        parser.feed(piece)
        held[piece] = parser.holds
    assert [piece for piece, holds in held.items() if holds] == [
        "<thi", "Look. <", "tool_call>{", '"name": "f", "arguments": {}}'
    ]  # fmt: skip


def test_an_id_of_the_templates_own_is_kept() -> None:
    transform = {"id": "{content.id}", "function": {"name": "{content.name}", "arguments": "{content.arguments}"}}
    template = with_field("tool_calls", open="<c>", close="</c>", content="json", transform=transform)
    parser = TemplateParser(load(template), schemas=TOOLS)
    outcome = play(parser, whole('<c>{"id": "c1", "name": "list_files", "arguments": {}}</c>'))
    assert outcome.items == [{"call": "list_files", "arguments": "{}", "id": "c1"}]


def test_arguments_that_are_a_text_are_taken_as_they_are() -> None:
    transform = {"function": {"name": "list_files", "arguments": "{content}"}}
    template = with_field("tool_calls", open="<c>", close="</c>", transform=transform)
    deltas = TemplateParser(load(template), schemas=TOOLS).feed('<c> {"a": 1} </c>')
    assert deltas[1] == ToolArguments(0, '{"a": 1}')


@pytest.mark.parametrize(
    ("transform", "each"),
    [
        ({"function": {"name": "{name}", "arguments": "{content}"}}, False),  # there is no such value
        ({"function": {"name": "{content.other}", "arguments": {}}}, False),
        ({"function": {"name": "f"}}, False),  # no arguments
        ({"name": "f", "arguments": {}}, False),
        ({"function": {"name": "f", "arguments": {}}}, True),  # the value is no list
    ],
)
def test_a_transform_that_makes_no_call_leaves_text(transform: dict[str, Any], each: bool) -> None:
    template = with_field("tool_calls", open="<c>", close="</c>", content="json", transform=transform, transform_each=each)
    outcome = play(TemplateParser(load(template), schemas=TOOLS), whole('<c>{"a": 1}</c>'))
    assert outcome.items == [{"text": '<c>{"a": 1}</c>'}]
    assert outcome.repairs == {"rejected_call": 1}


@pytest.mark.parametrize(
    ("template", "complaint"),
    [
        (None, "must be an object"),
        ({**TAGS, "version": 2}, "version is not known"),
        ({**TAGS, "extra": 1}, "version is not known"),
        ({"start_anchor": "a"}, "no fields"),
        ({"fields": TAGS["fields"]}, "no start_anchor"),
        (with_field("images", open="<i>"), "no place for images"),
        (with_field("thinking"), "only one field"),
        (with_field("thinking", open="<a>", color="red"), "keys that are not known"),
        (with_field("thinking", open="<a>", open_pattern="<a>"), "exclude each other"),
        (with_field("thinking", open=[]), "must be a text, or several"),
        (with_field("thinking", open=""), "must be a text, or several"),
        (with_field("thinking", open_pattern="("), "is not valid"),
        (with_field("thinking", open_pattern="a" * 5000), "at most 4096 characters"),
        (with_field("thinking", open="<a>", content="json"), "cannot be streamed"),
        (with_field("tool_calls", open="<a>", content="yaml"), "no content parser 'yaml'"),
        (with_field("tool_calls", open="<a>", content="xml-inline"), "an expression must be a text"),
        (with_field("tool_calls", open="<a>", content="xml-inline", content_args={"tag_pattern": "x"}), "named key"),
        (with_field("tool_calls", open="<a>", transform="call {content}"), "more than a placeholder"),
        (with_field("tool_calls", open="<a>", transform_each=True), "needs a transform"),
        (with_field("tool_calls", open="<a>", content="json", content_args={"string_delims": [["a"]]}), "pairs of texts"),
        (with_field("tool_calls", open="<a>", content="kv-lines", content_args={"kv_sep": ""}), "must be texts"),
        (with_field("tool_calls", open="<a>", content="json", content_args=[]), "must be an object"),
        (with_field("tool_calls", open="<a>", content="kv-lines", content_args={"value_parser": 1}), "must be an object"),
        ({**TAGS, "start_anchor": 1}, "must be a text, or several"),
    ],
)
def test_what_is_wrong_with_a_template_is_said(template: object, complaint: str) -> None:
    with pytest.raises(TemplateError, match=complaint):
        load(template)


def test_without_the_package_the_operator_learns_its_name(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "regex", None)
    with pytest.raises(TemplateError, match=r"pip install '\.\[tokenizer\]'"):
        load(TEMPLATES["channels"]["template"])
    assert load(TAGS).calls  # literals need no package


# ---- templates that mean no good ------------------------------------------------------------------------------------


@pytest.mark.slow
def test_an_expression_that_takes_too_long_is_given_up_once_and_the_answer_goes_on() -> None:
    template = with_field("thinking", open_pattern=SLOW, close="</t>")
    parser = TemplateParser(load(template), schemas=TOOLS)
    begun = time.process_time()
    outcome = play(parser, characters("x" * 3000 + " the end"))
    assert time.process_time() - begun < 20
    assert outcome.items == [{"text": "x" * 3000 + " the end"}]
    assert outcome.repairs == {"malformed_markup": 1}


def test_an_expression_for_values_that_takes_too_long_makes_no_call() -> None:
    pattern = f"(?P<key>){SLOW}"
    transform = {"function": {"name": "f", "arguments": "{content}"}}
    template = with_field(
        "tool_calls", open="<c>", close="</c>", content="xml-inline", content_args={"tag_pattern": pattern}, transform=transform
    )
    text = f"<c>{'x' * 3000}</c>"
    outcome = play(TemplateParser(load(template), schemas=TOOLS), whole(text))
    assert outcome.items == [{"text": text}]
    assert outcome.repairs == {"rejected_call": 1}


def test_expressions_that_match_nothing_at_all_do_not_loop() -> None:
    template = with_field("thinking", open_pattern="(?=a)", close_pattern="(?=a)")
    outcome = play(TemplateParser(load(template), schemas=TOOLS), whole("b a c"))
    assert outcome.prose == "bac"


def test_an_expression_that_could_match_everything_holds_no_more_than_its_limit() -> None:
    template = with_field("thinking", open_pattern="<.*>!", close="</t>")
    parser = TemplateParser(load(template), schemas=TOOLS)
    text = "<" + "a" * 5000
    given = "".join(delta.text for piece in text for delta in parser.feed(piece) if isinstance(delta, Text))
    assert len(given) > 3900
    assert text.startswith(given)


def test_a_call_without_an_end_is_bounded() -> None:
    parser = TemplateParser(load(TAGS), schemas=TOOLS)
    parser.feed("<tool_call>")
    given = [delta for _ in range(5) for delta in parser.feed("x" * 1_000_000)]
    assert sum(len(delta.text) for delta in given if isinstance(delta, Text)) > 4_000_000
    assert parser.repairs == {"rejected_call": 1}


def test_a_prompt_whose_anchor_takes_too_long_opens_nothing() -> None:
    template = {**TAGS, "start_anchor_pattern": SLOW}
    del template["start_anchor"]
    assert not opens_reasoning(load(template), "x" * 3000 + "<think>")
