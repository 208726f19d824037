"""The end of a stream whose gateway died: the item that it left open is closed as incomplete, from what was sent of it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import takewhile
from typing import NamedTuple

import msgspec

from responses_gateway.stream.stored.hosted_items import close_hosted_item
from responses_gateway.stream.writer.responses import ANNOTATION, CALL_EVENTS, Object, ResponsesWriter, members, write_event
from responses_gateway.wire.hosted_kinds import ITEM_FORMS
from responses_gateway.wire.json_text import json_text
from responses_gateway.wire.sse import SSEDecoder

_ADDED = "response.output_item.added"
_DONE = "response.output_item.done"
_SUMMARY = "response.reasoning_summary_text"


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
            closed["summary"] = [_close_summary(writer, place | {"summary_index": 0}, event["part"], events)]
    return closed


def _close_part(writer: ResponsesWriter, place: Object, part: Object, events: list[Object]) -> Object:
    deltas = [event for event in events if event["type"].endswith(".delta") and "content_index" in event]
    stem = deltas[0]["type"].removesuffix(".delta") if deltas else f"response.{part['type']}"
    member = "refusal" if part["type"] == "refusal" else "text"
    logprobs: Object = {}
    part |= {member: _text(events, stem)}
    if annotations := [event["annotation"] for event in events if event["type"] == ANNOTATION]:
        part["annotations"] = annotations
    if "logprobs" in part:
        part["logprobs"] = [token for delta in deltas for token in delta.get("logprobs", ())]
        logprobs = {"logprobs": part["logprobs"]}
    write_event(writer, f"{stem}.done", place | logprobs | {member: part[member]})
    write_event(writer, "response.content_part.done", place | {"part": part})
    return part


def _close_summary(writer: ResponsesWriter, place: Object, part: Object, events: list[Object]) -> Object:
    part |= {"text": _text(events, _SUMMARY)}
    write_event(writer, f"{_SUMMARY}.done", place | {"text": part["text"]})
    write_event(writer, "response.reasoning_summary_part.done", place | {"part": part})
    return part


def _text(events: list[Object], stem: str) -> str:
    return "".join(event["delta"] for event in events if event["type"] == f"{stem}.delta")
