"""What stands in the place of arguments before they come: some servers send `{}`, `""` or `null` with the name of a call, and
then the arguments of the model behind it, as if both were one text."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

# Because no placeholder is longer: more white space, or more of them one after the other, are arguments like any others.
_LONGEST = 256
_SPACE = " \t\r\n"
_NULL = "null"

# Where the reader stands: before anything, behind the bracket of an object in which nothing stands yet, in a text, in the word
# `null`, behind a placeholder that is whole, in the arguments themselves.
_State = Literal["space", "object", "text", "null", "placeholder", "arguments"]


@dataclass(slots=True)
class PlaceholderReader:
    """Feed the arguments of one call, cut anywhere. A placeholder is kept back until it is clear what it is: with an object
    behind it, it means nothing; with nothing behind it, it is what the call has (`settle`)."""

    _state: _State = "space"
    _read: int = 0
    _kept: str = ""  # whole placeholders, and the beginning of one
    _word: int = 0  # how many letters of `null` were read
    _opened: bool = False  # the bracket of an object was given out

    @property
    def passes(self) -> bool:
        """Whether the arguments have begun: all that follows is given out as it comes."""
        return self._state == "arguments"

    @property
    def holds(self) -> bool:
        """Whether a placeholder has come, and nothing behind it."""
        return self._state == "placeholder"

    @property
    def holds_object(self) -> bool:
        """Whether what has come is an empty object, which may well be all."""
        return self.holds and "}" in self._kept

    def feed(self, text: str) -> str:
        """Return what may be given out of the next piece."""
        out = ""
        for at, character in enumerate(text):
            if self._state == "arguments" or self._read >= _LONGEST:
                self._state = "arguments"
                return out + self._take() + text[at:]
            self._read += 1
            out += self._step(character)
        if self._state == "placeholder" and self._kept.rstrip() == "}" and out.lstrip() == "{":
            self._kept = out + self._kept  # because what came at once is shown at once
            self._opened = False
            return ""
        return out

    def stop(self) -> None:
        """Give out all as it comes."""
        self._state = "arguments"

    def settle(self) -> str:
        """Return what is kept back: nothing follows."""
        self._state = "arguments"
        return self._take()

    def _take(self) -> str:
        kept = self._kept
        self._kept = ""
        return kept

    def _step(self, character: str) -> str:
        match self._state:
            case "space" | "placeholder":
                return self._begin(character)
            case "object":
                return self._in_object(character)
            case "text" if character == '"':
                self._state = "placeholder"
            case "null" if character == _NULL[self._word]:
                self._word += 1
                if self._word == len(_NULL):
                    self._state = "placeholder"
            case _:
                self._state = "arguments"
                return self._take() + character
        self._kept += character
        return ""

    def _begin(self, character: str) -> str:
        """Take a character before the arguments, or behind a placeholder."""
        if character in _SPACE:
            if self._state == "space":
                return character
            self._kept += character
            return ""
        if character == "{":
            self._state = "object"
            return self._open()
        if character == '"':
            self._state = "text"
        elif character == "n":
            self._state = "null"
            self._word = 1
        else:
            self._state = "arguments"
            return self._take() + character
        self._kept += character
        return ""

    def _open(self) -> str:
        """Begin an object: what was kept back before it is dropped."""
        space = self._kept[: len(self._kept) - len(self._kept.lstrip())] if not self._opened else ""
        self._kept = ""
        opened = self._opened
        self._opened = True
        return "" if opened else space + "{"

    def _in_object(self, character: str) -> str:
        if character in _SPACE:
            return character
        if character == "}":
            self._state = "placeholder"
            self._kept = character
            return ""
        self._state = "arguments"
        return character


def is_placeholder(text: str) -> bool:
    """Tell whether a text is a placeholder, or several of them."""
    reader = PlaceholderReader()
    reader.feed(text)
    return reader.holds
