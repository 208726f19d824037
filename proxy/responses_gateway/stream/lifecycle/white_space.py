"""White space (Unicode's) that is not written yet, and may never be.

White space is never an item of its own. At the end of a text it is held until more text follows. Beside reasoning and calls
it is a separator of the model's template up to its last line break, and is dropped; what comes behind the line break is the
indentation of the text that follows. So the items do not depend on where the backend cut its deltas."""

from __future__ import annotations

from responses_gateway.stream.reading.logprobs import split_at
from responses_gateway.wire.chat import TokenLogprob
from responses_gateway.wire.deltas import Reasoning, Refusal, Text


class WhiteSpace:
    """`text` stands at the end of the open text, or before the first one; `indent` before the message that may come next. Each
    has the log probabilities of its tokens. `fresh`: nothing but a text's leading white space has come yet."""

    __slots__ = ("fresh", "indent", "indent_logprobs", "logprobs", "text")

    def __init__(self) -> None:
        self.begin_turn()

    def begin_turn(self) -> None:
        """Hold nothing: the model begins an answer."""
        self.text = ""
        self.logprobs: list[TokenLogprob] = []
        self.indent = ""
        self.indent_logprobs: list[TokenLogprob] = []
        self.fresh = True

    def trimmed(self, text: str) -> str:
        """Return what to write of more of the open text: white space that was held comes before it, that at its end is held.
        Empty if it is white space alone."""
        text = self.text + text
        body = text.rstrip()
        self.text = text[len(body) :]
        return body

    def trimmed_logprobs(self, text: str, logprobs: list[TokenLogprob] | None) -> list[TokenLogprob]:
        """Return the log probabilities of a text that was just `trimmed`, given those of the delta that brought its end."""
        logprobs = self.logprobs + (logprobs or [])
        self.logprobs = []
        if self.text:
            logprobs, self.logprobs = split_at(logprobs, text)
        return logprobs

    def hold(self, delta: Reasoning | Text | Refusal, *, in_its_item: bool) -> None:
        """Hold a delta of white space alone; `in_its_item`: an item of its own kind is open."""
        logprobs = delta.logprobs if type(delta) is Text else None
        if in_its_item or (self.fresh and type(delta) is not Reasoning):
            self.text += delta.text
            self.logprobs += logprobs or []
        elif type(delta) is not Reasoning:
            self.indent += delta.text
            self.indent_logprobs += logprobs or []
        elif self.fresh:  # an empty thinking block: what follows is separated from it
            self.drop()

    def begin_message(self, delta: Text | Refusal) -> None:
        """Give a message that begins its indentation."""
        if not self.fresh:
            self.drop()
            text = self.indent + delta.text
            begin = text.rfind("\n", 0, len(text) - len(text.lstrip())) + 1
            delta.text = text[begin:]
            if type(delta) is Text and (self.indent_logprobs or delta.logprobs):
                logprobs = self.indent_logprobs + (delta.logprobs or [])
                delta.logprobs = split_at(logprobs, text[:begin])[1] if begin else logprobs
            self.drop_indent()
        self.fresh = False

    def drop(self) -> None:
        """Forget what stands at the end of the open text."""
        self.text = ""
        self.fresh = False
        if self.logprobs:
            self.logprobs = []

    def drop_indent(self) -> None:
        """Forget what stands before the next message."""
        self.indent = ""
        if self.indent_logprobs:
            self.indent_logprobs = []

    def drop_all(self) -> None:
        """Forget both."""
        self.drop()
        self.drop_indent()
