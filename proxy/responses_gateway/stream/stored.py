"""A finished response as a stream again, its items in order, every text as one delta; and the end of a stream whose gateway
died: the item that it left open is closed as incomplete, from what was sent of it.

The numbers are those of this stream, not of the one in which the response was made. So a client that asks for the events after
a certain number gets the terminal event alone, which holds everything."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import takewhile
from typing import NamedTuple

import msgspec

from responses_gateway.stream.items.hosted import asked_action
from responses_gateway.stream.writer.responses import ANNOTATION, CALL_EVENTS, Object, ResponsesWriter, members, write_event
from responses_gateway.wire.hosted_kinds import ITEM_FORMS, WEB_SEARCH
from responses_gateway.wire.json_text import json_text
from responses_gateway.wire.sse import DONE, SSEDecoder, on_one_line

_ADDED = "response.output_item.added"
_DONE = "response.output_item.done"
# The lists of parts of an item, and how events name the place of a part in each.
_PLACES = {"message": {"content": "content_index"}, "reasoning": {"content": "content_index", "summary": "summary_index"}}


class _Response(msgspec.Struct):
    status: str
    output: list[msgspec.Raw]


def replay(response_json: str, reasoning_event: str, after: int = -1) -> bytes:
    """Return the events of a finished response, with `[DONE]`. `reasoning_event` is the event name without `.delta`/`.done`;
    with `after`, only the terminal event, as the next one."""
    response = msgspec.json.decode(response_json, type=_Response)
    writer = ResponsesWriter()
    if after < 0:
        _write_opening(writer, response_json)
        for raw in response.output:
            _write_item(writer, bytes(raw).decode(), reasoning_event)
    else:
        writer.next_number = after + 1
    kind = response.status if response.status in ("completed", "incomplete") else "failed"
    writer.write(f"response.{kind}", f'"response":{response_json}')
    return on_one_line(b"".join([*writer.events, DONE.encode()]))


def _write_opening(writer: ResponsesWriter, response_json: str) -> None:
    response: Object = msgspec.json.decode(response_json)
    nothing_yet: Object = {"completed_at": None, "error": None, "incomplete_details": None, "output": [], "usage": None}
    snapshot = response | nothing_yet | {"status": "in_progress"}
    for kind in ("response.created", "response.in_progress"):
        write_event(writer, kind, {"response": snapshot})


def _write_item(writer: ResponsesWriter, text: str, reasoning_event: str) -> None:
    item: Object = msgspec.json.decode(text)
    kind = item["type"]
    if kind in ITEM_FORMS:
        write_hosted_item(writer, item, text)
        return
    item_id = item.get("id", "")
    added = item | ({"status": "in_progress"} if "status" in item else {})
    match kind:
        case "message" | "reasoning":
            added.pop("encrypted_content", None)
            places = _PLACES[kind]
            index = writer.add_item(json_text(added | {member: [] for member in places}))
            for member, place_name in places.items():
                for number, part in enumerate(item.get(member) or []):
                    place = {"item_id": item_id, "output_index": index, place_name: number}
                    _write_part(writer, place, part, reasoning_event)
        case "function_call" | "custom_tool_call":
            event, member = CALL_EVENTS[kind]
            index = writer.add_item(json_text(added | {member: ""}))
            place = {"item_id": item_id, "output_index": index}
            if item[member]:
                write_event(writer, f"{event}.delta", place | {"delta": item[member]})
            write_event(writer, f"{event}.done", place | {member: item[member]})
        case _:
            index = writer.add_item(json_text(added))
    writer.finish_item(kind, index, text)


def _write_part(writer: ResponsesWriter, place: Object, part: Object, reasoning_event: str) -> None:
    """Write a part: text, refusal, reasoning, or a summary of it."""
    member = "refusal" if part["type"] == "refusal" else "text"
    bounds, event = _events_of(part["type"])
    if part["type"] == "reasoning_text":
        event = reasoning_event
    empty = part | {member: ""}
    logprobs: Object = {}
    if part["type"] == "output_text":
        empty |= {"annotations": [], "logprobs": []}
        logprobs = {"logprobs": part.get("logprobs") or []}
    write_event(writer, f"{bounds}.added", place | {"part": empty})
    if part[member]:
        write_event(writer, f"{event}.delta", place | logprobs | {"delta": part[member]})
    for number, annotation in enumerate(part.get("annotations") or ()):
        write_event(writer, ANNOTATION, place | {"annotation_index": number, "annotation": annotation})
    write_event(writer, f"{event}.done", place | logprobs | {member: part[member]})
    write_event(writer, f"{bounds}.done", place | {"part": part})


def _events_of(kind: str) -> tuple[str, str]:
    """Return how the events of a part of this type begin, and those of its text."""
    if kind == "summary_text":
        return "response.reasoning_summary_part", "response.reasoning_summary_text"
    return "response.content_part", f"response.{kind}"


class FailedStream(NamedTuple):
    """The end of a stream: its last events, the number after them, the JSON of all items, and the JSON before them."""

    events: bytes
    next_number: int
    output: Sequence[str]
    head: str


class _Event(msgspec.Struct):
    type: str = ""
    item: msgspec.Raw = msgspec.Raw()


def fail_stream(sent: bytes, number: int, head: str, tail: str, error: Mapping[str, str]) -> FailedStream:
    """End a stream that broke off after `sent`; `number` is the next one. `head` and `tail` are the JSON of its response before
    and after the items."""
    payloads = SSEDecoder().feed(sent)
    events = [msgspec.json.decode(payload, type=_Event) for payload in payloads]
    done = [bytes(event.item).decode() for event in events if event.type == _DONE]
    bounds = [(place, event.type) for place, event in enumerate(events) if event.type in (_ADDED, _DONE)]
    writer = ResponsesWriter()
    writer.next_number = number
    if bounds and bounds[-1][1] == _ADDED:
        last = [msgspec.json.decode(payload) for payload in payloads[bounds[-1][0] :]]
        if last[0]["item"]["type"] != "compaction":  # half a summary says nothing, and stands for nothing
            _close_item(writer, last)
    output = [*done, *writer.done]
    head = with_status(head, tail, "failed", error)
    writer.write("response.failed", f'"response":{head}{",".join(output)}{tail}')
    return FailedStream(b"".join(writer.events), writer.next_number, output, head)


def with_status(head: str, tail: str, status: str, error: Mapping[str, str] | None) -> str:
    """Return the JSON of a response before its items with another status and error; `head` and `tail` are around them."""
    response: Object = msgspec.json.decode(f"{head}{tail}")
    before = dict(takewhile(lambda member: member[0] != "output", response.items()))
    return f'{{{members({**before, "status": status, "error": error})},"output":['


def _close_item(writer: ResponsesWriter, events: list[Object]) -> None:
    """Write the events that close an item, given all events from its first one on."""
    added, *later = events
    item = added["item"]
    index = added["output_index"]
    own = [event for event in later if event.get("item_id") == item["id"]]
    if item["type"] in ITEM_FORMS:
        item |= close_hosted_item(writer, item, index, own)
    else:
        item |= {"status": "incomplete", **_close_texts(writer, item, {"item_id": item["id"], "output_index": index}, own)}
    writer.finish_item(item["type"], index, json_text(item))


def _close_texts(writer: ResponsesWriter, item: Object, place: Object, events: list[Object]) -> Object:
    """Write the dones of what the item holds; return its members that hold it."""
    if item["type"] in CALL_EVENTS:
        stem, member = CALL_EVENTS[item["type"]]
        text = _text(events, stem)
        write_event(writer, f"{stem}.done", place | {member: text})
        return {member: text}
    closed: Object = {}
    for event in events:
        if event["type"] == "response.content_part.added":
            closed["content"] = [_close_part(writer, place | {"content_index": 0}, event["part"], events)]
        elif event["type"] == "response.reasoning_summary_part.added":
            closed["summary"] = [_close_part(writer, place | {"summary_index": 0}, event["part"], events)]
    return closed


def _close_part(writer: ResponsesWriter, place: Object, part: Object, events: list[Object]) -> Object:
    deltas = [event for event in events if event["type"].endswith(".delta") and place.keys() <= event.keys()]
    bounds, stem = _events_of(part["type"])
    if deltas:
        stem = deltas[0]["type"].removesuffix(".delta")
    member = "refusal" if part["type"] == "refusal" else "text"
    logprobs: Object = {}
    part |= {member: _text(events, stem)}
    if annotations := [event["annotation"] for event in events if event["type"] == ANNOTATION]:
        part["annotations"] = annotations
    if "logprobs" in part:
        part["logprobs"] = [token for delta in deltas for token in delta.get("logprobs", ())]
        logprobs = {"logprobs": part["logprobs"]}
    write_event(writer, f"{stem}.done", place | logprobs | {member: part[member]})
    write_event(writer, f"{bounds}.done", place | {"part": part})
    return part


def _text(events: list[Object], stem: str) -> str:
    return "".join(event["delta"] for event in events if event["type"] == f"{stem}.delta")


def write_hosted_item(writer: ResponsesWriter, item: Object, text: str) -> None:
    """Write all events of an item that is done; `text` is its JSON."""
    form = ITEM_FORMS[item["type"]]
    status = {"status": "in_progress"} if "status" in item else {}
    index = writer.add_item(json_text({"type": form.type, "id": item["id"], **status, **form.added(item)}))
    end = item.get("status", "completed" if item.get("error") is None else "failed")
    _write_rest(writer, item, index, item.get(form.text, ""), set(), end=end)
    writer.finish_item(form.type, index, text)


def close_hosted_item(writer: ResponsesWriter, item: Object, index: int, events: list[Object]) -> Object:
    """Write the events that are missing for an item whose call did not end, given those that were sent. Return what says so."""
    form = ITEM_FORMS[item["type"]]
    content = _text(events, form.text_event)
    _write_rest(writer, item, index, content, {event["type"] for event in events}, end="incomplete")
    closed: Object = {"status": form.interrupted}
    if form.text:
        closed[form.text] = content
    if form is WEB_SEARCH.item:  # which always has one
        closed["action"] = asked_action("web_search", "")
    return closed


def _write_rest(writer: ResponsesWriter, item: Object, index: int, content: str, sent: set[str], *, end: str) -> None:
    """Write the events between those that were `sent` and the done of the item."""
    form = ITEM_FORMS[item["type"]]
    text = CALL_EVENTS.get(form.type)
    place = {"item_id": item["id"], "output_index": index}

    def write(event: str, **members: str) -> None:
        if event not in sent:
            write_event(writer, event, {**place, **members})

    head = f"response.{form.type}"
    for step in form.before:
        write(f"{head}.{step}")
    if text is not None:
        if content:
            write(f"{text.stem}.delta", delta=content)
        write(f"{text.stem}.done", **{text.member: content})
    for step in form.after:
        write(f"{head}.{step}")
    if end in form.ends:
        write(f"{head}.{end}")
