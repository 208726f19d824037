"""Plays a chat stream to a translator that writes the Messages API, and reads back what a client would see. Every play is
judged: by the rules, and by the message that is not streamed."""

from __future__ import annotations

import json
from collections.abc import Iterable
from typing import Any, NamedTuple

from responses_gateway.conformance.checker import frames
from responses_gateway.conformance.messages import check_message_stream
from responses_gateway.stream.translator import Translator
from responses_gateway.stream.writer.messages import MessageOptions
from responses_gateway.wire.errors import ApiError
from tests.stream.stream_player import DONE, Said, new_translator

Event = dict[str, Any]
Block = dict[str, Any]

# Type of a delta -> the member of the block that it adds to.
_MEMBERS = {"text_delta": "text", "thinking_delta": "thinking", "signature_delta": "signature"}


class Message(NamedTuple):
    """A stream that has ended: its bytes, its events, and what a client makes of them. `open`: the last block was not stopped.
    `ending` has stop_reason, stop_sequence and usage, or is the error."""

    data: bytes
    events: list[Event]
    start: Event
    blocks: list[Block]
    open: bool
    ending: Event
    translator: Translator

    @property
    def said(self) -> list[Said]:
        """The blocks in short: `("text", "hello")`, `("call", name, arguments)`; "open" stands behind one that is."""
        found = [short(block) for block in self.blocks]
        return [*found[:-1], (*found[-1], "open")] if self.open else found

    @property
    def kinds(self) -> list[str]:
        """The types of all events; of a delta its own type."""
        return [event["delta"]["type"] if event["type"] == "content_block_delta" else event["type"] for event in self.events]

    @property
    def reason(self) -> str | None:
        """Why it ended; None if it failed."""
        return self.ending.get("stop_reason")


def translator_of(options: MessageOptions | None = None, **fields: Any) -> Translator:
    return new_translator(form=options or MessageOptions(), **fields)


def message_bytes(pieces: Iterable[bytes], options: MessageOptions | None = None, **fields: Any) -> bytes:
    """Return the whole stream for a body that arrives in these pieces, unchecked."""
    playing = translator_of(options, **fields)
    return playing.start() + b"".join([playing.feed(piece) for piece in pieces]) + playing.finish() + playing.terminal()


def play_message(*pieces: bytes | ApiError, done: bool = True, options: MessageOptions | None = None, **fields: Any) -> Message:
    """Feed the pieces (an error: the stream breaks there), then `[DONE]` unless told otherwise, then the end of the body."""
    playing = translator_of(options, **fields)
    out = [playing.start()]
    for piece in (*pieces, *([DONE] if done else [])):
        out.append(playing.fail(piece) if isinstance(piece, ApiError) else playing.feed(piece))
    out.append(playing.finish())
    return judged_message(b"".join(out), playing)


def judged_message(data: bytes, playing: Translator) -> Message:
    """Return the message after checking it; `data` are the events up to the terminal ones."""
    message = read_message(data + playing.terminal(), playing)
    assert check_message_stream(message.data) == []
    if message.reason is not None:
        whole = json.loads(playing.response.json())
        assert comparable(whole["content"]) == comparable(message.blocks)
        assert {name: whole[name] for name in ("stop_reason", "stop_sequence", "usage")} == message.ending
        assert (whole["id"], whole["model"]) == (message.start["id"], message.start["model"])
    return message


def read_message(data: bytes, playing: Translator) -> Message:
    """Put the deltas together as the SDKs do."""
    events = [json.loads(frame.data) for frame in frames(data)]
    ending: Event = {}
    for event in events:
        if event["type"] == "message_delta":
            ending = {**event["delta"], "usage": event["usage"]}
        elif event["type"] == "error":
            ending = event
    marks = [event["type"] for event in events if event["type"] in ("content_block_start", "content_block_stop")]
    is_open = marks[-1:] == ["content_block_start"]
    return Message(data, events, events[0].get("message", {}), read_blocks(events), is_open, ending, playing)


def read_blocks(events: list[Event]) -> list[Block]:
    """Return the blocks that events tell of; the deltas of an input are in `json`."""
    blocks: list[Block] = []
    for event in events:
        if event["type"] == "content_block_start":
            blocks.append(dict(event["content_block"]))
        elif event["type"] == "content_block_delta":
            _add(blocks[event["index"]], event["delta"])
    return blocks


def _add(block: Block, delta: Event) -> None:
    if delta["type"] == "citations_delta":
        block.setdefault("citations", []).append(delta["citation"])
    elif delta["type"] == "input_json_delta":
        block["json"] = block.get("json", "") + delta["partial_json"]
    else:
        block[_MEMBERS[delta["type"]]] += delta[_MEMBERS[delta["type"]]]


def comparable(blocks: list[Block]) -> list[Block]:
    """Return blocks with the input of calls as a client has it at the end."""
    return [{**block, "input": _input(block)} if "input" in block else block for block in map(_without_json, blocks)]


def _without_json(block: Block) -> Block:
    return (
        {**{name: value for name, value in block.items() if name != "json"}, "input": block["json"]}
        if "json" in block
        else block
    )


def _input(block: Block) -> Any:
    if isinstance(block["input"], dict) and "__unparsedToolInput" in block["input"]:
        return block["input"]["__unparsedToolInput"]["raw"]
    if not isinstance(block["input"], str):
        return block["input"]
    try:
        value = json.loads(block["input"], strict=False)
    except ValueError:
        return block["input"]
    return value if isinstance(value, dict) else block["input"]


def short(block: Block) -> Said:
    """See `Message.said`."""
    match block["type"]:
        case "text":
            return ("text", block["text"])
        case "thinking":
            return ("reasoning", block["thinking"])
        case "tool_use":
            return ("call", block["name"], block.get("json", ""))
        case kind:
            return (kind, block.get("name") or block["content"])


def message_substance(data: bytes) -> list[Event]:
    """Return the events of a stream, however its body was cut: neighbouring deltas of one block as one."""
    events: list[Event] = []
    for event in (json.loads(frame.data) for frame in frames(data)):
        delta = event.get("delta", {})
        before = events[-1].get("delta", {}) if events else {}
        member = {**_MEMBERS, "input_json_delta": "partial_json"}.get(delta.get("type"))
        if member is not None and before.get("type") == delta["type"] and event["type"] == "content_block_delta":
            before[member] += delta[member]
        else:
            events.append(event)
    return events
