"""Plain values become the text of Responses events: leaf functions, no state, no decisions.

An event is `event: TYPE`, `data: {"type": TYPE, ..., "sequence_number": N}` and a blank line (Open Responses: "event" equals
"type"; every `data` is one JSON object). What repeats from delta to delta of one item is built once, by `delta_head`.
"""

from __future__ import annotations

import json
from json.encoder import encode_basestring as quote
from typing import Any

import msgspec

__all__ = [
    "COMMENT",
    "DELTA",
    "DONE",
    "content_part",
    "delta_head",
    "item_event",
    "json_text",
    "quote",
    "quoted",
    "response_event",
    "summary_part",
    "text_done",
]

#: The literal that ends every stream (Open Responses, R3).
DONE = "data: [DONE]\n\n"

#: One delta event, ready to be sent: the head of its item, the sequence number, the piece of text as a JSON string. A template
#: and no function, for it is written more often than all other events together.
DELTA = b'%b%d,"delta":%b}\n\n'

#: An SSE comment: keeps proxies awake, invisible to clients.
COMMENT = ": keep-alive\n\n"

_encode = msgspec.json.Encoder().encode


def json_text(value: Any) -> str:
    """Compact JSON of plain data."""
    try:
        return _encode(value).decode()
    except UnicodeEncodeError:  # half a surrogate pair: the encoder of the stream replaces it
        return json.dumps(value, ensure_ascii=False, separators=(",", ":"))


def _event(kind: str, seq: int, fields: str) -> str:
    return f'event: {kind}\ndata: {{"type":"{kind}","sequence_number":{seq},{fields}}}\n\n'


def response_event(kind: str, seq: int, response: str) -> str:
    """`response.created`, `.queued`, `.in_progress`, `.completed`, `.incomplete`, `.failed`; `response` is its JSON."""
    return _event(kind, seq, f'"response":{response}')


def item_event(kind: str, seq: int, output_index: int, item: str) -> str:
    """`response.output_item.added` or `.done`; `item` is its JSON."""
    return _event(kind, seq, f'"output_index":{output_index},"item":{item}')


def content_part(kind: str, seq: int, item_id: str, output_index: int, part: str) -> str:
    """`response.content_part.added` or `.done` of the item's only part; `part` is its JSON."""
    fields = f'"item_id":"{item_id}","output_index":{output_index},"content_index":0,"part":{part}'
    return _event(kind, seq, fields)


def summary_part(kind: str, seq: int, item_id: str, output_index: int, text: str) -> str:
    """`response.reasoning_summary_part.added` or `.done`."""
    part = f'{{"type":"summary_text","text":{quote(text)}}}'
    fields = f'"item_id":"{item_id}","output_index":{output_index},"summary_index":0,"part":{part}'
    return _event(kind, seq, fields)


def delta_head(kind: str, item_id: str, output_index: int, fields: str = "") -> bytes:
    """All of a delta event up to the sequence number. `fields` is more JSON members, each with a leading comma."""
    return (
        f'event: {kind}\ndata: {{"type":"{kind}","item_id":"{item_id}","output_index":{output_index}{fields},"sequence_number":'
    ).encode()


def quoted(text: str) -> bytes:
    """A JSON string in UTF-8."""
    try:
        return _encode(text)
    except UnicodeEncodeError:  # half a surrogate pair
        return quote(text).encode("utf-8", "replace")


def text_done(kind: str, seq: int, item_id: str, output_index: int, member: str, text: str, fields: str = "") -> str:
    """The `.done` of a text: `member` is the name that its event gives the whole text (`text`, `arguments`, ...)."""
    head = f'"item_id":"{item_id}","output_index":{output_index}{fields}'
    return _event(kind, seq, f'{head},"{member}":{quote(text)}')
