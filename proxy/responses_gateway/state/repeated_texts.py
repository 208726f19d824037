"""Long texts that many responses repeat, such as instructions and tools: each is stored once for each tenant.

Where a text was, `MARK` stands: JSON never contains that character. The texts of a response are a history of their own (see
`histories.py`), so responses with the same ones share it, and it goes with the last of them."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import cycle

MARK = "\x1f"
_MARK = MARK.encode()
_BEGINNING = 64
_ESCAPED = "\\u001f"


def shortened(text: str, repeated: Sequence[str]) -> str:
    """Replace repeated texts, which occur in their order, perhaps several times over."""
    if not repeated:
        return text
    text = text.replace(MARK, _ESCAPED)
    pieces: list[str] = []
    begin = 0
    for each in cycle(repeated):
        place = _find(text, each, begin)
        if place < 0:
            break
        pieces.append(text[begin:place])
        begin = place + len(each)
    pieces.append(text[begin:])
    return MARK.join(pieces)


def restored(text: str, repeated: Sequence[str]) -> str:
    """Return what was shortened."""
    if not repeated:
        return text
    pieces = text.split(MARK)
    whole = pieces[:1]
    for each, piece in zip(cycle(repeated), pieces[1:], strict=False):
        whole += [each, piece]
    return "".join(whole)


def shortened_events(events: bytes, repeated: Sequence[str]) -> bytes:
    """Replace repeated texts in events."""
    return shortened(events.decode(), repeated).encode() if repeated else events


def restored_events(events: bytes, repeated: Sequence[str]) -> bytes:
    """Return the events that were shortened."""
    return restored(events.decode(), repeated).encode() if repeated else events


def is_shortened(events: bytes) -> bool:
    """Tell whether events may have been shortened."""
    return _MARK in events


def _find(text: str, wanted: str, begin: int) -> int:
    """Find a long text. Its beginning is usually enough, and looking for that costs much less."""
    place = text.find(wanted[:_BEGINNING], begin)
    return place if place < 0 or text.startswith(wanted, place) else text.find(wanted, place)
