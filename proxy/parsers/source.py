"""The text that has arrived and has not been consumed yet."""

from __future__ import annotations

from proxy.parsers.arguments.reader import skip_spaces
from proxy.parsers.lexer import Lexer, TokenGate


class Source:
    """`text[at:]` is what is left. Consumed text goes away with the next `extend`."""

    def __init__(self, gate: TokenGate) -> None:
        self.text = ""
        self.at = 0
        self.gate = gate
        self._lexers: dict[tuple[str, ...], Lexer] = {}

    def extend(self, piece: str) -> None:
        self.text = self.text[self.at :] + piece if self.at < len(self.text) else piece
        self.at = 0

    def put_back(self, piece: str) -> None:
        self.text = piece + self.text[self.at :]
        self.at = 0

    def advance(self, end: int) -> str:
        """Consume up to `end`; returns the text that was consumed."""
        piece = self.text[self.at : end]
        self.at = end
        return piece

    def spaces(self) -> str:
        """Consume white space."""
        return self.advance(skip_spaces(self.text, self.at))

    @property
    def empty(self) -> bool:
        return self.at >= len(self.text)

    @property
    def rest(self) -> str:
        return self.text[self.at :]

    def markers(self, *literals: str) -> Lexer:
        """A lexer for these markers."""
        lexer = self._lexers.get(literals)
        if lexer is None:
            lexer = self._lexers[literals] = Lexer(literals, self.gate)
        return lexer
