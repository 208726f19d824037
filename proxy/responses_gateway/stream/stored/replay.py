"""A finished response as a stream again: its items in order, every text as one delta.

The numbers are those of this stream, not of the one in which the response was made. So a client that asks for the events after
a certain number gets the terminal event alone, which holds everything."""

from __future__ import annotations

import msgspec

from responses_gateway.stream.stored.hosted_items import write_hosted_item
from responses_gateway.stream.writer.responses import ANNOTATION, CALL_EVENTS, Object, ResponsesWriter, write_event
from responses_gateway.wire.hosted_kinds import ITEM_FORMS
from responses_gateway.wire.json_text import json_text
from responses_gateway.wire.sse import DONE


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
    return b"".join([*writer.events, DONE.encode()])


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
            event, member = CALL_EVENTS[kind]
            index = writer.add_item(json_text(added | {member: ""}))
            place = {"item_id": item_id, "output_index": index}
            write_event(writer, f"{event}.delta", place | {"delta": item[member]})
            write_event(writer, f"{event}.done", place | {member: item[member]})
        case _:
            index = writer.add_item(json_text(added))
    writer.finish_item(kind, index, text)


def _write_part(writer: ResponsesWriter, place: Object, part: Object, reasoning_event: str) -> None:
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
        write_event(writer, ANNOTATION, place | {"annotation_index": number, "annotation": annotation})
    write_event(writer, f"{event}.done", place | logprobs | {member: part[member]})
    write_event(writer, "response.content_part.done", place | {"part": part})


def _write_summary_part(writer: ResponsesWriter, place: Object, part: Object) -> None:
    event = "response.reasoning_summary"
    write_event(writer, f"{event}_part.added", place | {"part": part | {"text": ""}})
    write_event(writer, f"{event}_text.delta", place | {"delta": part["text"]})
    write_event(writer, f"{event}_text.done", place | {"text": part["text"]})
    write_event(writer, f"{event}_part.done", place | {"part": part})
