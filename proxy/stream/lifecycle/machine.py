"""The state machine of a response: which item is open, and what each delta does to it.

Two rules. (1) What may happen is the table: state x kind of delta -> actions and the next state; what is not in the table
cannot happen, and nothing else changes the state. (2) One item is open at a time: it is closed before the next one opens, and
what comes too early for it is held.

White space (Unicode's) is never an item of its own. At the end of a text it is held until more text follows. Beside reasoning
and calls it is a separator of the model's template up to its last line break, and is dropped; what comes behind the line break
is the indentation of the text that follows. So the result does not depend on where the backend cut its deltas."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, Literal, NamedTuple, TypeAlias

import msgspec

from proxy.stream.items.calls import CALL_ID_PREFIX, CallItem, OpenCall, new_item
from proxy.stream.items.hosted import HostedItem, HostedOptions, new_hosted_item
from proxy.stream.items.text_items import ItemStatus, MessageItem, ReasoningItem
from proxy.stream.lifecycle.pending import PendingDeltas
from proxy.stream.options import StreamOptions
from proxy.stream.reading.citations import CitationReader, sentence_start
from proxy.stream.reading.logprobs import split_at
from proxy.stream.tokens.missing import said_more
from proxy.stream.writer import EventWriter
from proxy.wire.chat import TokenLogprob
from proxy.wire.deltas import (
    Citation,
    Delta,
    Finish,
    FinishReason,
    Reasoning,
    Refusal,
    Text,
    ToolArguments,
    ToolCall,
    ToolCallCut,
    Usage,
)
from proxy.wire.hosted import CitedSource
from proxy.wire.item_ids import turn_mark
from proxy.wire.tools import ToolTarget, offered_name, target_of

# The kind of the open item.
State = Literal["idle", "reasoning", "text", "refusal", "call", "ended"]

Content: TypeAlias = Reasoning | Text | Refusal
_CONTENT = frozenset({Text, Reasoning, Refusal})
_KIND_OF: dict[str, type[Content]] = {"reasoning": Reasoning, "text": Text, "refusal": Refusal}


class Blank:
    """Kind of a Reasoning, Text or Refusal delta that is white space alone."""


class ForbiddenCall:
    """Kind of a ToolCall that the request does not permit (tool_choice, max_tool_calls, parallel_tool_calls)."""


class Stop:
    """The model has ended by itself: what is open is complete."""


class Cut:
    """The model was stopped at a token limit: what is open is incomplete."""


class Break:
    """The stream broke: what is open is incomplete, or left out for clients that would take it as final."""


End: TypeAlias = Stop | Cut | Break


class Lifecycle:
    """Feed deltas to `step`, then call `close`; the events are in `writer.events`."""

    __slots__ = (
        "_allowed", "_call_ids", "_calls", "_calls_before", "_forbidden", "_fresh", "_indent", "_indent_logprobs", "_item",
        "_options", "_pending", "_row", "_space_logprobs", "_token", "_turn", "_turn_mark", "call", "call_cut", "client_calls",
        "finish_reason", "hosted_calls", "repairs", "sources", "space", "state", "usage", "visible", "writer",
    )  # fmt: skip

    def __init__(self, options: StreamOptions, writer: EventWriter) -> None:
        self.writer = writer
        self.state: State = "idle"
        self.finish_reason: FinishReason | None = None
        self.usage: Usage | None = None
        self.visible = False  # something that a user sees (text, refusal, call) was opened
        self.repairs: dict[str, int] = {}
        self.call: OpenCall | None = None
        self.call_cut = False  # a call was closed as incomplete, or left out
        self.client_calls = 0  # calls of this turn that the client has to answer
        self.hosted_calls = 0  # calls of this turn that the gateway has run
        self.sources: dict[int, CitedSource] = {}  # what may be cited, by number
        if options.hosted is not None:
            self.sources.update((source.number, source) for source in options.hosted.sources)
        self.space = ""  # white space at the end of the open text, or before the first one
        self._options = options
        self._allowed = options.allowed
        self._token = options.response_id.removeprefix("resp_")  # makes the ids of items unique
        self._turn = 1  # of the model, within the response
        self._turn_mark = ""  # in the ids of its items
        self._row = TABLE["idle"]
        self._item: ReasoningItem | MessageItem | None = None
        self._space_logprobs: list[TokenLogprob] = []
        self._indent = ""  # white space before the message that may come next
        self._indent_logprobs: list[TokenLogprob] = []
        self._fresh = True  # nothing but text's leading white space has come yet
        self._calls = 0
        self._calls_before = 0  # in earlier turns
        self._call_ids = set(options.call_ids)
        self._forbidden: set[int] = set()
        self._pending: PendingDeltas | None = None

    def step(self, delta: Delta | End) -> None:
        """Take one delta, or the end."""
        kind: type = type(delta)
        if kind in _CONTENT:
            if delta.text.isspace():  # type: ignore[union-attr]
                kind = Blank
        elif kind is ToolCall:
            delta.name = offered_name(self._options.tools, delta.name)  # type: ignore[union-attr]
            kind = ToolCall if self._permits(delta) else ForbiddenCall  # type: ignore[arg-type]
        transition = self._row[kind]
        if isinstance(transition, Guarded):
            transition = transition.then if transition.guard(self) else transition.otherwise
        actions, target = transition
        for action in actions:
            action(self, delta)
        if target is not self.state:
            self.state = target
            self._row = TABLE[target]
        if self._pending is not None:
            self._release()

    @property
    def holds_deltas(self) -> bool:
        """Whether something came too early, and waits until the open call is complete."""
        return self._pending is not None

    @property
    def open_text(self) -> ReasoningItem | MessageItem | None:
        """The item to which more of its text may be appended directly, once it is `trimmed`. This is the table's most frequent
        row, looked up once for many deltas. None where the table has to decide."""
        return None if self._space_logprobs or self._indent or self.state == "refusal" else self._item

    @property
    def open_item(self) -> ReasoningItem | MessageItem | None:
        """The text that is open."""
        return self._item

    def trimmed(self, text: str) -> str:
        """Return what to write of more of the open text: white space that was held comes before it, that at its end is held.
        Empty if it is white space alone."""
        text = self.space + text
        body = text.rstrip()
        self.space = text[len(body) :]
        return body

    def repeat_reasoning(self) -> None:
        """Give out reasoning as a message too if nothing else came, so that the user sees an answer that was taken for it."""
        item = self._item
        if not isinstance(item, ReasoningItem) or self.visible or self._forbidden:
            return
        text = item.text
        usage = self.usage
        if usage is not None and said_more(usage.output, usage.reasoning, text):
            return  # the backend left the answer out: a call, say
        marks = CitationReader(self.sources)
        deltas = [*marks.read([Text(text)]), *marks.finish()]
        for delta in deltas:
            self.step(delta)
        self._repair("reasoning_as_message")
        # Its tokens were generated once: they are those of the reasoning.
        self.writer.characters["text"] = -sum(len(delta.text) for delta in deltas if type(delta) is Text)

    def close_next(self) -> None:
        """Close what is open after a finish_reason. What was held follows: to be called until the state is `ended`."""
        self.step(Stop() if self.finish_reason == "stop" else Break() if self.finish_reason == "content_filter" else Cut())

    def abandon(self) -> None:
        """Close what is open in a stream that broke, and all that was held."""
        while self.state != "ended":
            self.step(Break())

    def next_turn(self, *, may_call: bool) -> None:
        """Begin another answer of the model within the same response: the model has got the results of its calls."""
        self._turn += 1
        self._turn_mark = turn_mark(self._turn)
        self.state = "idle"
        self._row = TABLE["idle"]
        self.finish_reason = None
        self.usage = None
        self.visible = False
        self.client_calls = 0
        self.hosted_calls = 0
        self._calls_before = self._calls
        self._allowed = self._options.allowed_later if may_call else frozenset()
        self._drop_space()
        self._drop_indent()
        self._fresh = True
        self._forbidden = set()

    def count_approved(self) -> None:
        """Count a call that the client has approved, as one of an earlier turn."""
        self._calls += 1
        self._calls_before += 1

    def resume(self) -> None:
        """Go on with another backend's continuation of the answer, though the first one may have told that it ended."""
        self.finish_reason = None
        self.usage = None

    def restart(self) -> None:
        """Forget an answer of which no item was begun."""
        self.resume()
        self.forget_space()
        self._fresh = True

    def forget_space(self) -> None:
        """Forget the white space at the end of what was said."""
        self._drop_space()
        self._drop_indent()
        if self._pending is not None:
            self._pending.forget_space()
            if not self._pending:
                self._pending = None

    def read_again(self) -> Lifecycle:
        """Return a lifecycle for a second reading of the model's turn, which writes events of its own: as this one was when the
        turn began."""
        again = Lifecycle(msgspec.structs.replace(self._options, seal=None), EventWriter())
        again.sources = self.sources
        again._allowed = self._allowed
        again._calls = again._calls_before = self._calls_before
        return again

    def run_call(self) -> None:
        """Write that the open call of a hosted tool runs."""
        call = self.call
        assert call is not None
        assert isinstance(call.item, HostedItem)
        if not call.arguments.text.strip():
            call.append(self.writer, "{}")
            self._repair("empty_arguments")
        call.item.run(self.writer, call.arguments.text)

    @property
    def call_numbers(self) -> list[int]:
        """The model's numbers of the open call, and of those that wait behind it."""
        waiting = self._pending.call_numbers if self._pending is not None else []
        return [] if self.call is None else [self.call.index, *waiting]

    def held_texts(self) -> Iterator[tuple[Delta, str]]:
        """Yield what waits behind the open call, in order: how each begins, and its text or arguments so far."""
        if self._pending is not None:
            yield from self._pending.texts()

    def held_calls(self) -> Iterator[tuple[str, str]]:
        """Yield the calls that wait behind the open one, as chat name and arguments; not those that are cut."""
        if self._pending is not None:
            yield from self._pending.whole_calls()

    # ---- actions of the table ------------------------------------------------------------------------------------

    def _open_reasoning(self, delta: Content) -> None:
        options = self._options
        item_id = self._new_id("rs")
        self._item = ReasoningItem(
            self.writer, item_id, mirror=options.summary, event=options.reasoning_event, seal=options.seal
        )
        self._drop_space()
        self._drop_indent()
        delta.text = delta.text.lstrip()

    def _open_text(self, delta: Content) -> None:
        self._open_message(delta, "output_text")

    def _open_refusal(self, delta: Content) -> None:
        self._open_message(delta, "refusal")

    def _write(self, delta: Content) -> None:
        text = self.trimmed(delta.text)
        if self._indent:
            self._drop_indent()
        logprobs = delta.logprobs if type(delta) is Text else None
        if self._space_logprobs:
            logprobs = self._space_logprobs + (logprobs or [])
            self._space_logprobs = []
        if logprobs and self.space:
            logprobs, self._space_logprobs = split_at(logprobs, text)
        self._item.append(self.writer, text, logprobs)  # type: ignore[union-attr]

    def _hold_space(self, delta: Content) -> None:
        """Hold white space that belongs to the open item of its own kind, or to the message that it may begin."""
        logprobs = delta.logprobs if type(delta) is Text else None
        if type(delta) is _KIND_OF.get(self.state) or (self._fresh and type(delta) is not Reasoning):
            self.space += delta.text
            self._space_logprobs += logprobs or []
        elif type(delta) is not Reasoning:
            self._indent += delta.text
            self._indent_logprobs += logprobs or []
        elif self._fresh:  # an empty thinking block: what follows is separated from it
            self._drop_space()

    def _close_item(self, _delta: Delta) -> None:
        self._end_item("completed")

    def _cut_item(self, _end: Cut) -> None:
        self._end_item("incomplete")

    def _keep_space(self, _end: End) -> None:
        """Write the white space at the very end of an answer, which is the model's own."""
        if self.space and self.state != "reasoning":
            self._item.append(self.writer, self.space, self._space_logprobs or None)  # type: ignore[union-attr]
        self._drop_space()

    def _open_call(self, delta: ToolCall) -> None:
        options = self._options
        target = target_of(options.tools, delta.name) or ToolTarget("function", delta.name)
        call_id = delta.id
        if not 0 < len(call_id) <= 64 or call_id in self._call_ids or not call_id.isprintable():
            call_id = self._new_id("call")
            if delta.id:
                self._repair("call_id_replaced")
        self._call_ids.add(call_id)
        deferred = target.kind == "custom" and options.judged and delta.name in options.grammars
        if target.hosted:
            item: CallItem = new_hosted_item(self.writer, self._new_id, target, options.hosted or HostedOptions())
        else:
            item_id = self._new_id(CALL_ID_PREFIX[target.kind])
            item = new_item(self.writer, item_id, call_id, target, live=not deferred)
        self.call = OpenCall(delta.index, delta.name, item, deferred=deferred)
        self._calls += 1
        self._drop_space()
        self._drop_indent()
        self.visible = True

    def _write_arguments(self, delta: ToolArguments) -> None:
        call = self.call
        assert call is not None
        if delta.index == call.index:
            if not call.append(self.writer, delta.text):
                self._stray_arguments(delta)
        elif self._pending is None or not self._pending.add_to_call(delta):
            self._stray_arguments(delta)

    def _note_cut(self, delta: ToolCallCut) -> None:
        call = self.call
        assert call is not None
        if delta.index == call.index:
            call.cut = True
        elif self._pending is not None:
            self._pending.add_to_call(delta)

    def _hold(self, delta: Delta) -> None:
        if self._pending is None:
            self._pending = PendingDeltas()
        self._pending.add(delta)

    def _close_call(self, _delta: Delta | End) -> None:
        call = self.call
        assert call is not None
        if not call.arguments.text.strip():
            call.append(self.writer, "{}")
            self._repair("empty_arguments")
        elif call.repaired:
            self._repair("arguments_not_json")
        self._end_call("completed")

    def _cut_call(self, _end: End) -> None:
        self.call_cut = True
        assert self.call is not None
        if self.call.runnable or not self._options.client.runs_cut_calls:
            self._end_call("incomplete")
            return
        self.writer.count_characters("tool_arguments", self.call.arguments.text)
        self._repair("cut_call_omitted")
        self.call = None

    def _cite(self, delta: Citation) -> None:
        source = self.sources.get(delta.number)
        if source is not None and isinstance(self._item, MessageItem):
            text = self._item.text
            self._item.annotate(self.writer, source.annotation(sentence_start(text), len(text)))

    def _drop_citation(self, _delta: Citation) -> None:
        """Count a mark that stands behind no text of the answer."""
        self._repair("citation_of_nothing")

    def _forbid(self, delta: ToolCall) -> None:
        self._forbidden.add(delta.index)
        self._repair("call_suppressed")

    def _stray_arguments(self, delta: ToolArguments) -> None:
        """Count arguments of no open call, unless that call was suppressed: they came behind the end of a complete one, where
        white space means nothing."""
        if delta.index not in self._forbidden and not delta.text.isspace():
            self._repair("stray_arguments")

    def _set_finish(self, delta: Finish) -> None:
        # A server that repeats finish_reason may not take back that something was cut.
        if self.finish_reason in {None, "stop"}:
            self.finish_reason = delta.reason

    def _set_usage(self, delta: Usage) -> None:
        self.usage = delta

    def _abandon(self, end: Break) -> None:
        """Close whatever is open: a defect of our own may have left more than the state tells."""
        if self._item is not None and self._options.client.keeps_broken_text:
            self._repair("broken_text_omitted")
            self._item = None
        elif self._item is not None:
            self._keep_space(end)
            self._end_item("incomplete")
        if self.call is not None:
            self._cut_call(end)

    # ---- the guards of the table, and the parts of actions -----------------------------------------------------------

    def _call_is_complete(self) -> bool:
        return self.call is not None and self.call.complete

    def _call_is_whole(self) -> bool:
        return self.call is not None and self.call.whole

    def _call_was_left(self) -> bool:
        """Tell whether the model had gone on to something else: what was cut is not this call."""
        call = self.call
        return call is not None and not call.runnable and call.arguments.closed and self._pending is not None

    def _release(self) -> None:
        """Take what was held, until a call is open again that is not complete."""
        pending = self._pending
        self._pending = None
        assert pending is not None
        while pending and (self.call is None or self.call.complete):
            for delta in pending.take():
                self.step(delta)
        if pending:
            self._pending = pending

    def _permits(self, call: ToolCall) -> bool:
        options = self._options
        if self._allowed is not None and call.name not in self._allowed:
            return False
        held = self._pending.calls if self._pending is not None else 0
        calls = self._calls + held
        if options.parallel_calls is False and calls > self._calls_before:
            return False
        return options.max_calls is None or calls < options.max_calls

    def _new_id(self, prefix: str) -> str:
        if prefix == "call":
            return f"call_{self._token}{self._calls:04x}"
        return f"{prefix}_{self._token}{self.writer.next_index:04x}{self._turn_mark}"

    def _open_message(self, delta: Content, part: Literal["output_text", "refusal"]) -> None:
        self._item = MessageItem(self.writer, self._new_id("msg"), part)
        self.visible = True
        if not self._fresh:
            self._drop_space()
            text = self._indent + delta.text
            begin = text.rfind("\n", 0, len(text) - len(text.lstrip())) + 1
            delta.text = text[begin:]
            if type(delta) is Text and (self._indent_logprobs or delta.logprobs):
                logprobs = self._indent_logprobs + (delta.logprobs or [])
                delta.logprobs = split_at(logprobs, text[:begin])[1] if begin else logprobs
            self._drop_indent()
        self._fresh = False

    def _end_item(self, status: ItemStatus) -> None:
        assert self._item is not None
        self._item.close(self.writer, status)
        self._item = None
        self._drop_space()

    def _end_call(self, status: ItemStatus) -> None:
        assert self.call is not None
        self.writer.count_characters("tool_arguments", self.call.arguments.text)
        self.call.close(self.writer, status)
        if isinstance(self.call.item, HostedItem):
            self.hosted_calls += 1
        else:
            self.client_calls += 1
        self.call = None

    def _drop_space(self) -> None:
        self.space = ""
        self._fresh = False
        if self._space_logprobs:
            self._space_logprobs = []

    def _drop_indent(self) -> None:
        self._indent = ""
        if self._indent_logprobs:
            self._indent_logprobs = []

    def _repair(self, kind: str) -> None:
        self.repairs[kind] = self.repairs.get(kind, 0) + 1


Action: TypeAlias = Callable[[Lifecycle, Any], None]
L = Lifecycle


class Transition(NamedTuple):
    """What a kind of delta does in a state: actions, in order, and the next state."""

    actions: tuple[Action, ...]
    target: State


class Guarded(NamedTuple):
    """Two transitions of one kind of delta: a guard chooses between them."""

    guard: Callable[[Lifecycle], bool]
    then: Transition
    otherwise: Transition


T = Transition
Row: TypeAlias = dict[type, Transition | Guarded]


def _once_complete(transition: Transition) -> Guarded:
    """Return the transition for a delta that has to wait until the open call is complete."""
    return Guarded(L._call_is_complete, transition, T((L._hold,), "call"))


def _always(state: State) -> Row:
    """Return what every state does alike."""
    return {
        Finish: T((L._set_finish,), state),
        Usage: T((L._set_usage,), state),
        ForbiddenCall: T((L._forbid,), state),
    }


def _without_call(state: State) -> Row:
    """Return what every state does alike in which no call is open."""
    return {
        Blank: T((L._hold_space,), state),
        ToolArguments: T((L._stray_arguments,), state),
        ToolCallCut: T((), state),  # of a call that is forbidden
        Citation: T((L._drop_citation,), state),
        **_always(state),
        Break: T((L._abandon,), "ended"),
    }


def _in_text(state: State) -> Row:
    """Return what every state does alike in which a text is open."""
    return {
        ToolCall: T((L._close_item, L._open_call), "call"),
        **_without_call(state),
        Citation: T((L._cite if state == "text" else L._drop_citation,), state),
        Stop: T((L._keep_space, L._close_item), "ended"),
        Cut: T((L._keep_space, L._cut_item), "ended"),
    }


# state -> kind of delta -> actions, in order, and the next state. The first state is the initial one.
TABLE: dict[State, Row] = {
    "idle": {
        Reasoning: T((L._open_reasoning, L._write), "reasoning"),
        Text: T((L._open_text, L._write), "text"),
        Refusal: T((L._open_refusal, L._write), "refusal"),
        ToolCall: T((L._open_call,), "call"),
        **_without_call("idle"),
        Stop: T((), "ended"),
        Cut: T((), "ended"),
    },
    "reasoning": {
        Reasoning: T((L._write,), "reasoning"),
        Text: T((L._close_item, L._open_text, L._write), "text"),
        Refusal: T((L._close_item, L._open_refusal, L._write), "refusal"),
        **_in_text("reasoning"),
    },
    "text": {
        Reasoning: T((L._close_item, L._open_reasoning, L._write), "reasoning"),
        Text: T((L._write,), "text"),
        Refusal: T((L._close_item, L._open_refusal, L._write), "refusal"),
        **_in_text("text"),
    },
    "refusal": {
        Reasoning: T((L._close_item, L._open_reasoning, L._write), "reasoning"),
        Text: T((L._close_item, L._open_text, L._write), "text"),
        Refusal: T((L._write,), "refusal"),
        **_in_text("refusal"),
    },
    "call": {
        Reasoning: _once_complete(T((L._close_call, L._open_reasoning, L._write), "reasoning")),
        Text: _once_complete(T((L._close_call, L._open_text, L._write), "text")),
        Refusal: _once_complete(T((L._close_call, L._open_refusal, L._write), "refusal")),
        Blank: _once_complete(T((L._hold_space,), "call")),
        ToolCall: _once_complete(T((L._close_call, L._open_call), "call")),
        ToolArguments: T((L._write_arguments,), "call"),
        ToolCallCut: T((L._note_cut,), "call"),
        Citation: T((L._drop_citation,), "call"),
        **_always("call"),
        # What was held may follow.
        Break: Guarded(L._call_was_left, T((L._close_call,), "idle"), T((L._cut_call,), "idle")),
        Stop: Guarded(L._call_is_whole, T((L._close_call,), "idle"), T((L._cut_call,), "idle")),
        Cut: Guarded(L._call_was_left, T((L._close_call,), "idle"), T((L._cut_call,), "idle")),
    },
}
TABLE["ended"] = dict.fromkeys(TABLE["idle"], T((), "ended"))
