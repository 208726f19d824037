"""What a parser of raw markup is to its caller, whichever it is: ours, that of a response template, or vLLM's."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal, Protocol, TypeAlias, get_args

from responses_gateway.wire.deltas import Delta, FinishReason

# What the first marker of reasoning in the text has done: it opened reasoning ("late": behind other text; "again": it was open
# already), or closed it. "none": there was no marker yet, or the parser does not report it.
FirstMarker: TypeAlias = Literal["none", "open", "again", "late", "close"]
# What a parser had to mend.
Repair: TypeAlias = Literal[
    "call_in_reasoning",  # a call ended a reasoning block that had no end marker
    "cut_markup",  # the output ended inside markup that was no call yet: it came out as text, or was left out
    "duplicate_start",  # reasoning, or a tag of a call, opened twice
    "escaped_control",  # a raw control character or an invalid escape in a JSON string was escaped
    "extra_bracket",  # a bracket too many after a call
    "extra_key",  # a key besides name and arguments was left out
    "malformed_arguments",  # a part of the arguments could not be read as written
    "malformed_markup",  # an expression of a response template took too long: what followed came out as text
    "missing_end",  # an end marker did not come
    "name_after_arguments",  # the arguments had to wait for the name
    "quoted_marker",  # a marker in quotes or in a code block was text
    "rejected_call",  # text began like a call and was none: it came out as text
    "stray_end",  # an end marker without a beginning was left out
    "stray_text",  # text between the parts of a call came out after it
    "stringified_arguments",  # the arguments were a string that holds an object
    "undeclared_tool",  # a tool that was not offered
    "unclosed_json",  # brackets that were open at the end of a call were closed
    "wrapped_arguments",  # all arguments were wrapped in one parameter
]
REPAIRS: tuple[Repair, ...] = get_args(Repair)


class Parser(Protocol):
    """Parses the raw text of one choice of one response into deltas. A subclass has `feed`, `finish` and `repairs`; what else
    it knows about its text speeds up the stream or makes reports more precise, and has a default for one that does not know."""

    first_marker: FirstMarker = "none"

    @property
    def repairs(self) -> dict[str, int]:
        """How often each kind of repair was made."""

    def feed(self, text: str, token_ids: Sequence[int] | None = None) -> list[Delta]:
        """Return the deltas that a piece of text brings. `token_ids`: the ids of its tokens, if known."""

    def finish(self, reason: FinishReason) -> list[Delta]:
        """Return the deltas that were held back. Call it once, at the end."""

    @property
    def holds(self) -> bool:
        """Whether some of the text waits for what comes next."""
        return False

    @property
    def text_kind(self) -> Literal["text", "reasoning"] | None:
        """The kind of free text at this point; None if `plain` is never true."""
        return None

    def plain(self, _text: str, _token_ids: Sequence[int] | None = None) -> bool:
        """Take a piece (not empty) that merely continues the text or reasoning given out last, without a call of `feed`. True
        if the piece itself, with its tokens, is all that `feed` would return: it counts as fed then. Otherwise False."""
        return False

    def rewind(self, _token_ids: Sequence[int]) -> None:
        """Forget the last ids, whose text has not come: they will come again. Nothing, where ids are not looked at (a response
        template), or are kept until their text comes (vLLM)."""
        return
