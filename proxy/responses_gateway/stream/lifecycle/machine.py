"""The state machine of a response: which item is open, and what each delta does to it.

Two rules. (1) What may happen is the table: state x kind of delta -> actions and the next state; what is not in the table
cannot happen, and nothing else changes the state. (2) One item is open at a time: it is closed before the next one opens, and
what comes too early for it is held.

A response may take several turns of the model, where the gateway runs tools itself, or where results of calls may come later:
`CallRuns` and `CallDone` are what the gateway does about the open call of a tool of its own, and `NextTurn` begins the model's
next answer."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable
from typing import Any, Literal, NamedTuple, TypeAlias, final

import msgspec

from responses_gateway.stream.items.calls import CALL_ID_PREFIX, CallItem, HeldCallItem, OpenCall, new_item
from responses_gateway.stream.items.hosted import (
    ApprovalRequestItem,
    CallOutcome,
    HostedItem,
    HostedOptions,
    hosted_id_prefix,
    new_hosted_item,
)
from responses_gateway.stream.items.text_items import TextItem
from responses_gateway.stream.lifecycle.pending import PendingDeltas, WhiteSpace
from responses_gateway.stream.lifecycle.turn import CallLimits, Turn
from responses_gateway.stream.options import StreamOptions
from responses_gateway.stream.reading.citations import LONGEST_SENTENCE, MOST_CITED, CitationReader, sentence_start
from responses_gateway.stream.tokens.counter import said_more
from responses_gateway.stream.writer.interface import EventWriter, ItemStatus, TextKind
from responses_gateway.wire.deltas import (
    Citation,
    Delta,
    Finish,
    Image,
    Reasoning,
    Refusal,
    Text,
    ToolArguments,
    ToolCall,
    ToolCallCut,
    ToolCallExtra,
    Usage,
)
from responses_gateway.wire.hosted import CitedSource
from responses_gateway.wire.item_ids import BEFORE_THE_MODEL, turn_mark
from responses_gateway.wire.tools import ToolTarget, offered_name, target_of

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


class CallRuns:
    """The gateway runs the open call, whose arguments are whole."""


class CallDone(NamedTuple):
    """The gateway has run the open call."""

    outcome: CallOutcome


class NextTurn(NamedTuple):
    """The model has got what there is of the results of its calls, and answers again. Its calls count if it `may_call`."""

    may_call: bool


End: TypeAlias = Stop | Cut | Break
# What the gateway does itself. It may happen only where the table has it.
Step: TypeAlias = CallRuns | CallDone | NextTurn


class LastItemDone(Exception):
    """Another item would have to begin, though none may: see `Lifecycle.open_no_more`."""


class Lifecycle:
    """Feed deltas to `step`, then `close_next` or `abandon`; the events are in `writer.events`. `turn` is the model's present
    turn; `pending` is what came too early, and waits until the open call is complete."""

    __slots__ = (
        "_limits", "_options", "_row", "_table", "_token", "aside", "call", "item", "pending", "repairs", "sources", "space",
        "state", "turn", "turns", "writer",
    )  # fmt: skip

    def __init__(self, options: StreamOptions, writer: EventWriter) -> None:
        self.writer = writer
        self.state: State = "idle"
        self.turn = Turn()
        self.turns = [self.turn]
        self.repairs: defaultdict[str, int] = defaultdict(int)
        self.item: TextItem | None = None  # the text that is open
        self.call: OpenCall | None = None  # the call that is open
        self.aside: OpenCall | None = None  # one that is kept back, see `_sets_aside`
        self.pending: PendingDeltas | None = None
        self.space = WhiteSpace()
        self.sources: dict[int, CitedSource] = {}  # what may be cited, by number
        if options.hosted is not None:
            self.sources.update((source.number, source) for source in options.hosted.sources)
        self._options = options
        self._limits = CallLimits(options)
        self._token = options.response_id.removeprefix("resp_")  # makes the ids of items unique
        self._table = TABLE
        self._row = TABLE["idle"]

    def step(self, delta: Delta | End | Step) -> None:
        """Take one delta, the end, or a step of the gateway itself."""
        kind: type = type(delta)
        if kind in _CONTENT:
            if delta.text.isspace():  # type: ignore[union-attr]
                kind = Blank
        elif kind is ToolCall:
            delta.name = offered_name(self._options.tools, delta.name)  # type: ignore[union-attr]
            held = self.pending.calls if self.pending is not None else 0
            kind = ToolCall if self._limits.permits(delta, held, self.turn) else ForbiddenCall  # type: ignore[arg-type]
        transition = self._row[kind]
        if type(transition) is Guarded:
            transition = transition.then if transition.guard(self) else transition.otherwise
        actions, target = transition
        for action in actions:
            action(self, delta)
        if target is not self.state:
            self.state = target
            self._row = self._table[target]
        if self.pending is not None:
            self._release()

    @property
    def open_text(self) -> TextItem | None:
        """The item to which more of its text may be appended directly, once it is `space.trimmed`. This is the table's most
        frequent row, looked up once for many deltas. None where the table has to decide."""
        space = self.space
        return None if space.logprobs or space.indent or self.state == "refusal" else self.item

    def open_no_more(self) -> None:
        """Raise `LastItemDone` from now on where another item would begin. Calls of one turn belong together: behind the first
        one, the turn goes on to its end."""
        self._table = LAST_ITEM
        self._row = LAST_ITEM[self.state]

    @property
    def out_of_calls(self) -> bool:
        """Whether the response has all the calls that it may have (`max_tool_calls`)."""
        return self._limits.exhausted

    def repeat_reasoning(self) -> None:
        """Give out reasoning as a message too if nothing else came, so that the user sees an answer that was taken for it."""
        item = self.item
        if item is None or item.kind != "reasoning" or self.turn.visible or self._limits.suppressed:
            return
        text = item.text
        usage = self.turn.usage
        if usage is not None and said_more(usage.output, usage.reasoning, text):
            return  # the backend left the answer out: a call, say
        marks = CitationReader(self.sources)
        deltas = [*marks.read([Text(text)]), *marks.finish()]
        for delta in deltas:
            self.step(delta)
        self.repairs["reasoning_as_message"] += 1
        self.turn.thought_repeated = True
        # Its tokens were generated once: they are those of the reasoning.
        self.writer.characters["text"] = -sum(len(delta.text) for delta in deltas if type(delta) is Text)

    def close_next(self) -> None:
        """Close what is open after a finish_reason. What was held follows: to be called until the state is `ended`."""
        reason = self.turn.finish_reason
        self.step(Stop() if reason == "stop" else Break() if reason == "content_filter" else Cut())
        if self.state == "ended" and self.turn.details is not None:
            self.turn.details.write(self.writer, self._new_id, self._options.seal)

    def abandon(self) -> None:
        """Close what is open in a stream that broke, and all that was held."""
        while self.state != "ended":
            self.step(Break())

    def complete_texts(self) -> None:
        """Close what is open in an answer that broke, of a response that is complete nevertheless: what came of a text stays,
        and a call that may be cut does not."""
        while self.state != "ended":
            self.step(Stop() if self.call is None else Break())

    @property
    def is_between_items(self) -> bool:
        """Whether the turn has nothing open, no calls, and has not ended."""
        turn = self.turn
        return self.state == "idle" and turn.finish_reason is None and self.pending is None and not turn.has_calls

    def note_inserted(self, approved: int = 0) -> None:
        """Begin the model's first turn after what was written so far. So many calls that the client has approved were run."""
        self.turn.first_item = len(self.writer.done)
        self._limits.count_approved(approved)

    def _sets_aside(self, call: OpenCall) -> bool:
        """Tell whether a call whose end is missing is kept back while the model goes on: it makes the call again, and only if
        it does not is the broken one handed over, for its client to refuse. It has to be the only call of its turn."""
        broken = isinstance(call.item, HeldCallItem) and call.arguments.bracketed and not call.arguments.closed
        return broken and self.turn.calls == 1 and (self.pending is None or self.pending.calls == 0)

    def close_aside(self, *, omitted: bool) -> None:
        """Hand over a call that was kept back, as the model wrote it, unless it is `omitted`, or the model has gone on."""
        call = self.aside
        turn = self.turn
        self.aside = None
        if omitted or (turn.visible and (turn.broken_calls == 0 or turn.client_calls)):
            self.repairs["cut_call_omitted"] += 1
            return
        self.call = call
        self.repairs["arguments_not_json"] += 1
        self._end_call("completed")

    def restart(self) -> None:
        """Forget an answer of which no item was begun: another backend answers in its place."""
        self.turn.reopen()
        self.turn.details = None
        self.forget_space()
        self.space.fresh = True

    def forget_space(self) -> None:
        """Forget the white space at the end of what was written or held."""
        self.space.drop_all()
        if self.pending is not None:
            self.pending.forget_space()
            if not self.pending:
                self.pending = None

    def as_turn_began(self) -> Lifecycle:
        """Return a lifecycle for a second reading of the model's turn, which writes events of its own: as this one was when the
        turn began."""
        again = Lifecycle(msgspec.structs.replace(self._options, seal=None), self.writer.blank())
        again.sources = self.sources
        again._limits = self._limits.as_turn_began(again._options)
        return again

    # ---- actions of the table ------------------------------------------------------------------------------------

    def _open_reasoning(self, delta: Content) -> None:
        self.item = TextItem(self.writer, "reasoning", self._new_id("rs"), seal=self._options.seal)
        self.space.drop_all()
        delta.text = delta.text.lstrip()

    def _open_text(self, delta: Text) -> None:
        self._open_message(delta, "output_text")

    def _open_refusal(self, delta: Refusal) -> None:
        self._open_message(delta, "refusal")

    def _write(self, delta: Content) -> None:
        space = self.space
        text = space.trimmed(delta.text)
        if space.indent:
            space.drop_indent()
        logprobs = delta.logprobs if type(delta) is Text else None
        if logprobs or space.logprobs:
            logprobs = space.trimmed_logprobs(text, logprobs)
        self.item.append(text, logprobs)  # type: ignore[union-attr]

    def _hold_space(self, delta: Content) -> None:
        """Hold white space that belongs to the open item of its own kind, or to the message that it may begin."""
        self.space.hold(delta, in_its_item=type(delta) is _KIND_OF.get(self.state))

    def _close_item(self, _delta: Delta) -> None:
        self._end_item("completed")

    def _cut_item(self, _end: Cut) -> None:
        self._end_item("incomplete")

    def _keep_space(self, _end: End) -> None:
        """Write the white space at the very end of an answer, which is the model's own."""
        space = self.space
        if space.text and self.state != "reasoning":
            self.item.append(space.text, space.logprobs or None)  # type: ignore[union-attr]

    def _open_call(self, delta: ToolCall) -> None:
        options = self._options
        target = target_of(options.tools, delta.name) or ToolTarget("function", delta.name)
        call_id = self._limits.new_call_id(delta.id, self._token)
        if delta.id and call_id != delta.id:
            self.repairs["call_id_replaced"] += 1
        prefix = hosted_id_prefix(target) if target.hosted else ""  # the id of its item is all that later requests know of it
        if options.seal is not None and delta.extra:  # in an item before that of the call
            self.turn.wanted_back().add_call(self._new_id(prefix, behind=1) if prefix else call_id, delta.extra)
        if self.turn.details is not None:
            self.turn.details.write(self.writer, self._new_id, options.seal)
        if options.seal is not None:
            self.turn.call_ids[delta.index] = self._new_id(prefix) if prefix else call_id
        deferred = target.kind == "custom" and options.judged and delta.name in options.grammars
        if target.hosted:
            item: CallItem = new_hosted_item(self.writer, self._new_id, target, options.hosted or HostedOptions())
        else:
            item_id = self._new_id(CALL_ID_PREFIX[target.kind])
            item = new_item(self.writer, item_id, call_id, target, delta.extra, live=not deferred, held=options.goes_on)
        rules = options.calls
        held = rules is not None and rules.repairs and target.kind != "custom" and not target.hosted
        self.call = OpenCall(delta, item, deferred, target.asynchronous, held=held)
        self._limits.count()
        self.turn.calls += 1
        self.space.drop_all()
        self.turn.visible = True

    def _write_arguments(self, delta: ToolArguments) -> None:
        call = self.call
        assert call is not None
        if delta.index == call.made.index:
            # What is held behind the call ends it with its JSON, however the backend has cut that.
            call.followed = call.followed or (self.pending is not None and not call.arguments.closed)
            call.append(delta.text)
        elif self.pending is None or not self.pending.add_to_call(delta):
            self._stray_arguments(delta)

    def _note_cut(self, delta: ToolCallCut) -> None:
        call = self.call
        assert call is not None
        if delta.index == call.made.index:
            call.cut = True
        elif self.pending is not None:
            self.pending.add_to_call(delta)

    def _keep_extra(self, delta: ToolCallExtra) -> None:
        """Keep what the server wants back with a call that has begun. The item of one that is done has none any more: there it
        stays with the encrypted reasoning, if the client keeps that."""
        call = self.call
        is_open = call is not None and call.made.index == delta.index
        if is_open:
            call.made.extra = delta.extra  # type: ignore[union-attr]
        elif self.pending is not None and self.pending.add_to_call(delta):
            return
        if delta.index in self.turn.call_ids:
            self.turn.wanted_back().add_call(self.turn.call_ids[delta.index], delta.extra)
        elif not is_open and delta.index not in self._limits.suppressed:
            self.repairs["extra_content_dropped"] += 1

    def _hold(self, delta: Delta) -> None:
        if self.pending is None:
            self.pending = PendingDeltas()
        self.pending.add(delta)

    def _close_call(self, delta: Delta | End) -> None:
        call = self.call
        assert call is not None
        if call.doubled:
            self._cut_call(delta)
            return
        settled = call.settle(self._options.calls, ended=self.turn.finish_reason in (None, "stop"))
        if settled.validity:
            self.turn.checked[settled.validity] += 1
        if type(delta) is Stop and self._sets_aside(call):
            self.turn.broken_calls += 1
            self.aside = call
            self.call = None
            return
        if call.doubtful:
            self._cut_call(delta)
            return
        for kind in settled.repairs:
            self.repairs[kind] += 1
            self.turn.broken_calls += kind == "arguments_not_json" and not call.arguments.closed
        self._end_call("completed")

    def _run_call(self, _step: CallRuns) -> None:
        """Write that the open call of a hosted tool runs."""
        call = self.call
        assert call is not None
        for kind in call.settle_rest():
            self.repairs[kind] += 1
        if isinstance(call.item, ApprovalRequestItem):
            options = self._options.hosted or HostedOptions()
            call.item = call.item.as_call(self._new_id("mcp"), call.arguments.text, options)
        assert isinstance(call.item, HostedItem)
        if not call.arguments.text.strip():
            call.append("{}")
            self.repairs["empty_arguments"] += 1
        call.item.run(call.arguments.text)

    def _set_outcome(self, done: CallDone) -> None:
        assert self.call is not None
        assert isinstance(self.call.item, HostedItem)
        self.call.item.outcome = done.outcome
        self.sources.update((source.number, source) for source in done.outcome.sources)
        if done.outcome.images is not None:
            self.turn.images += done.outcome.images

    def _begin_turn(self, step: NextTurn) -> None:
        self.turn = Turn(len(self.writer.done), turn_mark(len(self.turns) + 1))
        self.turns.append(self.turn)
        self.turn.may_call = step.may_call
        self._limits.begin_turn(may_call=step.may_call)
        self.space.begin_turn()

    def _cut_call(self, end: Delta | End) -> None:
        assert self.call is not None
        unwritten = isinstance(self.call.item, HeldCallItem) and type(end) is Break
        self.turn.call_cut = self.turn.call_cut or not unwritten
        self.turn.broken_calls += 1
        if not unwritten and (isinstance(self.call.item, HostedItem) or not self._options.client.runs_cut_calls):
            self._end_call("incomplete")
            return
        self.writer.characters["tool_arguments"] += len(self.call.arguments.text)
        self.repairs["cut_call_omitted"] += 1
        self.call = None

    def _cite(self, delta: Citation) -> None:
        source = delta.source or self.sources.get(delta.number)
        if source is not None and self.item is not None:
            text, length = self.item.end(LONGEST_SENTENCE)
            if delta.source is None:
                self.item.annotate(source.annotation(length - len(text) + sentence_start(text), length))
                return
            # The server may have counted what stands in no item, and may repeat what it cited.
            annotation = source.annotation(min(delta.start, length), min(delta.end, length))
            if annotation not in self.item.annotations and len(self.item.annotations) < MOST_CITED:
                self.item.annotate(annotation)

    def _drop_citation(self, _delta: Citation) -> None:
        """Count a mark that stands behind no text of the answer."""
        self.repairs["citation_of_nothing"] += 1

    def _drop_image(self, _delta: Image) -> None:
        self.repairs["image_left_out"] += 1

    def _forbid(self, delta: ToolCall) -> None:
        self._limits.suppressed.add(delta.index)
        self.turn.calls += 1
        self.repairs["call_suppressed"] += 1

    def _stray_arguments(self, delta: ToolArguments) -> None:
        """Count arguments of no open call, unless that call was suppressed; white space means nothing."""
        if delta.index not in self._limits.suppressed and not delta.text.isspace():
            self.repairs["stray_arguments"] += 1

    def _set_finish(self, delta: Finish) -> None:
        # A server that repeats finish_reason may not take back that something was cut.
        if self.turn.finish_reason in {None, "stop"}:
            self.turn.finish_reason = delta.reason
            self.turn.stop_string = delta.stop_string
            self.turn.says_call = delta.says_call

    def _set_usage(self, delta: Usage) -> None:
        self.turn.usage = delta
        self.turn.usage_at_end = self.turn.finish_reason is not None

    def _abandon(self, end: Break) -> None:
        """Close whatever is open: a defect of our own may have left more than the state tells."""
        if self.item is not None and self._options.client.keeps_broken_text:
            self.repairs["broken_text_omitted"] += 1
            self.item = None
        elif self.item is not None:
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
        """Tell whether the model had begun something else: what was cut is not this call."""
        call = self.call
        return call is not None and not (call.runnable or call.cut) and call.arguments.closed and self.pending is not None

    def _release(self) -> None:
        """Take what was held, until a call is open again that is not complete."""
        pending = self.pending
        self.pending = None
        assert pending is not None
        while pending and (self.call is None or self.call.complete):
            for delta in pending.take():
                self.step(delta)
        if pending:
            self.pending = pending

    def inserted_id(self, prefix: str) -> str:
        """Return an id for an item that the gateway writes before the model's first turn."""
        return f"{prefix}_{self._token}{self.writer.next_index:04x}{BEFORE_THE_MODEL}"

    def _new_id(self, prefix: str, *, behind: int = 0) -> str:
        """Return the id of the next item, or of one so many items behind it."""
        return f"{prefix}_{self._token}{self.writer.next_index + behind:04x}{self.turn.mark}"

    def _open_message(self, delta: Text | Refusal, kind: TextKind) -> None:
        if self.turn.details is not None:
            self.turn.details.write(self.writer, self._new_id, self._options.seal)
        self.item = TextItem(self.writer, kind, self._new_id("msg"), phase=self._limits.phase)
        self.turn.visible = True
        self.turn.pending_calls = 0  # the model has gone on by itself
        self.space.begin_message(delta)

    def _end_item(self, status: ItemStatus) -> None:
        assert self.item is not None
        thought = self.item.kind == "reasoning"
        self.item.close(status, self.turn.details if thought else None)
        self.item = None
        self.space.drop()

    def _end_call(self, status: ItemStatus) -> None:
        assert self.call is not None
        self.writer.characters["tool_arguments"] += len(self.call.arguments.text)
        self.call.close(status)
        if isinstance(self.call.item, HostedItem):
            self.turn.hosted_calls += 1
        elif self.call.asynchronous:
            self.turn.pending_calls += 1
            self._limits.phase = "commentary"
        else:
            self.turn.client_calls += 1
        self.call = None


Action: TypeAlias = Callable[[Lifecycle, Any], None]
L = Lifecycle


class Transition(NamedTuple):
    """What a kind of delta does in a state: actions, in order, and the next state."""

    actions: tuple[Action, ...]
    target: State


@final
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
        Image: T((L._drop_image,), state),
        Finish: T((L._set_finish,), state),
        Usage: T((L._set_usage,), state),
        ForbiddenCall: T((L._forbid,), state),
        ToolCallExtra: T((L._keep_extra,), state),
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
        CallRuns: T((L._run_call,), "call"),
        CallDone: T((L._set_outcome, L._close_call), "idle"),
    },
}
TABLE["ended"] = {**dict.fromkeys(TABLE["idle"], T((), "ended")), NextTurn: T((L._begin_turn,), "idle")}


def _turn_has_calls(lifecycle: Lifecycle) -> bool:
    return lifecycle.turn.has_calls


def _end_before_next(_lifecycle: Lifecycle, _delta: Delta) -> None:
    raise LastItemDone


_OPENING = frozenset({L._open_reasoning, L._open_text, L._open_refusal, L._open_call})


def _as_last(state: State, transition: Transition | Guarded) -> Transition | Guarded:
    """Return what takes the place of a transition where no further item may begin."""
    if isinstance(transition, Guarded) or _OPENING.isdisjoint(transition.actions):
        return transition
    return Guarded(_turn_has_calls, transition, T((_end_before_next,), state))


# The same, where the open item is to be the last one.
LAST_ITEM: dict[State, Row] = {
    state: {kind: _as_last(state, transition) for kind, transition in row.items()} for state, row in TABLE.items()
}
