"""Streams of the Messages API written by hand: good ones, and some for each rule that have one thing wrong."""

from __future__ import annotations

import copy
import json
from collections.abc import Callable
from itertools import chain
from typing import Any

from responses_gateway.conformance.levels import MessageRule

Event = dict[str, Any]
USAGE = {"input_tokens": 3, "output_tokens": 2}
MESSAGE = {
    "id": "msg_1", "type": "message", "role": "assistant", "model": "m", "content": [], "stop_reason": None,
    "stop_sequence": None, "usage": USAGE,
}  # fmt: skip


def block(index: int, start: Event, *deltas: Event) -> list[Event]:
    """Return the events of a block."""
    return [
        {"type": "content_block_start", "index": index, "content_block": start},
        *({"type": "content_block_delta", "index": index, "delta": delta} for delta in deltas),
        {"type": "content_block_stop", "index": index},
    ]


def thought(index: int) -> list[Event]:
    start = {"type": "thinking", "thinking": "", "signature": ""}
    return block(index, start, {"type": "thinking_delta", "thinking": "hm"}, {"type": "signature_delta", "signature": "s"})


def text(index: int, *pieces: str) -> list[Event]:
    return block(index, {"type": "text", "text": ""}, *({"type": "text_delta", "text": piece} for piece in pieces or ["Hello"]))


def call(index: int, kind: str = "tool_use", **fields: Any) -> list[Event]:
    start = {"type": kind, "id": f"toolu_{index}", "name": "weather", "input": {}, **fields}
    return block(index, start, {"type": "input_json_delta", "partial_json": "{}"})


def result(index: int, call_id: str) -> list[Event]:
    return block(index, {"type": "web_search_tool_result", "tool_use_id": call_id, "content": []})


def stream(*blocks: list[Event], reason: str = "end_turn", sequence: str | None = None) -> list[Event]:
    ending = {"type": "message_delta", "delta": {"stop_reason": reason, "stop_sequence": sequence}, "usage": USAGE}
    events = [
        {"type": "message_start", "message": MESSAGE},
        {"type": "ping"},
        *chain(*blocks),
        ending,
        {"type": "message_stop"},
    ]
    return copy.deepcopy(events)


def failed(*events: Event) -> list[Event]:
    error = {"type": "error", "error": {"type": "api_error", "message": "gone"}}
    return [{"type": "message_start", "message": MESSAGE}, *events, error]


def changed(events: list[Event], place: int, **fields: Any) -> list[Event]:
    events = copy.deepcopy(events)
    events[place].update(fields)
    return events


def without(events: list[Event], place: int) -> list[Event]:
    return [event for number, event in enumerate(events) if number != place % len(events)]


def encode(events: list[Event]) -> bytes:
    return "".join(f"event: {event.get('type')}\ndata: {json.dumps(event)}\n\n" for event in events).encode()


FULL = stream(thought(0), text(1), call(2, "server_tool_use"), result(3, "toolu_2"), call(4), reason="tool_use")
HELLO = stream(text(0))  # start, ping, block start, delta, stop, message_delta, message_stop
GOOD: dict[str, list[Event]] = {
    "full": FULL,
    "nothing": stream(),
    "stop_sequence": stream(text(0), reason="stop_sequence", sequence="</b>"),
    "cut_call": stream(call(0), reason="max_tokens"),
    "failed_in_a_block": failed(*text(0)[:2]),
    "failed_at_once": failed()[1:],
    "unknown_event": [*HELLO[:2], {"type": "news"}, *HELLO[2:]],
    "unknown_block_and_delta": stream(block(0, {"type": "news"}, {"type": "news_delta", "x": 1})),
    "ping_in_a_block": [*HELLO[:3], {"type": "ping"}, *HELLO[3:]],
}
BROKEN: list[tuple[MessageRule, Callable[[], list[Event]]]] = [
    ("message_malformed", lambda: [*HELLO[:3], changed(HELLO, 3, index="0")[3], *HELLO[3:]]),
    ("message_start", lambda: without(HELLO, 0)),
    ("message_start", lambda: [HELLO[0], *HELLO]),
    ("message_identity", lambda: changed(HELLO, 0, message={**MESSAGE, "id": ""})),
    ("message_identity", lambda: changed(HELLO, 0, message={**MESSAGE, "content": None})),
    ("message_end", lambda: without(HELLO, -1)),
    ("message_end", lambda: without(HELLO, -2)),
    ("message_end", lambda: HELLO[:-2]),
    ("message_after_end", lambda: [*HELLO, {"type": "ping"}]),
    ("message_after_end", lambda: [*failed(), {"type": "message_stop"}]),
    ("message_usage", lambda: changed(HELLO, 0, message={**MESSAGE, "usage": None})),
    ("message_usage", lambda: changed(HELLO, -2, usage={})),
    ("stop_reason", lambda: stream(text(0), reason="tool_use")),
    ("stop_reason", lambda: stream(call(0))),
    ("stop_reason", lambda: stream(text(0), reason="stop")),
    ("stop_sequence", lambda: stream(text(0), reason="stop_sequence")),
    ("stop_sequence", lambda: stream(text(0), sequence="</b>")),
    ("message_error", lambda: changed(failed(), -1, error={"message": "gone"})),
    ("block_index", lambda: stream(text(1))),
    ("block_index", lambda: stream(text(0), text(0))),
    ("block_overlap", lambda: stream(text(0)[:-1], text(1))),
    ("block_not_open", lambda: stream(text(0), text(0)[1:2])),
    ("block_not_open", lambda: stream(text(0)[-1:])),
    ("block_unfinished", lambda: stream(text(0)[:-1])),
    ("block_start", lambda: stream(block(0, {"type": "text"}, {"type": "text_delta", "text": "x"}))),
    ("block_start", lambda: stream(call(0, input={"a": 1}), reason="tool_use")),
    ("block_kind", lambda: stream(text(0)[:2] + thought(0)[1:2] + text(0)[2:])),
    ("block_empty", lambda: stream(block(0, {"type": "text", "text": ""}))),
    ("block_delta", lambda: stream(text(0, "x", ""))),
    ("signature", lambda: stream(without(thought(0), 2))),
    ("signature", lambda: stream(thought(0)[:3] + thought(0)[2:])),
    ("signature", lambda: stream(thought(0)[:3] + thought(0)[1:2] + thought(0)[3:])),
    ("tool_id", lambda: stream(call(0), call(1, id="toolu_0"), reason="tool_use")),
    ("tool_id", lambda: stream(call(0, id=""), reason="tool_use")),
    ("tool_name", lambda: stream(call(0, name=""), reason="tool_use")),
    ("result_id", lambda: stream(result(0, "toolu_9"))),
]  # fmt: skip
