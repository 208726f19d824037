"""Match the calls of an input with their outputs.

A chat backend requires that every tool message follow the assistant message with its call, that every call be answered, and
that ids be unique. The items of a Responses input guarantee less, so calls and outputs are matched before messages are built.
"""

from __future__ import annotations

import itertools
from collections import deque
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

from responses_gateway.request.input.calls import (
    CALL_TYPES,
    OUTPUT_TYPES,
    CallItemReader,
    InputCall,
    is_foreign_search,
    output_call_id,
)
from responses_gateway.request.input.content import Output
from responses_gateway.request.input.items import Entry
from responses_gateway.request.loss_report import LossReport
from responses_gateway.wire.errors import invalid_request

NO_OUTPUT = Output("(no output)", [])


@dataclass(slots=True)
class MatchedCall:
    """A call with its unique id in the chat history, and its output once that is found."""

    call: InputCall
    id: str
    output: Output | None


class MatchedCalls(NamedTuple):
    """The calls of an input. `by_path` has the call of each call item and of each output item, by the path of the item. `ids`
    are all call ids of the request, the client's and the generated ones."""

    by_path: Mapping[str, MatchedCall]
    ids: frozenset[str]


NO_CALLS = MatchedCalls({}, frozenset())


def match_calls(entries: Iterable[Entry], reader: CallItemReader, report: LossReport) -> MatchedCalls:
    """Match all calls with their outputs by call id, in order. Raises `ApiError` 400 for a malformed item, and for an output
    without a call before it."""
    matcher = _Matcher(reader, report)
    for entry in entries:
        if entry.kind in CALL_TYPES:
            matcher.add_call(entry)
        elif entry.kind in OUTPUT_TYPES and not is_foreign_search(entry):
            matcher.add_output(entry)
    return matcher.finish()


@dataclass(slots=True)
class _Matcher:
    """Collects the calls of one input and assigns each output to the first unanswered call with its id."""

    _reader: CallItemReader
    _report: LossReport
    _unanswered: dict[str, deque[MatchedCall]] = field(default_factory=dict)
    _copies: dict[str, int] = field(default_factory=dict)
    _by_path: dict[str, MatchedCall] = field(default_factory=dict)
    _ids: set[str] = field(default_factory=set)

    def add_call(self, entry: Entry) -> None:
        call = self._reader.call(entry)
        if call is None:
            return
        matched = MatchedCall(call, self._unique(call.call_id), call.output)
        self._by_path[entry.path] = matched
        waiting = self._unanswered.setdefault(call.call_id, deque())
        if matched.output is None:
            waiting.append(matched)

    def add_output(self, entry: Entry) -> None:
        call_id = output_call_id(entry)
        waiting = self._unanswered.get(call_id)
        if waiting is None:
            kind = entry.kind.replace("_", " ")
            message = f"No tool call found for {kind} with call_id {call_id[:64]}."
            raise invalid_request(message, f"{entry.path}.call_id", "tool_call_not_found")
        output = self._reader.output(entry)
        if not waiting:
            self._report.ignored("item", entry.kind, "the call already has an output", entry.path)
            return
        matched = waiting.popleft()
        matched.output = output
        self._by_path[entry.path] = matched

    def finish(self) -> MatchedCalls:
        """Give each unanswered call a placeholder output and return all calls."""
        for matched in itertools.chain.from_iterable(self._unanswered.values()):
            self._report.adapted("item", "function_call", "a call without output was given one")
            matched.output = NO_OUTPUT
        return MatchedCalls(self._by_path, frozenset(self._ids))

    def _unique(self, call_id: str) -> str:
        chat_id = call_id
        copy = self._copies.get(call_id, 1)
        while chat_id in self._ids:
            copy += 1
            chat_id = f"{call_id}_{copy}"
        if chat_id != call_id:
            self._copies[call_id] = copy
            self._report.adapted("content", "call_id", "a call id that was used twice was numbered")
        self._ids.update((call_id, chat_id))
        return chat_id
