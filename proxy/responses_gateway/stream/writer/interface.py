"""What the items of a stream are written with. One subclass for each protocol of clients: plain values in, its events out."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal, TypeAlias

from responses_gateway.wire.chat import TokenLogprob
from responses_gateway.wire.json_text import quoted
from responses_gateway.wire.tools import ToolTarget

TextKind: TypeAlias = Literal["reasoning", "output_text", "refusal"]
ItemStatus: TypeAlias = Literal["completed", "incomplete"]
# The calls whose arguments are one text, shown as it comes.
CallKind: TypeAlias = Literal["function_call", "custom_tool_call"]


@dataclass(slots=True, eq=False)
class Place:
    """Where an open item stands in a stream. The writer makes it, and gets it back with all that the item writes."""

    kind: str  # the item's type; of a message that of its part
    item_id: str
    index: int  # output_index
    head: bytes = b""  # of each delta event
    second_head: bytes = b""  # of the event that repeats each delta
    begun: str = ""  # the JSON that the item begins with


@dataclass(slots=True, eq=False)
class Span:
    """When an item was opened and closed, as Unix times in seconds; once it is closed, its type and the length of its JSON."""

    opened: float
    closed: float | None = None
    kind: str = ""
    size: int = 0


class EventWriter(ABC):
    """A stream that is being written. `done` is the answer so far, as items of the Responses API in JSON, whatever the protocol
    of the stream is: later turns, continuation and the store are made of it."""

    __slots__ = ("_clock", "characters", "deltas", "done", "events", "items", "next_index", "next_number", "spans")

    def __init__(self, clock: Callable[[], float]) -> None:
        """Begin a stream; `clock` times its items."""
        self._clock = clock
        self.spans: dict[int, Span] = {}  # of the items that were opened here, by their output_index
        self.events: list[bytes] = []  # not yet taken
        self.next_number = 0  # sequence number of the next event
        self.next_index = 0  # output_index of the next item
        self.done: list[str] = []
        self.items: dict[str, int] = {}  # items done, by type
        self.deltas: dict[str, int] = {}  # delta events written, by event type
        self.characters: dict[str, int] = {}  # length of the text written, by kind

    @abstractmethod
    def blank(self) -> EventWriter:
        """Return a writer that makes the same items, for a stream that nobody gets."""

    # ---- reasoning and messages ----------------------------------------------------------------------------------------

    @abstractmethod
    def open_text(self, kind: TextKind, item_id: str) -> Place:
        """Begin a reasoning item, or a message with one part."""

    @abstractmethod
    def delta(self, place: Place, quoted: bytes) -> bytes:
        """Return the events for a piece of a text or of a call, given as JSON, for the caller to send."""

    def write_delta(self, place: Place, text: str) -> None:
        """Write a piece of a text or of a call."""
        self.events.append(self.delta(place, quoted(text)))

    @abstractmethod
    def write_logprobs_delta(self, place: Place, text: str, logprobs: Sequence[TokenLogprob]) -> None:
        """Write a piece of a message, with the log probabilities of its tokens."""

    @abstractmethod
    def annotate(self, place: Place, number: int, annotation: Mapping[str, Any]) -> None:
        """Write an annotation of a message."""

    @abstractmethod
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
        """End an item of so many `deltas`. `sealed` is the `encrypted_content` of reasoning."""

    # ---- calls of the client's tools -----------------------------------------------------------------------------------

    @abstractmethod
    def open_call(self, kind: CallKind, item_id: str, call_id: str, target: ToolTarget) -> Place:
        """Begin a call whose arguments are one text."""

    @abstractmethod
    def close_call(self, place: Place, status: ItemStatus, text: str, *, deltas: int, plain: bool = False) -> None:
        """End it; `text` is all of its arguments. `plain`: say that they are not encrypted."""

    # ---- calls that the gateway runs -----------------------------------------------------------------------------------

    @abstractmethod
    def open_hosted(self, kind: str, item_id: str, members: Mapping[str, Any]) -> Place:
        """Begin an item of a hosted tool with these members; `delta` shows its arguments or its code, if its kind has such."""

    @abstractmethod
    def run_hosted(self, place: Place, text: str, *, deltas: int) -> None:
        """Tell that the call runs; `text` is the whole of its deltas."""

    @abstractmethod
    def close_hosted(self, place: Place, members: Mapping[str, Any], *, end: str) -> None:
        """End it with these members, which include its status where the kind has one. `end`: `completed`, `failed` or, for a
        call that was interrupted, `incomplete`."""

    # ---- items that are whole ------------------------------------------------------------------------------------------

    @abstractmethod
    def write_item(self, kind: str, item_id: str, members: Mapping[str, Any], status: ItemStatus | None = None) -> None:
        """Write an item that has no deltas."""

    @abstractmethod
    def write_record(self, kind: str, record: str) -> None:
        """Write an item that was made elsewhere, as JSON."""

    # ---- what all protocols count --------------------------------------------------------------------------------------

    def _begin(self) -> int:
        """Return the output_index of the next item, which begins."""
        index = self.next_index
        self.next_index += 1
        self.spans[index] = Span(self._clock())
        return index

    def _count(self, kind: str, index: int, record: str) -> None:
        """Take an item that is done, as JSON."""
        self.done.append(record)
        self.items[kind] = self.items.get(kind, 0) + 1
        span = self.spans.get(index)
        if span is not None:
            span.closed = self._clock()
            span.kind = kind
            span.size = len(record)

    def _count_deltas(self, event: str, deltas: int) -> None:
        if deltas:
            self.deltas[event] = self.deltas.get(event, 0) + deltas

    def count_characters(self, kind: str, text: str) -> None:
        """Add the length of a closed item's text."""
        self.characters[kind] = self.characters.get(kind, 0) + len(text)
