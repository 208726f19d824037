"""The state machine of a response: which item is open, and what each delta does to it.

Two rules. (1) What may happen is the table: state x kind of delta -> actions; what is not in the table cannot happen.
(2) One item is open at a time: it is closed before the next one opens, and what comes too early for it is held.

White space (Unicode's) is never an item of its own. At the end of a text it is held until more text follows; beside
reasoning and calls it is a separator of the model's template and is dropped. So the result does not depend on where the
backend cut its deltas.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Literal, TypeAlias

from proxy.stream.items.calls import CALL_ID_PREFIX, Arguments, CallItem, CustomCallItem, open_call
from proxy.stream.items.text_items import MessageItem, Pen, ReasoningItem
from proxy.stream.kinds import Blank, ForbiddenCall
from proxy.stream.options import StreamOptions
from proxy.stream.pending import Held
from proxy.wire.chat import TokenLogprob
from proxy.wire.deltas import Delta, Finish, FinishReason, Reasoning, Refusal, Text, ToolArguments, ToolCall, Usage
from proxy.wire.tools import ToolTarget

State = Literal["idle", "reasoning", "text", "refusal", "call"]

Content: TypeAlias = Reasoning | Text | Refusal
_CONTENT = frozenset({Text, Reasoning, Refusal})
_KIND_OF: dict[str, type[Content]] = {"reasoning": Reasoning, "text": Text, "refusal": Refusal}


class Lifecycle:
    """Feed deltas to `step`, then call `close`; the events are in `pen.out`."""

    __slots__ = (
        "_arguments", "_call", "_call_ids", "_call_index", "_call_name", "_calls", "_forbidden", "_fresh", "_held", "_item",
        "_judging", "_options", "_row", "_space_logprobs", "_token", "finish_reason", "pen", "repairs", "space", "state",
        "usage", "visible",
    )  # fmt: skip

    def __init__(self, options: StreamOptions) -> None:
        self.pen = Pen()
        self.state: State = "idle"
        self.finish_reason: FinishReason | None = None
        self.usage: Usage | None = None
        self.visible = False  # something that a user sees (text, refusal, call) was opened
        self.repairs: dict[str, int] = {}
        self._options = options
        self._token = options.response_id.removeprefix("resp_")  # makes the ids of items unique
        self._row = TABLE["idle"]
        self._item: ReasoningItem | MessageItem | None = None
        self.space = ""  # white space at the end of the open text, or before the first one
        self._space_logprobs: list[TokenLogprob] = []
        self._fresh = True  # nothing but text's leading white space has come yet
        self._call: CallItem | None = None
        self._call_index = -1
        self._call_name = ""
        self._judging = False  # the open call may not close before there is a verdict on it
        self._arguments = Arguments()
        self._calls = 0
        self._call_ids = set(options.call_ids)
        self._forbidden: set[int] = set()
        self._held = Held()

    def step(self, delta: Delta) -> None:
        """Take one delta."""
        kind: type = type(delta)
        if kind in _CONTENT:
            if delta.text.isspace():  # type: ignore[union-attr]
                kind = Blank
        elif kind is ToolCall and not self._permits(delta):  # type: ignore[arg-type]
            kind = ForbiddenCall
        for action in self._row[kind]:
            action(self, delta)

    @property
    def open_text(self) -> ReasoningItem | MessageItem | None:
        """The item to which more of its text may be appended directly, once it is `trimmed`.

        This is the table's most frequent row, looked up once for many deltas. None where the table has to decide.
        """
        return None if self._space_logprobs or self.state == "refusal" else self._item

    def trimmed(self, text: str) -> str:
        """What to write of more of the open text: white space that was held comes before it, that at its end is held. Empty if
        it is white space alone."""
        text = self.space + text
        body = text.rstrip()
        self.space = text[len(body) :]
        return body

    def close(self) -> bool:
        """The stream ended after a finish_reason: close what is open. False if a call turns out to be cut."""
        cut = self.finish_reason != "stop"
        while self.state == "call":
            if cut or not self._call_is_whole():
                self.abandon()
                return cut
            self._close_call()
            self._release()
        if self.finish_reason == "content_filter":
            self.abandon()
        elif self._item is not None:
            self._keep_space()
            self._item.close(self.pen, "incomplete" if cut else "completed")
            self._item = None
        self._enter("idle")
        return True

    def abandon(self) -> None:
        """The stream broke: close what is open as incomplete, or leave it out for clients that would take it as final."""
        if self._item is not None:
            if self._options.client.keeps_broken_text:
                self._repair("broken_text_omitted")
            else:
                self._keep_space()
                self._item.close(self.pen, "incomplete")
            self._item = None
        if self._call is not None:
            self.pen.measure("tool_arguments", self._arguments.text)
            if self._options.client.runs_cut_calls:
                self._repair("cut_call_omitted")
            else:
                self._call.close(self.pen, "incomplete", self._arguments.text)
            self._call = None
        if self._held.groups:
            self._repair("held_dropped")
        self._held.clear()
        self._enter("idle")

    @property
    def unjudged(self) -> tuple[str, str] | None:
        """The whole call that waits for a verdict, as its chat name and its input; none in an answer that was cut."""
        call = self._call if self._judging and self.finish_reason == "stop" else None
        if not isinstance(call, CustomCallItem) or not self._call_is_whole():
            return None
        return self._call_name, call.input_of(self._arguments.text)

    def judge(self, replacement: str | None) -> None:
        """The verdict on that call: it is closed, with this input in place of its own if it is not None."""
        assert isinstance(self._call, CustomCallItem)
        self._call.replacement = replacement
        self._judging = False
        self._close_call()
        self._release()

    # ---- actions of the table ------------------------------------------------------------------------------------

    def _open_reasoning(self, delta: Content) -> None:
        options = self._options
        item_id = self._new_id("rs")
        self._item = ReasoningItem(self.pen, item_id, mirror=options.summary, event=options.reasoning_event, seal=options.seal)
        self._drop_space()
        self._enter("reasoning")
        delta.text = delta.text.lstrip()

    def _open_text(self, delta: Content) -> None:
        self._open_message(delta, "output_text", "text")

    def _open_refusal(self, delta: Content) -> None:
        self._open_message(delta, "refusal", "refusal")

    def _open_message(self, delta: Content, part: Literal["output_text", "refusal"], state: State) -> None:
        self._item = MessageItem(self.pen, self._new_id("msg"), part)
        self.visible = True
        if not self._fresh:
            self._drop_space()
            delta.text = delta.text.lstrip()
        self._fresh = False
        self._enter(state)

    def _write(self, delta: Content) -> None:
        text = self.trimmed(delta.text)
        logprobs = delta.logprobs if type(delta) is Text else None
        if self._space_logprobs:
            logprobs, self._space_logprobs = self._space_logprobs + (logprobs or []), []
        self._item.append(self.pen, text, logprobs)  # type: ignore[union-attr]

    def _hold_space(self, delta: Content) -> None:
        """White space belongs to the open item of its own kind, or to the answer that it may begin."""
        if type(delta) is _KIND_OF.get(self.state) or (self._fresh and type(delta) is not Reasoning):
            self.space += delta.text
            if type(delta) is Text and delta.logprobs:
                self._space_logprobs += delta.logprobs
        elif self._fresh:  # an empty thinking block: what follows is separated from it
            self._fresh, self.space = False, ""

    def _after_held(self, delta: Content) -> None:
        """White space beside a call is a separator, but not within a text that is held."""
        if self._held.ends_in_text:
            self._held.add(delta)

    def _close_item(self, delta: Delta) -> None:
        assert self._item is not None
        self._item.close(self.pen, "completed")
        self._item = None
        self._drop_space()
        self._enter("idle")

    def _open_call(self, delta: ToolCall) -> None:
        target = self._options.tools.get(delta.name) or ToolTarget("function", delta.name)
        call_id = delta.id
        if not 0 < len(call_id) <= 64 or call_id in self._call_ids or not call_id.isprintable():
            call_id = self._new_id("call")
            if delta.id:
                self._repair("call_id_replaced")
        self._call_ids.add(call_id)
        self._judging = target.kind == "custom" and self._options.judged and delta.name in self._options.grammars
        item_id = self._new_id(CALL_ID_PREFIX[target.kind])
        self._call = open_call(self.pen, item_id, call_id, target, live=not self._judging)
        self._call_index, self._call_name = delta.index, delta.name
        self._calls += 1
        self._arguments = Arguments()
        self._drop_space()
        self.visible = True
        self._enter("call")

    def _write_arguments(self, delta: ToolArguments) -> None:
        if delta.index != self._call_index:
            if not self._held.add_arguments(delta):
                self._stray_arguments(delta)
            return
        self._append_arguments(delta.text)
        if self._held.groups and self._may_close:
            self._close_call()
            self._release()

    def _after_call(self, delta: Delta) -> None:
        """Something else begins: it follows at once if the open call is complete, else it is held until it is."""
        if self._may_close and not self._held.groups:
            self._close_call()
            self.step(delta)
        else:
            self._held.add(delta)

    def _forbid(self, delta: ToolCall) -> None:
        self._forbidden.add(delta.index)
        self._repair("call_suppressed")

    def _stray_arguments(self, delta: ToolArguments) -> None:
        """Arguments of no open call: of one that was suppressed, or behind the end of a complete one."""
        if delta.index not in self._forbidden:
            self._repair("stray_arguments")

    def _set_finish(self, delta: Finish) -> None:
        # A server that repeats finish_reason may not take back that something was cut.
        if self.finish_reason in {None, "stop"}:
            self.finish_reason = delta.reason

    def _set_usage(self, delta: Usage) -> None:
        self.usage = delta

    # ---- the parts of actions ------------------------------------------------------------------------------------

    def _enter(self, state: State) -> None:
        self.state = state
        self._row = TABLE[state]

    def _new_id(self, prefix: str) -> str:
        number = self._calls if prefix == "call" else self.pen.index
        return f"{prefix}_{self._token}{number:04x}"

    def _permits(self, call: ToolCall) -> bool:
        options = self._options
        if options.allowed is not None and call.name not in options.allowed:
            return False
        return options.max_calls is None or self._calls + self._held.calls < options.max_calls

    def _keep_space(self) -> None:
        """White space at the very end of an answer is the model's own."""
        if self.space and self.state != "reasoning":
            self._item.append(self.pen, self.space, self._space_logprobs or None)  # type: ignore[union-attr]
        self._drop_space()

    def _call_is_whole(self) -> bool:
        if not self._arguments.text.strip():
            self._append_arguments("{}")
            self._repair("empty_arguments")
        return self._arguments.closed or not self._arguments.bracketed

    @property
    def _may_close(self) -> bool:
        """Something else may follow the open call at once."""
        return not self._judging and self._arguments.closed

    def _close_call(self) -> None:
        assert self._call is not None
        arguments = self._arguments.text
        self.pen.measure("tool_arguments", arguments)
        self._call.close(self.pen, "completed", arguments)
        self._call = None
        self._enter("idle")

    def _release(self) -> None:
        """Take what was held, until a call is open again that is not complete."""
        while self._held.groups and self.state != "call":
            held = self._held.take()
            if type(held[0]) is ToolCall:
                self._open_held(held)
            else:
                for delta in held:
                    self.step(delta)

    def _open_held(self, held: list[Delta]) -> None:
        """A call that came too early, with all of its arguments so far (it was permitted when it came)."""
        call: Any = held[0]
        if self._item is not None:
            self._close_item(call)
        self._open_call(call)
        self._append_arguments("".join(delta.text for delta in held[1:] if type(delta) is ToolArguments))
        if self._held.groups and self._may_close:
            self._close_call()

    def _append_arguments(self, text: str) -> None:
        if text:
            self._arguments.append(text)
            self._call.append(self.pen, text)  # type: ignore[union-attr]

    def _drop_space(self) -> None:
        self.space, self._fresh = "", False
        if self._space_logprobs:
            self._space_logprobs = []

    def _repair(self, kind: str) -> None:
        self.repairs[kind] = self.repairs.get(kind, 0) + 1


Action: TypeAlias = Callable[[Lifecycle, Any], None]
L = Lifecycle

#: What every state does alike.
_ALWAYS: dict[type, tuple[Action, ...]] = {
    Finish: (L._set_finish,),
    Usage: (L._set_usage,),
    ForbiddenCall: (L._forbid,),
}

#: state -> kind of delta -> actions, in order
TABLE: dict[State, dict[type, tuple[Action, ...]]] = {
    "idle": {
        Reasoning: (L._open_reasoning, L._write),
        Text: (L._open_text, L._write),
        Refusal: (L._open_refusal, L._write),
        Blank: (L._hold_space,),
        ToolCall: (L._open_call,),
        ToolArguments: (L._stray_arguments,),
        **_ALWAYS,
    },
    "reasoning": {
        Reasoning: (L._write,),
        Text: (L._close_item, L._open_text, L._write),
        Refusal: (L._close_item, L._open_refusal, L._write),
        Blank: (L._hold_space,),
        ToolCall: (L._close_item, L._open_call),
        ToolArguments: (L._stray_arguments,),
        **_ALWAYS,
    },
    "text": {
        Reasoning: (L._close_item, L._open_reasoning, L._write),
        Text: (L._write,),
        Refusal: (L._close_item, L._open_refusal, L._write),
        Blank: (L._hold_space,),
        ToolCall: (L._close_item, L._open_call),
        ToolArguments: (L._stray_arguments,),
        **_ALWAYS,
    },
    "refusal": {
        Reasoning: (L._close_item, L._open_reasoning, L._write),
        Text: (L._close_item, L._open_text, L._write),
        Refusal: (L._write,),
        Blank: (L._hold_space,),
        ToolCall: (L._close_item, L._open_call),
        ToolArguments: (L._stray_arguments,),
        **_ALWAYS,
    },
    "call": {
        Reasoning: (L._after_call,),
        Text: (L._after_call,),
        Refusal: (L._after_call,),
        Blank: (L._after_held,),
        ToolCall: (L._after_call,),
        ToolArguments: (L._write_arguments,),
        **_ALWAYS,
    },
}
