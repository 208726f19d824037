"""The end of a stream whose writer is dead: what it left open is closed as incomplete, from what it had sent alone."""

from __future__ import annotations

from typing import Any

import msgspec

from proxy.stream.items.text_items import Pen
from proxy.stream.stored_stream import TEXT_CALLS, write_event
from proxy.stream.writer import json_text

Object = dict[str, Any]

_ADDED = b'data: {"type":"response.output_item.added"'
_DONE = b'data: {"type":"response.output_item.done"'
_SUMMARY = "response.reasoning_summary_text"


def close_open_item(sent: bytes, number: int) -> tuple[list[bytes], list[str]]:
    """The events, from `number` on, that close the item which is open in a stream as the gateway writes it, and the JSON of the
    item; nothing if none is open."""
    begin = sent.rfind(_ADDED)
    if begin < 0 or sent.find(_DONE, begin) >= 0:
        return [], []
    lines = sent[begin:].split(b"\n")
    added, *events = (msgspec.json.decode(line[6:]) for line in lines if line.startswith(b"data: {"))
    pen, item, index = Pen(), added["item"], added["output_index"]
    pen.seq = number
    own = [event for event in events if event.get("item_id") == item["id"]]
    item |= {"status": "incomplete", **_close_texts(pen, item, {"item_id": item["id"], "output_index": index}, own)}
    pen.finish(item["type"], index, json_text(item))
    return pen.out, pen.done


def _close_texts(pen: Pen, item: Object, place: Object, events: list[Object]) -> Object:
    """Write the dones of what the item holds; returns its members that hold it."""
    if item["type"] in TEXT_CALLS:
        member, stem = TEXT_CALLS[item["type"]]
        text = _text(events, stem)
        write_event(pen, f"{stem}.done", place | {member: text})
        return {member: text}
    closed: Object = {}
    for event in events:
        if event["type"] == "response.content_part.added":
            closed["content"] = [_close_part(pen, place | {"content_index": 0}, event["part"], events)]
        elif event["type"] == "response.reasoning_summary_part.added":
            closed["summary"] = [_close_summary(pen, place | {"summary_index": 0}, event["part"], events)]
    return closed


def _close_part(pen: Pen, place: Object, part: Object, events: list[Object]) -> Object:
    deltas = [event for event in events if event["type"].endswith(".delta") and "content_index" in event]
    stem = deltas[0]["type"].removesuffix(".delta") if deltas else f"response.{part['type']}"
    member, logprobs = "refusal" if part["type"] == "refusal" else "text", Object()
    part |= {member: _text(events, stem)}
    if "logprobs" in part:
        part["logprobs"] = [token for delta in deltas for token in delta.get("logprobs", ())]
        logprobs = {"logprobs": part["logprobs"]}
    write_event(pen, f"{stem}.done", place | logprobs | {member: part[member]})
    write_event(pen, "response.content_part.done", place | {"part": part})
    return part


def _close_summary(pen: Pen, place: Object, part: Object, events: list[Object]) -> Object:
    part |= {"text": _text(events, _SUMMARY)}
    write_event(pen, f"{_SUMMARY}.done", place | {"text": part["text"]})
    write_event(pen, "response.reasoning_summary_part.done", place | {"part": part})
    return part


def _text(events: list[Object], stem: str) -> str:
    return "".join(event["delta"] for event in events if event["type"] == f"{stem}.delta")
