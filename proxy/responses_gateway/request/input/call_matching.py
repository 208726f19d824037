"""Match the calls of an input with their outputs.

A chat backend requires that every tool message follow the assistant message with its call, that every call be answered, and
that ids be unique. The items of a Responses input guarantee less, so calls and outputs are matched before messages are built.

The outputs of calls of tools with `async: true` may stand anywhere after them. What the model has read does not change: a call
that had no output when the model went on keeps the hint in the place of its result. An output that came later is shown with its
call once more, where it stands, because chat servers take results of calls alone, and directly after them. So one call may have
several outputs, too."""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Container, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import msgspec

from responses_gateway.request.fields import Entry
from responses_gateway.request.input.approvals import REQUEST_ID
from responses_gateway.request.input.calls import (
    CALL_TYPES,
    OUTPUT_TYPES,
    CallItemReader,
    InputCall,
    is_async_call,
    is_unpaired,
    output_call_id,
)
from responses_gateway.request.input.items import Output
from responses_gateway.request.loss_report import LossReport
from responses_gateway.wire.errors import invalid_request
from responses_gateway.wire.item_ids import TurnKey, turn_of
from responses_gateway.wire.json_text import quoted, read_object
from responses_gateway.wire.requests import ResponsesRequest

NO_OUTPUT = Output("(The result of this call is missing. Whether it was carried out is not known.)")
# The output of an asynchronous call that has none yet.
PENDING_OUTPUT = Output(
    "This call runs in the background. Its result is not there yet: do not guess it, and do not make the call again. "
    "Go on with the rest of the request."
)
_ASYNC_TYPES = frozenset({"function_call", "custom_tool_call"})
# Calls with the id of another one that it is compared with, while none has an output: a request may have thousands of one id.
_MOST_COMPARED = 16
# Members by which an item says the same as another one, beside its texts and arguments.
_SAID = ("role", "name", "namespace", "server_label", "call_id", "input", "output")


class MatchedCall(msgspec.Struct):
    """A call with its unique id in the chat history, and its output once that is found. If `repeated`, it stands there. `notes`
    came after the output: what a script told while it ran (`notify` in Codex's code mode)."""

    call: InputCall
    id: str
    output: Output | None
    repeated: bool = False
    notes: list[str] = []


class MatchedCalls(NamedTuple):
    """The calls of an input. `by_path` has the call of each call item and of each output item, by the path of the item. `ids`
    are all call ids of the request, the client's and the generated ones. `reported`: how many losses there were behind the
    items that may be kept, and before calls without outputs were given some."""

    by_path: Mapping[str, MatchedCall]
    ids: frozenset[str]
    reported: int = 0


NO_CALLS = MatchedCalls({}, frozenset())


def match_calls(
    entries: Sequence[Entry],
    reader: CallItemReader,
    report: LossReport,
    taken: frozenset[str] = frozenset(),
    kept: int | None = None,
) -> MatchedCalls:
    """Match all calls with their outputs by call id, in order. `taken` are the ids of calls before them, and `kept` is how many
    of the items may be kept; None: all of them. Raises `ApiError` 400 for a malformed item or an output without a call."""
    matcher = _Matcher(reader, report, _ids=set(taken))
    matcher.read(entries if kept is None else entries[:kept])
    reported = report.size
    if kept is not None:
        matcher.read(entries[kept:])
    return MatchedCalls(*matcher.finish(), reported)


@dataclass(slots=True)
class _Matcher:
    """Collects the calls of one input and assigns each output to the first unanswered call with its id. `pending` are the
    asynchronous calls of the model's present turn, as long as nothing else was said after them."""

    _reader: CallItemReader
    _report: LossReport
    _unanswered: dict[str, list[MatchedCall]] = field(default_factory=dict)
    _answered: MatchedCall | None = None  # the call whose output came last
    _copies: dict[str, int] = field(default_factory=dict)
    _by_path: dict[str, MatchedCall] = field(default_factory=dict)
    _ids: set[str] = field(default_factory=set)
    pending: list[MatchedCall] = field(default_factory=list)
    _turn: TurnKey | None = None  # in which they were made
    _asynchronous: dict[str, InputCall] = field(default_factory=dict)

    def read(self, entries: Iterable[Entry]) -> None:
        """Read items in order."""
        for entry in entries:
            if entry.kind in CALL_TYPES:
                self.add_call(entry)
            elif entry.kind in OUTPUT_TYPES and not is_unpaired(entry):
                self.add_output(entry)
            elif self.pending:
                self.go_on(entry)

    def add_call(self, entry: Entry) -> None:
        call = self._reader.call(entry)
        if call is None:
            return
        if self.pending:
            self.go_on(entry)
        waiting = self._unanswered.setdefault(call.call_id, [])
        if waiting and call.output is None and any(_is_same(call, earlier.call) for earlier in waiting[-_MOST_COMPARED:]):
            self._report.adapted("content", "order", "a call that was repeated before its output was left out")
            return
        matched = MatchedCall(call, self._unique(call.call_id), call.output)
        self._by_path[entry.path] = matched
        if matched.output is None:
            waiting.append(matched)
        if call.asynchronous:
            self._turn = self._turn or turn_of(entry.item.get("id"))
            self.pending.append(matched)
            self._asynchronous[call.call_id] = call

    def go_on(self, entry: Entry) -> None:
        """Leave the pending calls if the model, or the user, goes on after them with this item."""
        if is_other_turn(self._turn, turn_of(entry.item.get("id")), is_call=entry.kind in CALL_TYPES):
            self._leave()

    def _leave(self) -> None:
        for matched in self.pending:
            if matched.output is None:
                self._report.adapted("item", "async_call", "a call without output is shown with a hint that it comes later")
                matched.output = PENDING_OUTPUT
                self._unanswered[matched.call.call_id].remove(matched)
        self.pending = []
        self._turn = None

    def add_output(self, entry: Entry) -> None:
        call_id = output_call_id(entry)
        waiting = self._unanswered.get(call_id)
        if waiting is None:
            kind = entry.kind.replace("_", " ")
            message = f"No tool call found for {kind} with call_id {call_id[:64]}."
            raise invalid_request(message, f"{entry.path}.call_id", "tool_call_not_found")
        output = self._reader.output(entry)
        if not waiting and call_id in self._asynchronous:
            self._repeat(self._asynchronous[call_id], output, entry.path)
            return
        if not waiting and self._answered is not None and "name" in entry.item:
            self._report.adapted("content", "order", "a note of a call is sent with the output before it")
            self._answered.notes.append(output.text)
            return
        if not waiting:
            self._report.ignored("item", entry.kind, "the call already has an output", entry.path)
            return
        self._answered = matched = waiting.pop(0)
        matched.output = output
        self._by_path[entry.path] = matched

    def _repeat(self, call: InputCall, output: Output, path: str) -> None:
        """Show a call once more, with an output that came when the model had gone on."""
        self._report.adapted("item", "async_call", "an output that came later is shown there, with the call once more")
        self._by_path[path] = MatchedCall(call, self._unique(call.call_id, expected=True), output, repeated=True)

    def finish(self) -> tuple[Mapping[str, MatchedCall], frozenset[str]]:
        """Give each unanswered call a placeholder output and return all calls, and their ids."""
        self._leave()
        for matched in itertools.chain.from_iterable(self._unanswered.values()):
            self._report.adapted("item", "function_call", "a call without output was given one")
            matched.output = NO_OUTPUT
        return self._by_path, frozenset(self._ids)

    def _unique(self, call_id: str, *, expected: bool = False) -> str:
        if call_id not in self._ids:  # nearly always
            self._ids.add(call_id)
            return call_id
        copy = self._copies.get(call_id, 1) + 1
        while (chat_id := f"{call_id}_{copy}") in self._ids:
            copy += 1
        self._copies[call_id] = copy
        if not expected:
            self._report.adapted("content", "call_id", "a call id that was used twice was numbered")
        self._ids.add(chat_id)
        return chat_id


def _is_same(call: InputCall, earlier: InputCall) -> bool:
    """Tell whether a call with the id of an earlier one is that one, repeated, as Strands does with `previous_response_id`."""
    return call.name == earlier.name and read_object(call.arguments) == read_object(earlier.arguments)


def is_other_turn(call: TurnKey | None, following: TurnKey | None, *, is_call: bool) -> bool:
    """Tell whether what is `following` a call belongs to another turn. Where the ids of the items do not tell, further calls
    were made together with it, and anything else was said later."""
    return not is_call if call is None or following is None else call != following


def open_items(items: Sequence[Any]) -> set[int]:
    """Return the positions of the asynchronous calls in a history that have no output yet, of the approval requests on which
    the client has not decided yet, or whose call was approved and not made, and of these approvals. `items` may be anything."""
    places: dict[tuple[str, str], set[int]] = {}
    for index, item in enumerate(items):
        kind = item.get("type") if isinstance(item, dict) else None
        if not isinstance(kind, str):
            continue
        asks = kind in REQUEST_ID
        item_id = item.get(REQUEST_ID[kind] if asks else "call_id")
        if not isinstance(item_id, str):
            continue
        key = ("approval" if asks else "call", item_id)
        if kind == "mcp_approval_request" or (kind in _ASYNC_TYPES and is_async_call(item)):
            places.setdefault(key, set()).add(index)
        elif kind == "mcp_approval_response" and item.get("approve") is True and key in places:
            places[key].add(index)
        elif asks or kind in OUTPUT_TYPES:
            places.pop(key, None)
    return set().union(*places.values())


def without_repeated(request: ResponsesRequest, history: Sequence[Any]) -> ResponsesRequest:
    """Return a request without the steps that its client repeats behind the `history` which it continues (LlamaIndex, Strands):
    what that has already, up to the last of the calls that have no output there."""
    items = request.input if history and isinstance(request.input, list) else []
    ids = [_id_of(item, CALL_TYPES) for item in items]
    if not any(ids):
        return request
    waiting = Counter(_id_of(item, CALL_TYPES) for item in history) - Counter(_id_of(item, OUTPUT_TYPES) for item in history)
    told = set(map(_words, history)) if waiting.keys() & ids else set()
    end = max((at for at, name in enumerate(ids, 1) if name and name in waiting and _words(items[at - 1]) in told), default=0)
    kept = [item for item in items[:end] if not isinstance(item, dict) or _words(item) not in told]
    return request.model_copy(update={"input": [*kept, *items[end:]]}) if end else request


def _id_of(item: Any, kinds: Container[str]) -> str | None:
    kind = item.get("type") if isinstance(item, dict) else None
    name = item.get("call_id") if isinstance(kind, str) and kind in kinds else None
    return name if isinstance(name, str) else None


def _words(item: Mapping[str, Any]) -> bytes:
    """Return what an item says, in whatever form a client writes it again."""
    parts = item.get("content")
    texts = [part.get("text", part) for part in parts if isinstance(part, dict)] if isinstance(parts, list) else [parts]
    return quoted([texts, read_object(str(item.get("arguments"))), *map(item.get, _SAID)])
