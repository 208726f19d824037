"""What a client of the Messages API gets for what a backend sends: feed this, expect exactly that."""

from __future__ import annotations

import json
from functools import partial

import pytest

from responses_gateway import parsers
from responses_gateway.conformance.messages import check_message_stream
from responses_gateway.stream.lifecycle.machine import Lifecycle
from responses_gateway.stream.reading.markup import Markup
from responses_gateway.stream.writer.messages import MessageOptions
from responses_gateway.wire.deltas import Finish, Reasoning, Text, ToolArguments, ToolCall
from responses_gateway.wire.errors import ApiError, server_error
from responses_gateway.wire.tools import ToolTarget
from tests.stream.message_player import Message, judged_message, message_bytes, play_message, read_message, translator_of
from tests.stream.stream_player import (
    DONE,
    arguments,
    call,
    chunk,
    event,
    finish,
    refuse,
    text,
    think,
    usage,
)

HIDDEN = MessageOptions(thinking="hidden")


def answer(*pieces: bytes, options: MessageOptions | None = None) -> Message:
    return play_message(*pieces, options=options)


def test_a_message_is_its_six_events_in_order() -> None:
    message = answer(text("Hel"), text("lo"), finish())
    assert message.kinds == [
        "message_start", "ping", "content_block_start", "text_delta", "text_delta", "content_block_stop", "message_delta",
        "message_stop",
    ]  # fmt: skip
    assert message.start == {
        "id": "msg_a1", "type": "message", "role": "assistant", "model": "m", "content": [], "stop_reason": None,
        "stop_sequence": None, "usage": message.start["usage"],
    }  # fmt: skip
    assert message.said == [("text", "Hello")]
    assert (message.reason, message.ending["stop_sequence"]) == ("end_turn", None)
    assert b"[DONE]" not in message.data


def test_a_keep_alive_is_a_ping_and_never_waits_for_anything() -> None:
    playing = translator_of()
    assert playing.start().endswith(b'event: ping\ndata: {"type":"ping"}\n\n')
    assert playing.keep_alive() == b'event: ping\ndata: {"type":"ping"}\n\n'
    playing.feed(text("x"))
    assert playing.keep_alive() == b'event: ping\ndata: {"type":"ping"}\n\n'
    playing.feed(finish() + DONE)
    playing.finish()
    assert playing.keep_alive() == b""


# ---- blocks ------------------------------------------------------------------------------------------------------------


def test_thought_text_and_call_are_blocks_of_their_own_and_no_first_delta_is_lost() -> None:
    message = answer(
        think("Let"), think(" me"), text("So"), text("!"), call(0, "call_0", "weather", '{"city":"Paris"}'), finish()
    )
    assert message.said == [("reasoning", "Let me"), ("text", "So!"), ("call", "weather", '{"city":"Paris"}')]
    assert [event["index"] for event in message.events if event["type"] == "content_block_start"] == [0, 1, 2]


def test_a_block_starts_empty() -> None:
    message = answer(think("a"), text("b"), call(0, "x", "weather", "{}"), finish())
    starts = [event["content_block"] for event in message.events if event["type"] == "content_block_start"]
    assert starts[:2] == [{"type": "thinking", "thinking": "", "signature": ""}, {"type": "text", "text": ""}]
    assert starts[2] == {"type": "tool_use", "id": starts[2]["id"], "name": "weather", "input": {}}


def test_a_thought_is_signed_once_and_last_however_often_the_model_thinks() -> None:
    message = answer(think("a"), text("b"), think("c"), finish())
    assert message.kinds.count("signature_delta") == 2
    for place, kind in enumerate(message.kinds):
        assert kind != "signature_delta" or message.kinds[place + 1] == "content_block_stop"
    assert all(block["signature"] for block in message.blocks if block["type"] == "thinking")


def test_white_space_is_no_block() -> None:
    assert answer(think("a"), text("\n\n"), call(0, "x", "weather", "{}"), finish()).said == [
        ("reasoning", "a"),
        ("call", "weather", "{}"),
    ]


def test_a_call_starts_as_soon_as_its_name_is_known() -> None:
    playing = translator_of()
    playing.start()
    started = playing.feed(call(0, "call_0", "weather"))
    assert b"content_block_start" in started
    assert b"input_json_delta" in playing.feed(arguments(0, '{"ci'))


def test_a_call_without_arguments_has_an_empty_object() -> None:
    assert answer(call(0, "x", "clock"), finish("tool_calls")).said == [("call", "clock", "{}")]


def test_interleaved_calls_are_blocks_in_turn_each_with_its_own_arguments() -> None:
    message = answer(
        call(0, "a", "weather", '{"ci'), call(1, "b", "clock", '{"zo'), arguments(0, 'ty":1}'), arguments(1, 'ne":2}'),
        finish("tool_calls"),
    )  # fmt: skip
    assert message.said == [("call", "weather", '{"city":1}'), ("call", "clock", '{"zone":2}')]
    assert message.reason == "tool_use"


# ---- ids ---------------------------------------------------------------------------------------------------------------


def ids_of(response_id: str, *pieces: bytes) -> tuple[str, list[str]]:
    message = play_message(*pieces, finish("tool_calls"), response_id=response_id)
    return message.start["id"], [block["id"] for block in message.blocks]


def test_ids_are_unique_over_turns_though_the_backend_repeats_its_own() -> None:
    """Claude Code destroys its history where `call_0` or `functions.Bash:0` comes once in each turn."""
    said = (call(0, "functions.weather:0", "weather", "{}"), call(1, "functions.weather:0", "clock", "{}"))
    first, first_calls = ids_of("resp_" + "1" * 32, *said)
    second, second_calls = ids_of("resp_" + "2" * 32, *said)
    assert first != second
    assert first.startswith("msg_")
    assert len({*first_calls, *second_calls}) == 4
    assert all(call_id.startswith("toolu_") and call_id.replace("_", "").isalnum() for call_id in [*first_calls, *second_calls])


# ---- why it ended ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("pieces", "reason"),
    [
        ([text("x"), finish("stop")], "end_turn"),
        ([text("x"), finish("tool_calls")], "end_turn"),
        ([call(0, "a", "clock", "{}"), finish("stop")], "tool_use"),
        ([call(0, "a", "clock", "{}"), finish("tool_calls")], "tool_use"),
        ([text("x"), finish("length")], "max_tokens"),
        ([think("x"), finish("length")], "max_tokens"),
        ([call(0, "a", "clock", '{"zone'), finish("length")], "max_tokens"),
        ([text("x"), finish("content_filter")], "refusal"),
        ([refuse("I will not."), finish("stop")], "refusal"),
        ([finish("stop")], "end_turn"),
    ],
)
def test_the_reason_is_what_happened(pieces: list[bytes], reason: str) -> None:
    assert answer(*pieces).reason == reason


def test_a_refusal_is_text() -> None:
    assert answer(refuse("I will"), refuse(" not."), finish()).said == [("text", "I will not.")]


@pytest.mark.parametrize("field", ["stop_reason", "matched_stop"])
def test_the_stop_sequence_that_matched_is_told(field: str) -> None:
    message = answer(
        text("a"), chunk({}, "stop", **{field: "</b>"}), options=MessageOptions(stop_sequences=frozenset({"</b>"}))
    )
    assert (message.reason, message.ending["stop_sequence"]) == ("stop_sequence", "</b>")


@pytest.mark.parametrize("matched", [128009, None, "<|im_end|>", ["</b>"]])
def test_what_the_client_did_not_ask_for_is_no_stop_sequence(matched: object) -> None:
    options = MessageOptions(stop_sequences=frozenset({"</b>", ""}))
    message = answer(text("a"), chunk({}, "stop", stop_reason=matched), options=options)
    assert (message.reason, message.ending["stop_sequence"]) == ("end_turn", None)


@pytest.mark.parametrize(
    ("options", "used", "reason"),
    [
        (MessageOptions(context_window=100), (90, 10), "model_context_window_exceeded"),
        (MessageOptions(context_window=100), (60, 10), "max_tokens"),
        (MessageOptions(context_window=100, max_tokens=32000), (90, 9), "model_context_window_exceeded"),
        (MessageOptions(context_window=100, max_tokens=10), (190, 10), "max_tokens"),
        (MessageOptions(max_tokens=32000), (90, 10), "max_tokens"),
        (MessageOptions(max_tokens=10), (90, 10), "max_tokens"),
        (MessageOptions(), (90, 10), "max_tokens"),
    ],
)
def test_a_full_window_is_told_apart_from_max_tokens(options: MessageOptions, used: tuple[int, int], reason: str) -> None:
    counts = usage(prompt_tokens=used[0], completion_tokens=used[1])
    assert answer(text("x"), finish("length"), counts, options=options).reason == reason


# ---- what is cut, and what breaks --------------------------------------------------------------------------------------


def test_what_is_cut_is_stopped_a_call_too() -> None:
    message = answer(think("x"), call(0, "a", "weather", '{"ci'), finish("length"))
    assert message.said == [("reasoning", "x"), ("call", "weather", '{"ci')]


def test_text_behind_a_call_that_was_cut_comes_in_turn() -> None:
    markup = Markup(partial(parsers.parser, "qwen3", "hermes", schemas={"f": {}}), thinking_open=False)
    twice = '<tool_call>{"name": "f", "arguments": {"a": 1, "a": 2}}</tool_call>'
    words = ["This ", "is ", "what ", "I ", "found ", "there."]
    pieces = [*map(text, [twice, *words]), finish()]
    message = read_message(
        message_bytes([*pieces, DONE], markup=markup, tools={"f": ToolTarget("function", "f")}), translator_of()
    )
    assert check_message_stream(message.data) == []
    assert message.said[-1] == ("text", "".join(words))


def test_calls_behind_one_that_was_cut_come_in_turn() -> None:
    message = answer(call(0, "a", "weather", '{"ci'), call(1, "b", "clock", "{}"), finish("length"))
    assert message.said == [("call", "weather", '{"ci'), ("call", "clock", "{}")]


BREAKS: list[bytes | ApiError | None] = [
    None,  # the body ends
    server_error("The connection broke."),
    event({"error": {"message": "CUDA out of memory", "code": 500}}),
    b"data: {not json\n\n",
    finish("abort"),
]


@pytest.mark.parametrize(
    ("pieces", "left"),
    [
        ([], []),
        ([think("hm")], [("reasoning", "hm", "open")]),
        ([text("half a")], [("text", "half a", "open")]),
        ([think("hm"), call(0, "a", "weather", '{"ci')], [("reasoning", "hm"), ("call", "weather", '{"ci', "open")]),
        # Its JSON is closed, but nobody knows whether the model was done with it.
        ([call(0, "a", "weather", "{}")], [("call", "weather", "{}", "open")]),
        # What was held behind half a call is not shown: the half would have to be stopped for it.
        ([call(0, "a", "weather", '{"ci'), call(1, "b", "clock", "{}")], [("call", "weather", '{"ci', "open")]),
        (
            [call(0, "a", "weather", "{}"), call(1, "b", "clock", '{"z')],
            [("call", "weather", "{}"), ("call", "clock", '{"z', "open")],
        ),
    ],
    ids=["nothing", "thought", "text", "call", "closed", "held", "second"],
)
def test_a_break_leaves_the_block_open_and_ends_with_one_error(pieces: list[bytes], left: list[tuple[str, ...]]) -> None:
    for fault in BREAKS:
        message = play_message(*pieces, *([] if fault is None else [fault]), done=False)
        assert message.said == left
        assert message.kinds[-1] == "error"
        assert message.kinds.count("error") == 1
        assert {"message_delta", "message_stop"}.isdisjoint(message.kinds)


def test_an_error_says_what_it_is_and_which_request_it_was() -> None:
    busy = ApiError(503, "Too many requests wait.", type="server_error")
    message = play_message(text("x"), busy, done=False, options=MessageOptions(request_id="req_1"))
    assert message.ending == {
        "type": "error",
        "error": {"type": "overloaded_error", "message": "Too many requests wait."},
        "request_id": "req_1",
    }


def test_a_stream_that_broke_behind_its_finish_reason_is_whole() -> None:
    message = play_message(text("x"), finish(), server_error("gone"), done=False)
    assert (message.said, message.reason) == ([("text", "x")], "end_turn")


# ---- usage -------------------------------------------------------------------------------------------------------------


def test_the_input_tokens_of_usage_are_those_that_no_cache_had() -> None:
    counts = usage(
        prompt_tokens=2000, completion_tokens=20, prompt_tokens_details={"cached_tokens": 800},
        completion_tokens_details={"reasoning_tokens": 5},
    )  # fmt: skip
    assert answer(think("a"), text("b"), finish(), counts).ending["usage"] == {
        "input_tokens": 1200, "cache_creation_input_tokens": 0, "cache_read_input_tokens": 800, "output_tokens": 20,
        "output_tokens_details": {"thinking_tokens": 5},
    }  # fmt: skip


@pytest.mark.parametrize("cached", [0, 7, 10, 99])
def test_the_parts_of_the_prompt_add_up_whatever_the_backend_says(cached: int) -> None:
    counts = usage(
        prompt_tokens=10, completion_tokens=1, prompt_tokens_details={"cached_tokens": cached, "created_cache_tokens": 5}
    )
    told = answer(text("x"), finish(), counts).ending["usage"]
    assert told["input_tokens"] + told["cache_read_input_tokens"] + told["cache_creation_input_tokens"] == 10
    assert min(told["input_tokens"], told["cache_creation_input_tokens"]) >= 0


def test_usage_is_there_though_the_backend_reports_none() -> None:
    message = answer(text("x"), finish())
    for told in (message.start["usage"], message.ending["usage"]):
        assert (told["input_tokens"], told["output_tokens"]) == (0, 0)


# ---- thoughts that were not asked for ----------------------------------------------------------------------------------


def test_a_thought_that_is_hidden_leaves_no_trace_but_a_record() -> None:
    message = answer(think("secret"), text("Hello"), finish(), options=HIDDEN)
    assert message.said == [("text", "Hello")]
    assert b"secret" not in message.data
    assert message.translator.repairs == {"thought_hidden": 1}


@pytest.mark.parametrize("reason", ["stop", "length"])
def test_a_hidden_thought_is_the_text_of_an_answer_without_any(reason: str) -> None:
    message = answer(think("forty"), think("-two"), finish(reason), options=HIDDEN)
    assert message.said == [("text", "forty-two")]


def test_a_hidden_thought_is_not_the_text_of_an_answer_that_broke() -> None:
    message = play_message(think("secret"), done=False, options=HIDDEN)
    assert (message.said, message.kinds[-1]) == ([], "error")


def test_an_omitted_thought_is_a_signed_block_without_text() -> None:
    message = answer(think("secret"), text("Hello"), finish(), options=MessageOptions(thinking="empty"))
    assert message.said == [("reasoning", ""), ("text", "Hello")]
    assert "thinking_delta" not in message.kinds
    assert message.blocks[0]["signature"]


# ---- odd input ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("given", "shown"),
    [
        ('{"a":1}', {"a": 1}),
        ("", {}),
        ('{"a":"line\nbreak"}', {"a": "line\nbreak"}),
        ("5000", {"__unparsedToolInput": {"raw": "5000", "len": 4}}),
        ('{"command": "rm', {"__unparsedToolInput": {"raw": '{"command": "rm', "len": 15}}),
    ],
)
def test_the_input_of_a_call_that_is_not_streamed_is_an_object_and_never_half_of_one(given: str, shown: object) -> None:
    message = answer(call(0, "a", "weather", given), finish("tool_calls"))
    assert json.loads(message.translator.response.json())["content"][0]["input"] == shown


def test_other_kinds_of_tools_are_calls_too() -> None:
    message = answer(call(0, "a", "patch", '{"input": "*** Begin\\n"}'), finish())
    assert message.said == [("call", "patch", '{"input":"*** Begin\\n"}')]


def test_log_probabilities_are_not_shown() -> None:
    entry = {"token": "x", "logprob": -0.1, "bytes": [120], "top_logprobs": []}
    message = play_message(text("x", logprobs={"content": [entry]}), finish(), logprobs=True)
    assert message.said == [("text", "x")]
    assert b"logprob" not in message.data


def test_texts_that_json_and_sse_have_to_escape_arrive_as_they_are() -> None:
    said = 'a\nb\r\n"c"\\ \u2028 \U0001f600 event: x\n\n'
    assert answer(text(said), text("."), finish()).said == [("text", said + ".")]


def test_half_a_surrogate_pair_does_not_break_the_stream() -> None:
    data = message_bytes([b'data: {"choices":[{"index":0,"delta":{"content":"a\\ud83d"}}]}\n\n', finish(), DONE])
    assert check_message_stream(data) == []


def test_a_defect_of_our_own_ends_with_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    playing = translator_of()
    data = playing.start() + playing.feed(text("x"))
    monkeypatch.setattr(Lifecycle, "step", lambda _self, _delta: 1 / 0)
    data += playing.feed(call(0, "a", "weather", "{}")) + playing.terminal()
    message = read_message(data, playing)
    assert isinstance(playing.defect, ZeroDivisionError)
    assert (message.said, message.ending["error"]["type"]) == ([("text", "x", "open")], "api_error")
    assert check_message_stream(data) == []


def test_a_queued_message_has_no_event_of_its_own() -> None:
    playing = translator_of()
    assert playing.queue() == b""
    assert playing.start().startswith(b"event: message_start\n")


def test_items_without_a_block_are_kept_but_not_shown() -> None:
    playing = translator_of()
    sent = playing.start() + playing.insert("compaction", '{"type":"compaction","id":"cmp_1"}')
    sent += playing.feed(call(0, "a", "local_shell", '{"command":["ls"]}') + text("x") + finish() + DONE) + playing.finish()
    message = judged_message(sent, playing)
    assert message.said == [("text", "x")]
    assert [json.loads(item)["type"] for item in playing.response.output] == ["compaction", "local_shell_call", "message"]


def test_a_writer_for_nobody_makes_the_same_items() -> None:
    """Compare what a second reading of an answer has to find, where another backend continues it."""
    playing = translator_of(HIDDEN)
    playing.start()
    playing.feed(think("hm") + text("so") + call(0, "a", "weather", "{}") + finish() + DONE)
    playing.finish()
    again = translator_of(HIDDEN)
    blank = again.lifecycle.as_turn_began()
    for delta in (Reasoning("hm"), Text("so"), ToolCall(0, "a", "weather"), ToolArguments(0, "{}"), Finish("stop")):
        blank.step(delta)
    while blank.state != "ended":
        blank.close_next()
    assert blank.writer.done == playing.writer.done
