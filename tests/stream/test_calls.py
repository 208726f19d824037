"""Calls of tools, in whatever way a server numbers, cuts and names them."""

from __future__ import annotations

import pytest

from responses_gateway.stream.options import CODEX, STANDARD, Client
from responses_gateway.stream.validity.call_rules import CallRules
from tests.stream.stream_player import Play, arguments, call, chunk, event, finish, play, text, think, tool


def call_ids(played: Play) -> list[str]:
    return [item["call_id"] for item in played.response["output"] if "call_id" in item]


# ---- parallel calls ----------------------------------------------------------------------------------------------------


def test_parallel_calls_come_one_after_the_other() -> None:
    played = play(
        call(0, "a", "weather"), arguments(0, '{"city":'), arguments(0, '"Rome"}'),
        call(1, "b", "clock"), arguments(1, "{"), arguments(1, "}"), finish("tool_calls"),
    )  # fmt: skip
    assert played.said == [("call", "weather", '{"city":"Rome"}'), ("call", "clock", "{}")]
    assert played.deltas("function_call_arguments") == ['{"city":', '"Rome"}', "{", "}"]


def test_interleaved_calls_are_put_in_order() -> None:
    played = play(
        call(0, "a", "weather"), arguments(0, '{"a":'), call(1, "b", "clock"), arguments(1, '{"b":'),
        arguments(0, "1}"), arguments(1, "2"), arguments(0, "]"), arguments(1, "}"), finish("tool_calls"),
    )  # fmt: skip
    assert played.said == [("call", "weather", '{"a":1}'), ("call", "clock", '{"b":2}')]
    assert played.deltas("function_call_arguments") == ['{"a":', "1}", '{"b":', "2", "}"]
    assert played.translator.repairs == {"stray_arguments": 1}


def test_all_names_first_then_the_arguments_backwards() -> None:
    tools = [tool(0, "a", "weather"), tool(1, "b", "clock"), tool(2, "c", "weather")]
    pieces = [arguments(2, "{}"), arguments(1, '{"x":[1'), arguments(0, '{"y":0}'), arguments(1, "]}")]
    played = play(chunk({"tool_calls": tools}), *pieces, finish("tool_calls"))
    assert played.said == [("call", "weather", '{"y":0}'), ("call", "clock", '{"x":[1]}'), ("call", "weather", "{}")]
    assert call_ids(played) == ["a", "b", "c"]


def test_calls_without_arguments_get_an_empty_object() -> None:
    played = play(call(0, "a", "clock"), call(1, "b", "clock", ""), call(2, "c", "clock", None), finish("tool_calls"))
    assert played.said == [("call", "clock", "{}")] * 3
    assert played.translator.repairs == {"empty_arguments": 3}


def test_text_and_reasoning_between_open_calls_wait_for_their_turn() -> None:
    played = play(
        call(0, "a", "weather", '{"a":'), text("one"), text(" "), text("two "), think("hm"), call(1, "b", "clock"),
        text("\n"), arguments(1, "{"), arguments(0, "1}"), text("\n"), text("last"), arguments(1, "}"), finish(),
    )  # fmt: skip
    assert played.said == [
        ("call", "weather", '{"a":1}'), ("text", "one two"), ("reasoning", "hm"), ("call", "clock", "{}"), ("text", "last"),
    ]  # fmt: skip


def test_text_behind_a_complete_call_is_written_at_once() -> None:
    played = play(call(0, "a", "clock", "{}"), text("then"), call(1, "b", "clock", '{"a":"}'), text("x"), arguments(1, '"}'))
    assert played.response["status"] == "failed"  # no finish_reason: the order of events is what is looked at
    added = [event["item"]["type"] for event in played.events if event["type"] == "response.output_item.added"]
    assert added == ["function_call", "message", "function_call", "message"]


def test_a_bracket_in_a_string_does_not_close_a_call() -> None:
    pieces = ['{"a":"}', '\\"}', "\\", '\\"', "}", '{"']
    played = play(call(0, "a", "clock"), *(arguments(0, piece) for piece in pieces[:5]), finish())
    assert played.said == [("call", "clock", "".join(pieces[:5]))]


# ---- how calls are numbered --------------------------------------------------------------------------------------------


def test_the_same_index_with_another_id_is_another_call() -> None:
    played = play(call(0, "a", "weather", '{"a":1}'), call(0, "b", "clock", "{"), arguments(0, "}"), finish())
    assert played.said == [("call", "weather", '{"a":1}'), ("call", "clock", "{}")]
    assert call_ids(played) == ["a", "b"]


def test_the_same_index_with_another_name_is_another_call() -> None:
    assert play(call(0, None, "weather", "{}"), call(0, None, "clock", "{}"), finish()).said == [
        ("call", "weather", "{}"),
        ("call", "clock", "{}"),
    ]


@pytest.mark.parametrize("call_id", [None, ""])
def test_the_same_index_and_name_behind_complete_arguments_is_another_call(call_id: str | None) -> None:
    played = play(call(0, call_id, "weather", '{"a":1}'), call(0, call_id, "weather", '{"a":2}'), finish())
    assert played.said == [("call", "weather", '{"a":1}'), ("call", "weather", '{"a":2}')]
    both = chunk({"tool_calls": [tool(0, call_id, "weather", '{"a":1}'), tool(0, call_id, "weather", '{"a":2}')]})
    assert play(both, finish()).said == played.said


def test_a_name_may_be_repeated_with_every_piece_and_without_an_id() -> None:
    pieces = [call(0, None, "weather", piece) for piece in ('{"a":', '{"b":1}', "}", "")]
    assert play(*pieces, finish()).said == [("call", "weather", '{"a":{"b":1}}')]


def test_id_and_name_may_be_repeated_with_every_piece() -> None:
    pieces = [call(0, "a", "weather", piece) for piece in ('{"a"', ":1", "}")]
    played = play(*pieces, finish())
    assert (played.said, call_ids(played)) == ([("call", "weather", '{"a":1}')], ["a"])


def test_calls_without_index_are_told_apart_by_id() -> None:
    played = play(
        call(None, "a", "weather", '{"a":'), arguments(None, "1"), call(None, "b", "clock", "{"), call(None, "a", None, "}"),
        call(None, "b", None, "}"), finish(),
    )  # fmt: skip
    assert played.said == [("call", "weather", '{"a":1}'), ("call", "clock", "{}")]


def test_calls_without_index_and_id_are_told_apart_by_their_beginnings() -> None:
    played = play(call(None, None, "weather", "{"), arguments(None, "}"), call(None, None, "weather", "{}"), finish())
    assert played.said == [("call", "weather", "{}")] * 2
    assert call_ids(played) == ["call_a10000", "call_a10001"]


def test_indices_need_not_begin_at_zero() -> None:
    assert play(call(7, "a", "clock", "{}"), call(3, "b", "weather", "{}"), finish()).said == [
        ("call", "clock", "{}"),
        ("call", "weather", "{}"),
    ]


def test_the_old_function_call_field() -> None:
    pieces = [{"name": "weather", "arguments": ""}, {"arguments": '{"a"'}, {"arguments": ":1}"}]
    played = play(*(chunk({"function_call": piece}) for piece in pieces), finish("function_call"))
    assert (played.said, call_ids(played)) == ([("call", "weather", '{"a":1}')], ["call_a10000"])


def test_arguments_as_an_object() -> None:
    assert play(call(0, "a", "weather", {"city": "Zo\u00eb"}), finish()).said == [("call", "weather", '{"city":"Zo\u00eb"}')]


def test_arguments_as_a_list() -> None:
    assert play(call(0, "a", "weather", [1, {"a": 2}]), finish()).said == [("call", "weather", '[1,{"a":2}]')]


def test_calls_as_one_object_instead_of_a_list() -> None:
    pieces = [tool(0, "", "weather", '{"a"'), tool(0, "", None, ":1}")]
    played = play(*(chunk({"role": "assistant", "tool_calls": piece}) for piece in pieces), finish("eos_token"))
    assert (played.said, played.translator.repairs) == ([("call", "weather", '{"a":1}')], {"types_converted": 2})


def test_arguments_as_an_object_with_half_a_character() -> None:
    payload = '{"choices":[{"delta":{"tool_calls":[{"id":"a","function":{"name":"clock","arguments":{"x":"\\ud83d"}}}]}}]}'
    assert play(f"data: {payload}\n\n".encode(), finish()).said == [("call", "clock", '{"x":"\ufffd"}')]


# ---- names -------------------------------------------------------------------------------------------------------------


def test_a_known_name_opens_the_call_before_any_arguments() -> None:
    played = play(call(0, "a", "weather"), done=False)
    assert "output_item.added" in played.kinds


def test_an_unknown_name_is_passed_on_once_it_is_whole() -> None:
    played = play(call(0, "a", "no_such"), call(0, None, "_tool"), arguments(0, "{}"), finish())
    assert played.said == [("call", "no_such_tool", "{}")]


@pytest.mark.parametrize("then", [text("x"), think("x"), call(1, "b", "clock", "{}"), finish()])
def test_an_unknown_name_without_arguments_opens_the_call_when_something_else_comes(then: bytes) -> None:
    assert play(call(0, "a", "no_such_tool"), then, finish()).said[0] == ("call", "no_such_tool", "{}")


def test_an_unknown_name_without_arguments_opens_the_call_at_the_end_of_the_body() -> None:
    played = play(finish(), call(0, "a", "no_such_tool"), done=False)
    assert played.said == [("call", "no_such_tool", "{}")]


def test_a_waiting_call_is_not_forgotten_for_another_one() -> None:
    played = play(arguments(1, "{}"), call(0, "a", "no_such_tool"), call(1, "b", "clock"), finish())
    assert played.said == [("call", "no_such_tool", "{}"), ("call", "clock", "{}")]


def test_arguments_before_the_name() -> None:
    played = play(arguments(0, '{"a"'), arguments(0, ":1"), call(0, "a", "weather"), arguments(0, "}"), finish())
    assert played.said == [("call", "weather", '{"a":1}')]
    assert played.deltas("function_call_arguments") == ['{"a":1', "}"]


def test_a_call_without_a_name_becomes_text() -> None:
    played = play(call(0, "a", None, '{"a":1}'), chunk({"tool_calls": [{"index": 1, "id": "b"}]}), finish())
    assert played.said == [("text", '{"a":1}')]
    assert played.translator.repairs == {"nameless_call_as_text": 1}


def test_the_client_s_name_and_namespace_stand_in_the_item() -> None:
    (item,) = play(call(0, "a", "crm__find", "{}"), finish()).response["output"]
    assert (item["name"], item["namespace"]) == ("find", "crm")


# ---- call ids ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("bad", ["old", "x" * 65, "a\nb", "a\x00"])
def test_a_call_id_that_no_client_could_use_is_replaced(bad: str) -> None:
    played = play(call(0, bad, "clock", "{}"), finish(), call_ids=frozenset({"old"}))
    assert call_ids(played) == ["call_a10000"]
    assert played.translator.repairs == {"call_id_replaced": 1}


def test_a_missing_call_id_is_made_up() -> None:
    played = play(call(0, "", "clock", "{}"), finish())
    assert (call_ids(played), played.translator.repairs) == (["call_a10000"], {})


def test_two_calls_of_one_response_never_share_an_id() -> None:
    played = play(call(0, "a", "clock", "{}"), call(1, "a", "clock", "{}"), finish())
    assert call_ids(played) == ["a", "call_a10001"]


# ---- which calls are permitted -----------------------------------------------------------------------------------------


@pytest.mark.parametrize("call_id", ["call_0", None])
@pytest.mark.parametrize("cities", [("Rome", "Oslo", "Bonn"), ("Rome", "Rome")])
def test_calls_of_one_tool_with_one_id_in_pieces_are_several(cities: tuple[str, ...], call_id: str | None) -> None:
    """Some servers name each call of an answer `call_0`; each reaches the client, under an id of its own."""
    pieces = []
    for index, city in enumerate(cities):
        arguments = ('{"city":', f'"{city}"', "}")
        pieces += [call(index, "call_0", "weather"), *(call(index, call_id, None, part) for part in arguments)]
    played = play(*pieces, finish("tool_calls"))
    assert played.said == [("call", "weather", f'{{"city":"{city}"}}') for city in cities]
    assert played.response["status"] == "completed"
    assert len(set(call_ids(played))) == len(cities)
    # The name once more, behind the end, is no other call.
    assert play(*pieces, call(9, "call_0", "weather"), finish("tool_calls")).said == played.said


def test_a_call_of_a_tool_that_is_not_allowed_is_left_out() -> None:
    pieces = [call(0, "a", "clock", "{"), arguments(0, "}"), call(1, "b", "weather", "{}"), text("done")]
    played = play(*pieces, finish(), allowed=frozenset({"weather"}))
    assert played.said == [("call", "weather", "{}"), ("text", "done")]
    assert played.translator.repairs == {"call_suppressed": 1}


def test_no_calls_at_all() -> None:
    played = play(text("a"), call(0, "a", "clock", "{}"), text("b"), finish("tool_calls"), allowed=frozenset())
    assert (played.said, played.response["status"]) == ([("text", "ab")], "completed")


def test_more_calls_than_permitted_are_left_out() -> None:
    pieces = [call(0, "a", "clock", "{}"), call(1, "b", "clock", "{}"), call(2, "c", "clock", "{}"), text("done")]
    played = play(*pieces, finish(), max_calls=2)
    assert played.said == [("call", "clock", "{}"), ("call", "clock", "{}"), ("text", "done")]


def test_one_call_at_a_time_also_when_they_interleave() -> None:
    pieces = [call(0, "a", "clock", "{"), call(1, "b", "clock", "{"), arguments(1, "}"), arguments(0, "}")]
    played = play(*pieces, finish(), max_calls=1)
    assert (call_ids(played), played.translator.repairs) == (["a"], {"call_suppressed": 1})


def test_held_calls_count_too() -> None:
    pieces = [call(0, "a", "clock", "{"), call(1, "b", "clock", "{}"), call(2, "c", "clock", "{}"), arguments(0, "}")]
    assert call_ids(play(*pieces, finish(), max_calls=2)) == ["a", "b"]


# ---- calls that are cut ------------------------------------------------------------------------------------------------

CUT = [text("one"), call(0, "a", "weather", "{}"), call(1, "b", "weather"), arguments(1, '{"city":"Ro')]


def test_a_call_cut_at_the_token_limit_is_incomplete() -> None:
    played = play(*CUT, finish("length"))
    assert played.said == [("text", "one"), ("call", "weather", "{}"), ("call", "weather", '{"city":"Ro', "incomplete")]
    assert (played.response["status"], played.response["incomplete_details"]) == ("incomplete", {"reason": "max_output_tokens"})


def test_a_call_that_may_be_cut_is_not_reported_completed() -> None:
    assert play(call(0, "a", "weather", "{}"), finish("length")).said == [("call", "weather", "{}", "incomplete")]


def test_codex_does_not_get_a_cut_call() -> None:
    played = play(*CUT, finish("length"), client=CODEX)
    assert played.said == [("text", "one"), ("call", "weather", "{}")]
    assert played.response["status"] == "incomplete"
    assert played.kinds.count("output_item.added") == played.kinds.count("output_item.done") + 1
    assert played.translator.repairs == {"cut_call_omitted": 1}


@pytest.mark.parametrize("end", [[], [finish("error")]], ids=["end of body", "error"])
def test_a_call_in_a_stream_that_broke_fails_the_response(end: list[bytes]) -> None:
    standard = play(*CUT, *end)
    assert standard.response["status"] == "failed"
    assert standard.said[-1] == ("call", "weather", '{"city":"Ro', "incomplete")
    codex = play(*CUT, *end, client=CODEX)
    assert codex.response["status"] == "failed"
    assert codex.said == [("text", "one"), ("call", "weather", "{}")]


@pytest.mark.parametrize("client", [STANDARD, CODEX])
@pytest.mark.parametrize("reason", ["stop", "tool_calls"])
def test_a_function_call_that_the_model_did_not_close_is_handed_over_as_written(reason: str, client: Client) -> None:
    played = play(*CUT, finish(reason), client=client)
    assert (played.response["status"], played.response["error"]) == ("completed", None)
    assert played.said == [("text", "one"), ("call", "weather", "{}"), ("call", "weather", '{"city":"Ro')]
    assert played.translator.repairs == {"arguments_not_json": 1}


@pytest.mark.parametrize("written", ['{"a": 1, "b"}', "city: Rome", '{"a":\n"\t"', '{"a": undefined}'])
def test_arguments_that_no_client_can_parse_are_counted(written: str) -> None:
    played = play(call(0, "a", "weather", written), text("later"), finish())
    assert played.said == [("call", "weather", written), ("text", "later")]
    assert played.translator.repairs == {"arguments_not_json": 1}


def test_what_waited_for_a_cut_call_follows_it() -> None:
    pieces = [
        call(0, "a", "clock", "{"),
        text("later"),
        call(1, "b", "clock", "{}"),
        think("hm"),
        text("end"),
        finish("length"),
    ]
    behind = [("text", "later"), ("call", "clock", "{}"), ("reasoning", "hm"), ("text", "end", "incomplete")]
    played = play(*pieces)
    assert played.said == [("call", "clock", "{", "incomplete"), *behind]
    assert played.response["status"] == "incomplete"
    codex = play(*pieces, client=CODEX)
    assert codex.said == behind
    assert codex.translator.repairs == {"cut_call_omitted": 1}


def test_what_waited_for_a_call_follows_it_when_the_stream_breaks() -> None:
    pieces = [call(0, "a", "clock", "{"), call(1, "b", "clock", "{}"), text("later"), call(2, "c", "clock", '{"a')]
    played = play(*pieces)
    assert played.response["status"] == "failed"
    assert played.said == [
        ("call", "clock", "{", "incomplete"),
        ("call", "clock", "{}"),
        ("text", "later"),
        ("call", "clock", '{"a', "incomplete"),
    ]
    assert play(*pieces, client=CODEX).said == [("call", "clock", "{}"), ("text", "later")]


# ---- what stands behind the arguments ------------------------------------------------------------------------------------


def begun_and_held(pieces: list[str]) -> tuple[Play, Play]:
    """Play a call with these pieces of arguments twice: as the first one, and behind another that is open."""
    own = [arguments(0, piece) for piece in pieces]
    begun = play(call(0, "a", "clock"), *own, text("end"), finish())
    held = play(call(9, "z", "clock", "{"), call(0, "a", "clock"), *own, arguments(9, "}"), finish())
    return begun, held


@pytest.mark.parametrize("behind", ["]", " or so", '{"a":"}1"}', "{}", ', "name": "x"}'])
def test_arguments_end_where_their_object_ends_wherever_they_are_cut(behind: str) -> None:
    written = f'{{"a":"}}1"}}{behind}'
    for cut in range(len(written) + 1):
        pieces = [piece for piece in (written[:cut], written[cut:]) if piece]
        begun, held = begun_and_held(pieces)
        parted = play(
            call(0, "a", "clock"), arguments(0, pieces[0]), text("end"), *(arguments(0, p) for p in pieces[1:]), finish()
        )
        assert begun.said == parted.said == [("call", "clock", '{"a":"}1"}'), ("text", "end")]
        assert held.said == [("call", "clock", "{}"), ("call", "clock", '{"a":"}1"}')]
        assert [p.translator.repairs.keys() for p in (begun, parted, held)] == [{"stray_arguments"}] * 3


@pytest.mark.parametrize(
    "behind", [' {"b":2}', '\n{"b"', ', {"b": 2} and more', "}{'b'", '{"a":"}1"}{"a":"}1"}', '"}', ' it" }']
)
def test_another_object_behind_the_arguments_is_as_written_wherever_it_is_cut(behind: str) -> None:
    written = f'{{"a":"}}1"}}{behind}'
    for cut in range(len(written) + 1):
        pieces = [piece for piece in (written[:cut], written[cut:]) if piece]
        begun, held = begun_and_held(pieces)
        assert begun.said == [("call", "clock", written), ("text", "end")]
        assert held.said == [("call", "clock", "{}"), ("call", "clock", written)]
        assert [p.translator.repairs for p in (begun, held)] == [{"arguments_not_json": 1}] * 2


def test_another_object_behind_the_input_of_a_custom_tool_leaves_the_call_incomplete() -> None:
    pieces = [call(0, "a", "patch", '{"input":"one"}'), arguments(0, '{"input"'), arguments(0, ':"two"}')]
    assert play(*pieces, finish()).said == [("custom", "patch", "one", "incomplete")]
    assert play(*pieces, finish(), client=CODEX).said == []
    assert play(*pieces, text("end"), finish()).said == [("custom", "patch", "one", "incomplete"), ("text", "end")]


def test_white_space_behind_the_arguments_means_nothing() -> None:
    played = play(call(0, "a", "clock", "{}\n"), arguments(0, " "), call(1, "b", "clock", "{} "), finish())
    assert played.said == [("call", "clock", "{}"), ("call", "clock", "{}")]
    assert played.translator.repairs == {}


def test_what_waited_is_not_lost_when_the_first_call_has_no_arguments() -> None:
    played = play(call(0, "a", "clock"), call(1, "b", "weather", "{}"), text("end"), finish())
    assert played.said == [("call", "clock", "{}"), ("call", "weather", "{}"), ("text", "end")]


@pytest.mark.parametrize("continuable", [False, True])
@pytest.mark.parametrize("written", ["null", '""', None])
def test_arguments_that_the_model_left_out_are_none(written: str | None, continuable: bool) -> None:
    events = [call(0, "a", "clock", written), call(1, "b", "clock"), arguments(1, written or ""), finish("tool_calls")]
    played = play(*events, continuable=continuable)
    assert played.said == [("call", "clock", "{}"), ("call", "clock", "{}")]


@pytest.mark.parametrize("continuable", [False, True])
def test_a_tool_that_needs_arguments_is_told_what_the_model_wrote(continuable: bool) -> None:
    schema = {"type": "object", "properties": {"q": {"type": "string"}}, "required": ["q"]}
    declared = [{"type": "function", "function": {"name": "clock", "parameters": schema}}]
    rules = CallRules(declared, repairs=False, drops_nulls=False)
    played = play(call(0, "a", "clock", "null"), finish("tool_calls"), continuable=continuable, calls=rules)
    assert played.said == [("call", "clock", "null")]


@pytest.mark.parametrize("scalar", ["false", '"x"', "hm"])
def test_arguments_that_are_no_object_go_through_as_they_are(scalar: str) -> None:
    played = play(call(0, "a", "clock", scalar), call(1, "b", "clock", "{}"), finish("tool_calls"))
    assert played.said == [("call", "clock", scalar), ("call", "clock", "{}")]


def test_arguments_of_no_call_are_counted() -> None:
    played = play(call(0, "a", "clock", "{}"), text("x"), arguments(0, "}"), finish())
    assert (played.said, played.translator.repairs) == ([("call", "clock", "{}"), ("text", "x")], {"stray_arguments": 1})


def test_calls_of_an_answer_that_was_not_streamed() -> None:
    calls = [tool(None, "a", "clock", "{}"), tool(None, "b", "weather", "{}")]
    for entry in calls:
        del entry["index"]
    message = {"content": None, "reasoning": "hm", "tool_calls": calls}
    whole = {"object": "chat.completion", "choices": [{"index": 0, "message": message, "finish_reason": "tool_calls"}]}
    assert play(event(whole)).said == [("reasoning", "hm"), ("call", "clock", "{}"), ("call", "weather", "{}")]


@pytest.mark.parametrize("index", [0, None])
@pytest.mark.parametrize("later", [["{}"], ['{"a":', "1}"], [""]])
def test_a_call_behind_the_end_of_the_answer_has_nothing_of_arguments_without_a_name(
    index: int | None, later: list[str]
) -> None:
    pieces = [arguments(index, '"Paris"}'), finish(), call(index, "a", "clock"), *(arguments(index, one) for one in later)]
    played = play(*pieces, finish())
    assert played.said == [("text", '"Paris"}'), ("call", "clock", "".join(later) or "{}")]
