"""One call of an answer, while its pieces come."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal

from responses_gateway.stream.items.calls import Arguments, without_rest
from responses_gateway.stream.reading.placeholders import PlaceholderReader, is_placeholder
from responses_gateway.wire.chat import ToolCallDelta
from responses_gateway.wire.json_text import StringDecoder, read_object

# How much of the arguments has come: nothing, `{}`, which may be all or stand in the place of others, a part, all.
Stage = Literal["empty", "placeholder", "open", "whole"]


@dataclass(slots=True, eq=False)
class PartialCall:
    """One call of an answer, as far as it has come. It has no number before it is announced."""

    index: int | None
    id: str
    before: PartialCall | None  # the one that had the same index
    rival: PartialCall | None  # the call without arguments whose arguments these may be
    name: str
    number: int = -1
    latest_id: str = ""  # the last one with which its name came, if that is another one
    start: PlaceholderReader = field(default_factory=PlaceholderReader)
    arguments: Arguments = field(default_factory=Arguments)
    size: int = 0  # of the arguments
    other_ids: bool = False  # pieces came with its name and other ids
    unnamed: bool = False  # arguments came without its name
    doubtful: bool = False  # not to be handed over unless the arguments are whole, and JSON
    cut: bool = False
    extra: str = ""  # the JSON of what the server wants back with it
    left: bool = False  # the answer has gone on behind it
    settled: bool = False  # a placeholder was taken as its arguments
    cumulative: bool = False  # each piece repeats all arguments before it

    @property
    def stage(self) -> Stage:
        """How much of the arguments has come."""
        if self.start.holds:
            return "placeholder" if self.start.holds_object else "empty"
        if not self.arguments.begun:
            return "empty"
        return "whole" if self.arguments.closed else "open"

    @property
    def has_rest(self) -> bool:
        """Whether another object stands behind the end of the arguments."""
        text = self.arguments.text if self.arguments.closed else ""
        return text[len(without_rest(text)) :].lstrip()[:1] == "{"

    @property
    def unfinished(self) -> bool:
        """Whether more of it has to come."""
        stage = self.stage
        return stage == "empty" or (stage == "open" and self.arguments.bracketed)

    @property
    def shares_index(self) -> bool:
        """Whether an earlier call of this index is unfinished too."""
        while self.before is not None and not self.before.unfinished:
            self.before = self.before.before
        return self.before is not None and self.unfinished

    def has_other_id(self, entry: ToolCallDelta) -> bool:
        """Tell whether an entry has an id that is none of this call's."""
        return bool(entry.id and self.id) and entry.id not in (self.id, self.latest_id)

    def new_part(self, arguments: str) -> str:
        """Return what a piece brings that may repeat all arguments before it. It does so if no object can stand where it would
        stand; where one can, the call is `doubtful`."""
        if arguments[:1] != "{" or not 0 < self.size <= len(arguments) or not (self.cumulative or self.stage == "open"):
            return arguments
        known = self.arguments.text
        repeats = arguments.startswith(known)
        if repeats and arguments != known and known.rstrip()[-1:] not in (":", ",", "["):
            # Nor in a text, which would end behind the bracket, before the name of a member.
            self.cumulative |= '"' not in known or arguments[1:].lstrip()[1:2].isalnum()
        self.doubtful |= repeats is not self.cumulative
        return arguments[len(known) :] if repeats and self.cumulative else arguments

    def waits_for(self, arguments: str) -> bool:
        """Tell whether these may be the arguments of this call, which has a placeholder."""
        return self.stage == "placeholder" and arguments.lstrip()[:1] == "{" and not is_placeholder(arguments)

    def continued_by(self, arguments: str) -> bool:
        """Tell whether what has come of the arguments is the beginning of these, or all of them."""
        if self.stage == "open":
            return arguments.startswith(self.arguments.text)
        return self.stage != "whole" or self.repeated_by(arguments)

    def repeated_by(self, arguments: str) -> bool:
        """Tell whether these are the arguments of this call, if it has all; LiteLLM has repeated them encoded twice."""
        arguments = StringDecoder().feed(arguments[1:]) if arguments[:1] == '"' else arguments
        if self.stage in ("empty", "placeholder"):
            return not arguments.strip() or is_placeholder(arguments)
        if self.size > 2 * len(arguments) + 64:  # white space alone does not make such a difference
            return False
        known = self.arguments.text
        return known == arguments or ((value := read_object(known)) is not None and value == read_object(arguments))
