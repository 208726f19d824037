"""Streams written by hand: good ones, some for each rule that have one thing wrong and break no other, and OpenAI's habits."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

from tests.judges.streams import USAGE, Event, Script, find, good, renumber


def script() -> Script:
    return Script().open()


def steered(made: Script) -> list[Event]:
    """End a stream that was steered."""
    events = made.end("incomplete")
    events[-1]["response"]["incomplete_details"] = {"reason": "steered"}
    steer = {"id": "steer_1", "previous_response_id": "resp_1"}
    events.insert(2, {"type": "response.steer.accepted", "steer": steer})
    return renumber(events)


def queued_first() -> list[Event]:
    made = Script()
    made.snapshot("queued", status="queued")
    made.snapshot("created", status="queued")
    made.snapshot("in_progress")
    return made.message("x").end()


def created_then_queued() -> list[Event]:
    made = Script()
    made.snapshot("created")
    made.snapshot("queued", status="queued")
    made.snapshot("in_progress")
    return made.message("x").end()


def failed_at_once() -> list[Event]:
    made = Script()
    made.snapshot("created")
    return made.end("failed")


def error_event_before_failed() -> list[Event]:
    made = script().message("x", status="incomplete")
    made.events.append({"type": "error", "sequence_number": len(made.events), "code": None, "message": "no", "param": None})
    return made.end("failed")


def hosted_tool() -> list[Event]:
    made = script()
    place = {"item_id": "ws_1", "output_index": 0}
    item = {"type": "web_search_call", "id": "ws_1", "action": {"type": "search", "query": "x"}}
    made.say("output_item.added", output_index=0, item={**item, "status": "in_progress"})
    made.say("web_search_call.searching", **place)
    made.say("output_item.done", output_index=0, item={**item, "status": "failed"})
    made.output.append({**item, "status": "failed"})
    return made.message("found nothing").end()


def searching(*steps: str) -> list[Event]:
    """Return a search that is completed after these events of its progress."""
    made = script()
    item = {"type": "web_search_call", "id": "ws_1", "action": {"type": "search", "query": "x"}}
    made.say("output_item.added", output_index=0, item={**item, "status": "in_progress"})
    for step in steps:
        made.say(f"web_search_call.{step}", item_id="ws_1", output_index=0)
    made.say("output_item.done", output_index=0, item={**item, "status": "completed"})
    made.output.append({**item, "status": "completed"})
    return made.message("found").end()


def annotated(index: int = 0, end: int = 2) -> list[Event]:
    """Return the good stream with an annotation of its text that the closed part does not have, unless it is wrong before."""
    citation = {"type": "url_citation", "url": "u", "title": "t", "start_index": 0, "end_index": end}
    place = {key: DELTA[key] for key in ("item_id", "output_index", "content_index")}
    event = {"type": "response.output_text.annotation.added", **place, "annotation_index": index, "annotation": citation}
    return insert("output_text.done", 0, event)


GOOD: dict[str, Callable[[], list[Event]]] = {
    "one of each": good,
    "text": lambda: script().message("Hel", "lo").end(),
    "text in two parts": lambda: script().message("Hel", "lo", parts=2).end(),
    "steered": lambda: steered(script().message("x")),
    "refusal": lambda: script().reasoning("no").refusal("I ", "won't").end(),
    "reasoning under the specification's name": lambda: script().reasoning("a", "b", name="reasoning").message("x").end(),
    "parallel calls": lambda: script().call("{}").call('{"a":', "1}").call("text", custom=True).end(),
    "a call without arguments": lambda: script().call().end(),
    "nothing at all": lambda: script().end(),
    "an empty message alone": lambda: script().reasoning("x").message().end(),
    "a call that is an object": lambda: script().item("local_shell_call", call_id="c", action={}).end(),
    "text cut": lambda: script().message("Hel", status="incomplete").end("incomplete"),
    "call cut": lambda: script().message("x").call('{"a', status="incomplete").end("incomplete"),
    "cut between items": lambda: script().message("x").end("incomplete"),
    "failed in an item": lambda: script().reasoning("hm", status="incomplete").end("failed"),
    "failed before any work": failed_at_once,
    "an error event, then failed": error_event_before_failed,
    "queued, created": queued_first,
    "created, queued": created_then_queued,
    "a hosted tool": hosted_tool,
    "a search": lambda: searching("in_progress", "searching", "completed"),
    "a step said twice": lambda: searching("in_progress", "in_progress", "searching", "completed"),
    "no usage": lambda: script().message("x").end(usage=None),
}


# ---- one rule broken ------------------------------------------------------------------------------------------------


def change(kind: str, nth: int = 0, **fields: Any) -> list[Event]:
    """Return the good stream with other top-level fields in one event."""
    events = good()
    events[find(events, kind, nth)].update(fields)
    return events


def change_inside(key: str, kind: str, nth: int = 0, **fields: Any) -> list[Event]:
    """Return the good stream with other fields in the item, the part or the response of one event."""
    events = good()
    event = events[find(events, kind, nth)]
    event[key] = {**event[key], **fields}
    return events


def drop(*targets: tuple[str, int], events: list[Event] | None = None) -> list[Event]:
    events = good() if events is None else events
    gone = {find(events, kind, nth) for kind, nth in targets}
    return renumber([event for n, event in enumerate(events) if n not in gone])


def insert(after: str, nth: int, *new: Event) -> list[Event]:
    events = good()
    at = find(events, after, nth) + 1
    return renumber(events[:at] + list(new) + events[at:])


def response_with(status: str = "completed", **fields: Any) -> list[Event]:
    return script().message("x", status="completed").end(status, **fields)


def numbered_from_one() -> list[Event]:
    return [{**event, "sequence_number": number} for number, event in enumerate(good(), 1)]


def number_skipped(step: int = 1) -> list[Event]:
    """Return the good stream with a number left out; with step -1 one comes twice."""
    events = good()
    for event in events[5:]:
        event["sequence_number"] += step
    return events


def reread(text: str) -> list[Event]:
    events: list[Event] = json.loads(text)
    return events


def id_in_all_events(new: str) -> list[Event]:
    """Give the message the id of another item, consistently."""
    return reread(json.dumps(good()).replace('"msg_1"', f'"{new}"'))


def place_in_all_events(kind: str, old: int, new: int) -> list[Event]:
    events = script().message("a", parts=2).end()
    for event in events:
        if event.get(kind) == old:
            event[kind] = new
    return events


def output_index_gap() -> list[Event]:
    events = good()
    for event in events:
        if event.get("output_index", 0) > 0:
            event["output_index"] += 1
    return events


def overlap(events: list[Event]) -> list[Event]:
    """Add the second of two items before the first is done."""
    done = find(events, "output_item.done")
    added = find(events, "output_item.added", 1)
    events.insert(added, events.pop(done))
    return renumber(events)


def item_never_done() -> list[Event]:
    made = script().message("x")
    made.output.clear()
    made.events.pop()
    return made.end()


def listed(label: str, number: int) -> dict[str, Any]:
    return {"type": "mcp_list_tools", "id": f"mcpl_{number}", "server_label": label, "tools": []}


def list_never_done() -> list[Event]:
    made = script()
    made.say("output_item.added", output_index=0, item=listed("a", 0))
    made.say("mcp_list_tools.in_progress", item_id="mcpl_0", output_index=0)
    made.say("mcp_list_tools.completed", item_id="mcpl_0", output_index=0)
    return made.end(output=[listed("a", 0)])


def encrypted(done: str | None, final: str | None) -> list[Event]:
    """Return a stream with these values of `encrypted_content` when the item is done, and in the final response."""
    made = script().item("compaction", **({} if done is None else {"encrypted_content": done}))
    events = made.end()
    if final is not None:
        events[-1]["response"]["output"][0]["encrypted_content"] = final
    return events


def role_changes() -> list[Event]:
    events = good()
    events[find(events, "output_item.added", 1)]["item"]["role"] = "user"
    return events


def type_changes() -> list[Event]:
    events = script().item("compaction", encrypted_content="x").message("y").end()
    events[find(events, "output_item.added")]["item"]["type"] = "context_compaction"
    return events


def call_ids_equal() -> list[Event]:
    return reread(json.dumps(good()).replace('"call_3"', '"call_2"'))


def call_id_changes() -> list[Event]:
    events = good()
    events[find(events, "output_item.added", 2)]["item"]["call_id"] = "other"
    return events


def name_comes_late() -> list[Event]:
    events = good()
    events[find(events, "output_item.added", 2)]["item"]["name"] = ""
    return events


def part_is_of_another_kind() -> list[Event]:
    """Return a message of reasoning text."""
    text = json.dumps(script().message("x").end())
    text = text.replace('"output_text"', '"reasoning_text"').replace("response.output_text", "response.reasoning_text")
    return reread(text)


def another_family_of_events() -> list[Event]:
    """Return what a known bridge sends: a custom call whose input comes as function arguments."""
    text = json.dumps(script().call("x", custom=True).end())
    text = text.replace("response.custom_tool_call_input", "response.function_call_arguments")
    events: list[Event] = json.loads(text)
    done = events[find(events, "function_call_arguments.done")]
    done["arguments"] = done.pop("input")
    return events


def content_never_streamed() -> list[Event]:
    events = script().message("x").end()
    return drop(*((f"{stem}", 0) for stem in (
        "content_part.added", "output_text.delta", "output_text.done", "content_part.done"
    )), events=events)  # fmt: skip


def last_item_differs_in_the_response() -> list[Event]:
    events = good()
    events[-1]["response"]["output"][1]["content"][0]["text"] = "Other"
    return events


def status_of_an_item_differs() -> list[Event]:
    events = good()
    events[-1]["response"]["output"][1]["status"] = "incomplete"
    return events


def keep_alive_differs() -> list[Event]:
    events = good()
    events[find(events, "in_progress", 1)]["response"]["output"] = []
    return events


def text_after_its_done() -> list[Event]:
    events = good()
    return insert("output_text.done", 0, events[find(events, "output_text.delta")])


def usage(**fields: Any) -> list[Event]:
    return response_with(usage={**USAGE, **fields})


DELTA = {"type": "response.output_text.delta", "item_id": "msg_1", "output_index": 1, "content_index": 0, "logprobs": []}


def stray_delta() -> list[Event]:
    return insert("output_item.done", 1, {**DELTA, "delta": "late"})


def status_when_done(status: str | None) -> list[Event]:
    """Consistently: the response repeats it."""
    events = script().message("x").end()
    events[-2]["item"]["status"] = events[-1]["response"]["output"][0]["status"] = status
    return events


BROKEN: list[tuple[str, Callable[[], list[Event]]]] = [
    ("hosted_steps", lambda: searching("in_progress", "completed", "searching")),
    ("hosted_steps", lambda: searching("in_progress", "searching")),
    ("annotations", annotated),
    ("annotations", lambda: annotated(index=1)),
    ("annotations", lambda: annotated(end=99)),
    ("malformed", lambda: insert("output_text.delta", 0, DELTA)),
    ("malformed", lambda: insert("output_text.delta", 0, {**DELTA, "delta": "x", "content_index": True})),
    ("malformed", lambda: insert("output_text.delta", 0, {**DELTA, "delta": None})),
    ("sequence", lambda: number_skipped(-1)),
    ("sequence_gap", number_skipped),
    ("sequence_gap", numbered_from_one),
    ("sequence", lambda: change("output_text.delta", sequence_number=None)),
    ("created", lambda: drop(("created", 0))),
    ("created", lambda: insert("created", 0, good()[0])),
    ("created", lambda: insert("in_progress", 0, good()[0])),
    ("in_progress", lambda: drop(("in_progress", 0))),
    ("terminal_missing", lambda: good()[:-1]),
    ("after_terminal", lambda: insert("completed", 0, good()[-1])),
    ("after_terminal", lambda: insert("completed", 0, {**DELTA, "delta": "x"})),
    ("identity", lambda: change_inside("response", "completed", id="resp_2")),
    ("identity", lambda: change_inside("response", "created", model=None)),
    ("identity", lambda: change_inside("response", "completed", created_at=None)),
    ("response_changed", lambda: change_inside("response", "in_progress", 1, model="n")),
    ("response_changed", lambda: change_inside("response", "completed", created_at=1700000001)),
    ("status", lambda: change_inside("response", "completed", status="incomplete")),
    ("status", lambda: change_inside("response", "created", status="completed")),
    ("snapshot_output", keep_alive_differs),
    ("snapshot_output", lambda: change_inside("response", "created", output=None)),
    ("terminal_output", last_item_differs_in_the_response),
    ("terminal_output", lambda: change_inside("response", "completed", output=[])),
    ("terminal_output", lambda: change_inside("response", "completed", output=["x"] * 4)),
    ("terminal_output", lambda: encrypted(None, "new")),
    ("encrypted_content", lambda: encrypted("old", "new")),
    ("incomplete_details", lambda: response_with("incomplete", incomplete_details=None)),
    ("incomplete_details", lambda: response_with("incomplete", incomplete_details={})),
    ("incomplete_details", lambda: response_with(incomplete_details={"reason": "max_output_tokens"})),
    ("error", lambda: response_with("failed", error=None)),
    ("error", lambda: response_with("failed", error={"code": 400, "message": "no"})),
    ("error", lambda: response_with(error={"code": "server_error", "message": "no"})),
    ("completed_at", lambda: response_with(completed_at=None)),
    ("completed_at", lambda: response_with("failed", completed_at=1700000005)),
    ("usage", lambda: usage(input_tokens="10")),
    ("usage_sum", lambda: usage(total_tokens=18)),
    ("usage_sum", lambda: usage(output_tokens_details={"reasoning_tokens": 8})),
    ("usage_sum", lambda: usage(input_tokens_details={"cached_tokens": 11})),
    ("usage", lambda: response_with(usage=0)),
    ("output_index", output_index_gap),
    ("output_index", lambda: change("output_text.delta", output_index=0)),
    ("item_id", lambda: id_in_all_events("rs_0")),
    ("item_id", lambda: id_in_all_events("")),
    ("item_id", lambda: change("output_text.delta", item_id="other")),
    ("item_overlap", lambda: overlap(script().message("x").call("{}").end())),
    ("item_overlap", lambda: overlap(script().reasoning("x").message("y").end())),
    ("call_overlap", lambda: overlap(script().call("{}").call("{}").end())),
    ("call_overlap", lambda: overlap(script().call("{}").message("x").end())),
    ("list_unfinished", list_never_done),
    ("item_not_open", stray_delta),
    ("item_not_open", lambda: drop(("output_item.added", 0), events=script().item("compaction").end())),
    ("item_not_open", lambda: insert("output_item.done", 2, good()[find(good(), "output_item.done", 2)])),
    ("item_status", lambda: change_inside("item", "output_item.added", status="completed")),
    ("item_status", lambda: status_when_done("in_progress")),
    ("item_status", lambda: status_when_done(None)),
    ("item_status", status_of_an_item_differs),
    ("reasoning_status", lambda: change_inside("item", "output_item.added", status=None)),
    ("item_changed", role_changes),
    ("item_changed", type_changes),
    ("item_unfinished", item_never_done),
    ("incomplete_item", lambda: script().message("x", status="incomplete").end()),
    ("incomplete_item", lambda: steered(script().message("x", status="incomplete"))),
    ("incomplete_item", lambda: script().call("{", status="incomplete").message("x").end()),
    ("incomplete_item", lambda: script().message("x", status="incomplete").call("{}").end("incomplete")),
    ("added_empty", lambda: change_inside("item", "output_item.added", content=None, summary=None)),
    ("added_empty", lambda: change_inside("item", "output_item.added", content=[{"type": "reasoning_text"}])),
    ("added_empty", lambda: change_inside("item", "output_item.added", 2, arguments="{}")),
    ("added_empty", lambda: change_inside("item", "output_item.added", 2, arguments=None)),
    ("added_empty", lambda: change_inside("part", "content_part.added", 1, text="Hel")),
    ("call_id", call_ids_equal),
    ("call_id", call_id_changes),
    ("call_id", lambda: script().item("local_shell_call", call_id=None, action={}).end()),
    ("search_call_id", lambda: script().item("tool_search_call", call_id=None, arguments={}, execution="server").end()),
    ("call_name", name_comes_late),
    ("call_name", lambda: change("function_call_arguments.done", name="other")),
    ("blank_message", lambda: script().reasoning("x").message().call("{}").end()),
    ("blank_message", lambda: script().reasoning("x").message("\n", "\n").call("{}").end()),
    ("part_index", lambda: place_in_all_events("content_index", 1, 2)),
    ("part_kind", part_is_of_another_kind),
    ("part_kind", another_family_of_events),
    ("part_not_open", text_after_its_done),
    ("part_not_open", lambda: insert("content_part.done", 1, {**DELTA, "delta": "x"})),
    ("part_not_open", lambda: insert("output_text.delta", 0, {**DELTA, "delta": "x", "content_index": 1})),
    ("part_not_open", lambda: insert("output_text.done", 0, good()[find(good(), "output_text.done")])),
    ("item_parts", content_never_streamed),
    ("empty_delta", lambda: insert("output_text.delta", 0, {**DELTA, "delta": ""})),
    ("text_mismatch", lambda: drop(("output_text.delta", 0))),
    ("text_mismatch", lambda: drop(("refusal.delta", 1), events=script().refusal("a", "b").end())),
    ("text_mismatch", lambda: drop(("reasoning_text.delta", 0))),
    ("text_mismatch", lambda: drop(("reasoning_summary_text.delta", 1))),
    ("text_mismatch", lambda: drop(("function_call_arguments.delta", 0))),
    ("delta_missing", lambda: drop(("function_call_arguments.delta", 0), ("function_call_arguments.delta", 1))),
    ("delta_missing", lambda: drop(("custom_tool_call_input.delta", 0), ("custom_tool_call_input.delta", 1))),
    ("text_mismatch", lambda: drop(("custom_tool_call_input.delta", 1))),
    ("text_mismatch", lambda: change("output_text.done", text="Hell")),
    ("text_mismatch", lambda: change("function_call_arguments.done", arguments="{}{}")),
    ("text_mismatch", lambda: change_inside("part", "content_part.done", text="Hell")),
    ("done_missing", lambda: drop(("output_text.done", 0))),
    ("done_missing", lambda: drop(("content_part.done", 0))),
    ("done_missing", lambda: drop(("reasoning_summary_part.done", 0))),
    ("done_missing", lambda: drop(("function_call_arguments.done", 0))),
    ("done_missing", lambda: drop(("custom_tool_call_input.done", 0))),
]


# ---- what OpenAI does --------------------------------------------------------------------------------------------------


def reasoning_without_status() -> list[Event]:
    """Reasoning that is encrypted, anew in the final response, in a response without its time of completion."""
    made = script()
    item: dict[str, Any] = {"type": "reasoning", "id": "rs_0", "summary": []}
    made.say("output_item.added", output_index=0, item={**item, "encrypted_content": "0"})
    made.say("output_item.done", output_index=0, item={**item, "encrypted_content": "1"})
    made.output.append({**item, "encrypted_content": "2"})
    return made.message("x").end(completed_at=None)


def search_on_the_server() -> list[Event]:
    made = script().item("tool_search_call", call_id=None, arguments={}, execution="server")
    return made.call("{}").end()


def three_lists_of_tools() -> list[Event]:
    """Three lists begin together; only the last of them is done, and the response has all."""
    made = script()
    lists = [listed(label, number) for number, label in enumerate("abc")]
    for number, item in enumerate(lists):
        made.say("output_item.added", output_index=number, item=item)
        made.say("mcp_list_tools.in_progress", item_id=item["id"], output_index=number)
    for number in (1, 0, 2):
        made.say("mcp_list_tools.completed", item_id=lists[number]["id"], output_index=number)
    made.say("output_item.done", output_index=2, item=lists[2])
    made.output.extend(lists)
    return made.message("x").end()


def call_of_a_program() -> list[Event]:
    """Return a call whose program waits for the output, so that it is in progress when done."""
    made = script()
    item = {"type": "function_call", "id": "fc_0", "call_id": "call_0", "name": "weather", "arguments": ""}
    item |= {"caller": {"type": "program", "caller_id": "call_1"}, "status": "in_progress"}
    made.say("output_item.added", output_index=0, item=item)
    made.say("function_call_arguments.delta", item_id="fc_0", output_index=0, delta="{}")
    made.say("function_call_arguments.done", item_id="fc_0", output_index=0, arguments="{}")
    made.say("output_item.done", output_index=0, item={**item, "arguments": "{}"})
    made.output.append({**item, "arguments": "{}"})
    return made.end(completed_at=None)


OPENAI: dict[str, Callable[[], list[Event]]] = {
    "reasoning without a status": reasoning_without_status,
    "a tool search on the server": search_on_the_server,
    "three lists of tools at once": three_lists_of_tools,
    "a call of a program": call_of_a_program,
}
