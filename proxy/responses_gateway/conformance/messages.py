"""Checks a stream of the Messages API against its rules (`MESSAGE_RULES`), whoever made it.

As for Responses, this room shares no code with a writer, and continues after a violation with what the stream says. Events,
blocks and deltas of unknown types are let through: new ones come every few months, and clients skip them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from responses_gateway.conformance.checker import decoded, frames
from responses_gateway.conformance.levels import MessageRule, Violation
from responses_gateway.conformance.rules import short

# Type of an event -> its members, and their types.
_SHAPES: dict[str, dict[str, type]] = {
    "message_start": {"message": dict},
    "content_block_start": {"index": int, "content_block": dict},
    "content_block_delta": {"index": int, "delta": dict},
    "content_block_stop": {"index": int},
    "message_delta": {"delta": dict, "usage": dict},
    "error": {"error": dict},
}
# Type of a block -> the members that are empty when it starts.
_EMPTY: dict[str, dict[str, object]] = {
    "text": {"text": ""},
    "thinking": {"thinking": ""},
    "tool_use": {"input": {}},
    "server_tool_use": {"input": {}},
}
# Type of a delta -> the types of blocks that it suits, and the member that has its text.
_DELTAS: dict[str, tuple[frozenset[str], str]] = {
    "text_delta": (frozenset({"text"}), "text"),
    "citations_delta": (frozenset({"text"}), ""),
    "thinking_delta": (frozenset({"thinking"}), "thinking"),
    "signature_delta": (frozenset({"thinking"}), "signature"),
    "input_json_delta": (frozenset({"tool_use", "server_tool_use", "mcp_tool_use"}), "partial_json"),
}
_CALLS = frozenset({"tool_use", "server_tool_use", "mcp_tool_use"})
# Reasons of messages that were cut: whatever else is in them.
_CUT = frozenset({"max_tokens", "model_context_window_exceeded", "refusal", "pause_turn"})
_REASONS = _CUT | {"end_turn", "stop_sequence", "tool_use"}


@dataclass(slots=True)
class _Block:
    """A block that is open: its type, how much text its deltas brought, and its signatures."""

    index: int
    kind: str
    length: int = 0
    signed: bool = False


class MessageChecker:
    """Feed the events of one stream in order; each call returns the rules that this event broke."""

    def __init__(self) -> None:
        self._found: list[Violation] = []
        self._event = -1
        self._started = False
        self._stopping = False  # message_delta has come
        self._end: str | None = None
        self._open: _Block | None = None
        self._next_index = 0
        self._ids: set[object] = set()  # of all calls
        self._calls = 0  # of the client's tools

    def feed(self, event_name: str | None, event: object) -> list[Violation]:
        """Check one event: the name on its `event:` line (None: it had none) and its decoded JSON."""
        self._found = []
        self._event += 1
        if not isinstance(event, dict) or not isinstance(event.get("type"), str):
            self._report("message_malformed", f"not a JSON object with a type: {short(event)}")
            return self._found
        kind: str = event["type"]
        if event_name != kind:
            self._report("message_event_name", f"event: {event_name}, type: {kind}")
        wrong = [name for name, shape in _SHAPES.get(kind, {}).items() if type(event.get(name)) is not shape]
        if self._end is not None:
            self._report("message_after_end", f"{kind} after {self._end}")
        elif wrong:
            self._report("message_malformed", f"{kind}: missing or of the wrong type: {', '.join(wrong)}")
        else:
            self._check(kind, event)
        return self._found

    def finish(self) -> list[Violation]:
        """Return what is missing when the stream has ended."""
        if self._end is not None:
            return []
        return [Violation("message_end", self._event + 1, "neither message_stop nor error")]

    def _report(self, rule: MessageRule, detail: str) -> None:
        self._found.append(Violation(rule, self._event, detail))

    def _check(self, kind: str, event: dict[str, Any]) -> None:
        if kind == "message_start":
            self._start(event["message"])
            return
        if not self._started and kind != "error":
            self._report("message_start", f"{kind} before message_start")
            self._started = True
        match kind:
            case "content_block_start":
                self._start_block(event["index"], event["content_block"])
            case "content_block_delta":
                self._check_delta(event["index"], event["delta"])
            case "content_block_stop":
                self._stop_block(event["index"])
            case "message_delta":
                self._check_ending(event["delta"], event["usage"])
            case "message_stop":
                if not self._stopping:
                    self._report("message_end", "message_stop without message_delta")
                self._end = kind
            case "error":
                if not all(isinstance(event["error"].get(name), str) for name in ("type", "message")):
                    self._report("message_error", f"error {short(event['error'])}")
                self._end = kind

    # The message

    def _start(self, message: dict[str, Any]) -> None:
        if self._started:
            self._report("message_start", "message_start does not stand at the beginning, once")
        self._started = True
        named = all(isinstance(message.get(name), str) and message[name] for name in ("id", "model"))
        if not named or message.get("role") != "assistant" or message.get("content") != []:
            self._report("message_identity", f"message {short(message)}")
        self._check_usage(message.get("usage"))

    def _check_usage(self, usage: object) -> None:
        counts = [usage.get(name) for name in ("input_tokens", "output_tokens")] if isinstance(usage, dict) else [None]
        if not all(type(count) is int and count >= 0 for count in counts):
            self._report("message_usage", f"usage {short(usage)}")

    def _check_ending(self, delta: dict[str, Any], usage: dict[str, Any]) -> None:
        if self._open is not None:
            self._report("block_unfinished", f"{self._open.kind} {self._open.index} has no content_block_stop")
            self._open = None
        if self._stopping:
            self._report("message_end", "message_delta twice")
        self._stopping = True
        if type(usage.get("output_tokens")) is not int or type(usage.get("input_tokens", 0)) is not int:
            self._report("message_usage", f"usage {short(usage)}")
        reason = delta.get("stop_reason")
        called = reason == "tool_use"
        if reason not in _REASONS or (reason not in _CUT and called != bool(self._calls)):
            self._report("stop_reason", f"stop_reason {short(reason)}, calls: {self._calls}")
        if (reason == "stop_sequence") != isinstance(delta.get("stop_sequence"), str):
            self._report("stop_sequence", f"stop_reason {short(reason)}, stop_sequence {short(delta.get('stop_sequence'))}")

    # Blocks

    def _start_block(self, index: int, block: dict[str, Any]) -> None:
        kind = str(block.get("type"))
        if self._stopping:
            self._report("message_end", f"{kind} starts behind message_delta")
        if self._open is not None:
            self._report("block_overlap", f"{kind} {index} starts while {self._open.kind} {self._open.index} is open")
        if index != self._next_index:
            self._report("block_index", f"index {index}, expected {self._next_index}")
        self._next_index = index + 1
        if "type" not in block or any(block.get(name) != value for name, value in _EMPTY.get(kind, {}).items()):
            self._report("block_start", f"starts as {short(block)}")
        if kind in _CALLS:
            self._check_call(kind, block)
        elif kind.endswith("_tool_result") and block.get("tool_use_id") not in self._ids:
            self._report("result_id", f"{kind} of {short(block.get('tool_use_id'))}")
        self._open = _Block(index, kind)

    def _check_call(self, kind: str, block: dict[str, Any]) -> None:
        call_id = block.get("id")
        if not isinstance(call_id, str) or not call_id or call_id in self._ids:
            self._report("tool_id", f"{short(call_id)} is not a new id")
        self._ids.add(str(call_id))
        if not isinstance(block.get("name"), str) or not block["name"]:
            self._report("tool_name", f"{kind} starts with the name {short(block.get('name'))}")
        self._calls += kind == "tool_use"

    def _opened(self, index: int, what: str) -> _Block | None:
        block = self._open
        if block is None or block.index != index:
            self._report("block_not_open", f"{what} of block {index}, which is not open")
            return None
        return block

    def _check_delta(self, index: int, delta: dict[str, Any]) -> None:
        kind = delta.get("type")
        block = self._opened(index, str(kind))
        if block is None or kind not in _DELTAS:
            return
        suited, member = _DELTAS[kind]
        text = delta.get(member) if member else ""
        if block.kind not in suited or not isinstance(text, str):
            self._report("block_kind", f"{kind} in {block.kind}: {short(delta)}")
            return
        if kind == "signature_delta":
            if block.signed or not text:
                self._report("signature", f"signature {short(text)}" + (", a second one" if block.signed else ""))
            block.signed = True
            return
        if block.signed:
            self._report("signature", f"{kind} behind the signature")
        if kind in ("text_delta", "thinking_delta") and not text:
            self._report("block_delta", f"{kind} without text")
        block.length += len(text)

    def _stop_block(self, index: int) -> None:
        block = self._opened(index, "the stop")
        if block is None:
            return
        if block.kind == "text" and not block.length:
            self._report("block_empty", f"text {index} is empty")
        if block.kind == "thinking" and not block.signed:
            self._report("signature", f"thinking {index} has none")
        self._open = None


def check_message_stream(data: bytes) -> list[Violation]:
    """Check the whole body of a stream (UTF-8 server-sent events)."""
    checker = MessageChecker()
    violations: list[Violation] = []
    count = 0
    for frame in frames(data):
        if not frame.complete:
            violations.append(Violation("message_malformed", count, "the last event lacks its blank line, clients drop it"))
        if frame.data == "[DONE]" and frame.name is None:
            violations.append(Violation("message_marker", count, "data: [DONE]"))
            continue
        violations += checker.feed(frame.name, decoded(frame.data))
        count += 1
    return violations + checker.finish()
