"""Tools that the gateway runs itself, as a client of the Messages API sees them."""

from __future__ import annotations

import json

from hypothesis import given, settings
from hypothesis import strategies as st

from responses_gateway.stream.items.hosted import CallOutcome, HostedOptions
from responses_gateway.stream.lifecycle.needs import AnotherTurn, RunCalls
from responses_gateway.stream.writer.messages import MessageOptions
from responses_gateway.wire.errors import server_error
from responses_gateway.wire.hosted import CitedSource
from responses_gateway.wire.search_results import OUT_OF_USES, carried_text
from responses_gateway.wire.tools import ToolTable, ToolTarget
from tests.stream.message_player import Message, judged_message, translator_of
from tests.stream.stream_player import DONE, call, finish, refuse, text, think
from tests.thoroughness import examples

TOOLS: ToolTable = {
    "weather": ToolTarget("function", "weather"),
    "web_search": ToolTarget("web_search", "web_search"),
    "open_page": ToolTarget("web_search", "open_page"),
    "python": ToolTarget("code_interpreter", "python"),
    "docs__ask": ToolTarget("mcp", "ask", "docs"),
}
RIVERS = CitedSource(1, "Rivers", url="https://example.org/rivers", excerpt="It is long.")
FOUND = CallOutcome(sources=(RIVERS,), text="[1] Rivers: long.")
FAILED = CallOutcome(failed=True, text="Error: the search engine did not answer.")


def played(outcomes: list[CallOutcome], *turns: list[bytes]) -> Message:
    """Play the model's turns; the calls of hosted tools have these outcomes, in order."""
    playing = translator_of(tools=TOOLS, hosted=HostedOptions(shows_results=True))
    left = iter(outcomes)
    sent = [playing.start()]
    for number, turn in enumerate(turns):
        if number:
            assert isinstance(playing.needs, AnotherTurn)
            playing.next_turn(None)
        sent += [playing.feed(piece) for piece in [*turn, DONE]] + [playing.finish()]
        while isinstance(playing.needs, RunCalls):
            sent += [playing.keep_alive(), playing.finish_call(next(left))]
    return judged_message(b"".join(sent), playing)


def search(index: int = 0) -> bytes:
    return call(index, "", "web_search", '{"queries":["rivers"]}')


def test_a_search_is_a_block_of_the_call_a_block_of_the_results_and_a_citation() -> None:
    message = played([FOUND], [think("hm"), search(), finish("tool_calls")], [text("Long 【1】."), finish()])
    asked, found, said = message.blocks[1:]
    assert (asked["type"], asked["name"], json.loads(asked["json"])) == ("server_tool_use", "web_search", {"query": "rivers"})
    assert (found["type"], found["tool_use_id"]) == ("web_search_tool_result", asked["id"])
    assert [(entry["url"], entry["title"]) for entry in found["content"]] == [("https://example.org/rivers", "Rivers")]
    assert said["text"] == "Long."
    assert [(note["url"], note["cited_text"]) for note in said["citations"]] == [("https://example.org/rivers", "It is long.")]
    assert message.reason == "end_turn"
    assert message.ending["usage"]["server_tool_use"] == {"web_search_requests": 1, "web_fetch_requests": 0}


def test_the_results_carry_what_the_model_read_since_nothing_is_stored() -> None:
    message = played([FOUND], [search(), finish()], [text("Long."), finish()])
    assert carried_text(message.blocks[1]["content"]) == "[1] Rivers: long."


def test_a_page_is_fetched_with_its_text() -> None:
    fetch = call(0, "", "open_page", '{"url":"https://example.org/rivers"}')
    message = played([FOUND], [fetch, finish()], [text("Long."), finish()])
    asked, found, _ = message.blocks
    assert (asked["name"], json.loads(asked["json"])) == ("web_fetch", {"url": "https://example.org/rivers"})
    assert found["type"] == "web_fetch_tool_result"
    assert found["content"]["content"]["source"]["data"] == "[1] Rivers: long."


def test_a_search_that_failed_says_so_and_the_message_goes_on() -> None:
    message = played([FAILED], [search(), finish()], [text("I do not know."), finish()])
    failed = {"type": "web_search_tool_result_error", "error_code": "unavailable", "message": FAILED.text}
    assert message.blocks[1]["content"] == failed
    assert message.reason == "end_turn"
    used_up = played([CallOutcome(failed=True, text=f"{OUT_OF_USES} Stop.")], [search(), finish()], [text("No."), finish()])
    assert used_up.blocks[1]["content"]["error_code"] == "max_uses_exceeded"


def test_two_searches_at_once_come_in_turn_each_before_its_results() -> None:
    message = played([FOUND, FOUND], [search(0), search(1), finish()], [text("Long."), finish()])
    kinds = [block["type"] for block in message.blocks]
    assert kinds == ["server_tool_use", "web_search_tool_result"] * 2 + ["text"]
    assert len({block["id"] for block in message.blocks if "id" in block}) == 2


def test_other_tools_of_the_gateway_are_never_shown() -> None:
    code = call(0, "", "python", '{"code":"1+1"}')
    ask = call(1, "", "docs__ask", '{"q":"x"}')
    message = played([CallOutcome(), CallOutcome()], [code, ask, finish()], [text("2"), finish()])
    assert message.said == [("text", "2")]


def test_a_call_of_the_client_beside_a_search_waits_for_the_client() -> None:
    message = played([FOUND], [search(0), call(1, "", "weather", "{}"), finish("tool_calls")])
    assert [block["type"] for block in message.blocks] == ["server_tool_use", "web_search_tool_result", "tool_use"]
    assert message.reason == "tool_use"


def test_what_breaks_while_a_search_runs_ends_with_an_error() -> None:
    playing = translator_of(tools=TOOLS, hosted=HostedOptions())
    sent = playing.start() + playing.feed(search() + finish() + DONE) + playing.finish()
    assert isinstance(playing.needs, RunCalls)
    message = judged_message(sent + playing.fail(server_error("stopping", 503)), playing)
    assert message.blocks[1]["content"]["error_code"] == "unavailable"
    assert message.ending["error"]["type"] == "overloaded_error"


PIECES = {
    "think": think("Hm. "),
    "text": text("Long 【1】. "),
    "blank": text("\n"),
    "refuse": refuse("No."),
    "call": call(0, "a", "weather", '{"city":"Bonn"}'),
    "half a call": call(1, "b", "weather", '{"city":'),
    "search": call(2, "c", "web_search", '{"query":"rivers"}'),
    "open": call(3, "d", "open_page", '{"url":"https://example.org/rivers"}'),
    "ask": call(4, "e", "docs__ask", '{"q":1}'),
}
OUTCOMES = [FOUND, FAILED, CallOutcome()]
THINKING = [MessageOptions(), MessageOptions(thinking="hidden"), MessageOptions(thinking="empty")]


@settings(deadline=None, max_examples=examples(150))
@given(
    st.lists(st.lists(st.sampled_from(sorted(PIECES)), max_size=6), min_size=1, max_size=2),
    st.sampled_from(["tool_calls", "stop", "length", "content_filter", "error", ""]),
    st.sampled_from(OUTCOMES),
    st.sampled_from(THINKING),
    st.integers(0, 30),
    st.sampled_from(["nothing", "break", "stop"]),
)
def test_with_tools_of_both_sides_every_fault_at_every_step_keeps_the_rules(
    turns: list[list[str]], reason: str, outcome: CallOutcome, options: MessageOptions, at: int, fault: str
) -> None:
    """Play the turns, each with the same reason at its end. A ping stands between any two steps, and the fault behind one."""
    playing = translator_of(options, tools=TOOLS, hosted=HostedOptions(shows_results=True))
    sent = [playing.start()]
    left = iter([b"".join([*map(PIECES.__getitem__, turn), *([finish(reason), DONE] if reason else [])]) for turn in turns])
    body = next(left)
    steps = 0
    while not playing.ended:
        sent.append(playing.keep_alive())
        if steps == at and fault != "nothing":
            sent.append(playing.fail(server_error("gone")) if fault == "break" else playing.stop_after_item("steered"))
            if fault == "break":
                break
        steps += 1
        if body:
            sent.append(playing.feed(body[:97]))
            body = body[97:]
        elif isinstance(playing.needs, RunCalls):
            sent.append(playing.finish_call(outcome))
        elif isinstance(playing.needs, AnotherTurn):
            body = next(left, text("Done.") + finish("stop") + DONE)
            playing.next_turn(None)
        else:
            sent.append(playing.finish())
    message = judged_message(b"".join(sent), playing)
    kinds = [block["type"] for block in message.blocks]
    shown = {block["name"] for block in message.blocks if block["type"] == "tool_use"}
    assert shown <= {"weather"}
    if message.reason is None:
        assert (message.ending["type"], "message_stop" in message.kinds) == ("error", False)
    else:
        assert kinds.count("server_tool_use") == sum(kind.endswith("_tool_result") for kind in kinds)
