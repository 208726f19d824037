"""The shapes of events, and the checks of a single response object or item.

`checker.py` checks a whole stream; `levels.py` has the names of the rules."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any, NamedTuple

from responses_gateway.conformance.levels import Rule


class Channel(NamedTuple):
    """A family of delta and done events: what they fill, the text of the done event, the index of the part (if any)."""

    kind: str
    field: str
    place: str | None


# event name without `.delta` or `.done` -> its channel
CHANNELS = {
    "response.output_text": Channel("output_text", "text", "content_index"),
    "response.refusal": Channel("refusal", "refusal", "content_index"),
    "response.reasoning_text": Channel("reasoning_text", "text", "content_index"),
    "response.reasoning": Channel("reasoning_text", "text", "content_index"),
    "response.reasoning_summary_text": Channel("summary_text", "text", "summary_index"),
    "response.function_call_arguments": Channel("function_call", "arguments", None),
    "response.custom_tool_call_input": Channel("custom_tool_call", "input", None),
    "response.mcp_call_arguments": Channel("mcp_call", "arguments", None),
    "response.code_interpreter_call_code": Channel("code_interpreter_call", "code", None),
}
# event name without `.added` or `.done` -> the index of the part
PARTS = {"response.content_part": "content_index", "response.reasoning_summary_part": "summary_index"}
# index of a part -> the list of the item in which it stands
LISTS = {"content_index": "content", "summary_index": "summary"}
# part kind -> the item and its list to which it belongs, and the part's field of text
HOMES = {
    "output_text": ("message", "content", "text"),
    "refusal": ("message", "content", "refusal"),
    "reasoning_text": ("reasoning", "content", "text"),
    "summary_text": ("reasoning", "summary", "text"),
}
# item type -> its field that is filled by deltas without a part
WHOLE = {"function_call": "arguments", "custom_tool_call": "input", "mcp_call": "arguments", "code_interpreter_call": "code"}
# Calls that have a name from the beginning.
NAMED = {"function_call", "custom_tool_call", "mcp_call"}
# item type -> the events of its progress, in order; a set where there is one of several. OpenAI repeats the first one of an
# approved call.
STEPS: dict[str, tuple[frozenset[str], ...]] = {
    "mcp_list_tools": (frozenset({"in_progress"}), frozenset({"completed", "failed"})),
    "mcp_call": (frozenset({"in_progress"}), frozenset({"completed", "failed"})),
    "web_search_call": (frozenset({"in_progress"}), frozenset({"searching"}), frozenset({"completed"})),
    "file_search_call": (frozenset({"in_progress"}), frozenset({"searching"}), frozenset({"completed"})),
    "code_interpreter_call": (frozenset({"in_progress"}), frozenset({"interpreting"}), frozenset({"completed"})),
    "image_generation_call": (frozenset({"in_progress"}), frozenset({"generating"}), frozenset({"completed"})),
    "compaction": (frozenset({"compacting"}),),
}
ANNOTATION = "response.output_text.annotation.added"
# What a WebSocket tells of steers, and the fields of each.
STEERING: dict[str, dict[str, type]] = {
    "accepted": {"steer": dict},
    "pending": {"steer": dict, "reason": str, "required_input": list},
    "failed": {"steer": dict, "error": dict},
}
# item type -> fields that are there from the beginning, and empty
WHEN_ADDED: dict[str, dict[str, Any]] = {
    "message": {"content": []},
    "reasoning": {"summary": []},
    **{kind: {field: ""} for kind, field in WHOLE.items()},
}
# Items whose progress may be left out: some servers tell of it, others do not.
SILENT = {"compaction"}
# Items that must have a status. Items of hosted tools differ among themselves.
WITH_STATUS = {"message", "reasoning", "function_call", "custom_tool_call"}
# Texts of an item that may be others in the response without harm to a client -> the rule that is broken then
MILDER: dict[str, Rule] = {
    "status": "item_status",
    "encrypted_content": "encrypted_content",
    "fingerprint": "encrypted_content",
}
# Items whose text Codex shows as it arrives, below the item that began last.
SHOWN = {"message", "reasoning"}
# Fields that `output_item.added` and `output_item.done` share -> the rule broken when they differ
UNCHANGED: dict[str, Rule] = {
    "type": "item_changed",
    "role": "item_changed",
    "call_id": "call_id",
    "name": "call_name",
    "namespace": "call_name",
}
TERMINALS = {"response.completed", "response.incomplete", "response.failed"}
# event -> the statuses that its response may have
STATUSES = {
    "response.created": ("in_progress", "queued"),
    "response.queued": ("queued",),
    "response.in_progress": ("in_progress",),
    **{name: (name.removeprefix("response."),) for name in TERMINALS},
}


def _shapes() -> dict[str, dict[str, type]]:
    place: dict[str, type] = {"item_id": str, "output_index": int}
    shapes: dict[str, dict[str, type]] = {name: {"response": dict} for name in STATUSES}
    shapes |= {f"response.steer.{name}": fields for name, fields in STEERING.items()}
    for verb in ("added", "done"):
        shapes[f"response.output_item.{verb}"] = {"output_index": int, "item": dict}
        for stem, index in PARTS.items():
            shapes[f"{stem}.{verb}"] = {**place, index: int, "part": dict}
    for kind, steps in STEPS.items():
        shapes |= {f"response.{kind}.{name}": dict(place) for step in steps for name in step}
    shapes[ANNOTATION] = {**place, "content_index": int, "annotation_index": int, "annotation": dict}
    for stem, channel in CHANNELS.items():
        part: dict[str, type] = {} if channel.place is None else {channel.place: int}
        shapes[f"{stem}.delta"] = {**place, **part, "delta": str}
        shapes[f"{stem}.done"] = {**place, **part, channel.field: str}
    return shapes


# event -> the fields that the rules read, with their JSON types
SHAPES = _shapes()


def is_tried_again(kind: str, response: dict[str, Any]) -> bool:
    """Tell whether clients repeat the request of a response that ended so."""
    details = response.get("incomplete_details")
    filtered = isinstance(details, dict) and details.get("reason") == "content_filter"
    return kind == "response.failed" or (kind == "response.incomplete" and filtered)


def is_steered(response: dict[str, Any]) -> bool:
    """Tell whether a response ended behind a whole item, because its client has steered it."""
    details = response.get("incomplete_details")
    return isinstance(details, dict) and details.get("reason") == "steered"


def is_call(item_type: object) -> bool:
    """Tell whether an item of this type is a call of a tool, the client's or a hosted one."""
    return isinstance(item_type, str) and (item_type.endswith("_call") or item_type == "mcp_list_tools")


def is_blank_message(item: dict[str, Any]) -> bool:
    """Tell whether this is a message without content, or with nothing but white space."""
    content = item.get("content")
    parts = content if isinstance(content, list) else []
    texts = [part.get("text") or part.get("refusal") or "" for part in parts if isinstance(part, dict)]
    return item.get("type") == "message" and not "".join(map(str, texts)).strip()


def response_errors(kind: str, response: dict[str, Any]) -> Iterator[tuple[Rule, str]]:
    """Yield what is wrong in the response object of event `kind`, without knowledge of the stream before it."""
    status = response.get("status")
    if status not in STATUSES[kind]:
        yield "status", f"status {short(status)} in {kind}"
    details, error, completed_at = (response.get(key) for key in ("incomplete_details", "error", "completed_at"))
    if (kind == "response.incomplete") != _has_texts(details, "reason"):
        yield "incomplete_details", f"incomplete_details {short(details)} in {kind}"
    if (kind == "response.failed") != _has_texts(error, "code", "message"):
        yield "error", f"error {short(error)} in {kind}"
    if (completed_at is not None) if kind != "response.completed" else (type(completed_at) not in (int, float)):
        yield "completed_at", f"completed_at {short(completed_at)} in {kind}"
    if response.get("usage") is not None:
        yield from _usage_errors(response["usage"])


def _has_texts(value: object, *keys: str) -> bool | None:
    """Return True for an object with these texts, False for null, None for anything else, which is wrong in any event."""
    if value is None:
        return False
    return True if isinstance(value, dict) and all(isinstance(value.get(key), str) for key in keys) else None


def _usage_errors(usage: object) -> Iterator[tuple[Rule, str]]:
    counts = usage if isinstance(usage, dict) else {}
    numbers = ("input_tokens", "output_tokens", "total_tokens")
    if wrong := [name for name in numbers if type(counts.get(name)) is not int or counts[name] < 0]:
        yield "usage", f"no number of {', '.join(wrong)} in usage {short(usage)}"
        return
    if counts["input_tokens"] + counts["output_tokens"] != counts["total_tokens"]:
        yield "usage_sum", "{input_tokens} + {output_tokens} is not total_tokens {total_tokens}".format(**counts)
    for name in ("input_tokens", "output_tokens"):
        details = counts.get(f"{name}_details")
        for key, count in (details if isinstance(details, dict) else {}).items():
            if type(count) is int and not 0 <= count <= counts[name]:
                yield "usage_sum", f"{name}_details.{key} {count}, {name} {counts[name]}"


def output_difference(rule: Rule, done: list[dict[str, Any]], output: object) -> tuple[Rule, str] | None:
    """Return the rule that `response.output` breaks, and how it differs from the items that are done; None if it does not.

    That is `rule`, unless all differences are mild ones."""
    if not isinstance(output, list):
        return rule, f"output {short(output)}"
    if len(output) != len(done):
        return rule, f"output has {len(output)} items, {len(done)} were done"
    mild: tuple[Rule, str] | None = None
    for index, (item, was) in enumerate(zip(output, done, strict=True)):
        if item != was:
            keys = [key for key in {**was, **item} if item.get(key) != was.get(key)] if isinstance(item, dict) else []
            detail = f"output[{index}] is not the item that was done: {', '.join(keys) or short(item)}"
            broken = {MILDER.get(key, rule) if _has_texts(was, key) and _has_texts(item, key) else rule for key in keys}
            if not broken or rule in broken:
                return rule, detail
            mild = mild or (min(broken), detail)
    return mild


def text_difference(streamed: str, text: object) -> str:
    """Return where a final text differs from the sum of its deltas."""
    if not isinstance(text, str):
        return f"{short(text)}, not a text"
    ends = min(len(streamed), len(text))
    at = next((n for n in range(ends) if streamed[n] != text[n]), ends)
    return f"{short(text[at:])} at character {at}, the deltas have {short(streamed[at:])}"


def short(value: object, length: int = 60) -> str:
    """Return a value as JSON for a report, cut to a length."""
    text = json.dumps(value, ensure_ascii=False, default=str)
    return text if len(text) <= length else text[: length - 1] + "…"
