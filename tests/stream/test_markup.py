"""Raw text in, items out: what a client sees of a model whose markup the gateway reads, and of one whose markup leaked."""

from __future__ import annotations

import json
from functools import partial
from typing import Any, ClassVar

import pytest

from responses_gateway import parsers as formats
from responses_gateway.parsers import Parser
from responses_gateway.stream.options import CODEX
from responses_gateway.stream.reading.markup import Markup
from responses_gateway.wire.deltas import Delta, FinishReason
from responses_gateway.wire.errors import server_error
from responses_gateway.wire.tools import ToolTarget
from tests.stream.stream_player import Play, arguments, call, chunk, event, finish, play, refuse, text, think, usage

CITY = {"type": "object", "properties": {"city": {"type": "string"}}}
SCHEMAS: dict[str, dict[str, Any]] = {"weather": CITY, "clock": {"type": "object", "properties": {}}}
CALL = '<tool_call>\n{"name": "weather", "arguments": {"city": "Rome"}}\n</tool_call>'
WEATHER = ("call", "weather", '{"city": "Rome"}')
BROKEN = server_error("The connection broke.")


def markup(reasoning: str = "qwen3", tools: str = "hermes", *, opened: bool | None = False, **options: Any) -> Markup:
    ids = options.pop("marker_ids", None)
    return Markup(partial(formats.parser, reasoning, tools, schemas=SCHEMAS, marker_ids=ids), thinking_open=opened, **options)


def raw(*pieces: Any, opened: bool | None = False, **options: Any) -> Play:
    """Play with a parser of ours; strings are pieces of text."""
    chosen = options.pop("markup", None) or markup(opened=opened)
    return play(*(text(piece) if isinstance(piece, str) else piece for piece in pieces), markup=chosen, **options)


def rescued(*pieces: Any, **options: Any) -> Play:
    """Play of a backend that parses by itself, with somebody looking for what it missed."""
    return raw(*pieces, markup=markup("auto", "auto", rescue=True), **options)


# ---- raw text ----------------------------------------------------------------------------------------------------------


def test_thought_answer_and_call() -> None:
    seen = raw("<think>\nHm", ", well.\n</think>\n\nI ", "look.\n", CALL, finish())
    assert seen.said == [("reasoning", "Hm, well."), ("text", "I look."), WEATHER]
    assert seen.response["status"] == "completed"
    assert seen.translator.repairs == {}


def test_a_thought_that_the_prompt_opened() -> None:
    seen = raw("Hm.\n</th", "ink>\n\nYes.", finish(), opened=True)
    assert seen.said == [("reasoning", "Hm."), ("text", "Yes.")]


def test_every_piece_of_plain_text_is_passed_on_at_once() -> None:
    seen = raw("<think>", "One", " two", " three", "</think>", "Four", " five", " six", finish())
    assert seen.deltas("reasoning_text") == ["One", " two", " three"]
    assert seen.deltas("output_text") == ["Four", " five", " six"]


def test_the_lines_of_a_thought_stay_apart() -> None:
    """Line breaks at its end belong to the markup, so they wait for what follows."""
    seen = raw(
        "One", ".", "\n", "\n", "Two", ".\n", "Three", ".", "\n", "</think>", "Four", "\n", "\n", "five", finish(), opened=True
    )
    assert seen.said == [("reasoning", "One.\n\nTwo.\nThree."), ("text", "Four\n\nfive")]


def test_text_that_may_become_a_marker_waits_and_no_other() -> None:
    seen = raw("a <", "to", "ol", "_call", "s> b", finish())
    assert seen.said == [("text", "a <tool_calls> b")]
    assert seen.deltas("output_text")[0] == "a"


def test_a_marker_begun_at_the_end_is_text() -> None:
    assert raw("1 <tool", finish()).said == [("text", "1 <tool")]
    assert raw("1", " <", finish()).said == [("text", "1 <")]


def test_arguments_stream_while_the_model_writes_them() -> None:
    seen = raw('<tool_call>\n{"name": "weather", "arguments": ', '{"city": ', '"Rome"', "}}\n</tool_call>", finish())
    assert seen.said == [WEATHER]
    assert len(seen.deltas("function_call_arguments")) >= 3


def test_two_calls_and_text_behind_them() -> None:
    seen = raw(f"{CALL}\n", CALL.replace("Rome", "Lima"), "\nDone.", finish())
    assert seen.said == [WEATHER, ("call", "weather", '{"city": "Lima"}'), ("text", "Done.")]
    ids = [item["call_id"] for item in seen.response["output"][:2]]
    assert len(set(ids)) == 2


def test_a_custom_tool_gets_its_input() -> None:
    said = json.dumps({"name": "patch", "arguments": {"input": "a\nb"}})
    assert raw(f"<tool_call>{said}</tool_call>", finish()).said == [("custom", "patch", "a\nb")]


@pytest.mark.parametrize(
    ("tools", "said"),
    [
        ("glm45", "<tool_call>find<arg_key>id</arg_key><arg_value>7</arg_value></tool_call>"),
        (
            "minimax_m2",
            '<minimax:tool_call><invoke name="find"><parameter name="id">7</parameter></invoke></minimax:tool_call>',
        ),
        ("qwen3_coder", "<tool_call><function=find><parameter=id>7</parameter></function></tool_call>"),
        ("pythonic", '[find(id="7")]'),
        ("llama3_json", '{"name": "find", "parameters": {"id": "7"}}'),
    ],
)
def test_a_call_without_the_namespace_of_its_tool_is_one(tools: str, said: str) -> None:
    schemas = {"crm__find": {"type": "object", "properties": {"id": {"type": "string"}}}}
    parser = partial(formats.parser, None, tools, schemas=schemas)
    table = {"crm__find": ToolTarget("function", "find", "crm")}
    seen = raw(said, finish(), markup=Markup(parser, thinking_open=False), tools=table)
    assert seen.said == [("call", "find", '{"id": "7"}')]


def test_a_call_that_may_be_one_of_two_tools_is_text() -> None:
    parser = partial(formats.parser, None, "pythonic", schemas={"crm__find": {}, "web__find": {}})
    seen = raw("[find(id=7)]", finish(), markup=Markup(parser, thinking_open=False))
    assert seen.said == [("text", "[find(id=7)]")]


def test_markup_in_a_code_block_is_shown() -> None:
    answer = f"Write:\n```\n{CALL}\n```\nSo."
    for pieces in ([answer], list(answer)):
        seen = raw(*pieces, finish())
        assert seen.said == [("text", answer)]
        assert set(seen.translator.repairs) == {"quoted_marker"}


def test_a_code_block_that_came_the_short_way_is_known_as_one() -> None:
    """Plain pieces pass without the parser; it has to know of them all the same."""
    pieces = ["So:", "\n\n", "```", "xml", "\n", "<tool_call>", "{", "\n", "```", "\n", "now", "\n", CALL]
    assert raw(*pieces, finish()).said == [("text", "So:\n\n```xml\n<tool_call>{\n```\nnow"), WEATHER]


@pytest.mark.parametrize("choice", ["none", "weather"])
def test_calls_that_the_request_forbids_are_left_out(choice: str) -> None:
    allowed = frozenset({choice}) - {"none"}
    seen = raw(f'<tool_call>{{"name": "clock", "arguments": {{}}}}</tool_call>\n{CALL}', finish(), allowed=allowed)
    assert seen.said == ([WEATHER] if choice == "weather" else [])
    assert seen.translator.repairs["call_suppressed"] == 2 - len(seen.said)


def test_a_backend_that_answers_with_one_object() -> None:
    message = {"role": "assistant", "content": f"<think>Hm.</think>Look.\n{CALL}"}
    body = {"object": "chat.completion", "choices": [{"index": 0, "message": message, "finish_reason": "stop"}]}
    seen = raw(b"data: " + json.dumps(body).encode() + b"\n\n")
    assert seen.said == [("reasoning", "Hm."), ("text", "Look."), WEATHER]


# ---- half raw, half parsed ---------------------------------------------------------------------------------------------


def test_a_parsed_call_after_a_raw_thought() -> None:
    seen = raw("Hm", ".\n", call(0, "c1", "weather", ""), arguments(0, '{"city": "Rome"}'), finish(), opened=True)
    assert seen.said == [("reasoning", "Hm."), WEATHER]
    assert seen.response["output"][1]["call_id"] == "c1"


def test_what_follows_a_parsed_call_does_not_begin_inside_a_thought() -> None:
    seen = raw("Hm.</think>A", call(0, "c1", "weather", '{"city": "Rome"}'), "B", finish(), opened=True)
    assert seen.said == [("reasoning", "Hm."), ("text", "A"), WEATHER, ("text", "B")]


def test_a_raw_call_after_a_parsed_thought() -> None:
    seen = raw(think("Hm"), think(" yes"), think("."), "\n\n", "Now", " then", CALL, finish())
    assert seen.said == [("reasoning", "Hm yes."), ("text", "Now then"), WEATHER]
    assert seen.deltas("reasoning_text") == ["Hm", " yes", "."]


def test_calls_of_the_backend_and_calls_in_the_text_are_told_apart() -> None:
    seen = raw(call(0, "c1", "clock", "{}"), CALL, call(1, "c2", "clock", "{}"), CALL, finish())
    assert seen.said == [("call", "clock", "{}"), WEATHER] * 2
    assert len({item["call_id"] for item in seen.response["output"]}) == 4


@pytest.mark.parametrize("client", [CODEX, None])
def test_a_refusal_stands_where_the_model_gave_it(client: Any) -> None:
    seen = raw("a <", refuse("No"), refuse("."), finish(), **({"client": client} if client else {}))
    if client is None:
        assert seen.said == [("text", "a <"), ("refusal", "No.")]
    else:  # it gets refusals as text
        assert seen.said == [("text", "a <No.")]


# ---- cut and broken ----------------------------------------------------------------------------------------------------

CUT = ("Look.\n<tool_call>\n", '{"name": "weather", "arguments": ', '{"city": "Ro')


def test_a_call_cut_at_the_limit() -> None:
    seen = raw(*CUT, finish("length"))
    assert seen.said == [("text", "Look."), ("call", "weather", '{"city": "Ro', "incomplete")]
    assert seen.response["status"] == "incomplete"
    codex = raw(*CUT, finish("length"), client=CODEX)
    assert codex.said == [("text", "Look.")]
    assert codex.response["status"] == "incomplete"


def test_a_call_cut_behind_its_arguments_is_not_completed() -> None:
    seen = raw(CALL.removesuffix("}\n</tool_call>"), finish("length"))
    assert seen.said == [(*WEATHER, "incomplete")]
    assert raw(CALL.removesuffix("}\n</tool_call>"), finish("length"), client=CODEX).said == []


def test_a_call_without_its_end_marker_is_whole_if_the_model_stopped_by_itself() -> None:
    assert raw(CALL.removesuffix("\n</tool_call>"), finish("stop"), client=CODEX).said == [WEATHER]


def test_a_call_cut_before_its_name_is_shown_as_it_is() -> None:
    seen = raw("Look. ", '<tool_call>\n{"na', finish("length"))
    assert seen.said == [("text", 'Look. <tool_call>\n{"na', "incomplete")]
    assert seen.translator.repairs == {"cut_markup": 1}


def test_a_thought_cut_at_the_limit() -> None:
    seen = raw("<think>Hm, </thi", finish("length"))
    assert seen.said == [("reasoning", "Hm, </thi", "incomplete")]


@pytest.mark.parametrize("break_", [None, BROKEN, b'data: {"error": {"message": "dead", "code": 500}}\n\n'])
def test_a_stream_that_breaks_inside_a_call(break_: Any) -> None:
    rest = [] if break_ is None else [break_]
    seen = raw(*CUT, *rest, done=False)
    assert seen.response["status"] == "failed"
    assert seen.said == [("text", "Look."), ("call", "weather", '{"city": "Ro', "incomplete")]
    codex = raw(*CUT, *rest, done=False, client=CODEX)
    assert (codex.response["status"], codex.said) == ("failed", [("text", "Look.")])


@pytest.mark.parametrize("break_", [None, BROKEN, b"data: {\n\n"])
def test_a_stream_that_breaks_while_text_is_held_back(break_: Any) -> None:
    seen = raw("a ", "<thin", *([] if break_ is None else [break_]), done=False)
    assert seen.response["status"] == "failed"
    assert seen.said == [("text", "a <thin", "incomplete")]


@pytest.mark.parametrize("break_", [None, BROKEN, b"data: {\n\n"])
def test_half_a_marker_of_a_call_is_left_out_when_a_stream_breaks(break_: Any) -> None:
    seen = raw("a ", "<tool", *([] if break_ is None else [break_]), done=False)
    assert (seen.response["status"], seen.said) == ("failed", [("text", "a ", "incomplete")])


def test_a_break_after_the_finish_reason_loses_nothing() -> None:
    seen = raw(CALL, "\nb <", finish(), BROKEN)
    assert seen.said == [WEATHER, ("text", "b <")]
    assert seen.response["status"] == "completed"


class Stubborn(Parser):
    """A parser with a defect."""

    repairs: ClassVar[dict[str, int]] = {}

    def __init__(self, *, thinking_open: bool | None) -> None:
        pass

    def feed(self, text: str, token_ids: Any = None) -> list[Delta]:
        raise RuntimeError("a defect")

    def finish(self, reason: FinishReason) -> list[Delta]:
        raise RuntimeError("another")


def test_a_defect_of_the_parser_ends_the_stream_as_failed() -> None:
    seen = raw("a", finish(), markup=Markup(Stubborn))
    assert seen.response["status"] == "failed"
    assert str(seen.translator.defect) == "a defect"
    seen = raw(BROKEN, markup=Markup(Stubborn))
    assert (seen.response["status"], str(seen.translator.defect)) == ("failed", "another")


# ---- rescue ------------------------------------------------------------------------------------------------------------


def test_a_call_that_the_backend_left_in_the_text() -> None:
    for leaked in (
        CALL,
        "<tool_call>\n<function=weather>\n<parameter=city>\nRome\n</parameter>\n</function>\n</tool_call>",
        '<|tool_call|>[{"name": "weather", "arguments": {"city": "Rome"}}]',
    ):
        seen = rescued(think("Hm."), "I look.\n", leaked[:9], leaked[9:], finish())
        assert seen.said == [("reasoning", "Hm."), ("text", "I look."), WEATHER]
        assert seen.translator.repairs["call_rescued"] == 1


@pytest.mark.parametrize("piece", [7, 1000])
@pytest.mark.parametrize("read", [raw, rescued])
def test_a_call_that_the_server_has_left_in_the_text_and_announces_too_is_one(read: Any, piece: int) -> None:
    """A client would run it twice. Of two calls in the text, one may be what the server's parser has missed."""
    other = CALL.replace("Rome", "Oslo")
    left = f"I look.\n{other}\n{CALL}"
    pieces = [left[at : at + piece] for at in range(0, len(left), piece)]
    announced = call(0, "call_1", "weather", '{"city":"Rome"}')
    seen = read(*pieces, announced, finish("tool_calls"))
    assert seen.said == [("text", "I look."), ("call", "weather", '{"city": "Oslo"}'), WEATHER]


def test_a_call_in_the_text_is_another_one_than_what_the_server_announces_otherwise() -> None:
    for name, given in (("weather", '{"city":"Oslo"}'), ("clock", "{}")):
        assert rescued(CALL, call(0, "call_1", name, given), finish("tool_calls")).said == [WEATHER, ("call", name, given)]
    seen = rescued(
        CALL, call(0, "call_1", "weather", '{"city":"Rome"}'), call(1, "call_2", "weather", '{"city":"Rome"}'), finish()
    )
    assert seen.said == [WEATHER, ("call", "weather", '{"city":"Rome"}')]


@pytest.mark.parametrize("read", [raw, rescued])
def test_a_call_that_the_server_announces_in_pieces_is_that_in_the_text(read: Any) -> None:
    begins = call(0, "call_1", "weather", "")
    pieces = [arguments(0, piece) for piece in ('{"ci', 'ty":"Rome"', "}")]
    assert read(CALL, begins, *pieces, finish("tool_calls")).said == [WEATHER]
    assert read(begins, *pieces, CALL, finish()).said == [("call", "weather", '{"city":"Rome"}')]
    # What came twice one way is meant twice, and another call is another one, also where it is cut.
    assert read(f"{CALL}\n{CALL}", begins, *pieces, finish("tool_calls")).said == [WEATHER, WEATHER]
    other = [arguments(0, piece) for piece in ('{"city":"Ro', 'stock"}')]
    rostock = ("call", "weather", '{"city":"Rostock"}')
    assert read(CALL, begins, *other, finish("tool_calls")).said == [WEATHER, rostock]
    assert read(begins, *other, CALL, finish()).said == [rostock, WEATHER]
    seen = read(CALL, begins, other[0], finish("length"))
    assert (seen.said[0], seen.response["status"]) == (WEATHER, "incomplete")
    assert [item["arguments"] for item in seen.response["output"]] == ['{"city": "Rome"}', '{"city":"Ro']


def test_calls_in_the_text_and_announced_side_by_side_are_told_apart() -> None:
    two = [call(0, "a", "weather", '{"city":'), call(1, "b", "weather", '{"city":')]
    rest = [arguments(1, '"Oslo"}'), arguments(0, '"Rome"}'), finish("tool_calls")]
    assert rescued(CALL, *two, *rest).said == [WEATHER, ("call", "weather", '{"city":"Oslo"}')]


def test_no_arguments_yet_are_not_those_of_a_call_in_the_text() -> None:
    clock = '<tool_call>\n{"name": "clock", "arguments": {}}\n</tool_call>'
    seen = rescued(clock, call(0, "call_1", "clock", ""), arguments(0, '{"zone":"x"}'), finish("tool_calls"))
    assert seen.said == [("call", "clock", "{}"), ("call", "clock", '{"zone":"x"}')]


def test_each_call_and_each_thought_that_was_rescued_is_counted_once() -> None:
    seen = rescued("<think>", "Hm", ", yes", ".</think>", f"{CALL}\n{CALL}", "\n<think>So.</think>Done.", finish())
    assert [said[0] for said in seen.said] == ["reasoning", "call", "call", "reasoning", "text"]
    assert (seen.translator.repairs["call_rescued"], seen.translator.repairs["reasoning_rescued"]) == (2, 2)


def test_an_end_of_thinking_that_leaked_is_taken_out() -> None:
    seen = rescued(think("Hm."), "Well.", "</think>", "\n\nYes.", finish())
    assert seen.said == [("reasoning", "Hm."), ("text", "Well.Yes.")]
    assert seen.translator.repairs == {"stray_end": 1}


def test_markup_that_is_meant_to_be_read_stays() -> None:
    answer = f"A call looks like this:\n```\n{CALL}\n</think>\n```\nAnd `<tool_call>` begins it."
    for pieces in ([answer], list(answer)):
        seen = rescued(*pieces, finish())
        assert seen.said == [("text", answer)]
        assert "call_rescued" not in seen.translator.repairs


def test_what_the_backend_parsed_passes_untouched() -> None:
    seen = rescued(think("Hm."), "\n\n", "A", " b.", "\n", call(0, "c1", "weather", '{"city": "Rome"}'), "C", finish())
    assert seen.said == [("reasoning", "Hm."), ("text", "A b."), WEATHER, ("text", "C")]
    assert seen.deltas("output_text") == ["A", " b.", "C"]
    assert seen.translator.repairs == {}


def test_without_rescue_it_is_left_as_it_is() -> None:
    assert play(text(CALL), finish()).said == [("text", CALL)]


# ---- ids and log probabilities of tokens -------------------------------------------------------------------------------

IDS = {"<think>": 1, "</think>": 2, "<tool_call>": 3, "</tool_call>": 4}


def token(content: str, *ids: int) -> bytes:
    return chunk({"content": content}, token_ids=list(ids))


def test_a_marker_spelled_with_ordinary_tokens_is_text() -> None:
    knowing = markup(marker_ids=IDS)
    seen = raw(token("See ", 9), token("<tool_call>", 9), token(".", 9), finish(), markup=knowing)
    assert seen.said == [("text", "See <tool_call>.")]


def test_ids_may_come_before_their_text() -> None:
    """Read a server with stop strings, which holds text back: the id of a marker arrives with an empty delta."""
    knowing = markup(marker_ids=IDS, opened=True)
    pieces = [token("Hm", 9), token("", 2), token("</think>", 9), token("So", 9), token(".", 9), finish()]
    assert raw(*pieces, markup=knowing).said == [("reasoning", "Hm"), ("text", "So.")]


def entry(content: str, **fields: Any) -> dict[str, Any]:
    return {"token": content, "logprob": -0.5, "bytes": list(content.encode()), "top_logprobs": [], **fields}


def spoken(*tokens: str) -> bytes:
    """Return a chunk of these tokens with their log probabilities."""
    return text("".join(tokens), logprobs={"content": [entry(one) for one in tokens]})


def probable(seen: Play) -> list[list[str]]:
    """Return, for each message of the response, the tokens whose log probabilities it has."""
    messages = [item for item in seen.response["output"] if item["type"] == "message"]
    return [[one["token"] for one in item["content"][0]["logprobs"]] for item in messages]


def test_text_keeps_its_log_probabilities_and_markup_has_none() -> None:
    seen = raw(
        *map(spoken, ["<think>", "\n", "Hm", ".", "\n", "</think>", "\n\n", "Good", " day", ".", "\n"]),
        *map(spoken, ["<tool_call>", CALL[11:-12], "</tool_call>"]),
        finish(),
        logprobs=True,
    )
    assert seen.said == [("reasoning", "Hm."), ("text", "Good day."), WEATHER]
    assert probable(seen) == [["Good", " day", "."]]
    assert seen.translator.repairs == {}


def test_several_tokens_in_one_chunk() -> None:
    seen = raw(spoken("Hm", ".", "</think>", "\n\n", "Good"), spoken(" day", ".", CALL), finish(), logprobs=True, opened=True)
    assert seen.said == [("reasoning", "Hm."), ("text", "Good day."), WEATHER]
    assert probable(seen) == [["Good", " day", "."]]
    assert seen.translator.repairs == {}


def test_a_token_half_held_back_keeps_its_own() -> None:
    seen = raw(*map(spoken, ["a", " <", "b", " c"]), finish(), logprobs=True)
    assert seen.said == [("text", "a <b c")]
    assert probable(seen) == [["a", " <", "b", " c"]]
    assert seen.translator.repairs == {}


def test_characters_of_several_tokens() -> None:
    halves = [entry("好", bytes=[0xE5, 0xA5]), entry("", bytes=[0xBD])]
    held = text("", logprobs={"content": halves[:1]})
    seen = raw(spoken("a"), held, text("好", logprobs={"content": halves[1:]}), spoken("b"), finish(), logprobs=True)
    assert (seen.said, len(probable(seen)[0])) == ([("text", "a好b")], 4)


def test_what_cannot_be_attributed_is_dropped_on_record() -> None:
    seen = raw(spoken("Look.", " <tool"), spoken(CALL[5:]), finish(), logprobs=True)
    assert seen.said == [("text", "Look."), WEATHER]
    seen = raw(spoken("Look", ". <tool"), spoken(CALL[5:]), finish(), logprobs=True)
    assert seen.said == [("text", "Look."), WEATHER]
    assert probable(seen) == [[]]
    assert seen.translator.repairs == {"logprobs_dropped": 1}


def test_tokens_that_do_not_make_up_their_text_are_given_up() -> None:
    odd = text("word ", logprobs={"content": [entry("token_id:7", bytes=None)]})
    seen = raw(*[odd] * 300, finish(), usage(prompt_tokens=1, completion_tokens=300), logprobs=True)
    assert probable(seen) == [[]]
    assert seen.translator.repairs["logprobs_dropped"] >= 1


def test_log_probabilities_of_rescued_text() -> None:
    seen = rescued(*map(spoken, ["Good", " day", "."]), finish(), logprobs=True)
    assert probable(seen) == [["Good", " day", "."]]


# ---- reasoning alone ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("pieces", [["Hello!"], list("Hello!\n")])
def test_an_answer_that_was_taken_for_reasoning_is_a_message_too(pieces: list[str]) -> None:
    seen = raw(*pieces, finish(), opened=None)
    assert seen.said == [("reasoning", "Hello!"), ("text", "Hello!")]
    assert seen.translator.repairs == {"reasoning_as_message": 1}
    assert seen.translator.lifecycle.writer.characters["text"] == 0  # its tokens were generated once


@pytest.mark.parametrize(
    ("pieces", "said"),
    [
        (["<think>I keep thinking", finish()], [("reasoning", "I keep thinking")]),
        (["Hm.</think>", finish()], [("reasoning", "Hm.")]),
        (["Hm", finish("length")], [("reasoning", "Hm", "incomplete")]),
        (["Hm\n", CALL, finish()], [("reasoning", "Hm"), WEATHER]),
        ([think("Hm"), CALL, finish()], [("reasoning", "Hm"), WEATHER]),
    ],
)
def test_real_reasoning_is_not_repeated(pieces: list[Any], said: list[Any]) -> None:
    seen = raw(*pieces, opened=None)
    assert seen.said == said
    assert "reasoning_as_message" not in seen.translator.repairs


def test_reasoning_is_not_the_answer_where_a_call_was_left_out() -> None:
    assert raw("Hm.", CALL, finish(), opened=None, allowed=frozenset()).said == [("reasoning", "Hm.")]


def test_a_thought_that_the_prompt_is_known_to_have_opened_is_not_repeated() -> None:
    new_parser = partial(formats.parser, "qwen3", "none", schemas={})
    known = Markup(new_parser, thinking_open=True, prompt_known=True)
    assert raw("I keep thinking", finish(), markup=known).said == [("reasoning", "I keep thinking")]
    by_ids = Markup(new_parser, thinking_open=False, prompt_opens=lambda ids: ids == [3, 4])
    beginning = event({"object": "chat.completion.chunk", "choices": [], "prompt_token_ids": [3, 4]})
    assert raw(beginning, "I keep thinking", finish(), markup=by_ids).said == [("reasoning", "I keep thinking")]
