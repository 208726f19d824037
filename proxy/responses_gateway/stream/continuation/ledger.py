"""The ids of all tokens that a backend has used and written, so that another one can continue where it broke off.

Ids are exact: text would be tokenized in another way. They run ahead of the text, though. A character of several tokens comes
with the last of them, and a server that looks for stop strings holds text back. So the ledger has how many of the ids were
there when the text was surely whole, and the text that has come since."""

from __future__ import annotations

from array import array
from collections.abc import Sequence
from typing import NamedTuple

from responses_gateway.wire.chat import Choice, Chunk, ids_in


class PartialAnswer(NamedTuple):
    """What is known of an answer that broke off: the ids of its prompt and its own, how many of these brought the text before
    `tail`, and the text that has come since. `raw`: all of it was raw text; else the backend has parsed it. `reads`: a parser
    of ours has read its text. `start` is how, as plain data."""

    prompt: Sequence[int]
    ids: Sequence[int]
    whole: int
    tail: str
    raw: bool
    reads: bool = False
    start: object = None

    @property
    def brought_text(self) -> bool:
        """Whether some text came."""
        return bool(self.whole or self.tail)


class TokenLedger:
    """Feed it every chunk. `ids` are those that were generated; `whole`: so many of them brought the text before `tail`.
    `parsed`: fields came which only a server with parsers sends. `aborted`: the server says that it stops."""

    __slots__ = ("_complete", "_holds_text", "_prompt", "aborted", "ids", "parsed", "tail", "whole")

    def __init__(self, *, holds_text: bool) -> None:
        """`holds_text`: the server looks for stop strings, so that no text is surely all that its tokens say."""
        self.ids = array("q")
        self.whole = 0
        self.tail: list[str] = []
        self.parsed = False
        self.aborted = False
        self._prompt = b""  # as it came: there may be hundreds of thousands, and hardly any are ever needed
        self._holds_text = holds_text
        self._complete = True

    @property
    def complete(self) -> bool:
        """Whether all ids are known."""
        return self._complete and bool(self.prompt)

    @property
    def prompt(self) -> Sequence[int]:
        """The ids of the prompt; none if the server sends something else."""
        return ids_in(self._prompt) or ()

    def observe(self, chunk: Chunk) -> None:
        """Take the ids of a chunk, and its text."""
        choices = chunk.choices
        if not choices:
            return
        choice = choices[0]
        if choice.index or len(choices) > 1:  # no vLLM: which of their texts are shown is not known here
            self._complete = False
            return
        self._prompt = self._prompt or chunk.prompt_ids
        text = self._text(choice)
        ids = choice.token_ids
        if ids is None:
            if text or self.parsed:
                self._complete = False
            return
        self.aborted |= choice.finish_reason == "abort"
        self.take(ids, text)

    def take(self, ids: list[int], text: str) -> None:
        """Take the ids of a chunk, and the content that came with them. All else that it has is as in the chunks before."""
        try:
            self.ids.extend(ids)
        except OverflowError:
            self._complete = False
        if not text:
            return
        if len(ids) == 1 and not self._holds_text:
            self.whole = len(self.ids)
            if self.tail:
                self.tail.clear()
        else:
            self.tail.append(text)

    def cut(self, count: int) -> Sequence[int]:
        """Keep the first ids, whose text is whole, and return the others. What follows comes from another server."""
        dropped = self.ids[count:]
        del self.ids[count:]
        self.whole = count
        self.tail.clear()
        self.parsed = False
        self.aborted = False
        return dropped

    def _text(self, choice: Choice) -> str:
        delta = choice.delta
        if delta is None:
            return ""
        if delta.reasoning or delta.tool_calls or delta.reasoning_content or delta.thinking or delta.refusal:
            self.parsed = True
        text = delta.content
        if text is None or type(text) is str:
            return text or ""
        self._complete = False  # parts: no vLLM
        return ""
