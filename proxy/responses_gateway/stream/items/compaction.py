"""The answer to a compaction: whatever the model writes becomes one sealed `compaction` item."""

from __future__ import annotations

import json
from collections.abc import Callable

from responses_gateway.stream.writer.interface import EventWriter


def begin_compaction(writer: EventWriter, response_id: str, hidden: EventWriter) -> None:
    """Tell that the summary is being written, once the model's own items, which nobody gets, have begun in `hidden`."""
    if hidden.next_index:
        writer.begin_summary(_item_id(response_id))


def write_compaction(writer: EventWriter, response_id: str, output: list[str], seal: Callable[[str], str]) -> bool:
    """Write the item, given the model's own items as JSON, which are not sent. Return False if the model wrote no text."""
    summary = _text_of(output)
    if summary:
        writer.write_summary(_item_id(response_id), seal(summary))
    return bool(summary)


def _item_id(response_id: str) -> str:
    return f"cmp_{response_id.removeprefix('resp_')}"


def _text_of(items: list[str]) -> str:
    """Return the text of the messages; a model that only thought has at least thoughts."""
    decoded = [json.loads(item) for item in items]
    for kind, part_kind in (("message", "output_text"), ("reasoning", "reasoning_text")):
        parts = [part for item in decoded if item["type"] == kind for part in item["content"]]
        text = "\n\n".join(part["text"] for part in parts if part["type"] == part_kind).strip()
        if text:
            return text
    return ""
