"""A finished response as a stream again: its items in order, every text as one delta.

The numbers are those of this stream, not of the one in which the response was made; so whoever asks for what comes behind a
certain event gets the terminal event alone, which holds everything.
"""

from __future__ import annotations

from typing import Any

import msgspec

from proxy.stream import writer
from proxy.stream.items.text_items import Pen
from proxy.stream.writer import json_text

Object = dict[str, Any]

#: Calls whose argument is one text: the item's type, the member that holds it, the events.
TEXT_CALLS = {
    "function_call": ("arguments", "response.function_call_arguments"),
    "custom_tool_call": ("input", "response.custom_tool_call_input"),
}


class _Response(msgspec.Struct):
    status: str
    output: list[msgspec.Raw]


def replay(response_json: str, reasoning_event: str, after: int = -1) -> bytes:
    """The events of a finished response, with `[DONE]`. `reasoning_event` is the event name without `.delta`/`.done`;
    with `after`, only the terminal event, as the next one."""
    response = msgspec.json.decode(response_json, type=_Response)
    pen = Pen()
    if after < 0:
        _opening(pen, response_json)
        for raw in response.output:
            _item(pen, bytes(raw).decode(), reasoning_event)
    else:
        pen.seq = after + 1
    kind = response.status if response.status in ("completed", "incomplete") else "failed"
    pen.write(writer.response_event(f"response.{kind}", pen.seq, response_json))
    return b"".join([*pen.out, writer.DONE.encode()])


def _opening(pen: Pen, response_json: str) -> None:
    begun: Object = msgspec.json.decode(response_json)
    nothing_yet: Object = {"completed_at": None, "error": None, "incomplete_details": None, "output": [], "usage": None}
    snapshot = json_text(begun | nothing_yet | {"status": "in_progress"})
    for kind in ("response.created", "response.in_progress"):
        pen.write(writer.response_event(kind, pen.seq, snapshot))


def _item(pen: Pen, text: str, reasoning_event: str) -> None:
    item: Object = msgspec.json.decode(text)
    kind, item_id = item["type"], item.get("id", "")
    begun = item | ({"status": "in_progress"} if "status" in item else {})
    match kind:
        case "message":
            index = pen.add(json_text(begun | {"content": []}))
            for number, part in enumerate(item["content"]):
                _part(pen, {"item_id": item_id, "output_index": index, "content_index": number}, part, reasoning_event)
        case "reasoning":
            begun.pop("encrypted_content", None)
            index = pen.add(json_text(begun | {"content": [], "summary": []}))
            place = {"item_id": item_id, "output_index": index}
            for number, part in enumerate(item.get("content") or []):
                _part(pen, place | {"content_index": number}, part, reasoning_event)
            for number, part in enumerate(item.get("summary") or []):
                _summary(pen, place | {"summary_index": number}, part)
        case "function_call" | "custom_tool_call":
            member, event = TEXT_CALLS[kind]
            index = pen.add(json_text(begun | {member: ""}))
            place = {"item_id": item_id, "output_index": index}
            write_event(pen, f"{event}.delta", place | {"delta": item[member]})
            write_event(pen, f"{event}.done", place | {member: item[member]})
        case _:
            index = pen.add(json_text(begun))
    pen.finish(kind, index, text)


def _part(pen: Pen, place: Object, part: Object, reasoning_event: str) -> None:
    """A content part: text, refusal, or reasoning."""
    member = "refusal" if part["type"] == "refusal" else "text"
    event = reasoning_event if part["type"] == "reasoning_text" else f"response.{part['type']}"
    empty, logprobs = part | {member: ""}, {}
    if part["type"] == "output_text":
        empty["logprobs"], logprobs = [], {"logprobs": part.get("logprobs") or []}
    write_event(pen, "response.content_part.added", place | {"part": empty})
    if part[member]:
        write_event(pen, f"{event}.delta", place | logprobs | {"delta": part[member]})
    write_event(pen, f"{event}.done", place | logprobs | {member: part[member]})
    write_event(pen, "response.content_part.done", place | {"part": part})


def _summary(pen: Pen, place: Object, part: Object) -> None:
    event = "response.reasoning_summary"
    write_event(pen, f"{event}_part.added", place | {"part": part | {"text": ""}})
    write_event(pen, f"{event}_text.delta", place | {"delta": part["text"]})
    write_event(pen, f"{event}_text.done", place | {"text": part["text"]})
    write_event(pen, f"{event}_part.done", place | {"part": part})


def write_event(pen: Pen, kind: str, fields: Object) -> None:
    """The next event, of plain data."""
    data = json_text({"type": kind, "sequence_number": pen.seq} | fields)
    pen.write(f"event: {kind}\ndata: {data}\n\n")
