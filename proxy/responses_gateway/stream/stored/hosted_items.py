"""The items of hosted tools in a stream that is replayed, or ended in place of a gateway that died."""

from __future__ import annotations

from typing import NamedTuple

from responses_gateway.stream.items.hosted import asked_action
from responses_gateway.stream.stored.plain_events import Object, write_event
from responses_gateway.stream.writer import EventWriter, json_text


class HostedEvents(NamedTuple):
    """The events of one kind of item, in order: progress, its text if it has one, more progress, and its end.

    `empty` are the members that the item is added with, `later` those that it is added without. `stem` is the event of the text
    without `.delta`/`.done`, and `member` holds the text. `ends`: the statuses that have an event of their own."""

    empty: Object
    before: tuple[str, ...]
    after: tuple[str, ...] = ()
    ends: frozenset[str] = frozenset({"completed"})
    later: frozenset[str] = frozenset()
    member: str = ""
    stem: str = ""


HOSTED_EVENTS: dict[str, HostedEvents] = {
    "mcp_list_tools": HostedEvents(
        {"tools": []}, ("in_progress",), ends=frozenset({"completed", "failed"}), later=frozenset({"error"})
    ),
    "mcp_call": HostedEvents(
        {"arguments": "", "output": None, "error": None},
        ("in_progress",),
        ends=frozenset({"completed", "failed"}),
        member="arguments",
        stem="response.mcp_call_arguments",
    ),
    "web_search_call": HostedEvents({}, ("in_progress", "searching"), later=frozenset({"action"})),
    "file_search_call": HostedEvents({"queries": [], "results": None}, ("in_progress", "searching")),
    "code_interpreter_call": HostedEvents(
        {"code": "", "outputs": None},
        ("in_progress",),
        ("interpreting",),
        member="code",
        stem="response.code_interpreter_call_code",
    ),
}  # fmt: skip


def write_hosted_item(writer: EventWriter, item: Object, text: str) -> None:
    """Write all events of an item that is done; `text` is its JSON."""
    kind = item["type"]
    shape = HOSTED_EVENTS[kind]
    begun = {name: value for name, value in item.items() if name not in shape.later}
    status = {"status": "in_progress"} if "status" in item else {}
    index = writer.add_item(json_text({**begun, **shape.empty, **status}))
    content = item[shape.member] if shape.member else ""
    end = item.get("status", "completed" if item.get("error") is None else "failed")
    _write_rest(writer, item, index, content, set(), end=end)
    writer.finish_item(kind, index, text)


def close_hosted_item(writer: EventWriter, item: Object, index: int, events: list[Object]) -> Object:
    """Write the events that are missing for an item whose call did not end, given those that were sent. Return the members
    that say so."""
    shape = HOSTED_EVENTS[item["type"]]
    content = "".join(event["delta"] for event in events if event["type"] == f"{shape.stem}.delta")
    _write_rest(writer, item, index, content, {event["type"] for event in events}, end="incomplete")
    if item["type"] == "web_search_call":  # which has no other status for it, and always an action
        return {"status": "failed", "action": asked_action("web_search", "")}
    return {"status": "incomplete", **({shape.member: content} if shape.member else {})}


def _write_rest(writer: EventWriter, item: Object, index: int, content: str, sent: set[str], *, end: str) -> None:
    """Write the events between those that were `sent` and the done of the item."""
    shape = HOSTED_EVENTS[item["type"]]
    place = {"item_id": item["id"], "output_index": index}

    def write(event: str, **members: str) -> None:
        if event not in sent:
            write_event(writer, event, {**place, **members})

    head = f"response.{item['type']}"
    for step in shape.before:
        write(f"{head}.{step}")
    if shape.member:
        if content:
            write(f"{shape.stem}.delta", delta=content)
        write(f"{shape.stem}.done", **{shape.member: content})
    for step in shape.after:
        write(f"{head}.{step}")
    if end in shape.ends:
        write(f"{head}.{end}")
