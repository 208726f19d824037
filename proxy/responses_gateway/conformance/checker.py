"""Checks a Responses stream against its rules.

Tests check every stream that they make, `responses-gateway check` the streams of other servers, and a running gateway a sample
of its own. The rules are what clients rely on, what the Open Responses specification demands, and how OpenAI's own streams look
(`levels.py` tells which is which); both spellings of the reasoning events (`response.reasoning_text.*`, `response.reasoning.*`)
are accepted.

Two principles:

* a stream is checked by itself, whoever made it: this room shares no code with a writer;
* after a violation the checker continues with what the stream says, so that one mistake is reported once where possible.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from responses_gateway.conformance import rules
from responses_gateway.conformance.levels import RULES, Rule, Violation
from responses_gateway.conformance.rules import Channel, short

__all__ = ["RULES", "Checker", "Violation", "check_stream"]


@dataclass(slots=True)
class _Text:
    """A run of text that deltas fill: a content part, a summary part, or the arguments of a call."""

    kind: str
    pieces: list[str] = field(default_factory=list)
    done: bool = False  # its own done event was seen
    closed: bool = False  # the done event of its part, too
    annotations: list[object] = field(default_factory=list)


class _Item:
    """An item between `output_item.added` and `output_item.done`."""

    __slots__ = ("added", "id", "index", "parts", "steps", "type", "whole")

    def __init__(self, index: int, added: dict[str, Any]) -> None:
        self.index = index
        self.added = added
        self.id: object = added.get("id")
        self.type = str(added.get("type"))
        self.parts: dict[str, dict[int, _Text]] = {"content": {}, "summary": {}}
        self.whole = _Text(self.type) if self.type in rules.WHOLE else None
        self.steps = 0  # how many events of its progress came


class Checker:
    """Feed the events of one stream in order; each call returns the rules that this event broke.

    Keeps references to the finished items (the last event must repeat them) and the text of the open one, no more.
    `unfinished_allowed`: the contract with clients that take `output_item.done` as final whatever the item's status
    (Codex): calls of a response that is incomplete or failed, and the last item of one that will be tried again (failed, or
    stopped by a content filter), may lack their done, and are then left out of the output. Nothing more may come for a call
    behind which another item was added."""

    def __init__(self, *, unfinished_allowed: bool = False) -> None:
        self._unfinished_allowed = unfinished_allowed
        self._found: list[Violation] = []
        self._event = -1
        self._sequence = 0
        self._created = self._in_progress = False
        self._terminal: str | None = None
        self._identity: dict[str, Any] | None = None
        self._next_index = 0
        self._open: list[_Item] = []
        self._done: list[tuple[int, dict[str, Any]]] = []  # with their output_index
        self._ids: set[str] = set()
        self._call_ids: set[str] = set()

    def feed(self, event_name: str | None, event: object) -> list[Violation]:
        """Check one event: the name on its `event:` line (None: it had none) and its decoded JSON. Transports without event
        names (WebSocket) pass the event's own type."""
        self._found = []
        self._event += 1
        if isinstance(event, dict) and isinstance(event.get("type"), str):
            self._check(event_name, event)
        else:
            self._report("malformed", f"not a JSON object with a type: {short(event)}")
        return self._found

    def finish(self) -> list[Violation]:
        """Return what is missing when the stream has ended."""
        if self._terminal is not None:
            return []
        return [Violation("terminal_missing", self._event + 1, "no completed, incomplete or failed response")]

    def _report(self, rule: Rule, detail: str) -> None:
        self._found.append(Violation(rule, self._event, detail))

    def _check(self, event_name: str | None, event: dict[str, Any]) -> None:
        kind: str = event["type"]
        if event_name != kind:
            self._report("event_name", f"event: {event_name}, type: {kind}")
        self._check_sequence(event.get("sequence_number"))
        if self._terminal is not None:
            self._report("after_terminal", f"{kind} after {self._terminal}")
            return
        self._check_opening(kind)
        wrong = [name for name, shape in rules.SHAPES.get(kind, {}).items() if type(event.get(name)) is not shape]
        if wrong:
            self._report("malformed", f"{kind}: missing or of the wrong type: {', '.join(wrong)}")
        else:
            self._check_content(kind, event)
        if kind in rules.TERMINALS:
            self._terminal = kind

    def _check_content(self, kind: str, event: dict[str, Any]) -> None:
        stem, _, verb = kind.rpartition(".")
        if kind in rules.STATUSES:
            self._check_response(kind, event["response"])
        elif stem == "response.output_item" and kind in rules.SHAPES:
            change = self._add_item if verb == "added" else self._finish_item
            change(event["output_index"], event["item"])
        elif stem != "response.steer" and (kind in rules.SHAPES or "item_id" in event):
            item = self._find_item(event.get("item_id"), event.get("output_index"))
            if item is None or kind not in rules.SHAPES:
                return
            if kind == rules.ANNOTATION:
                self._annotate(item, event)
                return
            if stem.removeprefix("response.") in rules.STEPS:
                self._step(item, stem.removeprefix("response."), verb)
                return
            if stem in rules.PARTS:
                change_part = self._add_part if verb == "added" else self._finish_part
                change_part(item, rules.LISTS[rules.PARTS[stem]], event[rules.PARTS[stem]], event["part"])
            else:
                self._fill_text(item, rules.CHANNELS[stem], verb, event)

    # The order of the stream

    def _check_sequence(self, number: object) -> None:
        if type(number) is not int or number != self._sequence:
            grows = type(number) is int and number > self._sequence
            self._report("sequence_gap" if grows else "sequence", f"sequence_number {short(number)}, expected {self._sequence}")
        self._sequence = (number if type(number) is int else self._sequence) + 1

    def _check_opening(self, kind: str) -> None:
        if kind in ("response.created", "response.queued"):
            if self._in_progress or (kind == "response.created" and self._created):
                self._report("created", f"{kind} does not stand at the beginning, once")
            self._created = self._created or kind == "response.created"
            return
        if not self._created:
            self._report("created", f"{kind} before response.created")
            self._created = True
        # A response may fail before its work began.
        if kind not in ("response.in_progress", "response.failed", "error") and not self._in_progress:
            self._report("in_progress", f"{kind} before response.in_progress")
        self._in_progress = True

    # The response

    def _check_response(self, kind: str, response: dict[str, Any]) -> None:
        if self._identity is None:
            self._identity = {key: response.get(key) for key in ("id", "created_at", "model")}
        for key, value in self._identity.items():
            now = response.get(key)
            if value is None or now != value:
                rule: Rule = "identity" if key == "id" or value is None or now is None else "response_changed"
                self._report(rule, f"response.{key} {short(now)}, was {short(value)}")
        for rule, detail in rules.response_errors(kind, response):
            self._report(rule, detail)
        if kind in rules.TERMINALS:
            self._check_ending(kind, response)
        broken: Rule = "terminal_output" if kind in rules.TERMINALS else "snapshot_output"
        difference = rules.output_difference(broken, self._finished(), self._listed(response.get("output")))
        if difference:
            self._report(*difference)

    def _finished(self) -> list[dict[str, Any]]:
        """Return the items that are done, in the order in which they began."""
        return [item for _, item in sorted(self._done, key=lambda entry: entry[0])]

    def _listed(self, output: object) -> object:
        """Return an output without the lists of MCP tools that are still open."""
        lists = {item.id for item in self._open if item.type == "mcp_list_tools"}
        if not lists or not isinstance(output, list):
            return output
        return [item for item in output if not isinstance(item, dict) or item.get("id") not in lists]

    def _check_ending(self, kind: str, response: dict[str, Any]) -> None:
        completed = kind == "response.completed"
        for item in self._open:
            tried_again = item is self._open[-1] and rules.is_tried_again(kind, response)
            may_be_cut = self._unfinished_allowed and (tried_again or (rules.is_call(item.type) and not completed))
            failed = item.type == "compaction" and kind == "response.failed"  # it has no status: done would mean whole
            if not (may_be_cut or failed):
                rule: Rule = "list_unfinished" if item.type == "mcp_list_tools" else "item_unfinished"
                self._report(rule, f"{item.type} {item.id} has no output_item.done")
        if (completed or rules.is_steered(response)) and any(item.get("status") == "incomplete" for _, item in self._done):
            self._report("incomplete_item", "an item is incomplete, its response completed, or steered")

    def _last_is_cut(self) -> bool:
        """Tell whether the last item is incomplete and none may follow. A call that is not whole may stand between others."""
        last = self._done[-1][1] if self._done else {}
        return last.get("status") == "incomplete" and not rules.is_call(last.get("type"))

    # Items

    def _find_item(self, item_id: object, output_index: object) -> _Item | None:
        for item in self._open:
            if item.id == item_id:
                if self._unfinished_allowed and item is not self._open[-1]:
                    self._report("item_overlap", f"{item_id} continues behind {self._open[-1].id}")
                if item.index != output_index:
                    self._report("output_index", f"output_index {short(output_index)}, {item_id} is at {item.index}")
                return item
        for item in self._open:
            if item.index == output_index:
                self._report("item_id", f"{short(item_id)} at output_index {output_index}, where {item.id} is open")
                return item
        self._report("item_not_open", f"item {short(item_id)} at output_index {short(output_index)} is not open")
        return None

    def _add_item(self, index: int, item: dict[str, Any]) -> None:
        kind = str(item.get("type"))
        item_id = item.get("id")
        if self._open and not (self._unfinished_allowed and rules.is_call(self._open[-1].type)):
            rule: Rule = "item_overlap" if any(other.type in rules.SHOWN for other in self._open) else "call_overlap"
            self._report(rule, f"{item_id} is added while {self._open[-1].id} is open")
        if index != self._next_index:
            self._report("output_index", f"output_index {index}, expected {self._next_index}")
        self._next_index = index + 1
        self._check_new(item_id, self._ids, "item_id")
        if self._last_is_cut():
            self._report("incomplete_item", f"{item_id} follows an incomplete item")
        status_known = kind in rules.WITH_STATUS or (rules.is_call(kind) and "status" in item)
        if status_known and item.get("status") != "in_progress":
            self._report(_status_rule(item), f"status {short(item.get('status'))} when added")
        self._check_added_empty(kind, item)
        if rules.is_call(kind):
            self._check_new_call(kind, item)
        self._open.append(_Item(index, item))

    def _check_new(self, value: object, known: set[str], rule: Rule) -> None:
        if not isinstance(value, str) or not value or value in known:
            self._report(rule, f"{short(value)} is not a new id")
        known.add(str(value))

    def _check_added_empty(self, kind: str, item: dict[str, Any]) -> None:
        for member, value in rules.WHEN_ADDED.get(kind, {}).items():
            if item.get(member) != value:
                self._report("added_empty", f"{kind} is added with {member} {short(item.get(member))}")
        if kind == "reasoning" and item.get("content"):  # which may be absent
            self._report("added_empty", "reasoning is added with content")

    def _check_new_call(self, kind: str, call: dict[str, Any]) -> None:
        if kind in rules.WITH_STATUS or "call_id" in call:
            rule: Rule = "search_call_id" if kind.endswith("_search_call") else "call_id"
            self._check_new(call.get("call_id"), self._call_ids, rule)
        if kind in rules.NAMED and not call.get("name"):
            self._report("call_name", f"{kind} is added without its name")
        before = [item for _, item in self._done[-2:]]
        if len(before) > 1 and before[0].get("type") == "reasoning" and rules.is_blank_message(before[1]):
            self._report("blank_message", "a message without text between reasoning and a call")

    def _finish_item(self, index: int, item: dict[str, Any]) -> None:
        opened = self._find_item(item.get("id"), index)
        if opened is None:
            # Taken over all the same, once, so that the output of the response is checked by itself.
            self._next_index = max(self._next_index, index + 1)
            if all(done.get("id") != item.get("id") for _, done in self._done):
                self._done.append((index, item))
            return
        self._open.remove(opened)
        self._done.append((opened.index, item))
        for key, rule in rules.UNCHANGED.items():
            if item.get(key) != opened.added.get(key):
                self._report(rule, f"{key} {short(item.get(key))} when done, {short(opened.added.get(key))} when added")
        self._check_final_status(opened.type, item)
        succeeded = item.get("status", "completed") == "completed" and not item.get("error")
        if succeeded and opened.type not in rules.SILENT and opened.steps < len(rules.STEPS.get(opened.type, ())):
            self._report("hosted_steps", f"{opened.type} {opened.id} is done without all events of its progress")
        self._check_final_texts(opened, item)

    def _check_final_status(self, kind: str, item: dict[str, Any]) -> None:
        caller = item.get("caller")
        if kind == "function_call" and isinstance(caller, dict) and caller.get("type") == "program":
            valid = item.get("status") in ("in_progress", "completed", "incomplete")  # the program waits for its output
        elif kind in rules.WITH_STATUS:
            valid = item.get("status") in ("completed", "incomplete")
        else:
            valid = item.get("status", "completed") in ("completed", "incomplete", "failed")
        if not valid:
            self._report(_status_rule(item), f"status {short(item.get('status'))} when done")

    def _check_final_texts(self, opened: _Item, item: dict[str, Any]) -> None:
        if opened.whole is not None:
            self._compare(opened.whole, item.get(rules.WHOLE[opened.type]), "output_item.done")
            if not opened.whole.done:
                self._report("done_missing", f"{opened.type} {opened.id} has no done event of its {rules.WHOLE[opened.type]}")
        if opened.type not in ("message", "reasoning"):
            return
        for name, streamed in opened.parts.items():
            for part in streamed.values():
                if not part.closed:
                    self._report("done_missing", f"{part.kind} is not closed before its item")
            final = item[name] if isinstance(item.get(name), list) else []
            kinds = [part.get("type") if isinstance(part, dict) else None for part in final]
            if kinds != [part.kind for part in streamed.values()]:
                self._report("item_parts", f"{name} of {opened.id} has {kinds}, other parts were streamed")
                continue
            for part, last in zip(streamed.values(), final, strict=True):
                self._compare(part, last.get(_text_field(part.kind)), "output_item.done")

    def _step(self, item: _Item, kind: str, name: str) -> None:
        """Check an event of a hosted tool's progress."""
        place = next(place for place, names in enumerate(rules.STEPS[kind], 1) if name in names)
        if item.type != kind:
            self._report("part_kind", f"response.{kind}.{name} for a {item.type}")
        elif place <= item.steps and not place == item.steps == 1:
            self._report("hosted_steps", f"{name} of {item.id} comes too late")
        item.steps = max(item.steps, place)

    # Parts and their text

    def _annotate(self, item: _Item, event: dict[str, Any]) -> None:
        text = self._find_part(item, "content", event["content_index"], "output_text")
        if text is None:
            return
        if event["annotation_index"] != len(text.annotations):
            self._report("annotations", f"annotation_index {event['annotation_index']}, expected {len(text.annotations)}")
        text.annotations.append(event["annotation"])
        end = event["annotation"].get("end_index", 0)
        if type(end) is int and end > sum(map(len, text.pieces)):
            self._report("annotations", f"end_index {end} is behind the text so far")

    def _add_part(self, item: _Item, name: str, index: int, part: dict[str, Any]) -> None:
        parts = item.parts[name]
        kind = str(part.get("type"))
        if index != len(parts):
            self._report("part_index", f"{name} {index}, expected {len(parts)}")
        if kind in rules.HOMES and rules.HOMES[kind][:2] != (item.type, name):
            self._report("part_kind", f"a part {kind} in the {name} of a {item.type}")
        if part.get(_text_field(kind)) or part.get("annotations"):
            self._report("added_empty", f"a part {kind} is added with content")
        parts[index] = _Text(kind)

    def _finish_part(self, item: _Item, name: str, index: int, last: dict[str, Any]) -> None:
        part = self._find_part(item, name, index, str(last.get("type")))
        if part is None:
            return
        if not part.done and part.kind in rules.HOMES:
            self._report("done_missing", f"{part.kind} is closed without the done event of its text")
        part.done = part.closed = True
        self._compare(part, last.get(_text_field(part.kind)), "part.done")
        if part.annotations and part.annotations != last.get("annotations"):
            self._report("annotations", f"{short(last.get('annotations'))} when done, others were added")

    def _find_part(self, item: _Item, name: str, index: int, kind: str) -> _Text | None:
        part = item.parts[name].get(index)
        if part is None or part.closed:
            self._report("part_not_open", f"{kind} at {name} {index} of {item.id} is not open")
            return None
        if part.kind != kind:
            self._report("part_kind", f"{kind} for a {part.kind}")
        return part

    def _fill_text(self, item: _Item, channel: Channel, verb: str, event: dict[str, Any]) -> None:
        if channel.place is not None:
            text = self._find_part(item, rules.LISTS[channel.place], event[channel.place], channel.kind)
        else:
            text = item.whole
            if item.type != channel.kind:
                self._report("part_kind", f"{event['type']} for a {item.type}")
        if text is None:
            return
        if text.done:
            self._report("part_not_open", f"{event['type']} after the done event of this text")
        elif verb == "delta":
            if not event["delta"]:
                self._report("empty_delta", f"{event['type']} without text")
            text.pieces.append(event["delta"])
        else:
            text.done = True
            self._compare(text, event[channel.field], event["type"])
            name = item.added.get("name")
            if event.get("name", name) != name:  # older clients read it there
                self._report("call_name", f"name {short(event['name'])} in {event['type']}, {short(name)} when added")

    def _compare(self, text: _Text, final: object, where: str) -> None:
        streamed = "".join(text.pieces)
        if final != streamed:
            only_final = not text.pieces and text.kind in rules.WHOLE and isinstance(final, str)
            self._report(
                "delta_missing" if only_final else "text_mismatch",
                f"{where}, {text.kind}: {rules.text_difference(streamed, final)}",
            )


def check_stream(data: bytes, *, unfinished_allowed: bool = False) -> list[Violation]:
    """Check the whole body of a stream (UTF-8 server-sent events, `data: [DONE]` included)."""
    checker = Checker(unfinished_allowed=unfinished_allowed)
    violations: list[Violation] = []
    count = 0
    marker = False
    for frame in frames(data):
        if marker:
            violations.append(Violation("after_terminal", count, f"{short(frame.data)} after [DONE]"))
        if not frame.complete:
            violations.append(Violation("malformed", count, "the last event lacks its blank line, clients drop it"))
        if frame.data == "[DONE]":
            marker = True
            continue
        violations += checker.feed(frame.name, decoded(frame.data))
        count += 1
    violations += checker.finish()
    if not marker:
        violations.append(Violation("done_marker", count, "no data: [DONE] at the end"))
    return violations


def decoded(text: str) -> object:
    """Return the JSON value, or the text itself where it is not JSON (which the checker then reports)."""
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        return text


def _status_rule(item: dict[str, Any]) -> Rule:
    return "reasoning_status" if item.get("type") == "reasoning" and item.get("status") is None else "item_status"


def _text_field(kind: str) -> str:
    return rules.HOMES[kind][2] if kind in rules.HOMES else "text"


class Frame(NamedTuple):
    """One server-sent event: its `event:` name (None without that line), its data, whether a blank line ended it."""

    name: str | None
    data: str
    complete: bool


def frames(data: bytes) -> Iterator[Frame]:
    """Yield the server-sent events of a body, as the SSE standard reads them; events without data are skipped."""
    name: str | None = None
    lines: list[str] = []
    *whole, rest = re.split("\r\n|\n|\r", data.decode("utf-8", "replace").removeprefix("\ufeff"))
    for line in [*whole, rest] if rest else whole:
        field, _, value = line.partition(":")
        value = value.removeprefix(" ")
        if not line:
            if lines:
                yield Frame(name, "\n".join(lines), True)
            name = None
            lines = []
        elif field == "event":
            name = value
        elif field == "data":
            lines.append(value)
    if lines:
        yield Frame(name, "\n".join(lines), False)
