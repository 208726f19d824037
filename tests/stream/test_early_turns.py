"""Answers that end early, play by play: what the stream needs next, and how the response ends."""

from __future__ import annotations

import json
from collections.abc import Sequence
from functools import partial
from typing import Any, get_args

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from responses_gateway import parsers
from responses_gateway.conformance.checker import check_stream
from responses_gateway.stream.lifecycle.needs import AnotherTurn, Ended
from responses_gateway.stream.options import CODEX, STANDARD, Client, StreamOptions
from responses_gateway.stream.outcomes import EarlyEnds, TurnOutcome, is_certain
from responses_gateway.stream.reading.markup import Markup
from responses_gateway.stream.translator import Translator
from responses_gateway.wire.errors import ApiError
from responses_gateway.wire.tools import ToolTarget
from tests.thoroughness import examples

TOOLS = {"read": ToolTarget("function", "read")}
BROKE = ApiError(502, "It broke.", type="server_error")


def data(delta: dict[str, Any] | None, finish: str | None = None, **fields: Any) -> bytes:
    choices = [] if delta is None else [{"index": 0, "delta": delta, "finish_reason": finish}]
    return b"data: " + json.dumps({"choices": choices, **fields}).encode() + b"\n\n"


def answer(*deltas: dict[str, Any], finish: str = "stop", output: int = 5) -> bytes:
    usage = {"prompt_tokens": 10, "completion_tokens": output, "total_tokens": 10 + output}
    return b"".join([*map(data, deltas), data({}, finish), data(None, usage=usage), b"data: [DONE]\n\n"])


def call(arguments: str) -> dict[str, Any]:
    return {"tool_calls": [{"index": 0, "id": "c", "function": {"name": "read", "arguments": arguments}}]}


EMPTY = answer()
THOUGHT = answer({"reasoning": "I have to read it."})
TEXT = answer({"content": "I will read it."}, finish="tool_calls")
CALL = answer(call('{"a": 1}'), finish="tool_calls", output=7)
CUT = answer({"reasoning": "So."}, call('{"a": "x'), finish="stop")
OTHER = {"tool_calls": [{"index": 1, "id": "d", "function": {"name": "read", "arguments": "{}"}}]}
ANNOUNCED = answer({"content": "Now I open it:"})


class Play:
    """One response that goes on from early ends."""

    def __init__(self, continued: Any = "certain", *, client: Client = STANDARD, tool_ran: bool = True, **fields: Any) -> None:
        judged = EarlyEnds(continued, tool_ran)
        options = StreamOptions("resp_1", "m", tools=TOOLS, early_ends=judged, client=client, **fields)
        self.translator = Translator(options, lambda: 1.0)
        self.sent = self.translator.start()

    def answers(self, *bodies: bytes) -> Play:
        """Feed answers, one for each turn, as long as another one is wanted."""
        for number, body in enumerate(bodies):
            if number:
                assert self.translator.needs == AnotherTurn(again=True)
                self.sent += self.translator.next_turn(None)
            self.sent += self.translator.feed(body)
        return self

    def end(self) -> dict[str, Any]:
        """Return the response at its end, judged."""
        assert self.translator.needs == Ended()
        self.sent += self.translator.terminal()
        assert check_stream(self.sent, unfinished_allowed=self.translator.options.client is CODEX) == []
        last = self.sent.decode().rsplit("data: {", 1)[1].partition("\n")[0]
        response: dict[str, Any] = json.loads("{" + last)["response"]
        return response


def kinds(response: dict[str, Any]) -> Sequence[str]:
    return [item["type"] for item in response["output"]]


@pytest.mark.parametrize("client", [STANDARD, CODEX])
@pytest.mark.parametrize(
    ("bodies", "items"),
    [
        ([THOUGHT, CALL], ["reasoning", "function_call"]),
        ([EMPTY, THOUGHT, CALL], ["reasoning", "function_call"]),
        ([TEXT, CALL], ["message", "function_call"]),
        ([CUT, CALL], ["reasoning", "function_call"]),
        ([CUT, CUT], ["reasoning", "reasoning", "function_call"]),
        ([THOUGHT, THOUGHT], ["reasoning", "reasoning"]),
        ([THOUGHT, EMPTY, answer({"reasoning": "Hm."})], ["reasoning", "reasoning"]),
        ([THOUGHT, answer(finish="length")], ["reasoning"]),
        ([THOUGHT, answer({"content": "Do"}, finish="length")], ["reasoning", "message"]),
        ([THOUGHT, answer({"reasoning": "Hm"}, finish="length")], ["reasoning", "reasoning"]),
        ([CUT, answer({"reasoning": "Hm"}, finish="content_filter")], ["reasoning", "reasoning", "function_call"]),
        ([ANNOUNCED], ["message"]),
    ],
)
def test_what_follows_and_what_ends_it(bodies: list[bytes], items: list[str], client: Client) -> None:
    response = Play(client=client).answers(*bodies).end()
    assert kinds(response) == items
    cut = bodies[-1] == answer({"content": "Do"}, finish="length")
    assert response["status"] == ("incomplete" if cut else "completed")


def test_announcements_are_followed_only_where_all_is_asked_for() -> None:
    assert kinds(Play("all").answers(ANNOUNCED, CALL).end()) == ["message", "function_call"]
    assert kinds(Play("all", tool_ran=False).answers(ANNOUNCED).end()) == ["message"]


def test_a_first_thought_is_an_answer() -> None:
    assert kinds(Play(tool_ran=False).answers(THOUGHT).end()) == ["reasoning", "message"]
    in_thought = answer({"reasoning": 'So <tool_call>{"name": "read", "arguments": {}}</tool_call>'})
    assert kinds(Play(tool_ran=False).answers(in_thought, CALL).end()) == ["reasoning", "function_call"]


@pytest.mark.parametrize("fields", [{"allowed": frozenset()}, {"max_calls": 0}, {"discarded": True}])
def test_who_may_not_call_does_not_go_on(fields: dict[str, Any]) -> None:
    assert Play(**fields).answers(EMPTY).end()["status"] == "completed"


def test_a_broken_call_with_another_one_behind_it_is_handed_over_before_that() -> None:
    response = Play().answers(answer(call('{"a": "x'), OTHER, {"reasoning": "So."})).end()
    assert [item.get("arguments") for item in response["output"]] == ['{"a": "x', "{}", None]


@pytest.mark.parametrize("client", [STANDARD, CODEX])
@pytest.mark.parametrize(
    ("behind", "finish"), [(OTHER, "stop"), ({"content": "Hi"}, "length"), ({"content": "Hi"}, "content_filter")]
)
def test_a_broken_call_is_not_handed_over_behind_what_the_model_has_made_of_it(
    behind: dict[str, Any], finish: str, client: Client
) -> None:
    response = Play(client=client).answers(CUT, answer(call('{"a": '), behind, finish=finish)).end()
    assert '{"a": "x' not in [item.get("arguments") for item in response["output"]]


@pytest.mark.parametrize("client", [STANDARD, CODEX])
def test_a_broken_call_is_left_out_of_a_response_that_is_cut_behind_it(client: Client) -> None:
    filtered = answer(call(""), {"reasoning": "So."}, finish="content_filter")
    response = Play(client=client).answers(CUT, filtered).end()
    assert (response["status"], response["incomplete_details"]) == ("incomplete", {"reason": "content_filter"})
    play = Play(client=client).answers(CUT)
    play.sent += play.translator.next_turn(None) + play.translator.feed(data({"reasoning": "So."}))
    play.sent += play.translator.cut_short()
    assert kinds(play.end()) == ["reasoning", "reasoning"]


def test_a_stop_string_of_the_client_ends_it() -> None:
    stopped = (
        data({"content": ""})
        + b'data: {"choices": [{"index": 0, "delta": {}, "finish_reason": "stop", "stop_reason": "X"}]}\n\n'
    )
    play = Play()
    play.sent += play.translator.feed(stopped)
    play.sent += play.translator.finish()
    assert play.end()["status"] == "completed"
    assert play.translator.lifecycle.turn.outcome == "final"


@pytest.mark.parametrize("client", [STANDARD, CODEX])
@pytest.mark.parametrize(
    ("first", "items"), [(THOUGHT, ["reasoning"]), (CUT, ["reasoning", "function_call"]), (EMPTY, [])], ids=["t", "c", "e"]
)
@pytest.mark.parametrize(
    "begun", [b"", data({"role": "assistant"}), data({"reasoning": "Hm"}), data({"content": "So"}), data(call('{"a'))]
)
def test_a_failure_ends_it_as_it_was(first: bytes, items: list[str], begun: bytes, client: Client) -> None:
    play = Play(client=client).answers(first)
    play.sent += play.translator.next_turn(None) + play.translator.feed(begun) + play.translator.fail(BROKE)
    response = play.end()
    assert response["status"] == "completed"
    assert response["usage"]["output_tokens"] == 5
    texts = {"Hm": "reasoning", "So": "message"}
    more = [kind for text, kind in texts.items() if text.encode() in begun]
    made = [kind for kind in items if not (more == ["message"] and kind == "function_call")]
    assert sorted(kinds(response)) == sorted([*made, *more])
    assert play.translator.error is None
    assert play.translator.answer.late_error is BROKE


def test_a_failure_before_the_next_turn_ends_it_as_it_was() -> None:
    play = Play().answers(THOUGHT)
    play.sent += play.translator.fail(BROKE)
    assert kinds(play.end()) == ["reasoning"]
    play = Play().answers(CUT)
    play.sent += play.translator.stop_after_item("steered")
    assert play.end()["status"] == "incomplete"


def custom_play() -> Play:
    """Begin a response to Codex with a custom tool."""
    tools = {"read": ToolTarget("custom", "read")}
    options = StreamOptions("resp_1", "m", tools=tools, early_ends=EarlyEnds("certain", tool_ran=True), client=CODEX)
    play = Play(client=CODEX)
    play.translator = Translator(options, lambda: 1.0)
    play.sent = play.translator.start()
    return play


@pytest.mark.parametrize("following", [answer({"content": "Done."}), answer(call('{"input": "xy"}'))], ids=["text", "call"])
def test_a_broken_input_of_a_custom_tool_leaves_no_trace_where_the_model_goes_on(following: bytes) -> None:
    play = custom_play().answers(answer(call('{"input": "x')), following)
    response = play.end()
    assert response["status"] == "completed"
    assert [item.get("input") for item in response["output"]] in ([None], ["xy"])
    assert b'"x"' not in play.sent


@pytest.mark.parametrize("begun", [False, True])
@pytest.mark.parametrize("before", [[], [THOUGHT]])
def test_a_broken_input_of_a_custom_tool_is_left_incomplete(before: list[bytes], begun: bool) -> None:
    play = custom_play().answers(*before, answer(call('{"input": "x')))
    assert play.translator.needs == AnotherTurn(again=True)
    if begun:
        play.sent += play.translator.next_turn(None)
    play.sent += play.translator.fail(BROKE)
    response = play.end()
    assert (response["status"], kinds(response)) == ("incomplete", ["reasoning"] * len(before))


def test_the_usage_is_that_of_the_last_answer_and_the_sum_is_known() -> None:
    play = Play().answers(THOUGHT, CALL)
    usage = play.end()["usage"]
    assert (usage["input_tokens"], usage["output_tokens"], usage["output_tokens_details"]["reasoning_tokens"]) == (10, 7, 0)
    total = play.translator.usage
    assert total is not None
    assert (total.input, total.output) == (20, 12)
    usage = Play().answers(EMPTY, answer({"reasoning": "So."}, {"content": "It is done."}, output=20)).end()["usage"]
    assert 0 < usage["output_tokens_details"]["reasoning_tokens"] < usage["output_tokens"] == 20


def test_markup_that_broke_off_is_followed() -> None:
    markup = Markup(partial(parsers.parser, "qwen3", "hermes", schemas={"read": {}}), thinking_open=False)
    play = Play(markup=markup).answers(answer({"content": 'Now <tool_call>\n{"na'}), CALL)
    assert kinds(play.end()) == ["message", "function_call"]
    assert play.translator.lifecycle.turns[0].outcome == "malformed_call"


def test_certain_kinds() -> None:
    assert {kind for kind in get_args(TurnOutcome) if is_certain(kind, tool_ran=True)} == {
        "reasoning_only", "empty", "finish_without_call", "malformed_call", "call_in_thought",
    }  # fmt: skip
    assert not is_certain("reasoning_only", tool_ran=False)


PARTS = st.sampled_from([{"reasoning": "So."}, {"content": "I see."}, {"refusal": "No."}, call('{"a": "x'), call("{}"), OTHER])
ENDS = st.sampled_from(["stop", "tool_calls", "length", "content_filter"])
BODIES = st.one_of(
    st.sampled_from([EMPTY, THOUGHT, TEXT, CALL, CUT, ANNOUNCED]),
    st.builds(lambda parts, finish: answer(*parts, finish=finish), st.lists(PARTS, max_size=3), ENDS),
)


@settings(derandomize=True, max_examples=examples(300), deadline=None)
@given(st.lists(BODIES, min_size=12, max_size=12), st.sampled_from(["certain", "all"]), st.integers(1, 40), st.data())
def test_any_play_ends_once_however_it_is_cut(bodies: list[bytes], continued: Any, size: int, drawn: st.DataObject) -> None:
    play = Play(continued, client=drawn.draw(st.sampled_from([STANDARD, CODEX])))
    translator = play.translator
    fails_at = drawn.draw(st.integers(0, 20))
    for number, body in enumerate(bodies):
        if number:
            play.sent += translator.next_turn(None)
        for at in range(0, len(body), size):
            play.sent += translator.feed(body[at : at + size])
        play.sent += translator.finish()
        if number == fails_at and not translator.ended:
            play.sent += translator.fail(BROKE)
        if translator.ended:
            break
        assert number < 2  # two in a row are the most, without a call between them
    play.end()
