"""What every reader of call arguments has in common."""

from __future__ import annotations

import re
from enum import Enum, auto
from typing import Protocol

SPACES = re.compile(r"\s*")


class Status(Enum):
    READING = auto()
    DONE = auto()  # the arguments are complete; what follows is not part of them
    REJECTED = auto()  # this is no call; nothing of it has been given out


class Body(Protocol):
    """Reads the arguments of one call (or of several, where the family writes them as one list).

    A body begins its call late: while it can still turn out to be no call, it gives nothing out and may be REJECTED.
    """

    status: Status

    def read(self, text: str, at: int) -> int:
        """Consume what can be consumed of `text[at:]`; returns the index of the first character left."""
        ...

    def finish(self, cut: bool) -> None:
        """No more text comes. `cut`: the output was cut, so nothing may be completed on the model's behalf."""
        ...


def skip_spaces(text: str, at: int) -> int:
    found = SPACES.match(text, at)
    return found.end() if found else at
