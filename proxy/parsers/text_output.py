"""Free text on its way out: as reasoning or as part of the answer, without the line breaks that belong to the markup."""

from __future__ import annotations

from proxy.parsers.arguments.fence import Fence
from proxy.parsers.output import Output
from proxy.parsers.transitions import State


class Speech:
    """Text of one state after the other. Line breaks next to the markers of reasoning belong to the markup."""

    def __init__(self, output: Output, state: State) -> None:
        self.anything = False  # some text has been given out
        self._output = output
        self.enter(state)
        self.leading = state is State.REASONING

    def enter(self, state: State) -> None:
        """What follows belongs to `state`."""
        self.state = state
        self.leading = True  # line breaks that come now belong to the markup
        self.spoken = False  # visible text has come since
        self._gap = ""  # line breaks that belong to the markup if the reasoning ends here
        self._fence = Fence()

    @property
    def last(self) -> str:
        """The last character of this state's text."""
        return "\n" if self._gap else self._fence.last

    @property
    def in_code(self) -> bool:
        """A Markdown code block is open."""
        return self._fence.open

    def goes_on(self, piece: str) -> bool:
        """Whether a piece is more of what was said last, to be given out as it is; it counts as said then."""
        if not self.spoken or self.leading or self._gap or (self.state is State.REASONING and piece[-1] == "\n"):
            return False
        self._fence.follow(piece)
        return True

    def say(self, piece: str) -> None:
        if self.leading:
            piece = piece.lstrip("\n")
            self.leading = not piece
        if not piece:
            return
        self._fence.follow(piece)
        self.anything = True
        if not self.spoken and not piece.isspace():
            self.spoken = True
        if self.state is State.TEXT:
            self._output.text(piece)
            return
        body = piece.rstrip("\n")
        if body:
            self._output.reasoning(self._gap + body)
            self._gap = piece[len(body) :]
        else:
            self._gap += piece
