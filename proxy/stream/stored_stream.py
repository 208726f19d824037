"""A finished response as a stream again: its items in order, every text as one delta.

The numbers are those of this stream, not of the one in which the response was made. So a client that asks for the events behind
a certain number gets the terminal event alone, which holds everything.

And the end of a stream whose writer died: the item that it left open is closed as incomplete, from what it had sent alone."""

from __future__ import annotations

from typing import Any

import msgspec

from proxy.stream.stored_hosted import HOSTED_EVENTS, close_hosted_item, write_hosted_item
from proxy.stream.writer import DONE, EventWriter, json_text

Object = dict[str, Any]

_ADDED = b'data: {"type":"response.output_item.added"'
_DONE = b'data: {"type":"response.output_item.done"'
_ANNOTATION = "response.output_text.annotation.added"
_SUMMARY = "response.reasoning_summary_text"

# Calls whose argument is one text: the item's type, the member that holds it, the events.
TEXT_CALLS = {
    "function_call": ("arguments", "response.function_call_arguments"),
    "custom_tool_call": ("input", "response.custom_tool_call_input"),
}


class _Response(msgspec.Struct):
    status: str
    output: list[msgspec.Raw]


def replay(response_json: str, reasoning_event: str, after: int = -1) -> bytes:
    """Return the events of a finished response, with `[DONE]`. `reasoning_event` is the event name without `.delta`/`.done`;
    with `after`, only the terminal event, as the next one."""
    response = msgspec.json.decode(response_json, type=_Response)
    writer = EventWriter()
    if after < 0:
        _write_opening(writer, response_json)
        for raw in response.output:
            _write_item(writer, bytes(raw).decode(), reasoning_event)
    else:
        writer.next_number = after + 1
    kind = response.status if response.status in ("completed", "incomplete") else "failed"
    writer.write(f"response.{kind}", f'"response":{response_json}')
    return b"".join([*writer.events, DONE.encode()])


def _write_opening(writer: EventWriter, response_json: str) -> None:
    response: Object = msgspec.json.decode(response_json)
    nothing_yet: Object = {"completed_at": None, "error": None, "incomplete_details": None, "output": [], "usage": None}
    snapshot = response | nothing_yet | {"status": "in_progress"}
    for kind in ("response.created", "response.in_progress"):
        write_event(writer, kind, {"response": snapshot})


def _write_item(writer: EventWriter, text: str, reasoning_event: str) -> None:
    item: Object = msgspec.json.decode(text)
    kind = item["type"]
    if kind in HOSTED_EVENTS:
        write_hosted_item(writer, item, text)
        return
    item_id = item.get("id", "")
    added = item | ({"status": "in_progress"} if "status" in item else {})
    match kind:
        case "message":
            index = writer.add_item(json_text(added | {"content": []}))
            for number, part in enumerate(item["content"]):
                place = {"item_id": item_id, "output_index": index, "content_index": number}
                _write_part(writer, place, part, reasoning_event)
        case "reasoning":
            added.pop("encrypted_content", None)
            index = writer.add_item(json_text(added | {"content": [], "summary": []}))
            place = {"item_id": item_id, "output_index": index}
            for number, part in enumerate(item.get("content") or []):
                _write_part(writer, place | {"content_index": number}, part, reasoning_event)
            for number, part in enumerate(item.get("summary") or []):
                _write_summary_part(writer, place | {"summary_index": number}, part)
        case "function_call" | "custom_tool_call":
            member, event = TEXT_CALLS[kind]
            index = writer.add_item(json_text(added | {member: ""}))
            place = {"item_id": item_id, "output_index": index}
            write_event(writer, f"{event}.delta", place | {"delta": item[member]})
            write_event(writer, f"{event}.done", place | {member: item[member]})
        case _:
            index = writer.add_item(json_text(added))
    writer.finish_item(kind, index, text)


def _write_part(writer: EventWriter, place: Object, part: Object, reasoning_event: str) -> None:
    """Write a content part: text, refusal, or reasoning."""
    member = "refusal" if part["type"] == "refusal" else "text"
    event = reasoning_event if part["type"] == "reasoning_text" else f"response.{part['type']}"
    empty = part | {member: ""}
    logprobs: Object = {}
    if part["type"] == "output_text":
        empty |= {"annotations": [], "logprobs": []}
        logprobs = {"logprobs": part.get("logprobs") or []}
    write_event(writer, "response.content_part.added", place | {"part": empty})
    if part[member]:
        write_event(writer, f"{event}.delta", place | logprobs | {"delta": part[member]})
    for number, annotation in enumerate(part.get("annotations") or ()):
        write_event(writer, _ANNOTATION, place | {"annotation_index": number, "annotation": annotation})
    write_event(writer, f"{event}.done", place | logprobs | {member: part[member]})
    write_event(writer, "response.content_part.done", place | {"part": part})


def _write_summary_part(writer: EventWriter, place: Object, part: Object) -> None:
    event = "response.reasoning_summary"
    write_event(writer, f"{event}_part.added", place | {"part": part | {"text": ""}})
    write_event(writer, f"{event}_text.delta", place | {"delta": part["text"]})
    write_event(writer, f"{event}_text.done", place | {"text": part["text"]})
    write_event(writer, f"{event}_part.done", place | {"part": part})


def write_event(writer: EventWriter, kind: str, members: Object) -> None:
    """Append the next event, made of plain data."""
    writer.write(kind, ",".join(f'"{name}":{json_text(value)}' for name, value in members.items()))


def close_open_item(sent: bytes, number: int) -> tuple[list[bytes], list[str]]:
    """Return the events, from `number` on, that close the item which is open in a stream as the gateway writes it, and the
    JSON of the item; nothing if none is open."""
    begin = sent.rfind(_ADDED)
    if begin < 0 or sent.find(_DONE, begin) >= 0:
        return [], []
    lines = sent[begin:].split(b"\n")
    added, *events = (msgspec.json.decode(line[6:]) for line in lines if line.startswith(b"data: {"))
    writer = EventWriter()
    writer.next_number = number
    item = added["item"]
    index = added["output_index"]
    own = [event for event in events if event.get("item_id") == item["id"]]
    if item["type"] in HOSTED_EVENTS:
        item |= close_hosted_item(writer, item, index, own)
    else:
        item |= {"status": "incomplete", **_close_texts(writer, item, {"item_id": item["id"], "output_index": index}, own)}
    writer.finish_item(item["type"], index, json_text(item))
    return writer.events, writer.done


def _close_texts(writer: EventWriter, item: Object, place: Object, events: list[Object]) -> Object:
    """Write the dones of what the item holds; return its members that hold it."""
    if item["type"] in TEXT_CALLS:
        member, stem = TEXT_CALLS[item["type"]]
        text = _text(events, stem)
        write_event(writer, f"{stem}.done", place | {member: text})
        return {member: text}
    closed: Object = {}
    for event in events:
        if event["type"] == "response.content_part.added":
            closed["content"] = [_close_part(writer, place | {"content_index": 0}, event["part"], events)]
        elif event["type"] == "response.reasoning_summary_part.added":
            closed["summary"] = [_close_summary(writer, place | {"summary_index": 0}, event["part"], events)]
    return closed


def _close_part(writer: EventWriter, place: Object, part: Object, events: list[Object]) -> Object:
    deltas = [event for event in events if event["type"].endswith(".delta") and "content_index" in event]
    stem = deltas[0]["type"].removesuffix(".delta") if deltas else f"response.{part['type']}"
    member = "refusal" if part["type"] == "refusal" else "text"
    logprobs: Object = {}
    part |= {member: _text(events, stem)}
    if annotations := [event["annotation"] for event in events if event["type"] == _ANNOTATION]:
        part["annotations"] = annotations
    if "logprobs" in part:
        part["logprobs"] = [token for delta in deltas for token in delta.get("logprobs", ())]
        logprobs = {"logprobs": part["logprobs"]}
    write_event(writer, f"{stem}.done", place | logprobs | {member: part[member]})
    write_event(writer, "response.content_part.done", place | {"part": part})
    return part


def _close_summary(writer: EventWriter, place: Object, part: Object, events: list[Object]) -> Object:
    part |= {"text": _text(events, _SUMMARY)}
    write_event(writer, f"{_SUMMARY}.done", place | {"text": part["text"]})
    write_event(writer, "response.reasoning_summary_part.done", place | {"part": part})
    return part


def _text(events: list[Object], stem: str) -> str:
    return "".join(event["delta"] for event in events if event["type"] == f"{stem}.delta")
