"""Chat messages in the making: one assistant message at a time, its tool messages right behind it."""

from __future__ import annotations

import itertools
from operator import itemgetter

from proxy.request.fields import Object
from proxy.request.input.pairing import NO_OUTPUT, Slot
from proxy.request.loss_report import Ledger
from proxy.request.policy import Policy

#: The text of a tool message whose output is all media.
SEE_BELOW = "(the output follows in the next message)"


class Messages:
    """Takes what was said in order and keeps to the order that the strictest chat backend demands.

    An assistant message stays open while the model speaks, and until all of its calls that have an output later in the
    input have been answered; then `finish` or the next speaker closes it.
    """

    def __init__(self, policy: Policy, ledger: Ledger) -> None:
        self._policy = policy
        self._ledger = ledger
        self._messages: list[Object] = []
        self._turn = _Turn()

    def user(self, content: str | list[Object]) -> None:
        """A user message."""
        self._close_turn()
        self._messages.append({"role": "user", "content": content})

    def system(self, content: str) -> None:
        """A system message in the middle of the conversation."""
        self._close_turn()
        self._messages.append({"role": "system", "content": content})

    def thought(self, reasoning: str) -> None:
        """The model's reasoning."""
        self._open_turn().reasoning.append(reasoning)

    def said(self, words: str) -> None:
        """The model's text."""
        if words:
            self._open_turn().texts.append(words)

    def called(self, slot: Slot) -> None:
        """The model's call."""
        turn = self._open_turn()
        turn.slots.append(slot)
        if slot.call.output is not None:
            turn.answered = True
        elif slot.output is not NO_OUTPUT:
            turn.waiting.add(slot.id)

    def answered(self, slot: Slot) -> None:
        """The output of a call. One that comes apart from its call has been sent with the call already."""
        if slot.id in self._turn.waiting:
            self._turn.waiting.discard(slot.id)
            self._turn.answered = True
        else:
            self._ledger.adapted("content", "order", "an output that came apart from its call was moved to it")

    def finish(self) -> list[Object]:
        """All messages."""
        self._close_turn()
        return _users_merged(self._messages) if self._policy.user_messages == "merge" else self._messages

    def _open_turn(self) -> _Turn:
        if self._turn.answered and not self._turn.waiting:
            self._close_turn()
        return self._turn

    def _close_turn(self) -> None:
        turn, self._turn = self._turn, _Turn()
        if not turn.texts and not turn.slots:
            if turn.reasoning:
                reason = "no message or call of the same turn follows it"
                self._ledger.ignored("item", "reasoning", reason, "input", matters=False)
            return
        self._messages.append(self._assistant(turn))
        media: list[Object] = []
        for slot in turn.slots:
            output = slot.output or NO_OUTPUT
            words = output.text or (SEE_BELOW if output.media else "")
            self._messages.append({"role": "tool", "tool_call_id": slot.id, "content": words})
            if output.media:
                label = f"Output of the call {slot.id} ({slot.call.name}):"
                media += [{"type": "text", "text": label}, *output.media]
        if media:
            self._ledger.adapted("content", "tool_output_media", "moved into a user message after the tool messages")
            self._messages.append({"role": "user", "content": media})

    def _assistant(self, turn: _Turn) -> Object:
        # An empty string, not null: templates print null as "None" or fail on it.
        message: Object = {"role": "assistant", "content": "\n\n".join(turn.texts)}
        if turn.reasoning:
            for field in _REASONING_FIELDS[self._policy.reasoning_field]:
                message[field] = "\n".join(turn.reasoning)
        if turn.slots:
            message["tool_calls"] = [_tool_call(slot) for slot in turn.slots]
        return message


class _Turn:
    """What one response said. `waiting`: ids of calls whose output is still to come; `answered`: some output came."""

    __slots__ = ("answered", "reasoning", "slots", "texts", "waiting")

    def __init__(self) -> None:
        self.reasoning: list[str] = []
        self.texts: list[str] = []
        self.slots: list[Slot] = []
        self.waiting: set[str] = set()
        self.answered = False


_REASONING_FIELDS = {
    "reasoning": ("reasoning",),
    "reasoning_content": ("reasoning_content",),
    "both": ("reasoning", "reasoning_content"),
    "none": (),
}


def _tool_call(slot: Slot) -> Object:
    function = {"name": slot.call.name, "arguments": slot.call.arguments}
    return {"id": slot.id, "type": "function", "function": function}


def _users_merged(messages: list[Object]) -> list[Object]:
    """User messages in a row as one."""
    merged: list[Object] = []
    for role, row in itertools.groupby(messages, key=itemgetter("role")):
        if role == "user":
            merged.append({"role": "user", "content": _joined([message["content"] for message in row])})
        else:
            merged.extend(row)
    return merged


def _joined(contents: list[str | list[Object]]) -> str | list[Object]:
    texts = [content for content in contents if isinstance(content, str)]
    if len(texts) == len(contents):
        return "\n\n".join(texts)
    return list(itertools.chain.from_iterable(map(_as_parts, contents)))


def _as_parts(content: str | list[Object]) -> list[Object]:
    return [{"type": "text", "text": content}] if isinstance(content, str) else content
