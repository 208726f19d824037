"""Where a text stands with regard to Markdown: what is inside a code block or in quotes is shown, not meant."""

from __future__ import annotations

_HEAD = 8  # characters of a line that tell whether it opens or closes a code block


class Fence:
    """Follows the text of an answer piece by piece and knows whether a code block is open."""

    __slots__ = ("_head", "_marked", "last", "open")

    def __init__(self) -> None:
        self.open = False
        self.last = ""  # the last character
        self._head = ""  # the beginning of the current line
        self._marked = False  # the current line has opened or closed a block

    def follow(self, piece: str) -> None:
        """Take the next piece of the text; it must not be empty."""
        self.last = piece[-1]
        if "`" not in piece:  # nearly always
            cut = piece.rfind("\n")
            if cut >= 0:
                self._head, self._marked, piece = "", False, piece[cut + 1 :]
            if len(self._head) < _HEAD:
                self._head += piece[:_HEAD]
            return
        first, *others = piece.split("\n")
        self._line(first)
        for line in others:
            self._head, self._marked = "", False
            self._line(line)

    def _line(self, piece: str) -> None:
        if len(self._head) < _HEAD:
            self._head += piece[:_HEAD]
        if not self._marked and self._head.lstrip().startswith("```"):
            self._marked = True
            self.open = not self.open
