"""The items of hosted tools in a stream that is replayed, or ended in place of a gateway that died."""

from __future__ import annotations

from responses_gateway.stream.items.hosted import asked_action
from responses_gateway.stream.writer.responses import CALL_EVENTS, Object, ResponsesWriter, write_event
from responses_gateway.wire.hosted_kinds import ITEM_FORMS, WEB_SEARCH
from responses_gateway.wire.json_text import json_text


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
    content = "".join(event["delta"] for event in events if event["type"] == f"{form.text_event}.delta")
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
