"""How a stream ends: one terminal event, whatever happens, and a response that says what became of it."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any, NoReturn

import pytest

from responses_gateway.stream.lifecycle import machine as lifecycle
from responses_gateway.stream.lifecycle.machine import Lifecycle, Row, Transition
from responses_gateway.stream.sampling import CallRecorder
from responses_gateway.stream.translator import Translator
from responses_gateway.wire.errors import ApiError, server_error
from responses_gateway.wire.sse import MOST_BUFFERED
from tests.stream.stream_player import (
    DONE,
    NOW,
    Play,
    arguments,
    call,
    chunk,
    event,
    events_of,
    finish,
    judged,
    new_translator,
    options,
    play,
    substance,
    text,
    think,
    translate,
    usage,
)

LOST = server_error("The connection to the backend was lost.")
TERMINALS = {"response.completed", "response.incomplete", "response.failed"}


# ---- the reasons to stop -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("reason", ["stop", "tool_calls", "function_call", "eos", "eos_token", "stop_sequence", "COMPLETE"])
def test_a_normal_stop(reason: str) -> None:
    response = play(text("Hi"), finish(reason)).response
    assert (response["status"], response["completed_at"], response["incomplete_details"]) == ("completed", int(NOW), None)


@pytest.mark.parametrize("word", ["null", "None"])
def test_the_word_for_no_reason_is_none(word: str) -> None:
    """DashScope's own API has it in each chunk: an answer that broke off was said to be complete."""
    begun = (chunk({"content": "Hi"}, word), chunk({"content": " you"}, word))
    assert play(*begun).response["status"] == "failed"
    assert play(*begun, finish("length")).response["status"] == "incomplete"


@pytest.mark.parametrize(
    ("reason", "said"),
    [
        ("length", "max_output_tokens"),
        ("max_tokens", "max_output_tokens"),
        ("model_length", "max_output_tokens"),
        ("MAX_TOKENS", "max_output_tokens"),
        ("repetition", "max_output_tokens"),
        ("model_context_window_exceeded", "max_output_tokens"),
        ("content_filter", "content_filter"),
        ("content_filter: SAFETY", "content_filter"),
        ("BLOCKLIST", "content_filter"),
        ("SPII", "content_filter"),
        ("sensitive", "content_filter"),
    ],
)
def test_an_answer_that_was_stopped(reason: str, said: str) -> None:
    played = play(think("hm"), text("Hi"), finish(reason))
    assert (played.response["status"], played.response["incomplete_details"]) == ("incomplete", {"reason": said})
    assert played.said == [("reasoning", "hm"), ("text", "Hi", "incomplete")]
    assert played.response["completed_at"] is None


@pytest.mark.parametrize(
    "reason",
    [
        "abort",
        "error",
        "ERROR",
        "insufficient_system_resource",
        "network_error",
        "time_limit",
        "function_call_filter: MALFORMED_FUNCTION_CALL",  # Google has kept back a call
        "UNEXPECTED_TOOL_CALL",
        "MALFORMED_RESPONSE",
    ],
)
def test_a_generation_that_the_backend_gave_up(reason: str) -> None:
    played = play(text("Hi"), finish(reason))
    assert played.error == ("server_error", "The backend aborted the generation.")
    assert played.said == [("text", "Hi", "incomplete")]


def test_nothing_but_the_token_limit() -> None:
    assert play(finish("length")).response["status"] == "incomplete"


def test_a_second_reason_does_not_take_back_that_something_was_cut() -> None:
    assert play(text("Hi"), finish("length"), finish("stop")).response["status"] == "incomplete"
    assert play(text("Hi"), finish("stop"), finish("length")).response["status"] == "incomplete"


def test_text_behind_the_reason_still_counts() -> None:
    assert play(text("Hi"), finish(), text(" you")).said == [("text", "Hi you")]


# ---- usage -------------------------------------------------------------------------------------------------------------

ZERO = {"input_tokens_details": {"cached_tokens": 0, "cache_write_tokens": 0}, "output_tokens_details": {"reasoning_tokens": 0}}


def test_usage_in_the_last_chunk() -> None:
    details = {
        "prompt_tokens_details": {"cached_tokens": 16, "created_cache_tokens": 5},
        "completion_tokens_details": {"reasoning_tokens": 3},
    }
    played = play(text("Hi"), finish(), usage(prompt_tokens=20, completion_tokens=7, total_tokens=27, **details))
    assert played.response["usage"] == {
        "input_tokens": 20,
        "input_tokens_details": {"cached_tokens": 16, "cache_write_tokens": 5},
        "output_tokens": 7,
        "output_tokens_details": {"reasoning_tokens": 3},
        "total_tokens": 27,
    }


def test_usage_in_every_chunk_the_last_one_counts() -> None:
    pieces = [
        event({"choices": [{"delta": {"content": "a"}}], "usage": {"prompt_tokens": 2, "completion_tokens": n}})
        for n in (1, 2, 3)
    ]
    assert play(*pieces, finish()).response["usage"] == {"input_tokens": 2, "output_tokens": 3, "total_tokens": 5, **ZERO}


def test_usage_of_a_response_that_failed() -> None:
    pieces = [event({"choices": [{"delta": {"content": "a"}}], "usage": {"prompt_tokens": 2, "completion_tokens": 1}})]
    assert play(*pieces, LOST).response["usage"]["total_tokens"] == 3


@pytest.mark.parametrize("counts", [{}, {"prompt_tokens": 2}, {"completion_tokens": 2, "prompt_tokens": None}])
def test_no_usage_is_null(counts: dict[str, Any]) -> None:
    assert play(text("Hi"), finish(), usage(**counts)).response["usage"] is None
    assert play(text("Hi"), finish()).response["usage"] is None


def test_details_never_exceed_the_whole() -> None:
    details = {"prompt_tokens_details": {"cached_tokens": 99}, "completion_tokens_details": {"reasoning_tokens": 99}}
    told = play(text("Hi"), finish(), usage(prompt_tokens=2, completion_tokens=1, **details)).response["usage"]
    assert told["input_tokens_details"]["cached_tokens"] == 2
    assert told["output_tokens_details"]["reasoning_tokens"] == 1


def test_details_may_be_null() -> None:
    counts = usage(prompt_tokens=2, completion_tokens=3, prompt_tokens_details=None, completion_tokens_details={})
    assert play(finish(), counts).response["usage"] == {"input_tokens": 2, "output_tokens": 3, "total_tokens": 5, **ZERO}


# ---- the end of the body -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("done", [True, False])
def test_an_end_without_a_reason_is_a_failure(done: bool) -> None:
    played = play(think("hm"), text("Hi"), done=done)
    assert played.error == ("server_error", "The backend closed the stream before the model finished.")
    assert played.said == [("reasoning", "hm"), ("text", "Hi", "incomplete")]


@pytest.mark.parametrize("usage_too", [True, False])
def test_the_marker_behind_a_whole_call_is_an_end(usage_too: bool) -> None:
    # NVIDIA NIM sends no finish_reason with GLM's calls: each turn with a call was repeated, and failed again.
    pieces = [think("hm"), call(0, "a", "weather", '{"city":'), arguments(0, '"Rome"}')]
    counts = [usage(prompt_tokens=2, completion_tokens=3)] if usage_too else []
    played = play(*pieces, *counts)
    assert played.response["status"] == "completed"
    assert played.said == [("reasoning", "hm"), ("call", "weather", '{"city":"Rome"}')]
    assert play(*pieces, done=False).response["status"] == "failed"
    assert play(*pieces[:2]).said[1:] == [("call", "weather", '{"city":', "incomplete")]
    assert play(*pieces, text("Then")).response["status"] == "failed"
    assert play(*pieces, call(1, "b", "clock", "")).response["status"] == "failed"


def test_an_end_behind_the_reason_needs_no_marker() -> None:
    played = play(text("Hi"), finish(), done=False)
    assert (played.response["status"], played.said) == ("completed", [("text", "Hi")])


def test_a_last_event_without_its_blank_line_counts() -> None:
    assert play(text("Hi"), finish().rstrip(), done=False).response["status"] == "completed"
    assert play(text("Hi"), finish(), DONE.rstrip(), done=False).response["status"] == "completed"


def test_a_body_cut_within_an_event() -> None:
    cut = text("never seen")[:-9]
    assert play(text("Hi"), cut, done=False).error == (
        "server_error",
        "The backend closed the stream before the model finished.",
    )
    whole = play(text("Hi"), finish(), usage(prompt_tokens=1, completion_tokens=1)[:-9], done=False)
    assert (whole.response["status"], whole.translator.malformed) == ("completed", 1)


def test_what_comes_behind_the_marker_is_ignored() -> None:
    played = play(text("Hi"), finish(), DONE + text("no") + b"data: {\n\n", text("no"))
    assert (played.response["status"], played.said) == ("completed", [("text", "Hi")])


@pytest.mark.parametrize(("last", "status"), [(finish(), "completed"), (finish("error"), "failed"), (b"", "failed")])
def test_no_byte_comes_behind_the_terminal_event(last: bytes, status: str) -> None:
    playing = play(text("Hi"), last).translator
    calls: list[Callable[[], bytes]] = [
        lambda: playing.feed(text("x")), playing.finish, playing.finish, playing.keep_alive, lambda: playing.fail(LOST),
        lambda: playing.feed_completion(b"{}"),
    ]  # fmt: skip
    assert [more() for more in calls] == [b""] * 6
    assert playing.status == status


# ---- errors of the backend ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("error", "code", "message"),
    [
        (
            {"message": "EngineCore encountered an issue.", "type": "InternalServerError", "param": None, "code": 500},
            "server_error",
            "EngineCore encountered an issue.",
        ),
        ("the runner stopped", "server_error", "the runner stopped"),
        (
            {"message": "maximum context length is 10 tokens", "code": 400},
            "context_length_exceeded",
            "Your input exceeds the context window of this model. maximum context length is 10 tokens",
        ),
        (
            {"message": "too long", "code": "context_length_exceeded"},
            "context_length_exceeded",
            "Your input exceeds the context window of this model. too long",
        ),
        ({"message": "bad image", "code": 400}, "invalid_prompt", "bad image"),
        ({"message": "slow down", "code": 429}, "rate_limit_exceeded", "slow down"),
        ({"message": "slow down", "code": "rate_limit_exceeded"}, "rate_limit_exceeded", "slow down"),
        ({"message": "no money", "code": "insufficient_quota"}, "insufficient_quota", "no money"),
        ({"message": "who?", "status_code": 401}, "server_error", "who?"),
        ({"message": "odd", "code": ["x"], "type": {}, "param": 1}, "server_error", "odd"),
        ({}, "server_error", "The backend answered with HTTP 500."),
        ([1], "server_error", "The backend answered with HTTP 500."),
    ],
)
def test_an_error_in_the_stream_ends_it(error: Any, code: str, message: str | None) -> None:
    played = play(text("Hi"), event({"error": error}), text("never"))
    assert played.error == (code, message or error["message"])
    assert played.said == [("text", "Hi", "incomplete")]
    assert played.translator.error is not None


def test_an_error_beside_a_piece_of_text() -> None:
    both = event({"choices": [{"delta": {"content": "!"}}], "error": {"message": "gone"}})
    assert play(text("Hi"), both, finish()).error == ("server_error", "gone")


LATE = event({"error": {"message": "EngineCore encountered an issue.", "code": 500}})


@pytest.mark.parametrize("reason", ["stop", "length", "content_filter"])
@pytest.mark.parametrize("pieces", [[text("Hi")], [think("hm"), text("Hi")], [call(0, "a", "clock", "{}")]])
def test_an_error_behind_the_reason_changes_nothing_of_what_the_model_said(reason: str, pieces: list[bytes]) -> None:
    whole = play(*pieces, finish(reason))
    late = play(*pieces, finish(reason), LATE, text("never"))
    assert substance(late.data) == substance(whole.data)
    assert late.translator.error is None
    assert [answer.late_error is not None for answer in late.translator.answers] == [True]


def test_an_error_behind_the_usage_leaves_the_usage() -> None:
    played = play(text("Hi"), finish(), usage(prompt_tokens=3, completion_tokens=2), LATE)
    assert (played.response["status"], played.response["usage"]["total_tokens"]) == ("completed", 5)


@pytest.mark.parametrize("reason", ["error", "abort"])
def test_an_error_behind_a_generation_that_was_given_up_says_why(reason: str) -> None:
    assert play(text("Hi"), finish(reason), LATE).error == ("server_error", "EngineCore encountered an issue.")


def test_an_error_object_of_older_servers() -> None:
    old = event({"object": "error", "message": "out of memory", "type": "InternalServerError", "code": 500})
    assert play(old).error == ("server_error", "out of memory")


@pytest.mark.parametrize(
    "payload",
    [
        b"{",
        b"[1]",
        b"[1",
        b"[PING",
        b"[PING]]",
        b'[PING]{"choices":[',
        b"[NaN, ",
        b"[null]",
        b"[true]",
        b'"te',
        b'"{}"',
        b'{"choices":5}',
        b'{"choices":[{"delta":"x"}]}',
        b'o":"x"}}]}',
        b"\xff\xfe",
        b"[" * 10_000,
    ],
)
def test_what_is_no_chunk_ends_the_stream(payload: bytes) -> None:
    played = play(text("Hi"), b"data: " + payload + b"\n\n", text("never"), finish())
    assert played.error == ("server_error", "The backend sent something that is not a chat completion chunk.")
    assert (played.said, played.translator.malformed) == ([("text", "Hi", "incomplete")], 1)


@pytest.mark.parametrize(
    "payload",
    [
        b"", b" ", b"null", b"[]", b"true", b"12", b"ping", b"keep-alive", b"2026-11-27T04:00:00Z", b'"keep-alive"', b'""',
        b"[PING]", b"[HEARTBEAT]", b'"[KEEP-ALIVE]"', b" [STILL_RUNNING 2] ", b"[PING] 17", b"[INFO] loading the model",
        b"[ping]", b"[keep-alive]", b"[ ]",
        b'{"choices":[null]}', b'{"choices":[[],{}]}', b'{"choices":[{"delta":""}]}', b"{}",
    ],
)  # fmt: skip
@pytest.mark.parametrize("end", [b"\n\n", b"\r\n\r\n"])
def test_what_holds_nothing_is_skipped(payload: bytes, end: bytes) -> None:
    sign = b"data: " + payload + end
    counted = usage(prompt_tokens=3, completion_tokens=1)
    played = play(sign, text("Hi"), sign, text(" there"), sign + text("!") + sign, finish(), sign, counted)
    assert (played.response["status"], played.said) == ("completed", [("text", "Hi there!")])
    assert played.response["usage"]["input_tokens"] == 3
    assert played.translator.malformed == 0
    assert payload == b"{}" or sum(played.translator.repairs.values()) == 5


def test_an_answer_of_nothing_but_signs_of_life_fails() -> None:
    assert play(b"data: ping\n\n", done=False).error == (
        "server_error",
        "The backend closed the stream before the model finished.",
    )


def test_an_event_without_end_ends_the_stream() -> None:
    playing = new_translator()
    data = playing.start() + playing.feed(text("Hi")) + playing.feed(b"data: " + b"x" * MOST_BUFFERED) + playing.finish()
    assert judged(data, playing).error[1] == "The backend sent something that is not a chat completion chunk."


# ---- what we do to a stream --------------------------------------------------------------------------------------------

EVERYTHING = [think("hm"), text("Hi"), call(0, "a", "clock", "{"), arguments(0, "}"), text("end"), finish()]


@pytest.mark.parametrize("after", range(len(EVERYTHING)))
def test_a_stream_may_break_anywhere(after: int) -> None:
    played = play(*EVERYTHING[:after], LOST, *EVERYTHING[after:])
    assert played.error == ("server_error", LOST.message)
    assert [said[-1] for said in played.said].count("incomplete") == (after > 0)


def test_a_stream_that_breaks_behind_the_reason_has_lost_nothing() -> None:
    played = play(*EVERYTHING, LOST)
    assert (played.response["status"], played.translator.error) == ("completed", None)
    assert play(text("Hi"), finish("length"), LOST).response["status"] == "incomplete"


def test_codes_that_clients_act_on_pass_others_do_not() -> None:
    assert play(ApiError(400, "long", code="context_length_exceeded")).error[0] == "context_length_exceeded"
    assert play(ApiError(404, "no", code="model_not_found")).error[0] == "invalid_prompt"
    assert play(ApiError(401, "no", code="invalid_api_key")).error[0] == "server_error"
    assert play(ApiError(500, "no")).error[0] == "server_error"


@pytest.mark.parametrize("after", range(len(EVERYTHING) + 1))
def test_a_keep_alive_shows_the_true_snapshot(after: int) -> None:
    playing = new_translator()
    out = [playing.start()] + [playing.feed(piece) for piece in EVERYTHING[:after]]
    beat = playing.keep_alive()
    out += [beat] + [playing.feed(piece) for piece in EVERYTHING[after:]] + [playing.finish()]
    played = judged(b"".join(out), playing)
    (shown,) = events_of(beat)
    assert (shown["type"], shown["response"]["status"]) == ("response.in_progress", "in_progress")
    done = [event["item"] for event in events_of(b"".join(out[: after + 1])) if event["type"] == "response.output_item.done"]
    assert shown["response"]["output"] == done == played.response["output"][: len(done)]


def test_the_state_of_a_stream_can_be_asked() -> None:
    playing = new_translator()
    assert (playing.status, playing.ended, playing.lifecycle.turn.visible, playing.response_id) == (
        "queued",
        False,
        False,
        "resp_a1",
    )
    playing.start()
    playing.feed(think("hm"))
    assert (playing.status, playing.ended, playing.lifecycle.turn.visible, playing.chunks) == ("in_progress", False, False, 1)
    playing.feed(text("Hi"))
    assert playing.lifecycle.turn.visible
    playing.feed(finish() + DONE)
    assert (playing.status, playing.ended) == ("completed", True)
    assert (playing.writer.items, playing.writer.deltas) == (
        {"reasoning": 1, "message": 1},
        {"response.reasoning_text.delta": 1, "response.output_text.delta": 1},
    )


@pytest.mark.parametrize("method", ["_write", "_open_text", "_set_finish", "_set_usage"])
def test_a_defect_of_our_own_still_ends_the_stream(method: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(
        lifecycle, "TABLE", {state: {**row, **defective(row, method)} for state, row in lifecycle.TABLE.items()}
    )
    played = play(text("Hi"), finish(), usage(prompt_tokens=1, completion_tokens=1))
    assert played.error[1].startswith("The gateway failed")
    assert isinstance(played.translator.defect, ZeroDivisionError)


def defective(row: Row, method: str) -> Row:
    def fails(*_: object) -> None:
        raise ZeroDivisionError

    wanted = getattr(Lifecycle, method)
    return {
        kind: transition._replace(actions=tuple(fails if action is wanted else action for action in transition.actions))
        if isinstance(transition, Transition)
        else transition
        for kind, transition in row.items()
    }


def test_a_defect_while_closing_still_ends_the_stream(monkeypatch: pytest.MonkeyPatch) -> None:
    def fails(*_: object) -> None:
        raise ZeroDivisionError

    for name in ("close_next", "abandon"):
        monkeypatch.setattr(Lifecycle, name, fails)
    playing = new_translator()
    data = playing.start() + playing.feed(text("Hi") + finish() + DONE) + playing.terminal()
    terminals = [event for event in events_of(data) if event["type"] in TERMINALS]
    assert [event["type"] for event in terminals] == ["response.failed"]
    assert isinstance(playing.defect, ZeroDivisionError)


@pytest.mark.parametrize("broken", [False, True])
def test_a_defect_in_what_the_end_tells_still_ends_the_stream(broken: bool) -> None:
    def defect(*_: object) -> NoReturn:
        raise ZeroDivisionError

    playing = new_translator(recorder=CallRecorder(hides_logprobs=False, shows=defect))
    out = playing.start() + playing.feed(text("Hi"))
    out += playing.fail(server_error("It broke.")) if broken else playing.feed(finish() + DONE) + playing.finish()
    assert judged(out, playing).response["status"] == "failed"
    assert isinstance(playing.defect, ZeroDivisionError)


def test_a_defect_at_the_end_of_the_body_still_ends_the_stream(monkeypatch: pytest.MonkeyPatch) -> None:
    def fails(*_: object) -> None:
        raise ZeroDivisionError

    monkeypatch.setattr(Lifecycle, "close_next", fails)
    assert play(text("Hi"), finish(), done=False).response["status"] == "failed"


# ---- an answer that was not streamed -----------------------------------------------------------------------------------


def completion(body: bytes) -> Play:
    playing = new_translator()
    return judged(playing.start() + playing.feed_completion(body) + playing.finish(), playing)


def test_one_json_object_instead_of_a_stream() -> None:
    whole = {
        "object": "chat.completion",
        "choices": [
            {"index": 0, "message": {"role": "assistant", "reasoning": "hm", "content": "two\nlines"}, "finish_reason": "stop"}
        ],
        "usage": {"prompt_tokens": 4, "completion_tokens": 2, "total_tokens": 6},
    }
    played = completion(json.dumps(whole, indent=2).replace("\n", "\r\n").encode())
    assert played.said == [("reasoning", "hm"), ("text", "two\nlines")]
    assert played.response["usage"]["total_tokens"] == 6


def test_one_json_object_with_an_error_or_without_sense() -> None:
    assert completion(b'{"error":{"message":"no","code":503}}').error == ("server_error", "no")
    assert completion(b"<html>").error[1] == "The backend sent something that is not a chat completion chunk."
    assert completion(b"{}").error[1] == "The backend closed the stream before the model finished."


def test_the_stream_is_the_same_however_often_it_is_played() -> None:
    assert substance(translate(EVERYTHING)) == substance(translate([b"".join(EVERYTHING)]))


def test_the_clock_is_read_for_created_and_completed() -> None:
    times = iter([10.9, 20.9])
    playing = Translator(options(), lambda: next(times))
    data = playing.start() + playing.feed(finish() + DONE) + playing.terminal()
    assert [(e["response"]["created_at"], e["response"]["completed_at"]) for e in events_of(data)] == [
        (10, None),
        (10, None),
        (10, 20),
    ]


def test_only_the_first_choice_is_read() -> None:
    both = event({"choices": [{"index": 0, "delta": {"content": "a"}}, {"index": 1, "delta": {"content": "b"}}]})
    assert play(both, chunk({"content": "c"}), finish()).said == [("text", "ac")]
