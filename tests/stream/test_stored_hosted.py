"""Items of hosted tools in streams that are written again, and in streams whose writer died."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest

from responses_gateway.conformance.checker import check_stream
from responses_gateway.stream.items.hosted import ApprovedCall, CallOutcome, HostedOptions, ToolListing
from responses_gateway.stream.stored import replay
from responses_gateway.stream.translator import Translator
from responses_gateway.wire.errors import server_error
from tests.stream.stream_player import Play, arguments, call, calls_to_run, events_of, finish, new_translator, text
from tests.stream.test_abandoned_streams import ending, whole
from tests.stream.test_hosted_calls import ALL, RIVERS, TOOLS, outcome_of, play_turns

CALLS = [
    pytest.param("docs__ask", '{"q": "x"}', id="mcp"),
    pytest.param("web_search", '{"queries": ["q"]}', id="web_search"),
    pytest.param("open_page", '{"url": "https://a.b"}', id="open_page"),
    pytest.param("file_search", '{"queries": ["q"]}', id="file_search"),
    pytest.param("python", '{"code": "print(1)"}', id="code"),
    pytest.param("generate_image", '{"prompt": "x"}', id="image"),
]


def replayed(played: Play) -> tuple[list[dict[str, Any]], list[dict[str, Any]]]:
    """Return the events of the stored response, and those of the stream in which it was made; both without numbers."""
    stream = replay(json.dumps(played.response), "response.reasoning_text")
    assert check_stream(stream, unfinished_allowed=True) == []
    return merged(events_of(stream)), merged(played.events)


def merged(events: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Return the events behind the beginning with one delta for each text, and annotations behind it."""
    out: list[dict[str, Any]] = []
    for event in events[2:]:
        if event["type"].endswith(".delta") and out and out[-1]["type"] == event["type"]:
            out[-1]["delta"] += event["delta"]
        else:
            out.append({name: value for name, value in event.items() if name != "sequence_number"})
    return out


@pytest.mark.parametrize("include", [ALL, frozenset[str]()])
@pytest.mark.parametrize(("name", "asked"), CALLS)
@pytest.mark.parametrize("failed", [True, False])
def test_a_stored_call_has_the_events_that_it_had(name: str, asked: str, include: frozenset[str], failed: bool) -> None:
    played = play_turns(
        [call(0, "a", name, asked[:5]), arguments(0, asked[5:]), finish()],
        [text("It is so."), finish()],
        include=include,
        outcomes=lambda made: CallOutcome(outcome_of(made).item, failed=failed),
    )
    again, first = replayed(played)
    assert again == first


@pytest.mark.parametrize(("name", "asked"), CALLS)
def test_a_stored_call_that_was_cut_has_the_events_that_it_had(name: str, asked: str) -> None:
    again, first = replayed(play_turns([call(0, "a", name, asked[:-3]), server_error("Gone.")]))
    assert again == first


def test_stored_listings_and_approvals_have_the_events_that_they_had() -> None:
    def before(playing: Translator) -> bytes:
        approved = ApprovedCall("mcpr_1", "docs", "delete", '{"id": 1}', CallOutcome({"output": "gone"}))
        listed = {"name": "ask", "input_schema": {"type": "object"}}
        return (
            playing.list_tools(ToolListing("docs", [listed]))
            + playing.list_tools(ToolListing("other", error="It cannot be reached."))
            + playing.approved_call(approved)
        )

    again, first = replayed(play_turns([call(0, "a", "docs__delete", '{"id": 2}'), finish()], before=before))
    assert again == first


def test_stored_annotations_are_events_again() -> None:
    played = play_turns([call(0, "a", "web_search", "{}"), finish()], [text("Rivers flow【1】. So【1】."), finish()])
    again, _ = replayed(played)
    added = [event for event in again if event["type"] == "response.output_text.annotation.added"]
    assert [event["annotation"]["url"] for event in added] == [RIVERS.url, RIVERS.url]


@pytest.mark.parametrize(("name", "asked"), CALLS)
@pytest.mark.parametrize("running", [True, False])
def test_a_call_whose_writer_died_ends_as_its_writer_would_have_ended_it(name: str, asked: str, running: bool) -> None:
    playing = new_translator(tools=TOOLS, hosted=HostedOptions(ALL, "cntr_1"))
    sent = playing.start() + playing.feed(call(0, "a", name, asked[:5])) + playing.feed(arguments(0, asked[5:]))
    if running:
        sent += playing.feed(finish()) + playing.finish()
        assert calls_to_run(playing)
    own = events_of(playing.fail(server_error("gone")))
    closing, (item,) = ending(sent)
    if item["type"] in ("web_search_call", "file_search_call"):  # what was asked for is not in the stream
        del item["action" if "action" in item else "queries"]
        for event in (own[-1], closing[-1]):
            event["item"].pop("action", None)
            event["item"].pop("queries", None)
    assert closing == own
    assert item["status"] in ("incomplete", "failed")
    assert check_stream(whole(sent)) == []


@pytest.mark.parametrize("cut", range(1, 22))
def test_a_stream_with_hosted_calls_may_break_off_anywhere(cut: int) -> None:
    playing = new_translator(tools=TOOLS, hosted=HostedOptions(ALL, "cntr_1"))
    steps: list[Callable[[], bytes]] = [
        playing.start,
        lambda: playing.list_tools(ToolListing("docs", [{"name": "ask", "input_schema": {"type": "object"}}])),
    ]
    for number, name in enumerate(["docs__ask", "web_search", "file_search", "python", "docs__delete"]):
        steps += [
            lambda number=number, name=name: playing.feed(call(number, f"c{number}", name, '{"co')),  # type: ignore[misc]
            lambda number=number: playing.feed(arguments(number, 'de": "1"}')),  # type: ignore[misc]
        ]
    run = [lambda: playing.finish_call(outcome_of(calls_to_run(playing)[0]))] * 4
    turn = [lambda: playing.feed(finish()), playing.finish, *run, lambda: playing.next_turn(None)]
    answer = [lambda: playing.feed(text("It flows【1】. ")), lambda: playing.feed(text("So【2】. It"))]
    sent = b"".join(step() for step in [*steps, *turn, *answer][:cut])
    assert check_stream(whole(sent)) == []


def test_a_message_that_broke_off_keeps_its_annotations() -> None:
    playing = new_translator(tools=TOOLS, hosted=HostedOptions())
    sent = playing.start() + playing.feed(call(0, "a", "web_search", "{}")) + playing.feed(finish()) + playing.finish()
    sent += playing.finish_call(outcome_of(calls_to_run(playing)[0]))
    playing.next_turn(None)
    sent += playing.feed(text("It flows【1】. ")) + playing.feed(text("So"))
    _, (item,) = ending(sent)
    assert [found["url"] for found in item["content"][0]["annotations"]] == [RIVERS.url]
