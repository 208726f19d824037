"""Readers of the arguments of a call, one file per notation, and what they have in common."""

from __future__ import annotations

from abc import ABC, abstractmethod
from enum import Enum, auto
from typing import Literal, NamedTuple, TypeAlias

from responses_gateway.parsers.delta_buffer import DeltaBuffer


class OuterMarkers(NamedTuple):
    """The markers that end a call from outside if its own end is missing: of the block around it, and of what may follow it.
    `others` mean something else."""

    closes: tuple[str, ...]
    opens: tuple[str, ...]
    others: tuple[str, ...] = ()


# "missing": all that were read have ended, and one is missing that the tool requires.
Begun: TypeAlias = Literal["none", "begun", "unreadable", "missing"]


class ReadStatus(Enum):
    READING = auto()
    DONE = auto()  # the arguments are complete; what follows is not part of them
    REJECTED = auto()  # this is no call; nothing of it has been given out
    UNREADABLE = auto()  # this is a call that cannot be read, to its end; nothing of it has been given out


class ArgumentsReader(ABC):
    """Reads the arguments of one call (or of several, where the family writes them as one list). A reader begins its call late:
    while it can still turn out to be no call, it gives nothing out and may be REJECTED."""

    status = ReadStatus.READING

    @property
    def parameter(self) -> Begun:
        """How far a parameter can be read that has begun while nothing was given out. It makes this a call."""
        return "none"

    @abstractmethod
    def read(self, text: str, at: int) -> int:
        """Consume what can be consumed of `text[at:]`; return the index of the first character left."""

    def begin_cut(self) -> bool:
        """Begin the call, as its text was cut behind the name of a declared tool. Return False if that is not known to be so:
        then it comes out as text."""
        return False

    def finish(self, cut: bool, rest: str) -> None:  # noqa: B027 (JSON has nothing to do)
        """End the arguments of a call that has begun, as no more text comes; `rest` is what was not consumed. `cut`: the output
        was cut, so nothing may be completed. Arguments that are not complete stay so by default: JSON, as the model wrote it.
        What is converted to JSON has no such form, and is a call that was cut."""


class NamedCallReader(ArgumentsReader):
    """Reads the arguments of one call whose name is known from its header."""

    def __init__(self, name: str, call_id: str, deltas: DeltaBuffer) -> None:
        self._name = name
        self._call_id = call_id
        self._deltas = deltas
        self._begun = False

    def _begin(self) -> None:
        """Begin the call, unless it has begun."""
        if not self._begun:
            self._begun = True
            self._deltas.begin_call(self._name, self._call_id)
