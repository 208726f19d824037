"""Why some of what came is not sent yet, and when each item was open: what the window tells of a stream."""

from __future__ import annotations

from functools import partial
from itertools import count

import pytest

from responses_gateway import parsers
from responses_gateway.parsers import template
from responses_gateway.stream.options import StreamOptions
from responses_gateway.stream.reading.leading_thought import LeadingThoughtDetector
from responses_gateway.stream.reading.markup import Markup
from responses_gateway.stream.translator import Translator
from responses_gateway.wire.tools import Grammar
from tests.stream.stream_player import DONE, TOOLS, arguments, call, finish, text, think


def begun(**options: object) -> Translator:
    translator = Translator(StreamOptions("resp_1", "m", tools=TOOLS, **options), partial(float, 1))  # type: ignore[arg-type]
    translator.start()
    return translator


def markup() -> Markup:
    return Markup(partial(parsers.parser, "qwen3", "hermes", schemas={}), thinking_open=False)


def test_nothing_is_held_of_a_text() -> None:
    translator = begun()
    for piece in ("Hello", ", world"):
        translator.feed(text(piece))
        assert translator.held == []


def test_a_chunk_whose_rest_has_not_come() -> None:
    translator = begun()
    whole = text("Hello")
    assert translator.feed(whole[:20]) == b""
    assert translator.held == ["partial_chunk"]
    translator.feed(whole[20:])
    assert translator.held == []


def test_white_space_at_the_end_of_a_text() -> None:
    translator = begun()
    translator.feed(text("Hello \n"))
    assert translator.held == ["white_space"]
    translator.feed(text("world"))
    assert translator.held == []


def test_half_a_delimiter_of_a_response_template() -> None:
    fields = {"thinking": {"open": "<think>", "close": "</think>"}, "content": {"close": "<end>"}}
    loaded = template.load({"start_anchor": "<start>", "fields": fields})
    translator = begun(markup=Markup(partial(template.TemplateParser, loaded, schemas={})))
    translator.feed(text("<think>Hm.</thi"))
    assert translator.held == ["markup"]
    translator.feed(text("nk>Hello"))
    assert translator.held == []


def test_half_a_character() -> None:
    translator = begun()
    translator.feed(text("HALF").replace(b"HALF", b"\\ud83d"))
    assert translator.held == ["partial_delta"]
    translator.feed(text("HALF").replace(b"HALF", b"\\ude00"))
    assert translator.held == []


def test_what_comes_behind_a_call_that_is_not_complete() -> None:
    translator = begun()
    translator.feed(call(0, "call_1", "weather") + arguments(0, '{"city":'))
    assert translator.held == []
    translator.feed(call(1, "call_2", "clock") + arguments(1, "{}"))
    assert translator.held == ["open_call"]
    translator.feed(arguments(0, '"Rome"}'))
    assert translator.held == []


@pytest.mark.parametrize("watched", [False, True])
def test_what_may_be_markup(watched: bool) -> None:
    reading = LeadingThoughtDetector(parsers.reasoning_markers("auto")[0], markup) if watched else markup()
    translator = begun(markup=reading)
    translator.feed(text("<thi"))
    assert translator.held == ["markup"]
    translator.feed(text("nk>Hm"))
    assert translator.held == []
    translator.feed(text(".</thi"))
    assert translator.held == ["markup"]


def test_an_input_that_is_to_be_judged() -> None:
    translator = begun(grammars={"patch": Grammar("regex", "x+")}, judged=True)
    translator.feed(call(0, "call_1", "patch") + arguments(0, '{"input": "xx"}'))
    assert translator.held == ["verdict"]
    translator.feed(finish("tool_calls") + DONE)
    assert translator.held == ["verdict"]
    translator.judge(None)
    assert translator.held == []


def test_behind_the_end_nothing_is_held() -> None:
    translator = begun()
    translator.feed(text("Hello \n") + finish() + DONE)
    assert translator.ended
    assert translator.held == []


def test_each_item_has_its_times_and_its_size() -> None:
    translator = Translator(StreamOptions("resp_1", "m"), partial(next, map(float, count(10))))
    translator.start()
    translator.feed(think("Hm."))
    (reasoning,) = translator.writer.spans.values()
    assert (reasoning.kind, reasoning.closed) == ("", None)
    translator.feed(text("Hello") + finish() + DONE)
    reasoning, message = translator.writer.spans.values()
    assert (reasoning.kind, message.kind) == ("reasoning", "message")
    assert reasoning.opened < reasoning.closed <= message.opened < message.closed  # type: ignore[operator]
    assert [reasoning.size, message.size] == [len(item) for item in translator.writer.done]
