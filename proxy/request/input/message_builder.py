"""Build chat messages: one assistant message at a time, immediately followed by the tool messages of its calls."""

from __future__ import annotations

import itertools
from operator import itemgetter

from proxy.request.fields import Object
from proxy.request.input.call_matching import NO_OUTPUT, MatchedCall
from proxy.request.loss_report import LossReport
from proxy.request.policy import Policy

# The text of a tool message whose output has no text.
SEE_BELOW = "(the output follows in the next message)"

_REASONING_FIELDS = {
    "reasoning": ("reasoning",),
    "reasoning_content": ("reasoning_content",),
    "both": ("reasoning", "reasoning_content"),
    "none": (),
}


class MessageBuilder:
    """Accepts the content of a conversation in order and arranges it as the strictest chat backend requires.

    An assistant message stays open while the model speaks, and until all of its calls that have an output later in the
    input have been answered; then `finish` or the next speaker closes it.
    """

    def __init__(self, policy: Policy, report: LossReport) -> None:
        self._policy = policy
        self._report = report
        self._messages: list[Object] = []
        self._turn: _Turn | None = None

    def add_user(self, content: str | list[Object]) -> None:
        """Add a user message."""
        self._close_turn()
        self._messages.append({"role": "user", "content": content})

    def add_system(self, content: str) -> None:
        """Add a system message in the middle of the conversation."""
        self._close_turn()
        self._messages.append({"role": "system", "content": content})

    def add_reasoning(self, text: str) -> None:
        """Add reasoning to the model's turn."""
        self._open_turn().reasoning.append(text)

    def add_text(self, text: str) -> None:
        """Add text to the model's turn."""
        if text:
            self._open_turn().texts.append(text)

    def add_call(self, matched: MatchedCall) -> None:
        """Add a call to the model's turn."""
        turn = self._open_turn()
        turn.calls.append(matched)
        if matched.call.output is not None:
            turn.answered = True
        elif matched.output is not NO_OUTPUT:
            turn.waiting.add(matched.id)

    def add_output(self, matched: MatchedCall) -> None:
        """Note where the output of a call stands; it is sent directly after its call in any case."""
        turn = self._turn
        if turn is not None and matched.id in turn.waiting:
            turn.waiting.discard(matched.id)
            turn.answered = True
        else:
            self._report.adapted("content", "order", "an output that did not follow its call was moved to it")

    def finish(self) -> list[Object]:
        """Return all messages."""
        self._close_turn()
        return _users_merged(self._messages) if self._policy.user_messages == "merge" else self._messages

    def _open_turn(self) -> _Turn:
        turn = self._turn
        if turn is not None and turn.answered and not turn.waiting:
            self._close_turn()
        if self._turn is None:
            self._turn = _Turn()
        return self._turn

    def _close_turn(self) -> None:
        turn = self._turn
        if turn is None:
            return
        self._turn = None
        if not turn.texts and not turn.calls:
            if turn.reasoning:
                reason = "no message or call of the same turn follows it"
                self._report.ignored("item", "reasoning", reason, "input", matters=False)
            return
        self._messages.append(self._assistant(turn))
        media: list[Object] = []
        for matched in turn.calls:
            output = matched.output or NO_OUTPUT
            text = output.text or (SEE_BELOW if output.media else "")
            self._messages.append({"role": "tool", "tool_call_id": matched.id, "content": text})
            if output.media:
                label = f"Output of the call {matched.id} ({matched.call.name}):"
                media += [{"type": "text", "text": label}, *output.media]
        if media:
            self._report.adapted("content", "tool_output_media", "moved into a user message after the tool messages")
            self._messages.append({"role": "user", "content": media})

    def _assistant(self, turn: _Turn) -> Object:
        # An empty string, not null: templates print null as "None" or fail on it.
        message: Object = {"role": "assistant", "content": "\n\n".join(turn.texts)}
        if turn.reasoning:
            for field in _REASONING_FIELDS[self._policy.reasoning_field]:
                message[field] = "\n".join(turn.reasoning)
        if turn.calls:
            message["tool_calls"] = [_tool_call(matched) for matched in turn.calls]
        return message


class _Turn:
    """The content of one response. `waiting`: ids of calls whose output is still to come; `answered`: some output came."""

    __slots__ = ("answered", "calls", "reasoning", "texts", "waiting")

    def __init__(self) -> None:
        self.reasoning: list[str] = []
        self.texts: list[str] = []
        self.calls: list[MatchedCall] = []
        self.waiting: set[str] = set()
        self.answered = False


def _tool_call(matched: MatchedCall) -> Object:
    function = {"name": matched.call.name, "arguments": matched.call.arguments}
    return {"id": matched.id, "type": "function", "function": function}


def _users_merged(messages: list[Object]) -> list[Object]:
    """Merge consecutive user messages into one."""
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
