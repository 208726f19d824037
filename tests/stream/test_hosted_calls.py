"""Calls of hosted tools in the stream: their events, the order of parallel calls, further turns, citations, ends."""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from itertools import pairwise
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from responses_gateway.stream.items.hosted import (
    ApprovedCall,
    CallOutcome,
    HostedOptions,
    ToolListing,
)
from responses_gateway.stream.lifecycle.needs import CallToRun
from responses_gateway.stream.options import CODEX, STANDARD, Client
from responses_gateway.stream.reading.citations import CitedSource
from responses_gateway.stream.translator import Translator
from responses_gateway.wire.errors import ApiError, server_error
from responses_gateway.wire.tools import ToolTable, ToolTarget
from tests.stream.stream_player import (
    DONE,
    Play,
    arguments,
    call,
    calls_to_run,
    finish,
    judged,
    new_translator,
    text,
    think,
    tool,
    usage,
    wants_turn,
)
from tests.stream.stream_player import chunk as chat_chunk
from tests.thoroughness import examples

TOOLS: ToolTable = {
    "clock": ToolTarget("function", "clock"),
    "docs__ask": ToolTarget("mcp", "ask", "docs"),
    "docs__delete": ToolTarget("mcp", "delete", "docs", needs_approval=True),
    "web_search": ToolTarget("web_search", "web_search"),
    "open_page": ToolTarget("web_search", "open_page"),
    "find_in_page": ToolTarget("web_search", "find_in_page"),
    "file_search": ToolTarget("file_search", "file_search"),
    "python": ToolTarget("code_interpreter", "python"),
    "generate_image": ToolTarget("image_generation", "generate_image"),
}
ALL = frozenset({"file_search_call.results", "web_search_call.action.sources", "code_interpreter_call.outputs"})
RIVERS = CitedSource(1, "Rivers", url="https://example.org/rivers")
NOTES = CitedSource(2, "notes.md", file_id="file-2")

Outcomes = Callable[[CallToRun], CallOutcome]


def outcome_of(made: CallToRun) -> CallOutcome:
    match made.target.kind:
        case "mcp":
            return CallOutcome({"output": f"{made.target.name} of {made.arguments}"})
        case "web_search":
            action = {"type": "search", "query": "q", "queries": ["q"], "sources": [{"type": "url", "url": RIVERS.url}]}
            return CallOutcome({"action": action} if made.name == "web_search" else {}, sources=(RIVERS,))
        case "file_search":
            result = {"file_id": "file-2", "filename": "notes.md", "text": "Rivers flow.", "score": 0.5, "attributes": {}}
            return CallOutcome({"queries": ["q"], "results": [result]}, sources=(NOTES,))
        case "image_generation":
            return CallOutcome({"result": "aW1hZ2U=", "output_format": "png", "revised_prompt": "x"})
        case _:
            return CallOutcome({"outputs": [{"type": "logs", "logs": "3\n"}]})


def play_turns(
    *turns: list[bytes | ApiError],
    outcomes: Outcomes = outcome_of,
    include: frozenset[str] = frozenset(),
    client: Client = STANDARD,
    before: Callable[[Translator], bytes] = lambda _: b"",
    may_call: bool = True,
    **fields: Any,
) -> Play:
    """Play the turns of the model one after the other, and run what it calls."""
    playing = new_translator(**{"tools": TOOLS, "hosted": HostedOptions(include, "cntr_1"), "client": client, **fields})
    out = [playing.start(), before(playing)]
    for number, pieces in enumerate(turns):
        if number:
            assert wants_turn(playing)
            out.append(playing.next_turn(None, may_call=may_call))
        for piece in (*pieces, DONE):
            out.append(playing.fail(piece) if isinstance(piece, ApiError) else playing.feed(piece))
        out.append(playing.finish())
        while calls := calls_to_run(playing):
            out.append(playing.finish_call(outcomes(calls[0])))
    return judged(b"".join(out), playing, client)


def steps(play: Play, kind: str) -> list[str]:
    """Return the events of the items of a type, without those of other items."""
    ids = {event["item"]["id"] for event in play.events if event.get("item", {}).get("type") == kind}
    return [
        event["type"].removeprefix("response.").removeprefix(f"{kind}.")
        for event in play.events
        if event.get("item_id", event.get("item", {}).get("id")) in ids
    ]


def test_a_call_of_an_mcp_tool_has_its_result_and_the_model_goes_on() -> None:
    played = play_turns(
        [
            think("Hm. "),
            call(0, "c", "docs__ask", '{"q":'),
            arguments(0, '"x"}'),
            finish("tool_calls"),
            usage(prompt_tokens=10, completion_tokens=5, prompt_tokens_details={"cached_tokens": 4}),
        ],
        [think("So. "), text("It is x."), finish(), usage(prompt_tokens=20, completion_tokens=3)],
    )
    reasoning, made, again, message = played.response["output"]
    assert (reasoning["type"], again["type"], message["content"][0]["text"]) == ("reasoning", "reasoning", "It is x.")
    assert made == {
        "type": "mcp_call", "id": made["id"], "status": "completed", "server_label": "docs", "name": "ask",
        "arguments": '{"q":"x"}', "approval_request_id": None, "output": 'ask of {"q":"x"}', "error": None,
    }  # fmt: skip
    assert made["id"].startswith("mcp_")
    assert steps(played, "mcp_call") == [
        "output_item.added", "in_progress", "mcp_call_arguments.delta", "mcp_call_arguments.delta", "mcp_call_arguments.done",
        "completed", "output_item.done",
    ]  # fmt: skip
    assert played.response["status"] == "completed"
    counted = played.response["usage"]
    assert (counted["input_tokens"], counted["output_tokens"], counted["input_tokens_details"]["cached_tokens"]) == (30, 8, 4)


def test_a_web_search_has_the_events_of_openai() -> None:
    turns = [call(0, "c", "web_search", '{"queries": ["q"]}'), finish("tool_calls")], [text("Yes."), finish()]
    played = play_turns(*turns)
    assert steps(played, "web_search_call") == [
        "output_item.added", "in_progress", "searching", "completed", "output_item.done",
    ]  # fmt: skip
    added = next(event["item"] for event in played.events if event["type"] == "response.output_item.added")
    assert "action" not in added
    assert played.response["output"][0]["action"] == {"type": "search", "query": "q", "queries": ["q"]}
    told = play_turns(*turns, include=ALL).response["output"][0]["action"]
    assert told["sources"] == [{"type": "url", "url": RIVERS.url}]


@pytest.mark.parametrize(
    ("name", "asked", "action"),
    [
        ("open_page", {"url": "https://a.b"}, {"type": "open_page", "url": "https://a.b"}),
        ("find_in_page", {"url": "u", "pattern": "p"}, {"type": "find_in_page", "url": "u", "pattern": "p"}),
        ("open_page", {"url": 5}, {"type": "open_page", "url": ""}),
        ("open_page", [], {"type": "open_page", "url": ""}),
    ],
)
def test_an_action_is_what_was_asked_for(name: str, asked: Any, action: Any) -> None:
    played = play_turns([call(0, "c", name, json.dumps(asked)), finish()], [text("Ok."), finish()])
    assert played.response["output"][0]["action"] == action


def test_code_is_shown_while_it_is_written() -> None:
    turns = (
        [call(0, "c", "python", '{"code": "pri'), arguments(0, 'nt(1 + 2)\\n"}'), finish()],
        [text("It is 3."), finish()],
    )
    played = play_turns(*turns, include=ALL)
    assert steps(played, "code_interpreter_call") == [
        "output_item.added", "in_progress", "code_interpreter_call_code.delta", "code_interpreter_call_code.delta",
        "code_interpreter_call_code.done", "interpreting", "completed", "output_item.done",
    ]  # fmt: skip
    made = played.response["output"][0]
    assert (made["code"], made["container_id"], made["status"]) == ("print(1 + 2)\n", "cntr_1", "completed")
    assert made["outputs"] == [{"type": "logs", "logs": "3\n"}]
    assert play_turns(*turns).response["output"][0]["outputs"] is None


def test_code_that_is_no_json_is_the_code() -> None:
    played = play_turns([call(0, "c", "python", "print(1)"), finish()], [text("1"), finish()])
    assert played.response["output"][0]["code"] == "print(1)"


def test_a_file_search_shows_results_where_they_are_asked_for() -> None:
    turns = [call(0, "c", "file_search", '{"queries": ["q"]}'), finish()], [text("Yes."), finish()]
    played = play_turns(*turns, include=ALL)
    assert steps(played, "file_search_call")[1:4] == ["in_progress", "searching", "completed"]
    assert played.response["output"][0]["results"][0]["filename"] == "notes.md"
    assert play_turns(*turns).response["output"][0]["results"] is None


def test_a_file_search_may_find_nothing() -> None:
    turns = [call(0, "c", "file_search", '{"queries": ["q"]}'), finish()], [text("Yes."), finish()]
    nothing = play_turns(*turns, include=ALL, outcomes=lambda _: CallOutcome({"queries": ["q"], "results": []}))
    assert nothing.response["output"][0]["results"] == []


def test_a_failed_call_is_an_item_with_an_error_and_no_failed_response() -> None:
    error = {"type": "mcp_protocol_error", "code": -32000, "message": "Nothing there."}
    played = play_turns(
        [call(0, "c", "docs__ask", "{}"), call(1, "d", "web_search", "{}"), finish()],
        [text("Sorry."), finish()],
        outcomes=lambda made: CallOutcome({"error": error} if made.target.kind == "mcp" else {}, failed=True),
    )
    asked, searched, message = played.response["output"]
    assert (asked["status"], asked["error"], asked["output"]) == ("failed", error, None)
    assert (searched["status"], message["status"], played.response["status"]) == ("failed", "completed", "completed")
    assert "mcp_call.failed" in played.kinds


@pytest.mark.parametrize("name", ["docs__ask", "web_search", "file_search", "python"])
@pytest.mark.parametrize("end", ["completed", "failed", "interrupted", "cut"])
def test_the_last_event_of_a_call_agrees_with_its_item(name: str, end: str) -> None:
    """OpenAI sends `completed` for no search that its stream leaves behind, and has no event for one that failed."""
    playing = new_translator(tools=TOOLS, hosted=HostedOptions())
    out = playing.start() + playing.feed(call(0, "a", name, '{"code": "1"' if end == "cut" else '{"code": "1"}'))
    if end != "cut":
        out += playing.feed(finish()) + playing.finish()
        assert calls_to_run(playing)
    if end in ("completed", "failed"):
        error = {"error": {"type": "mcp_protocol_error", "code": -32000, "message": "No."}}
        members = error if end == "failed" and name == "docs__ask" else {}
        out += playing.finish_call(CallOutcome(members, failed=end == "failed"))
    played = judged(out + playing.fail(server_error("The response was cancelled.")), playing)
    (item,) = played.response["output"]
    ends = [kind.rpartition(".")[2] for kind in played.kinds if kind in (f"{item['type']}.completed", f"{item['type']}.failed")]
    if end in ("interrupted", "cut"):
        assert (item["status"], ends) == ("failed" if name == "web_search" else "incomplete", [])
    else:
        assert (item["status"], ends) == (end, [end] if end == "completed" or name == "docs__ask" else [])


def test_an_approved_call_that_was_interrupted_is_incomplete() -> None:
    playing = new_translator(tools=TOOLS, hosted=HostedOptions())
    out = playing.start() + playing.approved_call(ApprovedCall("mcpr_1", "docs", "delete", '{"id": 1}', None))
    played = judged(out + playing.fail(server_error("The gateway stops.")), playing)
    (item,) = played.response["output"]
    assert (item["status"], item["approval_request_id"], item["arguments"]) == ("incomplete", "mcpr_1", '{"id": 1}')
    assert not {"mcp_call.completed", "mcp_call.failed"}.intersection(played.kinds)


def test_parallel_calls_run_together_and_are_reported_in_order() -> None:
    seen: list[list[str]] = []
    playing = new_translator(tools=TOOLS, hosted=HostedOptions())
    out = playing.start()
    made = [tool(0, "a", "docs__ask", '{"q": 1}'), tool(1, "b", "web_search", '{"queries": ["q"]}')]
    out += playing.feed(chat_chunk({"tool_calls": made})) + playing.feed(call(2, "c", "docs__ask", '{"q": 2}'))
    out += playing.feed(finish("tool_calls")) + playing.feed(DONE) + playing.finish()
    while calls := calls_to_run(playing):
        seen.append([found.name for found in calls])
        out += playing.finish_call(outcome_of(calls[0]))
    assert seen == [["docs__ask", "web_search", "docs__ask"], ["web_search", "docs__ask"], ["docs__ask"]]
    playing.next_turn(None)
    out += playing.feed(text("Done.")) + playing.feed(finish()) + playing.finish()
    played = judged(out, playing)
    assert [item["type"] for item in played.response["output"]] == ["mcp_call", "web_search_call", "mcp_call", "message"]


def test_a_turn_that_also_calls_a_client_tool_ends_the_response() -> None:
    played = play_turns([call(0, "a", "docs__ask", "{}"), call(1, "b", "clock", "{}"), finish("tool_calls")])
    assert [item["type"] for item in played.response["output"]] == ["mcp_call", "function_call"]
    assert played.response["status"] == "completed"
    assert not wants_turn(played.translator)


def test_what_was_said_behind_a_call_waits_for_its_result() -> None:
    played = play_turns([call(0, "a", "docs__ask", "{}"), text("I asked."), finish()], [text("Good."), finish()])
    assert [item["type"] for item in played.response["output"]] == ["mcp_call", "message", "message"]


def test_a_call_that_needs_approval_is_asked_for_and_not_run() -> None:
    played = play_turns([call(0, "a", "docs__delete", '{"id": 1}'), finish("tool_calls")])
    (request,) = played.response["output"]
    assert request == {
        "type": "mcp_approval_request", "id": request["id"], "arguments": '{"id": 1}', "name": "delete", "server_label": "docs",
    }  # fmt: skip
    assert request["id"].startswith("mcpr_")
    assert [kind for kind in played.kinds if "mcp" in kind] == []


def test_the_tools_of_a_server_and_an_approved_call_come_first() -> None:
    listed = {"name": "ask", "input_schema": {"type": "object"}, "description": "Asks."}

    def before(playing: Translator) -> bytes:
        approved = ApprovedCall("mcpr_1", "docs", "delete", '{"id": 1}', CallOutcome({"output": "gone"}))
        return (
            playing.list_tools(ToolListing("docs", [listed]))
            + playing.list_tools(ToolListing("other", error="It cannot be reached."))
            + playing.approved_call(approved)
        )

    played = play_turns([text("It is gone."), finish()], before=before)
    tools, nothing, made, message = played.response["output"]
    assert (tools["type"], tools["tools"], "error" in tools) == ("mcp_list_tools", [listed], False)
    assert (nothing["tools"], nothing["error"]) == ([], "It cannot be reached.")
    assert (made["approval_request_id"], made["output"], message["type"]) == ("mcpr_1", "gone", "message")
    assert played.kinds[2:6] == [
        "output_item.added", "mcp_list_tools.in_progress", "mcp_list_tools.completed", "output_item.done",
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("name", "kind", "shown"),
    [
        ("ask", "mcp_call", "ask"),
        ("delete", "mcp_approval_request", "delete"),
        ("docs__missing", "mcp_call", "missing"),
        ("code_interpreter", "code_interpreter_call", None),
        ("docs__", "function_call", "docs__"),
        ("mcp", "function_call", "mcp"),
        ("missing", "function_call", "missing"),
    ],
)
def test_a_tool_may_be_called_by_another_name(name: str, kind: str, shown: str | None) -> None:
    further = [[text("Done."), finish()]] if kind in ("mcp_call", "code_interpreter_call") else []
    played = play_turns([call(0, "a", name, '{"code": "1"}'), finish("tool_calls")], *further)
    made = played.response["output"][0]
    assert (made["type"], made.get("name")) == (kind, shown)


def test_a_name_that_several_tools_have_is_of_none() -> None:
    tools = {**TOOLS, "other__ask": ToolTarget("mcp", "ask", "other")}
    playing = new_translator(tools=tools, hosted=HostedOptions())
    out = playing.start() + playing.feed(call(0, "a", "ask", "{}")) + playing.feed(finish("tool_calls")) + playing.finish()
    assert [item["type"] for item in judged(out, playing).response["output"]] == ["function_call"]


def test_calls_that_wait_are_run_with_the_arguments_of_their_items() -> None:
    playing = new_translator(tools=TOOLS, hosted=HostedOptions())
    out = (
        playing.start() + playing.feed(call(0, "a", "docs__ask", "{}")) + playing.feed(call(1, "b", "docs__ask", '{"q": 1}}]'))
    )
    out += playing.feed(finish("tool_calls")) + playing.finish()
    assert [found.arguments for found in calls_to_run(playing)] == ["{}", '{"q": 1}']
    while calls := calls_to_run(playing):
        out += playing.finish_call(outcome_of(calls[0]))
    playing.next_turn(None)
    out += playing.feed(text("Done.")) + playing.feed(finish()) + playing.finish()
    assert judged(out, playing).response["output"][1]["arguments"] == '{"q": 1}'


def test_an_approved_call_counts() -> None:
    playing = new_translator(tools=TOOLS, hosted=HostedOptions(), max_calls=1)
    out = playing.start()
    out += playing.approved_call(ApprovedCall("mcpr_1", "docs", "delete", "{}", CallOutcome({"output": "gone"})))
    out += playing.feed(call(0, "a", "docs__ask", "{}")) + playing.feed(finish("tool_calls")) + playing.finish()
    assert [item["name"] for item in judged(out, playing).response["output"]] == ["delete"]


@pytest.mark.parametrize("client", [STANDARD, CODEX])
@pytest.mark.parametrize("name", ["docs__ask", "web_search", "file_search", "python", "docs__delete"])
@pytest.mark.parametrize("end", [finish("length"), server_error("The backend is gone.")])
def test_a_call_in_an_answer_that_was_cut_is_not_run(name: str, end: bytes | ApiError, client: Client) -> None:
    played = play_turns([call(0, "a", name, '{"code": "x'), end], client=client)
    assert played.response["status"] == ("incomplete" if isinstance(end, bytes) else "failed")
    assert all(item["status"] in ("incomplete", "failed") for item in played.response["output"])
    assert len(played.response["output"]) == (0 if name == "docs__delete" else 1)


@pytest.mark.parametrize("client", [STANDARD, CODEX])
def test_a_call_that_breaks_off_before_another_one_is_not_run_and_ends(client: Client) -> None:
    pieces: list[bytes | ApiError] = [
        call(0, "a", "web_search", '{"query": "x'),
        call(0, "b", "clock", "{}"),
        finish("tool_calls"),
    ]
    played = play_turns(pieces, client=client)
    assert [item["type"] for item in played.response["output"]] == ["web_search_call", "function_call"]
    assert played.response["output"][0]["status"] in ("incomplete", "failed")


def test_a_stream_that_fails_while_tools_run_ends_truthfully() -> None:
    playing = new_translator(tools=TOOLS, hosted=HostedOptions())
    out = playing.start() + playing.feed(call(0, "a", "docs__ask", "{}")) + playing.feed(call(1, "b", "python", '{"code":"1"}'))
    out += playing.feed(finish()) + playing.finish()
    assert calls_to_run(playing)
    out += playing.fail(server_error("The response was cancelled."))
    assert calls_to_run(playing) == ()
    assert playing.finish_call(CallOutcome()) == b""
    played = judged(out, playing)
    assert [item["status"] for item in played.response["output"]] == ["incomplete", "incomplete"]
    assert played.response["status"] == "failed"


def test_a_stream_that_fails_between_two_turns_ends_truthfully() -> None:
    playing = new_translator(tools=TOOLS, hosted=HostedOptions())
    out = playing.start() + playing.feed(call(0, "a", "docs__ask", "{}")) + playing.feed(finish())
    out += playing.feed(usage(prompt_tokens=5, completion_tokens=2)) + playing.finish()
    out += playing.finish_call(CallOutcome({"output": "x"}))
    assert wants_turn(playing)
    played = judged(out + playing.fail(server_error("No backend is there.")), playing)
    assert (played.response["output"][0]["output"], played.response["status"]) == ("x", "failed")
    assert played.response["usage"]["total_tokens"] == 7


def test_a_turn_in_which_nothing_may_be_called_ends_the_response() -> None:
    asked = [call(0, "a", "docs__ask", "{}"), finish()]
    played = play_turns(asked, asked, may_call=False)
    assert [item["type"] for item in played.response["output"]] == ["mcp_call"]
    assert played.translator.repairs == {"call_suppressed": 1}


def test_only_one_call_of_a_turn_where_the_client_wants_no_more() -> None:
    two = [call(0, "a", "docs__ask", "{}"), call(1, "b", "docs__ask", "{}"), finish()]
    played = play_turns(two, two, [text("Enough."), finish()], parallel_calls=False)
    assert [item["type"] for item in played.response["output"]] == ["mcp_call", "mcp_call", "message"]
    limited = play_turns(two, [text("Enough."), finish()], max_calls=1)
    assert [item["type"] for item in limited.response["output"]] == ["mcp_call", "message"]


def test_a_forced_tool_is_not_forced_for_ever() -> None:
    forced = frozenset({"web_search"})
    opening = [call(0, "b", "open_page", '{"url": "u"}'), finish()]
    turns = [call(0, "a", "web_search", "{}"), finish()], opening, [text("Ok."), finish()]
    played = play_turns(*turns, allowed=forced)
    assert [item["type"] for item in played.response["output"]] == ["web_search_call", "web_search_call", "message"]


# ---- citations ----------------------------------------------------------------------------------------------------------

SEARCHED = [call(0, "a", "web_search", "{}"), call(1, "b", "file_search", "{}"), finish()]
ANSWER = "Short. Rivers flow to the sea【1】. Some do not 【2†L1-L4】, see notes 【1, 2】here. 【9】 and 【注】stay【"
SHOWN = "Short. Rivers flow to the sea. Some do not, see notes here. 【9】 and 【注】stay【"


def annotations(played: Play) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = played.response["output"][-1]["content"][0]["annotations"]
    return found


def test_the_marks_of_citations_become_annotations() -> None:
    played = play_turns(SEARCHED, [text(ANSWER), finish()])
    assert played.response["output"][-1]["content"][0]["text"] == SHOWN
    first, second, third, fourth = annotations(played)
    assert first == {"type": "url_citation", "url": RIVERS.url, "title": "Rivers", "start_index": 7, "end_index": 29}
    assert SHOWN[7:29] == "Rivers flow to the sea"
    assert second == {"type": "file_citation", "file_id": "file-2", "filename": "notes.md", "index": SHOWN.index(", see")}
    assert (third["type"], fourth["type"]) == ("url_citation", "file_citation")
    added = [event for event in played.events if event["type"] == "response.output_text.annotation.added"]
    assert [event["annotation_index"] for event in added] == [0, 1, 2, 3]
    behind = played.events.index(added[0]) - 1
    assert played.events[behind]["delta"].endswith("to the sea")


@given(st.lists(st.integers(1, len(ANSWER) - 1), max_size=8))
@settings(deadline=None, max_examples=examples(60))
def test_the_marks_may_be_cut_anywhere(places: list[int]) -> None:
    cuts = sorted({0, *places, len(ANSWER)})
    pieces: list[bytes | ApiError] = [text(ANSWER[a:b]) for a, b in pairwise(cuts)]
    played = play_turns([*SEARCHED], [*pieces, finish()])
    assert played.response["output"][-1]["content"][0]["text"] == SHOWN
    assert annotations(played) == annotations(play_turns([*SEARCHED], [text(ANSWER), finish()]))


def test_the_sentence_of_a_mark_begins_at_most_a_thousand_characters_before_it() -> None:
    begin = "Before. " + "word " * 1000
    (annotation,) = annotations(play_turns(SEARCHED, [text(begin), text("end"), text("【1】."), finish()]))
    assert (annotation["start_index"], annotation["end_index"]) == (len(begin) + 3 - 1000, len(begin) + 3)


@pytest.mark.slow
def test_many_marks_take_no_longer_each_than_a_few() -> None:
    def seconds(marks: int) -> float:
        playing = new_translator(tools=TOOLS, hosted=HostedOptions(frozenset(), "cntr_1"))
        playing.start()
        for piece in (*SEARCHED, DONE):
            playing.feed(piece)
        playing.finish()
        while calls := calls_to_run(playing):
            playing.finish_call(outcome_of(calls[0]))
        playing.next_turn(None, may_call=True)
        begun = time.process_time()
        written = b"".join(playing.feed(text("So it is. Or not【1】" * 100)) for _ in range(marks // 100))
        assert written.count(b"event: response.output_text.annotation.added") == marks
        return time.process_time() - begun

    few = min(seconds(400) for _ in range(3))
    assert seconds(400 * 16) < few * 16 * 4  # 16 times as long each if every mark reads all of the text


def test_a_mark_behind_no_text_is_dropped_and_counted() -> None:
    played = play_turns(SEARCHED, [think("Hm"), text("【1】"), text("So it is."), finish()])
    assert played.response["output"][-1]["content"][0]["text"] == "So it is."
    assert played.translator.repairs == {"citation_of_nothing": 1}


def test_brackets_stay_where_nothing_was_searched() -> None:
    played = play_turns([text("As 【1】 says."), finish()])
    assert played.response["output"][-1]["content"][0]["text"] == "As 【1】 says."


def test_text_before_a_call_is_not_held_back_for_ever() -> None:
    played = play_turns(SEARCHED, [text("See 【"), call(0, "x", "clock", "{}"), finish()])
    assert played.response["output"][-2]["content"][0]["text"] == "See 【"


@pytest.mark.untraced
@given(st.data())
@settings(deadline=None, max_examples=examples(120))
def test_any_mix_of_turns_calls_cuts_and_failures_is_a_right_stream(data: st.DataObject) -> None:
    """Every play is judged by the rules, the specification's schema and the SDK's models."""
    tools = {**TOOLS, "weather": ToolTarget("function", "weather", asynchronous=True)}
    playing = new_translator(tools=tools, hosted=HostedOptions(data.draw(st.sampled_from([ALL, frozenset()])), "cntr_1"))
    out = playing.start()
    for _turn in range(data.draw(st.integers(1, 4))):
        said = data.draw(st.lists(st.sampled_from(["think", "text", *tools]), max_size=5))
        for number, word in enumerate(said):
            if word == "think":
                out += playing.feed(think("Hm. "))
            elif word == "text":
                out += playing.feed(text("It is so【1】. "))
            else:
                written = json.dumps({"code": "1", "q": number})
                cut = data.draw(st.integers(0, len(written)))
                out += playing.feed(call(number, f"c{number}", word, written[:cut]))
                out += playing.feed(arguments(number, written[cut:]))
        end = data.draw(st.sampled_from(["stop", "stop", "stop", "tool_calls", "length", "error", "nothing"]))
        if end != "nothing":
            out += playing.feed(finish(end))
        out += playing.finish()
        while calls := calls_to_run(playing):
            step = data.draw(st.sampled_from(["ok", "ok", "ok", "failed", "broken", "alive"]))
            if step == "broken":
                out += playing.fail(server_error("Gone."))
            elif step == "alive":
                out += playing.keep_alive()
            else:
                made = outcome_of(calls[0])
                out += playing.finish_call(CallOutcome(made.item, step == "failed", made.sources))
        if not wants_turn(playing):
            break
        playing.next_turn(None, may_call=data.draw(st.booleans()))
    if not playing.ended:
        out += playing.fail(server_error("The response was cancelled."))
    judged(out, playing)


def test_a_stream_that_broke_behind_a_call_ends_though_nobody_runs_the_call() -> None:
    played = play_turns([call(0, "c", "docs__ask", "{}"), finish("tool_calls"), server_error("The connection broke.")])
    assert played.response["status"] == "failed"
    assert [(item["type"], item["status"]) for item in played.response["output"]] == [("mcp_call", "incomplete")]


def test_an_answer_that_was_taken_for_a_thought_is_shown_with_its_citations() -> None:
    played = play_turns([call(0, "c", "web_search", "{}"), finish("tool_calls")], [think("It flows 【1】."), finish()])
    thought, message = played.response["output"][1:]
    assert thought["content"][0]["text"] == "It flows 【1】."
    assert message["content"][0]["text"] == "It flows."
    assert [cited["url"] for cited in message["content"][0]["annotations"]] == [RIVERS.url]


@pytest.mark.parametrize("name", ["web_search", "python", "docs__ask", "docs__delete"])
def test_the_item_of_a_call_has_what_the_server_wants_back(name: str) -> None:
    signed = chat_chunk({"tool_calls": [{**tool(0, "c", name, '{"q":1}'), "extra_content": {"signature": "U2ln"}}]})
    turns: list[list[bytes | ApiError]] = [[signed, finish("tool_calls")], [text("ok"), finish()]]
    played = play_turns(*turns[: 1 if name == "docs__delete" else 2])
    assert played.response["output"][0]["extra_content"] == {"signature": "U2ln"}
