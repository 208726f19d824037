"""Readers of the arguments of a call, one file per notation, and what they have in common."""

from __future__ import annotations

from abc import ABC, abstractmethod
from enum import Enum, auto


class ReadStatus(Enum):
    READING = auto()
    DONE = auto()  # the arguments are complete; what follows is not part of them
    REJECTED = auto()  # this is no call; nothing of it has been given out


class ArgumentsReader(ABC):
    """Reads the arguments of one call (or of several, where the family writes them as one list). A reader begins its call late:
    while it can still turn out to be no call, it gives nothing out and may be REJECTED."""

    status = ReadStatus.READING

    @abstractmethod
    def read(self, text: str, at: int) -> int:
        """Consume what can be consumed of `text[at:]`; return the index of the first character left."""

    def begin_cut(self) -> bool:
        """Begin the call, as its text was cut behind the name of a declared tool. Return False if that is not known to be so:
        then it comes out as text."""
        return False

    def finish(self, cut: bool, rest: str) -> None:  # noqa: B027 (JSON has nothing to do)
        """End the arguments, as no more text comes; `rest` is what was not consumed. `cut`: the output was cut, so nothing may
        be completed. Arguments that are not complete stay so by default: JSON, as the model wrote it. What is converted to JSON
        has no such form, and is a call that was cut."""
