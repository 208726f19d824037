"""The events of the Responses API.

An event is `event: TYPE`, `data: {"type": TYPE, ..., "sequence_number": N}` and a blank line (Open Responses: "event" equals
"type"; every `data` is one JSON object). Those of an item: `output_item.added`, for a text its part, deltas, the dones in the
reverse order, `output_item.done`. What repeats from delta to delta of one item is built once; so is the JSON of an item that is
done: the terminal event and the stored response take that very text."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Literal, NamedTuple

from responses_gateway.stream.writer.interface import CallKind, EventWriter, ItemStatus, Place, TextKind
from responses_gateway.stream.writer.records import (
    call_begun,
    logprobs_json,
    message,
    message_part,
    reasoning,
    reasoning_part,
    summary_part,
)
from responses_gateway.wire.chat import TokenLogprob
from responses_gateway.wire.hosted import CitedSource
from responses_gateway.wire.hosted_kinds import ITEM_FORMS
from responses_gateway.wire.json_text import json_text, quote, quoted
from responses_gateway.wire.tools import ToolTarget

_CONTENT = ',"content_index":0'
_SUMMARY = ',"summary_index":0'
_SUMMARY_TEXT = "response.reasoning_summary_text"
ANNOTATION = "response.output_text.annotation.added"

Object = dict[str, Any]


class TextEvents(NamedTuple):
    """The events of an item's text, and what it is called: `stem` without `.delta`/`.done`; `member` holds the text in the done
    event and in the item."""

    stem: str
    member: str


# The calls that show a text while it comes, by the type of their item.
CALL_EVENTS: dict[str, TextEvents] = {
    "function_call": TextEvents("response.function_call_arguments", "arguments"),
    "custom_tool_call": TextEvents("response.custom_tool_call_input", "input"),
    **{form.type: TextEvents(form.text_event, form.text) for form in ITEM_FORMS.values() if form.text},
}


def _no_clock() -> float:
    return 0.0


class ResponsesWriter(EventWriter):
    """A Responses stream that is being written."""

    __slots__ = ("_delta", "_end", "_mirrors", "_reasoning", "_summary")

    def __init__(
        self,
        stream_id: str | None = None,
        clock: Callable[[], float] = _no_clock,
        *,
        reasoning_event: str = "response.reasoning_text",
        mirrors_reasoning: bool = False,
    ) -> None:
        """Begin a stream. `stream_id` becomes the last member of every event, `reasoning_event` is the event of reasoning
        without `.delta`/`.done`. With `mirrors_reasoning` it is shown once more, as a summary."""
        super().__init__(clock)
        self._reasoning = reasoning_event
        self._mirrors = mirrors_reasoning
        self._summary: Place | None = None  # of a context, once it is being made
        self._end = "}\n\n" if stream_id is None else f',"stream_id":{quote(stream_id)}}}\n\n'
        # One delta event: the head of its item, the sequence number, the piece of text as a JSON string. A template, for it is
        # written more often than all other events together.
        self._delta = b'%b%d,"delta":%b' + self._end.encode("utf-8", "replace").replace(b"%", b"%%")

    def blank(self) -> ResponsesWriter:
        """Return a writer that makes the same items, for a stream that nobody gets."""
        return ResponsesWriter(reasoning_event=self._reasoning, mirrors_reasoning=self._mirrors)

    # ---- events --------------------------------------------------------------------------------------------------------

    def event(self, kind: str, number: int, fields: str) -> bytes:
        """Return one event; `fields` are its JSON members. A lone surrogate must not break the stream."""
        text = f'event: {kind}\ndata: {{"type":"{kind}","sequence_number":{number},{fields}{self._end}'
        return text.encode("utf-8", "replace")

    def write(self, kind: str, fields: str) -> None:
        """Append the next event."""
        number = self.next_number
        self.events.append(self.event(kind, number, fields))
        self.next_number = number + 1

    def add_item(self, item: str) -> int:
        """Append `output_item.added` and return the item's output_index; `item` is its JSON."""
        index = self._begin()
        self.write("response.output_item.added", f'"output_index":{index},"item":{item}')
        return index

    def finish_item(self, kind: str, index: int, item: str) -> None:
        """Append `output_item.done`: the item now belongs to the output."""
        self.write("response.output_item.done", f'"output_index":{index},"item":{item}')
        self._count(kind, index, item)

    # ---- reasoning and messages ----------------------------------------------------------------------------------------

    def open_text(self, kind: TextKind, item_id: str) -> Place:
        """Write the item and its part, which are empty."""
        begun = f'"id":"{item_id}","status":"in_progress"'
        if kind == "reasoning":
            index = self.add_item(f'{{"type":"reasoning",{begun},"summary":[],"content":[]}}')
            place = Place(kind, item_id, index, _delta_head(f"{self._reasoning}.delta", item_id, index, _CONTENT))
            self._write_part("added", place, reasoning_part(""))
            if self._mirrors:
                place.second_head = _delta_head(f"{_SUMMARY_TEXT}.delta", item_id, index, _SUMMARY)
                self._write_summary_part("added", place, "")
            return place
        index = self.add_item(f'{{"type":"message",{begun},"role":"assistant","content":[]}}')
        fields = f'{_CONTENT},"logprobs":[]' if kind == "output_text" else _CONTENT
        place = Place(kind, item_id, index, _delta_head(f"response.{kind}.delta", item_id, index, fields))
        self._write_part("added", place, message_part(kind, "", "[]"))
        return place

    def delta(self, place: Place, quoted: bytes) -> bytes:
        """Return the delta event, or two of mirrored reasoning."""
        number = self.next_number
        if not place.second_head:
            self.next_number = number + 1
            return self._delta % (place.head, number, quoted)
        self.next_number = number + 2
        return self._delta % (place.head, number, quoted) + self._delta % (place.second_head, number + 1, quoted)

    def write_logprobs_delta(self, place: Place, text: str, logprobs: Sequence[TokenLogprob]) -> None:
        """Append `output_text.delta`."""
        fields = f'{_CONTENT},"logprobs":{logprobs_json(logprobs)}'
        head = _delta_head("response.output_text.delta", place.item_id, place.index, fields)
        self.events.append(self._delta % (head, self.next_number, quoted(text)))
        self.next_number += 1

    def annotate(self, place: Place, number: int, annotation: Mapping[str, Any]) -> None:
        """Append `output_text.annotation.added`."""
        which = f'"annotation_index":{number},"annotation":{json_text(annotation)}'
        self.write("response.output_text.annotation.added", f"{_place_of(place)}{_CONTENT},{which}")

    def close_text(
        self,
        place: Place,
        status: ItemStatus,
        text: str,
        *,
        deltas: int,
        logprobs: Sequence[TokenLogprob],
        annotations: Sequence[Mapping[str, Any]],
        sealed: str | None,
    ) -> None:
        """Append the dones of the text, of its part, and of the item."""
        if place.kind == "reasoning":
            self._close_reasoning(place, status, text, deltas, sealed)
            return
        kind: TextKind = "refusal" if place.kind == "refusal" else "output_text"
        stem = f"response.{kind}"
        if kind == "refusal":
            part = message_part(kind, text, "[]")
            self._write_text_done(place, TextEvents(stem, "refusal"), text, _CONTENT)
        else:
            entries = logprobs_json(logprobs)
            part = message_part(kind, text, entries, annotations)
            self._write_text_done(place, TextEvents(stem, "text"), text, f'{_CONTENT},"logprobs":{entries}')
        self._write_part("done", place, part)
        self._count_deltas(f"{stem}.delta", deltas)
        self.count_characters("text" if kind == "output_text" else "refusal", text)
        self.finish_item("message", place.index, message(place.item_id, status, part))

    def _close_reasoning(self, place: Place, status: ItemStatus, text: str, deltas: int, sealed: str | None) -> None:
        self._write_text_done(place, TextEvents(self._reasoning, "text"), text, _CONTENT)
        self._write_part("done", place, reasoning_part(text))
        if place.second_head:
            self._write_text_done(place, TextEvents(_SUMMARY_TEXT, "text"), text, _SUMMARY)
            self._write_summary_part("done", place, text)
            self._count_deltas(f"{_SUMMARY_TEXT}.delta", deltas)
        self._count_deltas(f"{self._reasoning}.delta", deltas)
        self.count_characters("reasoning", text)
        record = reasoning(place.item_id, status, text, summary=bool(place.second_head), sealed=sealed)
        self.finish_item("reasoning", place.index, record)

    # ---- calls ---------------------------------------------------------------------------------------------------------

    def open_call(self, kind: CallKind, item_id: str, call_id: str, target: ToolTarget) -> Place:
        """Write the item without its arguments."""
        begun = call_begun(kind, item_id, call_id, target)
        stem, member = CALL_EVENTS[kind]
        index = self.add_item(f'{begun},"{member}":"","status":"in_progress"}}')
        return Place(kind, item_id, index, _delta_head(f"{stem}.delta", item_id, index), begun=begun)

    def close_call(self, place: Place, status: ItemStatus, text: str, *, deltas: int, plain: bool = False) -> None:
        """Write the done, and the item itself."""
        events = CALL_EVENTS[place.kind]
        self._write_text_done(place, events, text)
        self._count_deltas(f"{events.stem}.delta", deltas)
        not_encrypted = ',"encrypted_function_args":[]' if plain else ""
        record = f'{place.begun},"{events.member}":{quote(text)}{not_encrypted},"status":"{status}"}}'
        self.finish_item(place.kind, place.index, record)

    def open_hosted(self, kind: str, item_id: str, members: Mapping[str, Any]) -> Place:
        """Write the item, and the first event of its progress."""
        index = self.add_item(json_text({"type": kind, "id": item_id, **members}))
        place = Place(kind, item_id, index)
        if kind in CALL_EVENTS:
            place.head = _delta_head(f"{CALL_EVENTS[kind].stem}.delta", item_id, index)
        self._write_step(place, ITEM_FORMS[kind].before[0])
        return place

    def run_hosted(self, place: Place, text: str, *, deltas: int, members: Mapping[str, Any]) -> None:
        """Write the rest of the progress, with the done of the text."""
        form = ITEM_FORMS[place.kind]
        for step in form.before[1:]:
            self._write_step(place, step)
        events = CALL_EVENTS.get(place.kind)
        if events is not None:
            self._write_text_done(place, events, text)
            self._count_deltas(f"{events.stem}.delta", deltas)
        for step in form.after:
            self._write_step(place, step)

    def close_hosted(
        self, place: Place, members: Mapping[str, Any], *, end: str, sources: Sequence[CitedSource] = (), text: str = ""
    ) -> None:
        """Write how the progress ended, and the item itself."""
        if end in ITEM_FORMS[place.kind].ends:
            self._write_step(place, end)
        self.finish_item(place.kind, place.index, json_text({"type": place.kind, "id": place.item_id, **members}))

    def _write_step(self, place: Place, name: str) -> None:
        self.write(f"response.{place.kind}.{name}", _place_of(place))

    # ---- items that are whole ------------------------------------------------------------------------------------------

    def write_item(self, kind: str, item_id: str, members: Mapping[str, Any], status: ItemStatus | None = None) -> None:
        """Write the item, added and done."""
        begun = json_text({"type": kind, "id": item_id, **members})
        if status is None:
            self.write_record(kind, begun)
            return
        index = self.add_item(f'{begun[:-1]},"status":"in_progress"}}')
        self.finish_item(kind, index, f'{begun[:-1]},"status":"{status}"}}')

    def write_record(self, kind: str, record: str) -> None:
        """Write the item, added and done."""
        self.finish_item(kind, self.add_item(record), record)

    # ---- the summary of a context ----------------------------------------------------------------------------------------

    def begin_summary(self, item_id: str) -> None:
        """Write the item, still empty, and that it is being made; once."""
        if self._summary is None:
            begun = f'{{"type":"compaction","id":"{item_id}","encrypted_content":""}}'
            self._summary = Place("compaction", item_id, self.add_item(begun))
            self._write_step(self._summary, "compacting")

    def write_summary(self, item_id: str, sealed: str) -> None:
        """Write the item itself, behind what `begin_summary` wrote."""
        self.begin_summary(item_id)
        assert self._summary is not None
        record = json_text({"type": "compaction", "id": item_id, "encrypted_content": sealed})
        self.finish_item("compaction", self._summary.index, record)

    # ---- parts of items ------------------------------------------------------------------------------------------------

    def _write_text_done(self, place: Place, events: TextEvents, text: str, fields: str = "") -> None:
        self.write(f"{events.stem}.done", f'{_place_of(place)}{fields},"{events.member}":{quote(text)}')

    def _write_part(self, verb: Literal["added", "done"], place: Place, part: str) -> None:
        self.write(f"response.content_part.{verb}", f'{_place_of(place)}{_CONTENT},"part":{part}')

    def _write_summary_part(self, verb: Literal["added", "done"], place: Place, text: str) -> None:
        fields = f'{_place_of(place)}{_SUMMARY},"part":{summary_part(text)}'
        self.write(f"response.reasoning_summary_part.{verb}", fields)


def _place_of(place: Place) -> str:
    return f'"item_id":"{place.item_id}","output_index":{place.index}'


def _delta_head(kind: str, item_id: str, output_index: int, fields: str = "") -> bytes:
    """Return all of a delta event up to the sequence number. `fields` is more JSON members, each with a leading comma."""
    place = f'"item_id":"{item_id}","output_index":{output_index}{fields}'
    return f'event: {kind}\ndata: {{"type":"{kind}",{place},"sequence_number":'.encode("utf-8", "replace")


def write_event(writer: ResponsesWriter, kind: str, fields: Object) -> None:
    """Append the next event with these fields, for streams that are not written as the model speaks."""
    writer.write(kind, members(fields))


def members(fields: Object) -> str:
    """Return the members of a JSON object, without its braces."""
    return ",".join(f'"{name}":{json_text(value)}' for name, value in fields.items())
