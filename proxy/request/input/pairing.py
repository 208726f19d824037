"""Which output answers which call.

A chat backend insists: every tool message follows the assistant message that made its call, every call is answered, and
ids are unique. The items of a Responses input promise less, so calls and outputs are matched before messages are built.
"""

from __future__ import annotations

import itertools
from collections import deque
from collections.abc import Iterable

from proxy.request.fields import shown
from proxy.request.input.calls import CALL_TYPES, OUTPUT_TYPES, Call, CallReader, output_call_id
from proxy.request.input.content import Output
from proxy.request.input.items import Entry
from proxy.request.loss_report import Ledger
from proxy.wire.errors import invalid_request

NO_OUTPUT = Output("(no output)", [])


class Slot:
    """A call with its place in the chat history: a unique id, and the output once it is found."""

    __slots__ = ("call", "id", "output")

    def __init__(self, call: Call, chat_id: str) -> None:
        self.call = call
        self.id = chat_id
        self.output = call.output


class Pairing:
    """The calls of an input, matched with their outputs by call id, in order.

    `slots` has the slot of each call item and of each output item, by the path of the item. `call_ids` are all ids of the
    request, the client's and those that had to be made up.
    """

    def __init__(self, reader: CallReader, ledger: Ledger) -> None:
        self._reader = reader
        self._ledger = ledger
        self._unanswered: dict[str, deque[Slot]] = {}
        self._copies: dict[str, int] = {}
        self.slots: dict[str, Slot] = {}
        self.call_ids: set[str] = set()

    def match(self, entries: Iterable[Entry]) -> None:
        """Read all calls and outputs. Raises `ApiError` 400 for an output without a call before it."""
        for entry in entries:
            if entry.kind in CALL_TYPES:
                self._call(entry)
            elif entry.kind in OUTPUT_TYPES and not is_foreign_search(entry):
                self._output(entry)
        for slot in itertools.chain.from_iterable(self._unanswered.values()):
            self._ledger.adapted("item", "function_call", "a call without output was given one")
            slot.output = NO_OUTPUT

    def _call(self, entry: Entry) -> None:
        call = self._reader.call(entry)
        if call is None:
            return
        slot = Slot(call, self._unique(call.call_id))
        self.slots[entry.path] = slot
        waiting = self._unanswered.setdefault(call.call_id, deque())
        if slot.output is None:
            waiting.append(slot)

    def _unique(self, call_id: str) -> str:
        chat_id, copy = call_id, self._copies.get(call_id, 1)
        while chat_id in self.call_ids:
            copy += 1
            chat_id = f"{call_id}_{copy}"
        if chat_id != call_id:
            self._copies[call_id] = copy
            self._ledger.adapted("content", "call_id", "a call id that was used twice was numbered")
        self.call_ids.update((call_id, chat_id))
        return chat_id

    def _output(self, entry: Entry) -> None:
        call_id = output_call_id(entry)
        waiting = self._unanswered.get(call_id)
        if waiting is None:
            message = f"No tool call found for the output with call_id {shown(call_id)}."
            raise invalid_request(message, f"{entry.path}.call_id", "tool_call_not_found")
        output = self._reader.output(entry)
        if not waiting:
            self._ledger.ignored("item", entry.kind, "the call already has an output", entry.path)
            return
        slot = waiting.popleft()
        slot.output = output
        self.slots[entry.path] = slot


def is_foreign_search(entry: Entry) -> bool:
    """A `tool_search_output` of a search that another server ran: it has tools, but no call of this conversation."""
    return entry.kind == "tool_search_output" and entry.item.get("call_id") is None
