"""Answers that repeat one piece of text without end are ended: their tokens are of no use to anybody.

A loop is exact: at least twenty copies of one piece, and two thousand characters. A table of zeros, or a line of hyphens, is
shorter. The arguments of calls are never looked at, because they may be long lists."""

from __future__ import annotations

from responses_gateway.stream.items.text_items import TextItem
from responses_gateway.stream.translator import Translator

COPIES = 20
CHARACTERS = 2_000
# Characters of a piece, at most: a search for a longer one would take too long for what it finds.
_LONGEST_PIECE = CHARACTERS // 2
_STEP = 2_048  # bytes of the backend's body between two looks


class TextLoopWatch:
    """Feeds a translator, and ends a response whose open text has become a loop."""

    __slots__ = ("_item", "_read", "_tail", "_translator", "_unseen")

    def __init__(self, translator: Translator) -> None:
        self._translator = translator
        self._unseen = 0  # bytes since the last look
        self._item: TextItem | None = None  # the text that was open then
        self._read = 0  # pieces of it that were read
        self._tail = ""  # its last characters

    def feed(self, data: bytes) -> bytes:
        """Do as `Translator.feed`."""
        translator = self._translator
        unseen = self._unseen + len(data)
        if unseen < _STEP:
            self._unseen = unseen
            return translator.feed(data)
        events: list[bytes] = []
        for at in range(0, len(data), _STEP):
            piece = data[at : at + _STEP]
            events.append(translator.feed(piece))
            self._unseen += len(piece)
            if self._unseen < _STEP:
                continue
            self._unseen = 0
            item = translator.lifecycle.item
            if item is not None and translator.needs is None and self._has_become_a_loop(item):
                events.append(translator.cut_short())
                break
        return b"".join(events)

    def _has_become_a_loop(self, item: TextItem) -> bool:
        """Tell whether the open text ends in a loop. Only what came since the last look is read, as looks are many."""
        pieces = item.pieces
        if item is not self._item or len(pieces) < self._read:  # another text, or its pieces were joined
            self._item = item
            self._read = 0
            self._tail = ""
        self._tail = (self._tail + "".join(pieces[self._read :]))[-CHARACTERS:]
        self._read = len(pieces)
        return period(self._tail) is not None and is_loop(item)


def is_loop(item: TextItem) -> bool:
    """Tell whether a text that grows ends in copies of one piece."""
    tail, _ = item.end(CHARACTERS)
    piece = period(tail)
    if piece is None:
        return False
    text, _ = item.end(max(CHARACTERS, COPIES * piece))
    return len(text) >= COPIES * piece and text[piece:] == text[:-piece]


def period(tail: str) -> int | None:
    """Return the length of the piece of which the last characters of a text consist; None if they are too few, or there is no
    such piece. The end of a text is as long as the longest piece, so the last place where it stands tells the piece."""
    if len(tail) < CHARACTERS:
        return None
    at = tail.rfind(tail[-_LONGEST_PIECE:], 0, -1)
    return None if at < 0 else len(tail) - _LONGEST_PIECE - at
