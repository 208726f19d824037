"""The answer to a compaction: whatever the model writes becomes one sealed `compaction` item."""

from __future__ import annotations

import json
from collections.abc import Callable

from responses_gateway.stream.writer import quote


def compaction_item(response_id: str, output: list[str], seal: Callable[[str], str]) -> str | None:
    """Return the item as JSON, given that of the model's own items, which are not sent. None if the model wrote no text."""
    summary = _text_of(output)
    if not summary:
        return None
    item_id = f"cmp_{response_id.removeprefix('resp_')}"
    return f'{{"type":"compaction","id":"{item_id}","encrypted_content":{quote(seal(summary))}}}'


def _text_of(items: list[str]) -> str:
    """Return the text of the messages; a model that only thought has at least thoughts."""
    decoded = [json.loads(item) for item in items]
    for kind, part_kind in (("message", "output_text"), ("reasoning", "reasoning_text")):
        parts = [part for item in decoded if item["type"] == kind for part in item["content"]]
        text = "\n\n".join(part["text"] for part in parts if part["type"] == part_kind).strip()
        if text:
            return text
    return ""
