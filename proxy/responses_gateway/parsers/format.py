"""The markup of model families as data.

A format has a reasoning part and a tool part, each chosen by a name, as in vLLM. One engine reads them all. A call is

    [block opens]  call opens  header  arguments  call closes  [block closes]

where the header carries the name (or the arguments do, in the JSON and Python families)."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import TypeAlias


@dataclass(frozen=True)
class JsonArguments:
    """One JSON value after a header that names the tool. `alone`: where there are tags as a rule; only an end may follow."""

    alone: bool = False


@dataclass(frozen=True)
class JsonEnvelope:
    """One object that carries name and arguments, or an array of such objects.

    `strict`: an object without a marker before it is a call only if it has no other keys than these, and has arguments.
    `name_is_key`: the object is `{"NAME": {arguments}}`."""

    names: tuple[str, ...] = ("name",)
    arguments: tuple[str, ...] = ("arguments", "parameters")
    strict: bool = False
    name_is_key: bool = False


@dataclass(frozen=True)
class TaggedParameters:
    """Parameters in tags: `opens` header `heads` [`values`] value `closes`.

    `header` is a regular expression with the group `key`. It may have the groups `text` and `json`: the one that matches says
    how to read the value. `values` is a second marker before the value, where key and value have tags of their own. `trim`:
    one newline on each side of a value belongs to the markup. `wrappers`: a lone parameter of such a name holds all arguments
    as an object. `escaped`: keys are written with the entities `&amp;` and `&quot;`. `others`: further tags in the header."""

    opens: tuple[str, ...]
    heads: tuple[str, ...]
    closes: tuple[str, ...]
    header: str = r"""["']?(?P<key>[^"'<>]+)["']?"""
    values: tuple[str, ...] = ()
    trim: bool = False
    wrappers: tuple[str, ...] = ()
    escaped: bool = False
    others: tuple[str, ...] = ()

    @property
    def between(self) -> tuple[str, ...]:
        """List the tags that may stand between two parameters only by mistake. The end of a tag is none."""
        return tuple(tag for tag in (*self.closes, *self.heads, *self.others) if len(tag) > len('">'))

    @property
    def value_opens(self) -> tuple[str, ...]:
        """List the tags right before a value that may stand there twice by mistake."""
        return self.values or tuple(head for head in self.heads if len(head) > len('">'))


@dataclass(frozen=True)
class NestedElements:
    """Parameters as elements named after them, nested for objects and arrays. `prefix` precedes every tag."""

    prefix: str


@dataclass(frozen=True)
class RelaxedObject:
    """An object with bare keys, and with strings without escapes between the model's own `quotes`."""

    quotes: tuple[str, ...]


@dataclass(frozen=True)
class PythonCalls:
    """Calls in Python: `[f(a=1), g(b='x')]`, or one after the other without the brackets."""


ArgumentsFormat: TypeAlias = JsonArguments | JsonEnvelope | TaggedParameters | NestedElements | RelaxedObject | PythonCalls


@dataclass(frozen=True)
class CallHeader:
    """The text between the opening of a call and its arguments. `ends` are consumed, `stops` are left to the arguments.
    `pattern` must match the whole header; its groups are `name` and, where the family has call ids of its own, `id`. `partial`
    must match whatever has arrived of it, so that prose that only mentions a marker is released at once."""

    pattern: str = r"""\s*["']?(?P<name>[^"'<>\s]+)["']?\s*"""
    ends: tuple[str, ...] = ()
    stops: tuple[str, ...] = ()
    partial: str = r"""\s{0,8}["']?[\w.\-:/]{0,128}["']?\s{0,8}"""

    @property
    def end_tags(self) -> tuple[str, ...]:
        """The ends that are more than the last characters of a tag: only these mean something behind the header as well."""
        return tuple(end for end in self.ends if len(end) > len('">'))


@dataclass(frozen=True)
class CallFormat:
    """One call. `first`: a regular expression for the first visible character after the opening. `declared_only`: a call of a
    tool that was not offered is text. `fillers` may stand between the arguments and the end."""

    opens: tuple[str, ...]
    arguments: ArgumentsFormat
    first: str = r"."
    header: CallHeader | None = None
    closes: tuple[str, ...] = ()
    fillers: tuple[str, ...] = ()
    declared_only: bool = False

    @property
    def fenced(self) -> bool:
        """Whether a code fence may stand around the JSON of the call, by mistake."""
        return "```" in self.fillers and isinstance(self.arguments, JsonArguments | JsonEnvelope)


@dataclass(frozen=True)
class CallBlock:
    """Calls inside a common pair of markers. `fillers` may stand between them."""

    opens: tuple[str, ...]
    closes: tuple[str, ...]
    calls: tuple[CallFormat, ...]
    first: str = r"<"
    fillers: tuple[str, ...] = ()


@dataclass(frozen=True)
class ChannelFormat:
    """Messages with a header (harmony): `opens` header `messages` body `ends`. `channel` and `recipient` are searched in the
    header with its markers; they decide what the body is. `header` must match whatever has arrived of a header, so that prose
    that only mentions a marker is released at once. A marker of `messages` that is also one of `opens` has no header.

    `arguments`: the notation of a body with a recipient; None: it has calls with markers of their own, which count in no other
    message. `begins`: the prompt ends in the header of the first message."""

    opens: tuple[str, ...]
    messages: tuple[str, ...]
    ends: tuple[str, ...]
    header: str
    channel: str
    recipient: str
    reasoning: tuple[str, ...]
    arguments: ArgumentsFormat | None = JsonArguments()
    begins: bool = False


@dataclass(frozen=True)
class ReasoningFormat:
    """How a model marks its reasoning. `implicit`: generation starts inside reasoning unless the prompt says otherwise.
    `at_start`: reasoning opens only at the beginning of the output (families that mark it with prose). `wrappers`: pairs of
    markers around the answer."""

    opens: tuple[str, ...] = ()
    closes: tuple[str, ...] = ()
    implicit: bool = False
    at_start: bool = False
    wrappers: tuple[tuple[str, str], ...] = ()
    channels: ChannelFormat | None = None

    def markers(self) -> Iterator[str]:
        """List the literal markers."""
        yield from (*self.opens, *self.closes)
        for pair in self.wrappers:
            yield from pair


@dataclass(frozen=True)
class ToolFormat:
    """How a model marks its calls. `bare` calls have no marker: they may begin where the answer begins."""

    calls: tuple[CallFormat, ...] = ()
    blocks: tuple[CallBlock, ...] = ()
    bare: tuple[CallFormat, ...] = ()
    channels: ChannelFormat | None = None

    @property
    def openings(self) -> tuple[str, ...]:
        """The markers with which a call, or a block of calls, begins."""
        parts: tuple[CallFormat | CallBlock, ...] = (*self.calls, *self.blocks)
        return tuple(marker for part in parts for marker in part.opens)

    def markers(self) -> Iterator[str]:
        """List the literal markers. Bare calls have none."""
        for block in self.blocks:
            yield from (*block.opens, *block.closes, *block.fillers)
        for call in (*self.calls, *(call for block in self.blocks for call in block.calls)):
            yield from (*call.opens, *call.closes, *_argument_markers(call.arguments))
            if call.header is not None:
                yield from (*call.header.ends, *call.header.stops)


@dataclass(frozen=True)
class Format:
    """A reasoning part and a tool part."""

    reasoning: ReasoningFormat
    tools: ToolFormat

    @property
    def channels(self) -> ChannelFormat | None:
        """The channels of whichever part has some."""
        return self.reasoning.channels or self.tools.channels

    def markers(self) -> frozenset[str]:
        """Return all literal markers, for looking up which of them are single tokens of a model."""
        markers = {*self.reasoning.markers(), *self.tools.markers()}
        for channels in filter(None, (self.reasoning.channels, self.tools.channels)):
            markers.update((*channels.opens, *channels.ends, *channels.messages))
        return frozenset(marker for marker in markers if len(marker) > 1)


def _argument_markers(arguments: ArgumentsFormat) -> tuple[str, ...]:
    match arguments:
        case TaggedParameters():
            return (*arguments.opens, *arguments.heads, *arguments.values, *arguments.closes)
        case RelaxedObject():
            return arguments.quotes
        case NestedElements():
            return (arguments.prefix,)
    return ()


@dataclass(frozen=True)
class NameSign:
    """Whole words of a model's name (lower case, hyphens) that tell its parsers, for models whose template is not known. `*` is
    anything between two words. In the name the hyphen before a number may be missing and a dot may be a hyphen, but a size is
    not the number of a version (`llama-3b`). None: the markers in an answer tell more than the name of its model."""

    text: str
    reasoning: str | None
    tools: str | None
    priority: int = 0


@dataclass(frozen=True)
class TemplateSign:
    """A part of a chat template that tells a parser."""

    text: str
    parser: str
    priority: int = 0


@dataclass(frozen=True)
class Family:
    """All that is known of a model family: its formats by their names, and the signs by which it is detected. `reasoning`,
    `tools`: names as in vLLM's `--reasoning-parser` and `--tool-call-parser`. Of the signs found for a model the one with the
    highest priority counts, then the longest. `think_tags`: for a tool parser, the reasoning parser of models whose template
    shows only `<think>`. `original`: other families vary these formats; `auto` prefers the original.

    `suffixed` builds the family for checkpoints that append a suffix of their own to every marker. `suffix`: a regular
    expression for a token of such a checkpoint, whose group 1 is the suffix."""

    reasoning: Mapping[str, ReasoningFormat] = field(default_factory=dict)
    tools: Mapping[str, ToolFormat] = field(default_factory=dict)
    names: tuple[NameSign, ...] = ()
    reasoning_signs: tuple[TemplateSign, ...] = ()
    tool_signs: tuple[TemplateSign, ...] = ()
    think_tags: Mapping[str, str] = field(default_factory=dict)
    original: bool = False
    suffixed: Callable[[str], Family] | None = None
    suffix: str = ""
