"""What goes into a store and what comes out of it, as plain values."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, Literal, NamedTuple

#: An item on its way into the store: a value, or its JSON where every byte is to be kept.
NewItem = dict[str, Any] | str
PageOrder = Literal["asc", "desc"]

#: The place of an item in a history (see `proxy/state/chains.py`): 0 is the empty history.
Place = int

ACTIVE = ("queued", "in_progress")


@dataclass(frozen=True, slots=True)
class Record:
    """A response to be stored. Times are Unix times in seconds.

    `head` and `tail` are the JSON of the response before and behind the items of its `output`.
    `background`: the client asked for it to run in the background. `detached`: it does so, asked for or not.
    `context`: the place in the history that the request built on; `input` are the items that it added. `history` are the
    items up to `context`, for the case that it is deleted while the response runs.
    """

    id: str
    tenant: str
    created_at: float
    status: str
    head: str
    tail: str
    context: Place = 0
    history: Sequence[NewItem] = field(default=())
    input: Sequence[NewItem] = field(default=())
    output: Sequence[NewItem] = field(default=())
    conversation: str | None = None
    background: bool = False
    detached: bool = False


@dataclass(frozen=True, slots=True)
class Running:
    """Who runs a response in the background: `worker` names a process, which is taken for dead at `until` (Unix time)."""

    worker: str
    until: float


@dataclass(frozen=True, slots=True)
class Stored:
    """A response as it was stored. `json` is the whole response object; `end` the place of its last output item.
    The items that the request brought are those behind `input_begin`, up to `input_end`."""

    id: str
    status: str
    json: str
    background: bool
    conversation: str | None
    end: Place
    input_begin: Place
    input_end: Place
    has_events: bool

    @property
    def active(self) -> bool:
        """It has not ended yet."""
        return self.status in ACTIVE


@dataclass(frozen=True, slots=True)
class Conversation:
    """A conversation; `end` is the place of its last item."""

    id: str
    created_at: float
    metadata: dict[str, Any]
    end: Place


class Page(NamedTuple):
    """Items of one page, each with its id, and whether there are more behind it."""

    items: list[dict[str, Any]]
    more: bool


class Span(NamedTuple):
    """A part of a history: the items behind `begin`, up to and including `end`."""

    begin: Place
    end: Place


class Cursor(NamedTuple):
    """Where a page is: behind the item with the id `after`, before the one with the id `before`, or at the beginning."""

    after: str | None = None
    before: str | None = None


class EventRow(NamedTuple):
    """Events of a running response that were written together: numbers `first` to `next` - 1, as SSE text."""

    first: int
    next: int
    data: bytes
