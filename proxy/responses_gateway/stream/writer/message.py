"""The message of the Messages API around its content blocks: its first and last events, and its JSON."""

from __future__ import annotations

from typing import Any, NamedTuple

import msgspec

from responses_gateway.stream.writer.interface import AnswerStream, Outcome, Status, StreamStart
from responses_gateway.stream.writer.messages import PING, MessagesWriter, Thinking
from responses_gateway.wire.deltas import Usage
from responses_gateway.wire.errors import server_error
from responses_gateway.wire.json_text import json_text, quote, sendable
from responses_gateway.wire.messages import error_body, for_client

_NOTHING_USED = Usage(0, 0)
# Tokens of the context that servers leave empty.
_WINDOW_MARGIN = 2


class Safeguards(NamedTuple):
    """What was said of the tool calls of an answer (`safeguard_results`), and what saying it has cost."""

    results: list[dict[str, Any]]
    usage: Usage


class MessageOptions(msgspec.Struct, frozen=True):
    """What a request of the Messages API says about its stream. `context_window`: in tokens, where it is known; `max_tokens`:
    what the client asked for. `safeguards`: what the client says of how tool calls are to be judged; None if they are not."""

    thinking: Thinking = "shown"
    stop_sequences: frozenset[str] = frozenset()
    max_tokens: int | None = None
    context_window: int | None = None
    request_id: str | None = None
    safeguards: str | None = None

    def stream(self, start: StreamStart) -> MessageStream:
        """Return the stream of one message."""
        return MessageStream(start, self)


class MessageStream(AnswerStream):
    """One message: `message_start` and a ping, blocks, then `message_delta` and `message_stop`. One that fails ends with an
    `error` event alone, which leaves the open block open."""

    __slots__ = ("_head", "_options", "_outcome", "_safeguards", "_writer")

    def __init__(self, start: StreamStart, options: MessageOptions) -> None:
        writer = MessagesWriter(start.clock, thinking=options.thinking)
        super().__init__(writer)
        self._writer = writer
        self._options = options
        self._outcome = Outcome()
        self._safeguards: Safeguards | None = None
        message_id = start.response_id.removeprefix("resp_")
        self._head = f'"id":"msg_{message_id}","type":"message","role":"assistant","model":{quote(start.model)}'

    def queue(self) -> None:
        """Write nothing: no message waits in the background."""

    def start(self) -> None:
        """Write `message_start` and a ping."""
        rest = f'"content":[],"stop_reason":null,"stop_sequence":null,"usage":{_NO_USAGE}'
        self._writer.write("message_start", f',"message":{{{self._head},{rest}}}')
        self._writer.events.append(PING)

    def keep_alive(self) -> None:
        """Write a ping."""
        self._writer.ping()

    def end(self, outcome: Outcome) -> None:
        """Take the end, and write what was kept back for it."""
        self._outcome = outcome
        self._writer.end(failed=outcome.status == "failed")

    def terminal(self, *, stored: bool | None = None) -> bytes:
        """Return the last events."""
        if self._outcome.status == "failed":
            error = self._outcome.error or server_error("The message failed.")
            return _event("error", json_text(error_body(for_client(error), self._options.request_id)))
        delta = f'"delta":{{{self._ending()}}},"usage":{usage_json(self._outcome.usage, self._safeguards)}'
        return _event("message_delta", f'{{"type":"message_delta",{delta}}}') + _STOP

    def json(self, *, stored: bool | None = None, status: Status | None = None) -> str:
        """Return the message as it stands."""
        content = ",".join(self._writer.blocks())
        usage = usage_json(self._outcome.usage, self._safeguards)
        return sendable(f'{{{self._head},"content":[{content}],{self._ending()},"usage":{usage}}}')

    def judged(self, safeguards: Safeguards) -> None:
        """Take what was said of the tool calls, for the end."""
        self._safeguards = safeguards

    def _ending(self) -> str:
        """Return the members that tell why the message ended, and what was said of its tool calls."""
        reason, matched = self._stop_reason()
        ending = f'"stop_reason":"{reason}","stop_sequence":{"null" if matched is None else quote(matched)}'
        if self._safeguards is None:
            return ending
        return f'{ending},"safeguard_results":{json_text(self._safeguards.results)}'

    def _stop_reason(self) -> tuple[str, str | None]:
        """Return why the message ended, and the stop sequence if it was one."""
        outcome = self._outcome
        if outcome.incomplete_reason == "content_filter":
            return "refusal", None
        if outcome.incomplete_reason is not None:
            return ("model_context_window_exceeded" if self._window_is_full() else "max_tokens"), None
        if self._writer.calls:
            return "tool_use", None
        if self._writer.refused:
            return "refusal", None
        if outcome.stop_string in self._options.stop_sequences:
            return "stop_sequence", outcome.stop_string
        return "end_turn", None

    def _window_is_full(self) -> bool:
        """Tell whether it was the context window that ended the last turn, not `max_tokens`."""
        usage = self._outcome.last_turn
        window = self._options.context_window
        asked = self._options.max_tokens
        if not self._outcome.reached_limit or window is None or usage is None or usage.input is None or usage.output is None:
            return False  # where the window is not known, a limit of the server's own is as likely
        return usage.input + usage.output >= window - _WINDOW_MARGIN and (asked is None or usage.output < asked)


def usage_json(usage: Usage | None, safeguards: Safeguards | None = None) -> str:
    """Return the usage object: `input_tokens` are those of the prompt that no cache had, `output_tokens` contain the thought.
    What is not known counts 0, since the SDKs raise where a number is missing. The tokens of who judged calls stand apart,
    because clients take the others for the size of their context."""
    if usage is None:
        usage = _NOTHING_USED
    judged = ""
    if safeguards is not None:
        judge = safeguards.usage
        judged = f',"safeguards":{{"input_tokens":{judge.input or 0},"output_tokens":{judge.output or 0}}}'
    prompt = usage.input or 0
    output = usage.output or 0
    cached = min(usage.cached, prompt) if usage.cached else 0
    written = min(usage.cache_write, prompt - cached) if usage.cache_write else 0
    thought = min(usage.reasoning, output) if usage.reasoning else 0
    return (
        f'{{"input_tokens":{prompt - cached - written},"cache_creation_input_tokens":{written}'
        f',"cache_read_input_tokens":{cached},"output_tokens":{output}'
        f',"output_tokens_details":{{"thinking_tokens":{thought}}}{judged}}}'
    )


_NO_USAGE = usage_json(_NOTHING_USED)


def _event(kind: str, data: str) -> bytes:
    return f"event: {kind}\ndata: {data}\n\n".encode("utf-8", "replace")


_STOP = _event("message_stop", '{"type":"message_stop"}')
