"""The events of the Responses API, and the response object, which some of them show whole.

An event is `event: TYPE`, `data: {"type": TYPE, ..., "sequence_number": N}` and a blank line (Open Responses: "event" equals
"type"; every `data` is one JSON object). Those of an item: `output_item.added`, for a text its part, deltas, the dones in the
reverse order, `output_item.done`. What repeats from delta to delta of one item is built once; so is the JSON of an item that is
done: the terminal event and the stored response take that very text."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Literal, NamedTuple, TypeAlias

import msgspec

from responses_gateway.stream.writer.interface import (
    AnswerStream,
    CallKind,
    EndedText,
    EventWriter,
    ItemStatus,
    Outcome,
    Phase,
    Place,
    ReasoningForm,
    Status,
    TextKind,
    call_begun,
    extra_member,
    logprobs_json,
    message,
    message_part,
    no_clock,
    reasoning,
    reasoning_part,
    summary_part,
)
from responses_gateway.wire.chat import TokenLogprob
from responses_gateway.wire.deltas import Usage
from responses_gateway.wire.errors import ApiError
from responses_gateway.wire.hosted import CitedSource, ImageUsage
from responses_gateway.wire.hosted_kinds import ITEM_FORMS
from responses_gateway.wire.json_text import json_text, quote, quoted, sendable
from responses_gateway.wire.sse import DONE
from responses_gateway.wire.tools import ToolTarget

_CONTENT = ',"content_index":0'
_SUMMARY = ',"summary_index":0'
_SUMMARY_TEXT = "response.reasoning_summary_text"
ANNOTATION = "response.output_text.annotation.added"

Object = dict[str, Any]
# The type of an event, and its JSON members.
Event: TypeAlias = tuple[str, str]
_SNAPSHOT = b'event: %b\ndata: {"type":"%b","sequence_number":%d,"response":%b%b'
_END = "}\n\n"
# One delta event: the head of its item, the sequence number, the piece of text as a JSON string. A template, because it is
# written more often than all other events together.
_DELTA = b'%b%d,"delta":%b}\n\n'
# Values of the echo that are at least this long, as JSON, are worth storing once.
_LONG = 1024
_MAY_BE_LONG = frozenset({str, list, dict})
_DONE = DONE.encode()
# What hosted tools have used, as members of the response.
_TOOL_USAGE = '"tool_usage":{"image_gen":%s,"web_search":{"num_requests":%d}}'
# The codes that `response.error.code` may have for clients (a closed list in the SDKs, and what Codex acts on).
_STREAM_CODES = frozenset({"context_length_exceeded", "rate_limit_exceeded", "invalid_prompt", "insufficient_quota"})


# Returns what the end adds to a response besides: its members, given what the backends have counted.
AtEnd: TypeAlias = Callable[[Usage | None], Mapping[str, Any]]


class TextEvents(NamedTuple):
    """The events of an item's text, and what it is called: `stem` without `.delta`/`.done`; `member` holds the text in the done
    event and in the item."""

    stem: str
    member: str


_OUTPUT_TEXT = TextEvents("response.output_text", "text")
_REFUSAL = TextEvents("response.refusal", "refusal")
# The parts of items that have only begun, and what stands behind their place in the delta events of messages.
_EMPTY_PARTS = {
    "reasoning": reasoning_part('""'),
    "output_text": message_part("output_text", '""', "[]"),
    "refusal": message_part("refusal", '""', "[]"),
}
_DELTA_FIELDS = {"output_text": f'{_CONTENT},"logprobs":[]', "refusal": _CONTENT}
# The calls that show a text while it comes, by the type of their item.
CALL_EVENTS: dict[str, TextEvents] = {
    "function_call": TextEvents("response.function_call_arguments", "arguments"),
    "custom_tool_call": TextEvents("response.custom_tool_call_input", "input"),
    **{form.type: TextEvents(form.text_event, form.text) for form in ITEM_FORMS.values() if form.text},
}


class ResponsesWriter(EventWriter):
    """A Responses stream that is being written."""

    __slots__ = ("_delta", "_end", "_reasoning", "_shown_as", "_summary")

    def __init__(
        self,
        stream_id: str | None = None,
        clock: Callable[[], float] = no_clock,
        *,
        reasoning_event: str = "response.reasoning_text",
        reasoning_as: ReasoningForm = "content",
    ) -> None:
        """Begin a stream. `stream_id` becomes the last member of every event, `reasoning_event` is the event of reasoning
        without `.delta`/`.done`, where that is shown as content."""
        super().__init__(clock)
        self._reasoning = reasoning_event
        self._shown_as = reasoning_as
        self._summary: Place | None = None  # of a context, once it is being made
        self._end = _END
        self._delta = _DELTA
        if stream_id is not None:
            self._end = f',"stream_id":{quote(stream_id)}{_END}'
            self._delta = _DELTA.removesuffix(_END.encode()) + self._end.encode("utf-8", "replace").replace(b"%", b"%%")

    def blank(self) -> ResponsesWriter:
        """Return a writer that makes the same items, for a stream that nobody gets."""
        return ResponsesWriter(reasoning_event=self._reasoning, reasoning_as=self._shown_as)

    # ---- events --------------------------------------------------------------------------------------------------------

    def snapshot(self, kind: bytes, number: int, response: bytes) -> bytes:
        """Return an event that shows the whole response, which is JSON."""
        return _SNAPSHOT % (kind, kind, number, response, self._end.encode("utf-8", "replace"))

    def show(self, response: bytes, *kinds: bytes) -> None:
        """Append the next events, which show the whole response."""
        end = self._end.encode("utf-8", "replace")
        for kind in kinds:
            self.events.append(_SNAPSHOT % (kind, kind, self.next_number, response, end))
            self.next_number += 1

    def write(self, kind: str, fields: str) -> None:
        """Append the next event."""
        self.write_all((kind, fields))

    def write_all(self, *events: Event) -> None:
        """Append the next events, which belong together: each costs as little as a piece of a text does. A lone surrogate must
        not break the stream."""
        text = ""
        for kind, fields in events:
            text += f'event: {kind}\ndata: {{"type":"{kind}","sequence_number":{self.next_number},{fields}{self._end}'
            self.next_number += 1
        self.events.append(text.encode("utf-8", "replace"))

    def add_item(self, item: str) -> int:
        """Append `output_item.added` and return the item's output_index; `item` is its JSON."""
        index = self._begin()
        self.write_all(_item("added", index, item))
        return index

    def finish_item(self, kind: str, index: int, item: str, *dones: Event) -> None:
        """Append `output_item.done`, behind the dones of what it holds: the item now belongs to the output."""
        self.write_all(*dones, _item("done", index, item))
        self._count(kind, index, item)

    # ---- reasoning and messages ----------------------------------------------------------------------------------------

    def open_text(self, kind: TextKind, item_id: str, phase: Phase = "") -> Place:
        """Write the item and its part, which are empty."""
        begun = f'"id":"{item_id}","status":"in_progress"'
        index = self._begin()
        where = _where(item_id, index)
        if kind == "reasoning":
            heads = []
            events = [_item("added", index, f'{{"type":"reasoning",{begun},"summary":[],"content":[]}}')]
            if self._shown_as != "summary":
                heads.append(_delta_head(f"{self._reasoning}.delta", where + _CONTENT))
                events.append(_part("added", where, _EMPTY_PARTS[kind]))
            if self._shown_as != "content":
                heads.append(_delta_head(f"{_SUMMARY_TEXT}.delta", where + _SUMMARY))
                events.append(_summary_part("added", where, '""'))
            self.write_all(*events)
            return Place(kind, item_id, index, heads[0], b"".join(heads[1:]))
        phase_member = f'"phase":"{phase}",' if phase else ""
        item = f'{{"type":"message",{begun},"role":"assistant",{phase_member}"content":[]}}'
        self.write_all(_item("added", index, item), _part("added", where, _EMPTY_PARTS[kind]))
        head = _delta_head(f"response.{kind}.delta", f"{where}{_DELTA_FIELDS[kind]}")
        return Place(kind, item_id, index, head, phase=phase)

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
        fields = f'{_where(place.item_id, place.index)}{_CONTENT},"logprobs":{logprobs_json(logprobs)}'
        head = _delta_head("response.output_text.delta", fields)
        self.events.append(self._delta % (head, self.next_number, quoted(text)))
        self.next_number += 1

    def annotate(self, place: Place, number: int, annotation: Mapping[str, Any]) -> None:
        """Append `output_text.annotation.added`."""
        which = f'"annotation_index":{number},"annotation":{json_text(annotation)}'
        self.write("response.output_text.annotation.added", f"{_where(place.item_id, place.index)}{_CONTENT},{which}")

    def close_text(self, place: Place, ended: EndedText) -> None:
        """Append the dones of the text, of its part, and of the item."""
        if place.kind == "reasoning":
            self._close_reasoning(place, ended)
            return
        where = _where(place.item_id, place.index)
        in_json = quote(ended.text)
        if place.kind == "refusal":
            part = message_part("refusal", in_json, "[]")
            done = _text_done(_REFUSAL, where + _CONTENT, in_json)
        else:
            entries = logprobs_json(ended.logprobs) if ended.logprobs else "[]"
            part = message_part("output_text", in_json, entries, ended.annotations)
            done = _text_done(_OUTPUT_TEXT, f'{where}{_CONTENT},"logprobs":{entries}', in_json)
        self._count_deltas(f"response.{place.kind}.delta", ended.deltas)
        self.characters["refusal" if place.kind == "refusal" else "text"] += len(ended.text)
        record = message(place.item_id, ended.status, part, place.phase)
        self.finish_item("message", place.index, record, done, _part("done", where, part))

    def _close_reasoning(self, place: Place, ended: EndedText) -> None:
        where = _where(place.item_id, place.index)
        in_json = quote(ended.text)
        dones = []
        if self._shown_as != "summary":
            dones.append(_text_done(TextEvents(self._reasoning, "text"), where + _CONTENT, in_json))
            dones.append(_part("done", where, reasoning_part(in_json)))
            self._count_deltas(f"{self._reasoning}.delta", ended.deltas)
        if self._shown_as != "content":
            dones.append(_text_done(TextEvents(_SUMMARY_TEXT, "text"), where + _SUMMARY, in_json))
            dones.append(_summary_part("done", where, in_json))
            self._count_deltas(f"{_SUMMARY_TEXT}.delta", ended.deltas)
        self.characters["reasoning"] += len(ended.text)
        record = reasoning(place.item_id, ended.status, in_json, ended.sealed, ended.details, form=self._shown_as)
        self.finish_item("reasoning", place.index, record, *dones)

    def write_details(self, item_id: str, details: str, sealed: str | None) -> None:
        """Append the item twice, as begun and as it is: it has no parts."""
        index = self.add_item(f'{{"type":"reasoning","id":"{item_id}","status":"in_progress","summary":[],"content":[]}}')
        self.finish_item("reasoning", index, reasoning(item_id, "completed", "", sealed, details))

    # ---- calls ---------------------------------------------------------------------------------------------------------

    def open_call(self, kind: CallKind, item_id: str, call_id: str, target: ToolTarget, extra: str = "") -> Place:
        """Write the item without its arguments."""
        begun = call_begun(kind, item_id, call_id, target)
        stem, member = CALL_EVENTS[kind]
        index = self.add_item(f'{begun}{extra_member(extra)},"{member}":"","status":"in_progress"}}')
        return Place(kind, item_id, index, _delta_head(f"{stem}.delta", _where(item_id, index)), begun=begun)

    def close_call(
        self, place: Place, status: ItemStatus, text: str, *, deltas: int, plain: bool = False, extra: str = ""
    ) -> None:
        """Write the done, and the item itself."""
        events = CALL_EVENTS[place.kind]
        in_json = quote(text)
        self._count_deltas(f"{events.stem}.delta", deltas)
        not_encrypted = ',"encrypted_function_args":[]' if plain else ""
        record = f'{place.begun}{extra_member(extra)},"{events.member}":{in_json}{not_encrypted},"status":"{status}"}}'
        done = _text_done(events, _where(place.item_id, place.index), in_json)
        self.finish_item(place.kind, place.index, record, done)

    def open_hosted(self, kind: str, item_id: str, members: Mapping[str, Any]) -> Place:
        """Write the item, and the first event of its progress."""
        index = self.add_item(json_text({"type": kind, "id": item_id, **members}))
        place = Place(kind, item_id, index)
        if kind in CALL_EVENTS:
            place.head = _delta_head(f"{CALL_EVENTS[kind].stem}.delta", _where(item_id, index))
        self._write_step(place, ITEM_FORMS[kind].before[0])
        return place

    def run_hosted(self, place: Place, text: str, *, deltas: int, members: Mapping[str, Any]) -> None:
        """Write the rest of the progress, with the done of the text."""
        form = ITEM_FORMS[place.kind]
        for step in form.before[1:]:
            self._write_step(place, step)
        events = CALL_EVENTS.get(place.kind)
        if events is not None:
            self.write_all(_text_done(events, _where(place.item_id, place.index), quote(text)))
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
        self.write(f"response.{place.kind}.{name}", _where(place.item_id, place.index))

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
        """Write the item, added and done; of one that `begin_summary` has added, the rest."""
        begun = self._summary if kind == "compaction" else None
        self.finish_item(kind, self.add_item(record) if begun is None else begun.index, record)

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
        self.write_record("compaction", json_text({"type": "compaction", "id": item_id, "encrypted_content": sealed}))


# ---- the events of items: all that is given to them is JSON ---------------------------------------------------------------


def _item(verb: Literal["added", "done"], index: int, item: str) -> Event:
    return f"response.output_item.{verb}", f'"output_index":{index},"item":{item}'


def _part(verb: Literal["added", "done"], where: str, part: str) -> Event:
    return f"response.content_part.{verb}", f'{where}{_CONTENT},"part":{part}'


def _summary_part(verb: Literal["added", "done"], where: str, text: str) -> Event:
    return f"response.reasoning_summary_part.{verb}", f'{where}{_SUMMARY},"part":{summary_part(text)}'


def _text_done(events: TextEvents, fields: str, text: str) -> Event:
    return f"{events.stem}.done", f'{fields},"{events.member}":{text}'


def _where(item_id: str, output_index: int) -> str:
    return f'"item_id":"{item_id}","output_index":{output_index}'


def _delta_head(kind: str, fields: str) -> bytes:
    """Return all of a delta event up to the sequence number, given its JSON members before that."""
    return f'event: {kind}\ndata: {{"type":"{kind}",{fields},"sequence_number":'.encode("utf-8", "replace")


def write_event(writer: ResponsesWriter, kind: str, fields: Object) -> None:
    """Append the next event with these fields, for streams that are not written as the model speaks."""
    writer.write(kind, members(fields))


def members(fields: Object) -> str:
    """Return the members of a JSON object, without its braces."""
    return ",".join(f'"{name}":{json_text(value)}' for name, value in fields.items())


class _State(msgspec.Struct, frozen=True, gc=False):
    """How a response stands: its status, and what the end adds to it, as JSON."""

    status: Status
    completed_at: str = "null"
    error: str = "null"
    incomplete: str = "null"
    usage: str = "null"  # and, behind the end, `tool_usage`, and what `AtEnd` adds


_QUEUED = _State("queued")
_IN_PROGRESS = _State("in_progress")


class ResponseStream(AnswerStream):
    """The response of one stream: `queue`, `start`, `keep_alive` and `end` write the events that show it whole (Open Responses:
    `response.created`, `queued`, `in_progress`), `terminal` makes the last one."""

    __slots__ = ("_at_end", "_extension", "_first_state", "_state", "_terminal_number", "object")

    writer: ResponsesWriter

    def __init__(self, response: ResponseObject, writer: ResponsesWriter, at_end: Sequence[AtEnd]) -> None:
        """The items of the response are those that are done in `writer`."""
        super().__init__(writer)
        self._at_end = at_end
        self._extension = ""  # of the last item, as JSON
        self.object = response
        self._first_state = _IN_PROGRESS
        self._state = _QUEUED
        self._terminal_number = 0

    def queue(self) -> None:
        """Write `response.created` and `response.queued`."""
        self._first_state = _QUEUED
        self.writer.show(self._json(), b"response.created", b"response.queued")

    def start(self) -> None:
        """Write `response.in_progress`, behind `response.created`."""
        self._state = _IN_PROGRESS
        begun = (b"response.created",) if self._first_state is _IN_PROGRESS else ()
        self.writer.show(self._json(), *begun, b"response.in_progress")

    def keep_alive(self) -> None:
        """Write `response.in_progress` with the snapshot so far."""
        self.writer.show(self._json("in_progress"), b"response.in_progress")

    def end(self, outcome: Outcome) -> None:
        """Take the end, and the next sequence number for the terminal event."""
        self._state = _ended(outcome, self.writer.items.get("web_search_call", 0))
        for at_end in self._at_end:
            fields = json_text(at_end(outcome.usage))[1:-1]
            if fields:
                self._state = msgspec.structs.replace(self._state, usage=f"{self._state.usage},{fields}")
        self._terminal_number = self.writer.next_number
        self.writer.next_number += 1

    def extend_last_item(self, members: Mapping[str, Any]) -> None:
        """Add members to the last item, in its event and in the response."""
        events = self.writer.events
        item = self.writer.done[-1].encode()
        before, middle, behind = events[-1].rpartition(item) if events else (b"", b"", b"")
        if middle:
            self._extension = f",{json_text(members)[1:-1]}"
            events[-1] = before + item[:-1] + self._extension.encode() + item[-1:] + behind

    def terminal(self, *, stored: bool | None = None) -> bytes:
        """Return the terminal event and `[DONE]`. `stored` overrides the `store` of the request."""
        kind = f"response.{self._state.status}".encode()
        return self.writer.snapshot(kind, self._terminal_number, self._json(None, stored)) + _DONE

    def json(self, *, stored: bool | None = None, status: Status | None = None) -> str:
        """Return the response as JSON, as it stands. `status` takes the place of its own."""
        return self._json(status, stored).decode()

    def text_around_output(self, *, status: Status | None = None) -> tuple[str, bytes]:
        """Return that JSON before and behind the output items."""
        before, behind, echo = self.object.around(self._state, status)
        return sendable(before), behind.encode("utf-8", "replace") + echo

    def first_text_around_output(self) -> tuple[str, bytes]:
        """Return the same of the response as the first event has it."""
        before, behind, echo = self.object.around(self._first_state)
        return sendable(before), behind.encode("utf-8", "replace") + echo

    @property
    def long_texts(self) -> Sequence[bytes]:
        """The long values in the text behind the output items, in order. They repeat the request, and so do the next ones."""
        return self.object.long_texts

    def _json(self, status: Status | None = None, stored: bool | None = None) -> bytes:
        before, behind, echo = self.object.around(self._state, status, stored=stored)
        output = ",".join(self.writer.done)
        if self._extension:
            output = f"{output[:-1]}{self._extension}{output[-1:]}"
        return f"{before}{output}{behind}".encode("utf-8", "replace") + echo


def _ended(outcome: Outcome, searches: int) -> _State:
    """Return how a response stands at its end that has so many calls of web search."""
    completed = "null" if outcome.completed_at is None else str(outcome.completed_at)
    incomplete = "null" if outcome.incomplete_reason is None else f'{{"reason":"{outcome.incomplete_reason}"}}'
    failure = "null" if outcome.error is None else _error_json(outcome.error)
    images = _NO_IMAGES if outcome.images is None else _images_json(outcome.images)
    usage = f"{usage_json(outcome.usage)},{_TOOL_USAGE % (images, searches)}"
    return _State(outcome.status, completed, failure, incomplete, usage)


def _images_json(used: ImageUsage) -> str:
    read = used.input_text + used.input_image
    written = used.output_text + used.output_image
    details = '{"image_tokens":%d,"text_tokens":%d}'
    return (
        f'{{"input_tokens":{read},"input_tokens_details":{details % (used.input_image, used.input_text)},'
        f'"output_tokens":{written},"output_tokens_details":{details % (used.output_image, used.output_text)},'
        f'"total_tokens":{read + written}}}'
    )


_NO_IMAGES = _images_json(ImageUsage())


def _error_json(error: ApiError) -> str:
    # The request is at fault, whatever the code says: clients repeat after a `server_error`, and get the same refusal.
    other = "invalid_prompt" if error.status in {400, 404} else "server_error"
    code = error.code if error.code in _STREAM_CODES else other
    return f'{{"code":"{code}","message":{quote(error.message)}}}'


class ResponseObject:
    """The JSON of one response around its output: identity and the echo of its request, built once."""

    __slots__ = ("_echo", "_head", "_model", "_tail", "id")

    def __init__(self, response_id: str, created_at: int, model: str, echo: Mapping[str, Any]) -> None:
        """Build what repeats. `created_at` is a Unix time in seconds; `echo` the fields that repeat the request."""
        self.id = response_id
        self._echo = echo
        self._model = model
        self._head = f'{{"id":"{response_id}","object":"response","created_at":{created_at}'
        self._tail = self._tail_of(echo)

    @property
    def long_texts(self) -> Sequence[bytes]:
        """The JSON of the long values of the echo, in order."""
        if len(self._tail) < _LONG:
            return ()
        texts = [quoted(value) for value in self._echo.values() if type(value) in _MAY_BE_LONG]
        return [text for text in texts if len(text) >= _LONG]

    def around(self, state: _State, status: Status | None = None, *, stored: bool | None = None) -> tuple[str, str, bytes]:
        """Return the text before and behind the output items, and what follows: the echo, in UTF-8, which may be long. `status`
        takes the place of that of the `state`; `stored` overrides the `store` of the request, if it has one."""
        tail = self._tail
        if stored is not None and self._echo.get("store", stored) != stored:
            tail = self._tail_of({**self._echo, "store": stored})
        error = "null" if status == "cancelled" else state.error
        before = (
            f'{self._head},"status":"{status or state.status}","completed_at":{state.completed_at},"error":{error}'
            f',"incomplete_details":{state.incomplete},"output":['
        )
        return before, f'],"usage":{state.usage},"model":{quote(self._model)}', tail

    def _tail_of(self, echo: Mapping[str, Any]) -> bytes:
        return b",%b" % quoted(echo)[1:] if echo else b"}"


def usage_json(usage: Usage | None) -> str:
    """Return the usage object, or null if the backend reported no counts."""
    if usage is None or usage.input is None or usage.output is None:
        return "null"
    cached = min(usage.cached, usage.input) if usage.cached else 0
    reasoning = min(usage.reasoning, usage.output) if usage.reasoning else 0
    return (
        f'{{"input_tokens":{usage.input}'
        f',"input_tokens_details":{{"cached_tokens":{cached},"cache_write_tokens":{usage.cache_write or 0}}}'
        f',"output_tokens":{usage.output},"output_tokens_details":{{"reasoning_tokens":{reasoning}}}'
        f',"total_tokens":{usage.input + usage.output}}}'
    )
