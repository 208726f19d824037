"""The items of hosted tools in a stream that is replayed, or ended in place of a gateway that died."""

from __future__ import annotations

from responses_gateway.stream.items.hosted import asked_action
from responses_gateway.stream.writer.responses import HOSTED_EVENTS, Object, ResponsesWriter, write_event
from responses_gateway.wire.json_text import json_text

# The members that an item is added with, and those that it is added without.
_EMPTY: dict[str, Object] = {
    "mcp_list_tools": {"tools": []},
    "mcp_call": {"arguments": "", "output": None, "error": None},
    "web_search_call": {},
    "file_search_call": {"queries": [], "results": None},
    "code_interpreter_call": {"code": "", "outputs": None},
    "image_generation_call": {"result": None},
}
_LATER = {"mcp_list_tools": "error", "web_search_call": "action"}


def write_hosted_item(writer: ResponsesWriter, item: Object, text: str) -> None:
    """Write all events of an item that is done; `text` is its JSON."""
    kind = item["type"]
    text_events = HOSTED_EVENTS[kind].text
    begun = {name: value for name, value in item.items() if name != _LATER.get(kind)}
    status = {"status": "in_progress"} if "status" in item else {}
    index = writer.add_item(json_text({**begun, **_EMPTY[kind], **status}))
    content = item[text_events.member] if text_events is not None else ""
    end = item.get("status", "completed" if item.get("error") is None else "failed")
    _write_rest(writer, item, index, content, set(), end=end)
    writer.finish_item(kind, index, text)


def close_hosted_item(writer: ResponsesWriter, item: Object, index: int, events: list[Object]) -> Object:
    """Write the events that are missing for an item whose call did not end, given those that were sent. Return the members
    that say so."""
    text_events = HOSTED_EVENTS[item["type"]].text
    content = ""
    if text_events is not None:
        content = "".join(event["delta"] for event in events if event["type"] == f"{text_events.stem}.delta")
    _write_rest(writer, item, index, content, {event["type"] for event in events}, end="incomplete")
    if item["type"] == "web_search_call":  # which has no other status for it, and always an action
        return {"status": "failed", "action": asked_action("web_search", "")}
    return {"status": "incomplete", **({text_events.member: content} if text_events is not None else {})}


def _write_rest(writer: ResponsesWriter, item: Object, index: int, content: str, sent: set[str], *, end: str) -> None:
    """Write the events between those that were `sent` and the done of the item."""
    shape = HOSTED_EVENTS[item["type"]]
    place = {"item_id": item["id"], "output_index": index}

    def write(event: str, **members: str) -> None:
        if event not in sent:
            write_event(writer, event, {**place, **members})

    head = f"response.{item['type']}"
    for step in shape.before:
        write(f"{head}.{step}")
    if shape.text is not None:
        if content:
            write(f"{shape.text.stem}.delta", delta=content)
        write(f"{shape.text.stem}.done", **{shape.text.member: content})
    for step in shape.after:
        write(f"{head}.{step}")
    if end in shape.ends:
        write(f"{head}.{end}")
