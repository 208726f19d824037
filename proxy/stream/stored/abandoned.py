"""The end of a stream whose gateway died: the item that it left open is closed as incomplete, from what was sent of it."""

from __future__ import annotations

import msgspec

from proxy.stream.stored.hosted_items import HOSTED_EVENTS, close_hosted_item
from proxy.stream.stored.plain_events import ANNOTATION, TEXT_CALLS, Object, write_event
from proxy.stream.writer import EventWriter, json_text

_ADDED = b'data: {"type":"response.output_item.added"'
_DONE = b'data: {"type":"response.output_item.done"'
_SUMMARY = "response.reasoning_summary_text"


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
    if annotations := [event["annotation"] for event in events if event["type"] == ANNOTATION]:
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
