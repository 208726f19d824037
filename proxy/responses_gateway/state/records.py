"""The values that are stored and read."""

from __future__ import annotations

import secrets
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal, NamedTuple

# JSON, as UTF-8 if that exists: a long text is not made anew.
JsonText = str | bytes
# An item to be stored: a value, or its JSON if every byte should be kept.
NewItem = dict[str, Any] | JsonText
PageOrder = Literal["asc", "desc"]

# The place of an item in a history (see `histories.py`); 0 is the empty history.
Place = int

_SECRET = 12  # random bytes of an id
# The parts of a second by which ids are in order: thirty long histories may be stored in one.
_TICKS = 2**16
ACTIVE = ("queued", "in_progress")


def new_id(prefix: str) -> str:
    """Return an id that nobody can guess."""
    return new_ids((prefix,))[0]


def new_ids(prefixes: Sequence[str]) -> list[str]:
    """Return an id with each prefix. Ids begin with the time, so that those of one time are neighbours in an index: then
    writing them changes few pages. Those that are made together ascend, because an index takes them faster."""
    now = int(time.time() * _TICKS) << 8 * _SECRET
    first = now | secrets.randbits(8 * _SECRET - 1)
    return [f"{prefix}_{number:036x}" for number, prefix in enumerate(prefixes, first)]


class HistoryMemory:
    """The last response of a history that grows, and the items of its request: the next one repeats these very objects."""

    __slots__ = ("last",)

    def __init__(self) -> None:
        self.last: tuple[str, Sequence[NewItem]] = ("", ())


@dataclass(frozen=True, slots=True)
class ResponseRecord:
    """A response to be stored. Times are Unix times in seconds.

    `head` and `tail` are the JSON of the response before and after the items of its `output`.
    `background`: the client asked for it to run in the background. `detached`: it runs in the background, asked for or not.
    `context`: the place in the history that the request continues; `input` are the items that it adds. `history` are the items
    up to `context`, in case `context` is deleted while the response runs.
    `repeated`: long texts in `tail`, in their order, that other responses are likely to repeat: they are stored once.
    `worker`: the process that runs the response; nothing is written once another one does. None: there is no other.
    `results`: the results of hosted calls as the model got them, by the ids of their items, of which they are no part.
    `tools_ran`: it has hosted calls, so that its conversation continues with it even if it failed. `session`: that of the agent
    who asked for it, if that is known. `memory`: that of the thread to which the request belongs, if there is one."""

    id: str
    tenant: str
    created_at: float
    status: str
    head: str
    tail: JsonText
    context: Place = 0
    history: Sequence[NewItem] = field(default=())
    input: Sequence[NewItem] = field(default=())
    output: Sequence[NewItem] = field(default=())
    conversation: str | None = None
    background: bool = False
    detached: bool = False
    repeated: Sequence[JsonText] = field(default=())
    worker: str | None = None
    results: Mapping[str, bytes] = field(default_factory=dict)
    tools_ran: bool = False
    session: str | None = None
    memory: HistoryMemory | None = None


@dataclass(frozen=True, slots=True)
class Running:
    """The process that runs a response in the background; it is considered dead at `until` (Unix time), None for one that
    waits. `kept` is what another process needs to make the response, if one may take it over."""

    worker: str
    until: float | None
    kept: bytes | None = None


@dataclass(frozen=True, slots=True)
class Stored:
    """A response as it was stored. `json` is the whole response object; `end` the place of its last output item. The items of
    the request are those after `input_begin`, up to `input_end`. `session`: that of the agent who asked for it."""

    id: str
    status: str
    json: str
    background: bool
    conversation: str | None
    end: Place
    input_begin: Place
    input_end: Place
    has_events: bool
    session: str | None = None

    @property
    def active(self) -> bool:
        """Whether it has not ended yet."""
        return self.status in ACTIVE


@dataclass(frozen=True, slots=True)
class Conversation:
    """A conversation; `end` is the place of its last item."""

    id: str
    created_at: float
    metadata: dict[str, Any]
    end: Place


class ItemPage(NamedTuple):
    """The items of one page, each with its id, and whether there are more after it."""

    items: list[dict[str, Any]]
    more: bool


class KnownItems(NamedTuple):
    """The items of a history up to a place, as they were read before."""

    end: Place
    items: Sequence[dict[str, Any]]


NO_ITEMS = KnownItems(0, ())


class HistorySpan(NamedTuple):
    """A part of a history: the items after `begin`, up to and including `end`."""

    begin: Place
    end: Place


class Cursor(NamedTuple):
    """Where a page begins: after the item with the id `after`, before the one with the id `before`, or at the beginning."""

    after: str | None = None
    before: str | None = None


class Claims(NamedTuple):
    """The answer to a heartbeat: `alive` are the responses that the worker still runs, `elsewhere` those that another worker
    has taken over, or ended. The others were cancelled or deleted."""

    alive: set[str]
    elsewhere: set[str]


class EventRow(NamedTuple):
    """Events of a running response that were written together: numbers `first` to `next` - 1, as SSE text. `journal`: what they
    were made of, if another process may take the response over."""

    first: int
    next: int
    data: bytes
    journal: bytes = b""


class NewEvents(NamedTuple):
    """Events of a running response to be stored. `head` is given when the response has left the queue: it is in progress from
    now on, and this is the JSON before its output."""

    record: ResponseRecord
    row: EventRow
    head: str | None = None


@dataclass(frozen=True, slots=True)
class Orphan:
    """A running response that was taken over from a dead process: what that kept of it, and its events in the database."""

    id: str
    kept: bytes
    rows: Sequence[EventRow]


class Abandoned(NamedTuple):
    """A running response whose process died, and that no other one takes over: the JSON before and after its output, and the
    events that were stored. `cancelled`: its client has cancelled it."""

    head: str
    tail: str
    rows: Sequence[EventRow]
    cancelled: bool


class AbandonedEnd(NamedTuple):
    """The end of such a response: its status, the JSON before its output, the JSON of its items, and its last events. These are
    None if all before them were lost."""

    status: str
    head: str
    output: Sequence[str]
    last: EventRow | None


class Ages(NamedTuple):
    """The age of the oldest response, and how long ago it expired, in seconds; 0 if there is none, or it has not."""

    oldest: float
    expired: float
