"""What a stream is written with: its items by an `EventWriter`, what stands around them by an `AnswerStream`. Each protocol
of clients has a subclass of both (plain values in, its events out), and an `AnswerForm` that makes them for a request. An
item that is done is kept as JSON of the Responses API in all of them."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Literal, Protocol, TypeAlias

import msgspec

from responses_gateway.wire.chat import TokenLogprob
from responses_gateway.wire.deltas import Usage
from responses_gateway.wire.errors import ApiError
from responses_gateway.wire.hosted import CitedSource, ImageUsage
from responses_gateway.wire.json_text import json_text, quote, quoted, sendable
from responses_gateway.wire.tools import ToolTarget

TextKind: TypeAlias = Literal["reasoning", "output_text", "refusal"]
ItemStatus: TypeAlias = Literal["completed", "incomplete"]
# Where the text of reasoning stands.
ReasoningForm: TypeAlias = Literal["content", "summary", "both"]
# What a message is besides the answer: what the model says while calls of it are pending.
Phase: TypeAlias = Literal["", "commentary"]
# The calls whose arguments are one text, shown as it comes.
CallKind: TypeAlias = Literal["function_call", "custom_tool_call"]
Status: TypeAlias = Literal["queued", "in_progress", "completed", "incomplete", "failed", "cancelled"]
# What OpenAI writes for a token that was out of the question; JSON has no -Infinity, and no other infinity.
_LEAST_LOGPROB = -9999.0


class Place(msgspec.Struct, eq=False, gc=False):
    """Where an open item stands in a stream. The writer makes it, and gets it back with all that the item writes."""

    kind: str  # the item's type; of a message that of its part
    item_id: str
    index: int  # output_index
    head: bytes = b""  # of each delta event
    second_head: bytes = b""  # of the event that repeats each delta
    begun: str = ""  # the JSON that the item begins with
    phase: Phase = ""  # of a message
    extra: str = ""  # what the start of a call has shown of what the server wants back


class EndedText(msgspec.Struct, eq=False, gc=False):
    """The text of an item that ends, with what belongs to it."""

    status: ItemStatus
    text: str
    deltas: int  # that brought it
    logprobs: Sequence[TokenLogprob]
    annotations: Sequence[Mapping[str, Any]]
    sealed: str | None  # the `encrypted_content` of reasoning
    details: str  # the JSON of its `reasoning_details`, if there are any


class Span(msgspec.Struct, eq=False, gc=False):
    """When an item was opened and closed, as Unix times in seconds; once it is closed, its type and the length of its JSON."""

    opened: float
    closed: float | None = None
    kind: str = ""
    size: int = 0


def no_clock() -> float:
    """Return no time, where nobody wants to know when an item came."""
    return 0.0


class EventWriter(ABC):
    """A stream that is being written. `done` is the answer so far, as items of the Responses API in JSON, whatever the protocol
    of the stream is: later turns, continuation and the store are made of it."""

    __slots__ = ("_clock", "characters", "deltas", "done", "events", "items", "next_index", "next_number", "repairs", "spans")

    def __init__(self, clock: Callable[[], float]) -> None:
        """Begin a stream; `clock` times its items."""
        self._clock = clock
        self.spans: dict[int, Span] = {}  # of the items that were opened here, by their output_index
        self.events: list[bytes] = []  # not yet taken
        self.next_number = 0  # sequence number of the next event
        self.next_index = 0  # output_index of the next item
        self.done: list[str] = []
        self.items: defaultdict[str, int] = defaultdict(int)  # items done, by type
        self.deltas: defaultdict[str, int] = defaultdict(int)  # delta events written, by event type
        self.characters: defaultdict[str, int] = defaultdict(int)  # length of the text written, by kind
        self.repairs: defaultdict[str, int] = defaultdict(int)  # what the protocol had shown in another way, by kind

    @abstractmethod
    def blank(self) -> EventWriter:
        """Return a writer that makes the same items, for a stream that nobody gets."""

    # ---- reasoning and messages ----------------------------------------------------------------------------------------

    @abstractmethod
    def open_text(self, kind: TextKind, item_id: str, phase: Phase = "") -> Place:
        """Begin a reasoning item, or a message with one part, of this phase."""

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
    def close_text(self, place: Place, ended: EndedText) -> None:
        """End an item with its whole text."""

    @abstractmethod
    def write_details(self, item_id: str, details: str, sealed: str | None) -> None:
        """Write an item of reasoning without a text: `details` is the JSON of its `reasoning_details`, empty if there are none,
        `sealed` its `encrypted_content`."""

    # ---- calls of the client's tools -----------------------------------------------------------------------------------

    @abstractmethod
    def open_call(self, kind: CallKind, item_id: str, call_id: str, target: ToolTarget, extra: str = "") -> Place:
        """Begin a call whose arguments are one text. `extra` is the JSON of its `extra_content`, if it has any."""

    @abstractmethod
    def close_call(
        self, place: Place, status: ItemStatus, text: str, *, deltas: int, plain: bool = False, extra: str = ""
    ) -> None:
        """End it; `text` is all of its arguments, `extra` its `extra_content` as it stands now. `plain`: say: not encrypted."""

    # ---- calls that the gateway runs -----------------------------------------------------------------------------------

    @abstractmethod
    def open_hosted(self, kind: str, item_id: str, members: Mapping[str, Any]) -> Place:
        """Begin an item of a hosted tool with these members; `delta` shows its arguments or its code, if its kind has such."""

    @abstractmethod
    def run_hosted(self, place: Place, text: str, *, deltas: int, members: Mapping[str, Any]) -> None:
        """Tell that the call runs; `text` is the whole of its deltas, `members` are those that its arguments tell."""

    @abstractmethod
    def close_hosted(
        self, place: Place, members: Mapping[str, Any], *, end: str, sources: Sequence[CitedSource] = (), text: str = ""
    ) -> None:
        """End it with these members, which include its status where the kind has one. `end`: `completed`, `failed` or, for a
        call that was interrupted, `incomplete`. `sources` were found; `text` is what the model read of them, if it is shown."""

    # ---- items that are whole ------------------------------------------------------------------------------------------

    @abstractmethod
    def write_item(self, kind: str, item_id: str, members: Mapping[str, Any], status: ItemStatus | None = None) -> None:
        """Write an item that has no deltas."""

    @abstractmethod
    def write_record(self, kind: str, record: str) -> None:
        """Write an item that was made elsewhere, as JSON."""

    # ---- the summary of a context ------------------------------------------------------------------------------------

    def begin_summary(self, item_id: str) -> None:
        """Tell that the model has begun to write the summary that this item will hold, where the protocol shows that."""
        return

    def write_summary(self, item_id: str, sealed: str) -> None:
        """Write the item with the summary."""
        self.write_item("compaction", item_id, {"encrypted_content": sealed})

    # ---- what all protocols count --------------------------------------------------------------------------------------

    def _begin(self) -> int:
        """Return the output_index of the next item, which begins."""
        index = self.next_index
        self.next_index += 1
        self.spans[index] = Span(self._clock())
        return index

    def _count(self, kind: str, index: int, record: str) -> None:
        """Take an item that is done, as JSON; without half surrogate pairs, because nobody could read it."""
        self.done.append(sendable(record))
        self.items[kind] += 1
        span = self.spans.get(index)
        if span is not None:
            span.closed = self._clock()
            span.kind = kind
            span.size = len(record)

    def _count_deltas(self, event: str, deltas: int) -> None:
        if deltas:
            self.deltas[event] += deltas


class StreamStart(msgspec.Struct, frozen=True):
    """What a stream begins with, whatever its protocol is: `resp_` and a token that makes ids unique, the model's name for the
    client, the Unix time in seconds at which the response was created, and a clock that tells such times."""

    response_id: str
    model: str
    created: float
    clock: Callable[[], float]


class Outcome(msgspec.Struct, frozen=True):
    """How a response stands, and what its end adds to it: usage, a Unix time in seconds, why it is incomplete
    (`max_output_tokens`, `content_filter`, `steered`), the error of one that failed, the stop string that the model wrote,
    whether its last turn `reached_limit` of tokens, the usage of that turn alone, and what `images` have cost."""

    status: Status = "in_progress"
    usage: Usage | None = None
    completed_at: int | None = None
    incomplete_reason: str | None = None
    error: ApiError | None = None
    stop_string: str | None = None
    reached_limit: bool = False
    last_turn: Usage | None = None
    images: ImageUsage | None = None


class AnswerStream(ABC):
    """The response of one stream, around the items that are written with its `writer`: `start`, `keep_alive` and `end` write
    events with it, `terminal` makes the last ones."""

    __slots__ = ("writer",)

    def __init__(self, writer: EventWriter) -> None:
        """The items of the response are those that are done in `writer`."""
        self.writer = writer

    @abstractmethod
    def queue(self) -> None:
        """Write that the response waits, if the protocol has an event for that; `start` follows."""

    @abstractmethod
    def start(self) -> None:
        """Write the first events."""

    @abstractmethod
    def keep_alive(self) -> None:
        """Write an event that resets the idle timers of clients."""

    @abstractmethod
    def end(self, outcome: Outcome) -> None:
        """Take the end."""

    @abstractmethod
    def terminal(self, *, stored: bool | None = None) -> bytes:
        """Return the last events. `stored` overrides the `store` of the request, where the protocol has one."""

    @abstractmethod
    def json(self, *, stored: bool | None = None, status: Status | None = None) -> str:
        """Return the response as JSON, as it stands. `status` takes the place of its own."""

    def extend_last_item(self, members: Mapping[str, Any]) -> None:  # noqa: B027  (most protocols have no place for them)
        """Add members to the last item that is done, whose last event was not taken yet, as the client gets it: neither the
        store nor later turns are to have them."""

    @property
    def output(self) -> list[str]:
        """The JSON of the items done so far, as those of the Responses API."""
        return list(self.writer.done)


class AnswerForm(Protocol):
    """What a request says about how its answer is written, in the protocol of its client: plain data, which a record keeps."""

    def stream(self, start: StreamStart) -> AnswerStream:
        """Return the stream of one response, of which nothing is written yet."""


def reasoning(
    item_id: str, status: ItemStatus, text: str, sealed: str | None, details: str, *, form: ReasoningForm = "content"
) -> str:
    """Return a reasoning item, given its text as JSON. Without a text it has no parts."""
    content = reasoning_part(text) if text and form != "summary" else ""
    parts = summary_part(text) if form != "content" else ""
    wanted = f',"reasoning_details":{details}' if details else ""
    encrypted = "" if sealed is None else f',"encrypted_content":{quote(sealed)}'
    head = f'{{"type":"reasoning","id":"{item_id}","status":"{status}"'
    return f'{head},"summary":[{parts}],"content":[{content}]{wanted}{encrypted}}}'


def message(item_id: str, status: ItemStatus, part: str, phase: Phase) -> str:
    """Return a message with one part, given as JSON."""
    phase_member = f'"phase":"{phase}",' if phase else ""
    return f'{{"type":"message","id":"{item_id}","status":"{status}","role":"assistant",{phase_member}"content":[{part}]}}'


def reasoning_part(text: str) -> str:
    """Return the content part of reasoning, given its text as JSON."""
    return f'{{"type":"reasoning_text","text":{text}}}'


def summary_part(text: str) -> str:
    """Return the summary part of reasoning, given its text as JSON."""
    return f'{{"type":"summary_text","text":{text}}}'


def message_part(kind: TextKind, text: str, logprobs: str, annotations: Sequence[Mapping[str, Any]] = ()) -> str:
    """Return the part of a message; `text` and `logprobs` are JSON."""
    if kind == "refusal":
        return f'{{"type":"refusal","refusal":{text}}}'
    notes = json_text(annotations) if annotations else "[]"
    return f'{{"type":"output_text","text":{text},"annotations":{notes},"logprobs":{logprobs}}}'


def logprobs_json(logprobs: Sequence[TokenLogprob]) -> str:
    """Return log probabilities as the Responses API has them."""
    if not logprobs:
        return "[]"
    return json_text(
        [
            {
                "token": entry.token,
                "logprob": _finite(entry.logprob),
                "bytes": entry.bytes or [],
                "top_logprobs": [
                    {"token": top.token, "logprob": _finite(top.logprob), "bytes": top.bytes or []}
                    for top in entry.top_logprobs or ()
                ],
            }
            for entry in logprobs
        ]
    )


def call_begun(kind: str, item_id: str, call_id: str, target: ToolTarget) -> str:
    """Return the JSON that the item of a call begins with."""
    namespace = "" if target.namespace is None else f',"namespace":{quote(target.namespace)}'
    later = ',"async":true' if target.asynchronous else ""
    named = f'"call_id":{quote(call_id)},"name":{quote(target.name)}{namespace}{later}'
    return f'{{"type":"{kind}","id":"{item_id}",{named}'


def extra_member(extra: str) -> str:
    """Return the member of a call that the server wants back with it, given as JSON; empty if there is none."""
    return f',"extra_content":{extra}' if extra else ""


def _finite(logprob: float) -> float:
    return min(-_LEAST_LOGPROB, max(_LEAST_LOGPROB, logprob))
