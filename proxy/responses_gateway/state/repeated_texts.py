"""Long texts that many responses repeat, such as instructions and tools: each is stored once for each tenant.

Where a text was, `MARK` stands: JSON never contains that character. The texts of a response are a history of their own (see
`histories.py`), so responses with the same ones share it, and it goes with the last of them."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import cycle

from responses_gateway.state.records import JsonText

MARK = "\x1f"
_MARK = MARK.encode()
_BEGINNING = 64
_ESCAPED = b"\\u001f"


def shortened(text: JsonText, repeated: Sequence[JsonText]) -> str:
    """Replace repeated texts, which occur in their order, perhaps several times over."""
    return shortened_events(utf8(text), repeated).decode()


def restored(text: str, repeated: Sequence[str]) -> str:
    """Return what was shortened."""
    if not repeated:
        return text
    pieces = text.split(MARK)
    whole = pieces[:1]
    for each, piece in zip(cycle(repeated), pieces[1:], strict=False):
        whole += [each, piece]
    return "".join(whole)


def shortened_events(events: bytes, repeated: Sequence[JsonText]) -> bytes:
    """Replace repeated texts in events."""
    if not repeated:
        return events
    events = events.replace(_MARK, _ESCAPED)
    pieces: list[bytes] = []
    begin = 0
    for each in cycle(map(utf8, repeated)):
        place = _find(events, each, begin)
        if place < 0:
            break
        pieces.append(events[begin:place])
        begin = place + len(each)
    pieces.append(events[begin:])
    return _MARK.join(pieces)


def restored_events(events: bytes, repeated: Sequence[str]) -> bytes:
    """Return the events that were shortened."""
    return restored(events.decode(), repeated).encode() if repeated else events


def is_shortened(events: bytes) -> bool:
    """Tell whether events may have been shortened."""
    return _MARK in events


def utf8(text: JsonText) -> bytes:
    """Return a text in UTF-8, which has no halves of surrogate pairs."""
    return text if isinstance(text, bytes) else text.encode("utf-8", "replace")


def _find(text: bytes, wanted: bytes, begin: int) -> int:
    """Find a long text. Its beginning is usually enough, and looking for that costs much less."""
    place = text.find(wanted[:_BEGINNING], begin)
    return place if place < 0 or text.startswith(wanted, place) else text.find(wanted, place)
