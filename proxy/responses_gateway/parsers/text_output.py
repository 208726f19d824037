"""Free text on its way out: as reasoning or as part of the answer, without the line breaks that belong to the markup."""

from __future__ import annotations

import re
from dataclasses import dataclass
from enum import Enum, auto

from responses_gateway.parsers.delta_buffer import DeltaBuffer

_BEFORE_QUOTES = " \t\n([{:=,"  # a quotation mark behind these opens, and closes behind anything else
_OPENING = frozenset("“„‘«‹「『")  # quotation marks that can only open
_RUN = re.compile("`+")
_FENCE = re.compile(r"\s*(?:(?:[-*+]|\d{1,3}[.)])\s+)?(`{3,}|~{3,})")  # perhaps as what an item of a list has
_HEAD = 16  # characters of a line that tell whether it opens or closes a code block


class TextKind(Enum):
    """What free text is part of."""

    ANSWER = auto()
    REASONING = auto()


class TextOutput:
    """Gives out free text, of one kind after the other. Line breaks next to the markers of reasoning belong to the markup."""

    def __init__(self, deltas: DeltaBuffer, kind: TextKind) -> None:
        self.anything = False  # some text has been given out
        self._deltas = deltas
        self.enter(kind)
        self.leading = kind is TextKind.REASONING

    def enter(self, kind: TextKind) -> None:
        """Begin text of this kind."""
        self.kind = kind
        self.leading = True  # line breaks that come now belong to the markup
        self.visible = False  # visible text has come since
        self._gap = ""  # line breaks that belong to the markup if the reasoning ends here
        self.code = CodeBlocks()
        self.shown = False  # the last call that began is quoted
        self.beside_shown = False  # a marker of a quoted call was the last thing but white space

    @property
    def last(self) -> str:
        """The last character of the text since `enter`."""
        return "\n" if self._gap else self.code.last

    def follow(self, piece: str) -> bool:
        """Tell whether a piece merely continues the text, so that the caller can give it out unchanged. Then it is written."""
        if (
            not self.visible
            or self.leading
            or self._gap
            or self.beside_shown
            or (self.kind is TextKind.REASONING and piece[-1] == "\n")
        ):
            return False
        self.code.follow(piece)
        return True

    def write(self, piece: str) -> None:
        """Give out a piece, without line breaks of the markup."""
        if self.leading:
            piece = piece.lstrip("\n")
            self.leading = not piece
        if not piece:
            return
        self.code.follow(piece)
        self.anything = True
        if not piece.isspace():
            self.visible = True
            self.beside_shown = False
        if self.kind is TextKind.ANSWER:
            self._deltas.text(piece)
            return
        body = piece.rstrip("\n")
        if body:
            self._deltas.reasoning(self._gap + body)
            self._gap = piece[len(body) :]
        else:
            self._gap += piece


@dataclass(slots=True)
class CodeBlocks:
    """Follows the text and knows whether a Markdown code block is open: markup in it is shown, not meant. So is a call right
    behind the beginning of a quote."""

    fence: str = ""  # the marks that have opened the block which is open
    last: str = ""  # the last character
    _before: str = ""  # the one before it
    _ticks: int = 0  # backticks in the current line
    _runs: int = 0  # of them: each begins code, or ends it
    _head: str = ""  # the beginning of the current line
    _before_line: str = ""  # the fence before the current line

    def follow(self, piece: str) -> None:
        """Take the next piece of the text; it must not be empty."""
        before = self.last
        self._before = piece[-2] if len(piece) > 1 else before
        self.last = piece[-1]
        if "`" not in piece and "~" not in piece:  # nearly always
            cut = piece.rfind("\n")
            if cut >= 0:
                self._begin_line()
                piece = piece[cut + 1 :]
            if len(self._head) < _HEAD:
                self._head += piece[:_HEAD]
            return
        first, *others = piece.split("\n")
        self._runs -= before == "`" and first.startswith("`")  # it goes on
        self._line(first)
        for line in others:
            self._begin_line()
            self._line(line)

    @property
    def in_quoted_line(self) -> bool:
        """Whether the line is a quoted one."""
        return self._head.lstrip().startswith(">")

    @property
    def begins_quote(self) -> bool:
        """Whether what comes next is the beginning of what is quoted: of code in the line, or of a text in quotes."""
        if self.last == "`" or (self.last == " " and self._before == "`"):
            doubled = self.last == "`" == self._before
            return self._runs % 2 == 1 and (doubled or self._ticks % 2 == 1)
        opens = not self._before or self._before in _BEFORE_QUOTES
        return self.last in _OPENING or (opens and self.last in ('"', "'"))

    def _begin_line(self) -> None:
        self._before_line = self.fence
        self._head = ""
        self._runs = 0
        self._ticks = 0

    def _line(self, piece: str) -> None:
        """Take more of the current line. A block ends with at least the marks that opened it; backticks with others in their
        line are code within the line."""
        self._ticks += piece.count("`")
        self._runs += len(_RUN.findall(piece))
        self._head = (self._head + piece[:_HEAD])[:_HEAD]
        fence = _FENCE.match(self._head)
        if fence is not None and self._before_line:
            self.fence = "" if fence[1].startswith(self._before_line) else self._before_line
        elif fence is not None:
            self.fence = "" if fence[1][0] == "`" and self._ticks > len(fence[1]) else fence[1]
