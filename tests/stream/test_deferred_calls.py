"""Calls that wait for a verdict: their input is held, and what comes behind them, until somebody has judged."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from responses_gateway.stream.lifecycle.needs import Verdict
from responses_gateway.stream.options import CODEX, STANDARD, Client
from responses_gateway.stream.translator import Translator
from responses_gateway.wire.errors import ApiError, server_error
from responses_gateway.wire.tools import Grammar, ToolTarget
from tests.stream.stream_player import DONE, NOW, Play, arguments, call, events_of, finish, judged, options, text, think, usage

GRAMMARS = {"patch": Grammar("regex", "[a-z]+")}
BROKEN = server_error("The connection to the backend broke in the middle of the answer.")

# What is to be said about an input: None to let it pass, or what shall take its place.
Judge = Callable[[str], str | None]


def letting_pass(_text: str) -> str | None:
    return None


def shouting(text: str) -> str:
    return text.upper()


def new(**fields: object) -> Translator:
    return Translator(options(**{"grammars": GRAMMARS, "judged": True, **fields}), lambda: NOW)


def play(*pieces: bytes, judge: Judge = letting_pass, **fields: object) -> tuple[Play, list[tuple[str, str]]]:
    """Return the play, and the calls that waited for a verdict."""
    playing = new(**fields)
    out = [playing.start(), *(playing.feed(piece) for piece in pieces), playing.feed(DONE), playing.finish()]
    asked = []
    while isinstance(playing.needs, Verdict):
        asked.append(playing.needs[:2])
        out.append(playing.judge(judge(playing.needs.text)))
    return judged(b"".join(out), playing, fields.get("client", CODEX)), asked  # type: ignore[arg-type]


def test_an_input_is_held_until_it_is_judged() -> None:
    playing = new()
    before = playing.start() + playing.feed(call(0, "a", "patch", '{"input": "ab')) + playing.feed(arguments(0, 'c"}'))
    before += playing.feed(finish("tool_calls")) + playing.feed(DONE) + playing.finish()
    assert [event["type"] for event in events_of(before)][-1] == "response.output_item.added"
    assert playing.needs == Verdict("patch", "abc", unclosed=False)
    assert not playing.ended
    after = playing.judge(None)
    assert playing.ended
    assert not isinstance(playing.needs, Verdict)
    played = judged(before + after, playing)
    assert played.said == [("custom", "patch", "abc")]
    assert played.deltas("custom_tool_call_input") == ["abc"]


def test_a_verdict_may_bring_another_input() -> None:
    played, asked = play(call(0, "a", "patch", '{"input": "abc"}'), finish(), judge=shouting)
    assert asked == [("patch", "abc")]
    assert played.said == [("custom", "patch", "ABC")]
    assert played.deltas("custom_tool_call_input") == ["ABC"]
    assert played.response["status"] == "completed"


@pytest.mark.parametrize("replacement", ["", 'line\n"quoted" \\ é'])
def test_any_text_may_take_its_place(replacement: str) -> None:
    played, _ = play(call(0, "a", "patch", '{"input": "abc"}'), finish(), judge=lambda _: replacement)
    assert played.said == [("custom", "patch", replacement)]


def test_what_comes_behind_is_held_too_and_keeps_its_order() -> None:
    played, asked = play(
        think("Hm."),
        call(0, "a", "weather", "{}"),
        call(1, "b", "patch", '{"input": "x"}'),
        text("Between."),
        call(2, "c", "patch", '{"input": "y"}'),
        call(3, "d", "clock", '{"z": 1}'),
        text("Done."),
        finish("tool_calls"),
        usage(prompt_tokens=3, completion_tokens=4),
        judge=shouting,
    )
    assert asked == [("patch", "x"), ("patch", "y")]
    assert played.said == [
        ("reasoning", "Hm."),
        ("call", "weather", "{}"),
        ("custom", "patch", "X"),
        ("text", "Between."),
        ("custom", "patch", "Y"),
        ("call", "clock", '{"z": 1}'),
        ("text", "Done."),
    ]
    assert played.response["usage"]["output_tokens"] == 4


def test_interleaved_calls() -> None:
    played, asked = play(
        call(0, "a", "patch", '{"inp'),
        call(1, "b", "patch", '{"input": "'),
        arguments(0, 'ut": "one"}'),
        arguments(1, 'two"}'),
        finish(),
        judge=shouting,
    )
    assert asked == [("patch", "one"), ("patch", "two")]
    assert played.said == [("custom", "patch", "ONE"), ("custom", "patch", "TWO")]


@pytest.mark.parametrize(
    ("written", "meant"), [('{"patch": "x"}', "x"), ("just text", "just text"), ("", ""), ('{"input": ""}', "")]
)
def test_arguments_of_another_form(written: str, meant: str) -> None:
    played, asked = play(call(0, "a", "patch", written), finish())
    assert asked == [("patch", meant)]
    assert played.said == [("custom", "patch", meant)]


def test_other_tools_do_not_wait() -> None:
    played, asked = play(call(0, "a", "weather", '{"city": "Rome"}'), finish())
    assert asked == []
    assert played.said == [("call", "weather", '{"city": "Rome"}')]


def test_without_the_wish_inputs_go_out_as_they_come() -> None:
    pieces = call(0, "a", "patch", '{"input": "ab'), arguments(0, 'c"}'), finish()
    played, asked = play(*pieces, judged=False)
    assert asked == []
    assert played.deltas("custom_tool_call_input") == ["ab", "c"]


@pytest.mark.parametrize("reason", ["length", "content_filter"])
def test_an_answer_that_was_cut_is_not_judged(reason: str) -> None:
    played, asked = play(call(0, "a", "patch", '{"input": "abc'), finish(reason), client=options().client)
    assert asked == []
    assert played.said == [("custom", "patch", "abc", "incomplete")]
    assert played.response["status"] == "incomplete"


# ---- inputs that the model did not close --------------------------------------------------------------------------------

UNCLOSED = [
    think("Hm."),
    call(0, "a", "patch", '{"input": "ab'),
    arguments(0, "c"),
    call(1, "b", "clock", "{}"),
    finish("stop"),
]


@pytest.mark.parametrize("judged_tools", [True, False])
@pytest.mark.parametrize("client", [STANDARD, CODEX])
def test_an_input_that_is_not_closed_passes_if_the_grammar_accepts_it(judged_tools: bool, client: Client) -> None:
    playing = new(judged=judged_tools, client=client)
    data = playing.start() + playing.feed(b"".join(UNCLOSED) + DONE)
    assert playing.needs == Verdict("patch", "abc", unclosed=True)
    data += playing.judge(None)
    played = judged(data, playing, client)
    assert played.said == [("reasoning", "Hm."), ("custom", "patch", "abc"), ("call", "clock", "{}")]
    assert (played.response["status"], playing.repairs) == ("completed", {"arguments_not_json": 1})


@pytest.mark.parametrize("judged_tools", [True, False])
def test_an_input_that_is_not_closed_is_not_executed_else(judged_tools: bool) -> None:
    for client, said in ((STANDARD, [("custom", "patch", "abc", "incomplete")]), (CODEX, [])):
        playing = new(judged=judged_tools, client=client)
        data = playing.start() + playing.feed(b"".join(UNCLOSED) + DONE)
        data += playing.refuse()
        played = judged(data, playing, client)
        assert played.said == [("reasoning", "Hm."), *said, ("call", "clock", "{}")]
        assert played.response["status"] == "incomplete"
        assert playing.refuse() == b""


def test_nobody_is_asked_about_an_input_that_has_not_begun_or_has_no_grammar() -> None:
    for name, written in (("patch", '{"inp'), ("free", '{"input": "abc')):
        tools = {"patch": ToolTarget("custom", "patch"), "free": ToolTarget("custom", "free")}
        played, asked = play(call(0, "a", name, written), finish("stop"), tools=tools, client=STANDARD)
        assert asked == []
        assert (played.said[0][-1], played.response["status"]) == ("incomplete", "incomplete")


def test_an_input_that_is_closed_passes_though_its_object_is_not() -> None:
    played, asked = play(call(0, "a", "patch", '{"input": "abc"'), text("Done."), finish("stop"), judged=False)
    assert asked == []
    assert played.said == [("custom", "patch", "abc"), ("text", "Done.")]
    assert played.translator.repairs == {"arguments_not_json": 1}


def test_without_a_verdict_an_input_that_is_not_closed_is_not_executed() -> None:
    playing = new(client=STANDARD)
    data = playing.start() + playing.feed(b"".join(UNCLOSED) + DONE) + playing.fail(BROKEN)
    played = judged(data, playing)
    assert played.said == [("reasoning", "Hm."), ("custom", "patch", "abc", "incomplete"), ("call", "clock", "{}")]
    assert played.response["status"] == "incomplete"


@pytest.mark.parametrize("end", [finish("length"), b""])
def test_an_input_behind_which_the_model_went_on_was_not_cut(end: bytes) -> None:
    pieces = [call(0, "a", "patch", '{"input": "abc"}'), text("Done"), end]
    played, asked = play(*pieces, client=STANDARD)
    assert asked == []
    assert played.said == [("custom", "patch", "abc"), ("text", "Done", "incomplete")]


@pytest.mark.parametrize("error", [BROKEN, server_error("The gateway is shutting down. Please try again.", 503)])
def test_what_ends_the_stream_meanwhile_lets_the_inputs_pass(error: ApiError) -> None:
    """Check that nothing is lost of an answer that was complete before, though nobody judged it."""
    playing = new()
    data = playing.start() + playing.feed(call(0, "a", "patch", '{"input": "x"}') + call(1, "b", "patch", '{"input": "y"}'))
    data += playing.feed(finish("tool_calls"))
    data += playing.feed(DONE)
    assert playing.needs == Verdict("patch", "x", unclosed=False)
    data += playing.fail(error)
    assert playing.ended
    assert playing.judge("late") == b""
    played = judged(data, playing)
    assert played.said == [("custom", "patch", "x"), ("custom", "patch", "y")]
    assert played.response["status"] == "completed"


def test_a_stream_that_breaks_before_its_end_is_broken() -> None:
    playing = new()
    data = playing.start() + playing.feed(call(0, "a", "patch", '{"input": "x"}')) + playing.fail(BROKEN)
    assert not isinstance(playing.needs, Verdict)
    played = judged(data, playing)
    assert played.said == [("custom", "patch", "x", "incomplete")]
    assert played.response["status"] == "failed"


def test_keep_alives_go_on_and_what_is_fed_behind_the_end_does_no_harm() -> None:
    playing = new()
    data = playing.start() + playing.feed(call(0, "a", "patch", '{"input": "x"}')) + playing.feed(finish() + DONE)
    data += playing.keep_alive() + playing.feed(DONE) + playing.finish() + playing.finish()
    assert playing.needs == Verdict("patch", "x", unclosed=False)
    data += playing.judge(None)
    assert judged(data, playing).said == [("custom", "patch", "x")]


def test_a_completion_without_a_stream() -> None:
    playing = new()
    function = '{"name": "patch", "arguments": "{\\"input\\": \\"abc\\"}"}'
    message = f'{{"role": "assistant", "tool_calls": [{{"id": "a", "type": "function", "function": {function}}}]}}'
    body = f'{{"object": "chat.completion", "choices": [{{"index": 0, "message": {message}, "finish_reason": "tool_calls"}}]}}'
    data = playing.start() + playing.feed_completion(body.encode())
    assert playing.needs == Verdict("patch", "abc", unclosed=False)
    data += playing.judge("ABC")
    assert judged(data, playing).said == [("custom", "patch", "ABC")]


def test_the_grammar_of_a_tool_is_found_by_its_own_name() -> None:
    assert new().options.grammar_of("patch", None) == GRAMMARS["patch"]
    assert new().options.grammar_of("patch", "functions") is None
    assert new().options.grammar_of("other", None) is None


def test_a_defect_of_ours_ends_in_a_terminal_event(monkeypatch: pytest.MonkeyPatch) -> None:
    playing = new()
    data = playing.start() + playing.feed(call(0, "a", "patch", '{"input": "x"}') + finish() + DONE)
    monkeypatch.setattr("responses_gateway.stream.translator.close_judged", None)
    data += playing.judge(None)
    assert judged(data, playing).response["status"] == "failed"
    assert isinstance(playing.defect, TypeError)
