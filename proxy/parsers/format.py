"""The markup of model families as data.

A format is made of a reasoning part and a tool part, chosen by two names as in vLLM. One engine runs them all. A call is

    [block opens]  call opens  header  arguments  call closes  [block closes]

where the header carries the name (or the arguments do, in the JSON and Python families).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TypeAlias


@dataclass(frozen=True)
class JsonArguments:
    """One JSON value after a header that names the tool."""


@dataclass(frozen=True)
class JsonEnvelope:
    """One object that carries name and arguments, or an array of such objects.

    `strict`: without a marker in front, an object is a call only if it has nothing but the known keys and has arguments.
    `name_is_key`: the object is `{"NAME": {arguments}}`.
    """

    names: tuple[str, ...] = ("name",)
    arguments: tuple[str, ...] = ("arguments", "parameters")
    ids: tuple[str, ...] = ("id", "tool_call_id")
    strict: bool = False
    name_is_key: bool = False


@dataclass(frozen=True)
class Parameters:
    """Tagged parameters: `opens` header `heads` [`values`] value `closes`.

    `header` is a regular expression with the group `key`, and the group `text` or `json` matched where the tag itself says
    how to read its value. `values` is a second marker before the value (key and value tags). `trim`: one newline on each
    side of a value belongs to the markup. `wrappers`: a lone parameter of that name holds all arguments as an object.
    `escaped`: keys are written with the entities `&amp;` and `&quot;`.
    """

    opens: tuple[str, ...]
    heads: tuple[str, ...]
    closes: tuple[str, ...]
    header: str
    values: tuple[str, ...] = ()
    trim: bool = False
    wrappers: tuple[str, ...] = ()
    escaped: bool = False


@dataclass(frozen=True)
class Elements:
    """Parameters as elements named after the argument, nested for objects and arrays; every tag has `prefix` in front."""

    prefix: str
    item: str = "item"


@dataclass(frozen=True)
class Literal:
    """An object in a model's own notation: bare keys, strings between `quotes` without escapes."""

    quotes: tuple[str, ...]


@dataclass(frozen=True)
class PythonCalls:
    """Calls in Python: `[f(a=1), g(b='x')]`, or without the brackets, one after the other."""


Arguments: TypeAlias = JsonArguments | JsonEnvelope | Parameters | Elements | Literal | PythonCalls


@dataclass(frozen=True)
class Header:
    """Text between the opening of a call and its arguments.

    `ends` are consumed, `stops` are left to the arguments. `pattern` must match the whole header; its groups are `name` and,
    where the family has call ids of its own, `id`. `partial` must match whatever has arrived of it, so that prose that
    only mentions a marker is let go at once.
    """

    pattern: str
    ends: tuple[str, ...] = ()
    stops: tuple[str, ...] = ()
    partial: str = r"""\s{0,8}["']?[\w.\-:/]{0,128}["']?\s{0,8}"""


@dataclass(frozen=True)
class Call:
    """One call. `first` is the set of characters (regular expression) with which it may go on after its opening.

    `declared_only`: a name that was not offered makes it text. `fillers` may stand between arguments and end.
    """

    opens: tuple[str, ...]
    arguments: Arguments
    first: str = r"."
    header: Header | None = None
    closes: tuple[str, ...] = ()
    fillers: tuple[str, ...] = ()
    declared_only: bool = False


@dataclass(frozen=True)
class Block:
    """Calls inside a common pair of markers."""

    opens: tuple[str, ...]
    closes: tuple[str, ...]
    calls: tuple[Call, ...]
    first: str = r"<"


@dataclass(frozen=True)
class Channels:
    """Messages with a header (harmony): `opens` header `message` body `ends`. The channel decides what the body is.

    `header` must match whatever has arrived of a header, so that prose that only mentions a marker is let go at once.
    """

    opens: tuple[str, ...]
    message: str
    ends: tuple[str, ...]
    header: str
    channel: str
    recipient: str
    reasoning: tuple[str, ...]


@dataclass(frozen=True)
class Reasoning:
    """How a family marks its reasoning.

    `implicit`: generation starts inside reasoning unless the prompt says otherwise. `at_start`: it is opened only at the
    beginning of the output (families that mark it with prose). `wrappers`: pairs of markers around the answer.
    """

    opens: tuple[str, ...] = ()
    closes: tuple[str, ...] = ()
    implicit: bool = False
    at_start: bool = False
    wrappers: tuple[tuple[str, str], ...] = ()
    channels: Channels | None = None


@dataclass(frozen=True)
class Tools:
    """How a family marks its calls. `bare` calls have no marker: they may begin where the answer begins."""

    calls: tuple[Call, ...] = ()
    blocks: tuple[Block, ...] = ()
    bare: tuple[Call, ...] = ()
    channels: Channels | None = None


@dataclass(frozen=True)
class Format:
    """A reasoning part and a tool part."""

    reasoning: Reasoning | None
    tools: Tools | None

    @property
    def channels(self) -> Channels | None:
        for part in (self.reasoning, self.tools):
            if part is not None and part.channels is not None:
                return part.channels
        return None

    def markers(self) -> frozenset[str]:
        """All literal markers, for looking up which of them are single tokens of a model."""
        found: set[str] = set()
        if self.reasoning is not None:
            found.update(self.reasoning.opens, self.reasoning.closes, *self.reasoning.wrappers)
        if self.tools is not None:
            calls = [*self.tools.calls, *(call for block in self.tools.blocks for call in block.calls)]
            for block in self.tools.blocks:
                found.update(block.opens, block.closes)
            for call in calls:
                found.update(call.opens, call.closes, *_argument_markers(call.arguments))
                if call.header is not None:
                    found.update(call.header.ends, call.header.stops)
        if self.channels is not None:
            found.update(self.channels.opens, self.channels.ends, (self.channels.message,))
        return frozenset(marker for marker in found if len(marker) > 1)


def _argument_markers(arguments: Arguments) -> tuple[tuple[str, ...], ...]:
    match arguments:
        case Parameters():
            return arguments.opens, arguments.heads, arguments.values, arguments.closes
        case Literal():
            return (arguments.quotes,)
        case Elements():
            return ((arguments.prefix,),)
    return ()
