"""Parse a call, or a block of calls, from its opening to its end.

Text that begins like a call is given out as one only if it is one; until that is known its raw text is kept."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import replace
from enum import Enum, auto

from responses_gateway.parsers.arguments import ArgumentsReader, Begun, OuterMarkers, ReadStatus
from responses_gateway.parsers.arguments.elements import ElementsReader
from responses_gateway.parsers.arguments.json_calls import JsonArgumentsReader, JsonEnvelopeReader
from responses_gateway.parsers.arguments.literals import RelaxedObjectReader
from responses_gateway.parsers.arguments.parameters import ParametersReader
from responses_gateway.parsers.arguments.python_calls import PythonCallsReader
from responses_gateway.parsers.delta_buffer import DeltaBuffer
from responses_gateway.parsers.format import (
    CallBlock,
    CallFormat,
    JsonArguments,
    JsonEnvelope,
    NestedElements,
    PythonCalls,
    RelaxedObject,
    TaggedParameters,
)
from responses_gateway.parsers.lexer import UNDECIDED, SourceText, compiled, skip_spaces

_NEXT_OBJECT = re.compile(r"[;,]?\s*\{")
_NEXT_OBJECT_SO_FAR = re.compile(r"[;,]?\s*")
_FENCES = ("```json", "```")  # around the JSON of a call
# Behind the arguments: others, or a member more.
_MORE = re.compile(r'[{,:]\s{0,64}["}]')
_MORE_SO_FAR = re.compile(r"[{,:]\s{0,64}")
_LOOKED_AT = 1024  # text behind the end of a call in which the tag of a parameter tells that it has not ended
_TAG_LIMIT = 160
_BLANKS = 64  # more white space than this behind a block decides nothing
_MOST_REPEATED = 8  # a model that writes a marker more often is in a loop


class Progress(Enum):
    ON = auto()  # a step was made
    WAIT = auto()  # more text is needed
    OVER = auto()  # the call, or the block, is over: free text follows
    REJECTED = auto()  # this is no call: `raw` is text
    UNREADABLE = auto()  # this is a call that cannot be read: `raw` is text, whatever is in it


class CallParser:
    """Parses one call, or one block of calls. `ends`: markers that end a call whose own end is missing."""

    def __init__(
        self,
        source: SourceText,
        deltas: DeltaBuffer,
        ends: OuterMarkers,
        marker: str = "",
        candidates: Sequence[CallFormat | CallBlock] = (),
    ) -> None:
        """Parse on behind an opening, `marker`, that one or several kinds of call share."""
        self.raw = [marker]  # what was read while nothing of it has been given out
        self.opener = marker
        self.begun = False  # something has been given out as a call
        self.missing_ends: tuple[str, ...] = ()  # end markers that did not come, and still may
        self._source = source
        self._deltas = deltas
        self._ends = ends
        self._candidates = candidates
        self._named = ("", "")  # the name in the header, and the id
        self._repeated = 0  # markers that stood there once more
        self._block: CallBlock | None = None
        self._block_calls = 0
        self._call: CallFormat | None = None
        self._reader: ArgumentsReader | None = None
        self._calls_before = deltas.calls
        self._step: Callable[[], Progress] = self._choose

    @classmethod
    def with_name(cls, source: SourceText, deltas: DeltaBuffer, ends: OuterMarkers, call: CallFormat, name: str) -> CallParser:
        """Parse from the arguments on, of a call whose name is known."""
        parser = cls(source, deltas, ends)
        parser._begin_arguments(call, name, "")
        return parser

    def step(self) -> Progress:
        """Take one step."""
        return self._step()

    @property
    def tentative(self) -> bool:
        """What has been read may still turn out to be text."""
        if self._step == self._inside_block:
            return not self._block_calls
        if self._step == self._arguments:
            return self._deltas.calls == self._calls_before
        return self._step not in (self._after_arguments, self._pass_over)

    @property
    def parameter(self) -> Begun:
        """See `ArgumentsReader`."""
        return "none" if self._reader is None else self._reader.parameter

    def begin_cut(self) -> bool:
        """Give out a call that was cut before its arguments, if it is one of a declared tool. Return False if it is not."""
        if self._step != self._arguments or self._reader is None or not self._reader.begin_cut():
            return False
        self.raw.clear()
        self.begun = True
        return True

    def finish(self, cut: bool) -> None:
        """End the call, as the text has ended inside it."""
        if self._step == self._arguments and self._reader is not None:
            self._reader.finish(cut, self._source.text[self._source.at :])
            self._deltas.end_call()

    def _consume(self, end: int) -> None:
        self.raw.append(self._source.advance(end))

    def _skip(self) -> bool:
        """Skip white space; return False if nothing visible follows yet."""
        self.raw.append(self._source.spaces())
        return not self._source.empty

    def _choose(self) -> Progress:
        """Decide by the first visible character after the opening what it opens, if anything."""
        if not self._skip():
            return Progress.WAIT
        fences = _FENCES if any(isinstance(part, CallFormat) and part.fenced for part in self._candidates) else ()
        again = self._skip_again((*(marker for part in self._candidates for marker in part.opens if self.opener), *fences))
        if again is Progress.ON:
            self.opener = "".join(self.raw)  # all of it is shown if this is no call
        if again is not None:
            return again
        char = self._source.text[self._source.at]
        part = next((part for part in self._candidates if compiled(part.first).match(char)), None)
        if part is None and char == "{":
            part = _object_in_place_of_header(self._candidates)
        if part is None:
            return Progress.REJECTED
        if isinstance(part, CallBlock):
            self._block = part
            self._step = self._inside_block
        elif part.header is not None:
            self._call = part
            self._step = self._header
        else:
            self._begin_arguments(part, "", "")
        return Progress.ON

    def _skip_again(self, markers: tuple[str, ...]) -> Progress | None:
        """Skip a marker that stands there once more; None if something else does."""
        source = self._source
        lexer = source.markers(*markers)
        marker = lexer.at(source.text, source.at)
        rest = source.text[source.at : source.at + len(_FENCES[0])]
        longer = rest in _FENCES[0] and len(rest) < len(_FENCES[0]) and marker in _FENCES
        if marker == UNDECIDED or (longer and not self._deltas.final):
            return Progress.WAIT
        if marker is None or self._repeated == _MOST_REPEATED:
            return None
        self._repeated += 1
        self._deltas.repair("duplicate_start")
        lexer.take(marker)
        self._consume(source.at + len(marker))
        return Progress.ON

    def _inside_block(self) -> Progress:
        """Read what stands between the calls of a block."""
        assert self._block is not None
        block = self._block
        source = self._source
        if not self._skip():
            return Progress.WAIT
        opens = tuple(marker for call in block.calls for marker in call.opens)
        strays = _stray_ends(block)
        lexer = source.markers(*opens, *block.closes, *block.opens, *block.fillers, *strays)
        marker = lexer.at(source.text, source.at)
        if marker == UNDECIDED:
            return Progress.WAIT
        if not self._block_calls and marker in block.closes and block.opens[0][1] in "|｜":  # tokens that no prose has
            self._deltas.repair("stray_end")
        elif not self._block_calls and marker not in opens:
            return Progress.REJECTED
        end = source.at + len(marker or "")
        last = self._call if marker in (*block.closes, *block.opens) and self._deltas.calls > self._calls_before else None
        behind = last is not None and self._goes_on(last, end)
        if behind is None:
            return Progress.WAIT
        if marker is None or (marker in block.opens and not behind):
            self._deltas.repair("missing_end")
            self.missing_ends = block.closes
            return Progress.OVER
        lexer.take(marker)
        if self._block_calls:
            self.opener = marker
            self.raw = []
        self._consume(end)
        if behind or marker in block.closes:
            return self._doubt() if behind else Progress.OVER
        if marker in strays and marker not in block.fillers:
            self._deltas.repair("stray_end")
        if marker in (*strays, *block.fillers):
            return Progress.ON
        self._candidates = [call for call in block.calls if marker in call.opens]
        self._step = self._choose
        return Progress.ON

    def _header(self) -> Progress:
        assert self._call is not None
        assert self._call.header is not None
        header = self._call.header
        source = self._source
        if not self._skip():
            return Progress.WAIT
        again = () if self._call.closes else self._call.opens  # then nothing else ends a call
        lexer = source.markers(*header.ends, *header.stops, *again, *_argument_tags(self._call))
        hit = lexer.find(source.text, source.at)
        so_far = source.text[source.at : hit.start if hit else lexer.held(source.text, source.at)]
        if not compiled(header.partial).fullmatch(so_far):
            return Progress.REJECTED
        match = compiled(header.pattern).fullmatch(so_far)
        if hit is None and not (match and again and self._deltas.final and self._deltas.takes_nothing(match["name"])):
            return Progress.WAIT
        if match is None or (hit is not None and hit.marker in again and not self._deltas.takes_nothing(match["name"])):
            return Progress.REJECTED
        groups = match.groupdict()
        if self._call.declared_only and not self._deltas.declared(groups["name"]):
            self._deltas.repair("undeclared_tool")
            return Progress.REJECTED
        self._named = (groups["name"], groups.get("id") or "")
        if hit is None:
            self._consume(source.at + len(so_far))
        elif hit.marker in header.ends:
            lexer.take(hit.marker)
            self._consume(hit.end)
        else:
            self._consume(hit.start)
        self._step = self._behind_header
        return Progress.ON

    def _behind_header(self) -> Progress:
        assert self._call is not None
        call = self._call
        tagged = isinstance(call.arguments, TaggedParameters)
        if call.header is not None and not self._deltas.final:
            tags = call.header.end_tags + (_FENCES if call.fenced else ())
            if (tags or tagged) and not self._skip():
                return Progress.WAIT
            again = self._skip_again(tags) if tags else None
            if again is not None:
                return again
        if tagged and self._source.text.startswith("{", self._source.at) and self._deltas.declared(self._named[0]):
            call = replace(call, arguments=JsonArguments(alone=True))
        self._begin_arguments(call, *self._named)
        return Progress.ON

    def _begin_arguments(self, call: CallFormat, name: str, call_id: str) -> None:
        self._call = call
        self._reader = self._new_reader(call, name, call_id)
        self._calls_before = self._deltas.calls
        self._step = self._arguments

    def _new_reader(self, call: CallFormat, name: str, call_id: str) -> ArgumentsReader:
        deltas = self._deltas
        markers = self._source.markers
        outer = self._outer()
        stops = markers(*call.closes, *outer.closes, *outer.opens)
        match call.arguments:
            case RelaxedObject() as syntax if self._source.text[self._source.at] in "{(":
                return RelaxedObjectReader(name, call_id, deltas, stops, markers(*syntax.quotes))
            case JsonArguments() | RelaxedObject():  # without brackets there are no arguments
                return JsonArgumentsReader(name, call_id, deltas, stops)
            case JsonEnvelope() as syntax:
                return JsonEnvelopeReader(syntax, call, deltas, stops)
            case TaggedParameters() as syntax:
                return ParametersReader(syntax, call, name, call_id, deltas, markers, outer)
            case NestedElements() as syntax:
                return ElementsReader(syntax, call, name, call_id, deltas, markers, (*outer.closes, *outer.opens))
            case PythonCalls():
                return PythonCallsReader(call, deltas, stops)

    def _outer(self) -> OuterMarkers:
        """Return the markers that end the call from outside."""
        if self._block is None:
            return self._ends
        opens = [marker for call in self._block.calls for marker in call.opens]
        return OuterMarkers(self._block.closes, (*opens, *self._block.opens))

    def _arguments(self) -> Progress:
        assert self._reader is not None
        source = self._source
        end = self._reader.read(source.text, source.at)
        piece = source.advance(end)
        if self._reader.status is ReadStatus.REJECTED:
            self.raw.append(piece)
            return Progress.REJECTED
        if self._reader.status is ReadStatus.UNREADABLE:
            self.raw.append(piece)
            self._block_calls += 1
            self._step = self._leave
            return Progress.UNREADABLE
        if self.tentative:
            self.raw.append(piece)
        elif self.raw:
            self.raw.clear()
            self.begun = True
            self._block_calls += 1
        if self._reader.status is ReadStatus.READING:
            return Progress.WAIT
        self._deltas.end_call()
        self._step = self._after_arguments
        return Progress.ON

    def _after_arguments(self) -> Progress:
        """Read what stands between the arguments and the end marker of the call."""
        assert self._call is not None
        call = self._call
        source = self._source
        source.spaces()
        if source.empty:
            return Progress.WAIT
        syntax = call.arguments
        alone = isinstance(syntax, JsonArguments) and syntax.alone
        outer = self._outer() if alone else OuterMarkers((), ())
        lexer = source.markers(*call.closes, *call.fillers, *outer.closes, *outer.opens)
        marker = lexer.at(source.text, source.at)
        if marker == UNDECIDED:
            return Progress.WAIT
        behind_json = marker is None and isinstance(syntax, JsonArguments | RelaxedObject)
        if behind_json and not alone and _MORE_SO_FAR.fullmatch(source.text, source.at) and not self._deltas.final:
            return Progress.WAIT
        opened = "{," if isinstance(syntax, RelaxedObject) else "{"
        more = alone or _MORE.match(source.text, source.at) or (call.closes and source.text[source.at] in opened)
        end = source.at + len(marker or "")
        follows = self._goes_on(call, end) if marker is None or marker in call.closes else False
        if follows is None:
            return Progress.WAIT
        if (behind_json and more) or follows:
            source.advance(end)
            progress = self._doubt()
            return progress if call.closes else self._leave()  # what no marker ends is shown
        if marker is None or marker not in (*call.closes, *call.fillers):
            return self._without_end(call)
        lexer.take(marker)
        source.advance(end)
        if marker in call.closes:
            return self._leave()
        if marker in ("}", "]"):
            self._deltas.repair("extra_bracket")
        return Progress.ON

    def _goes_on(self, call: CallFormat, at: int) -> bool | None:
        """Tell whether a part of a call stands behind its end, which is at `at`; None if more text is needed to tell. A tag
        behind text is one where calls stand in a block, or a parameter is missing."""
        inner = _parts_of_call(call)
        if not inner:
            return False
        source = self._source
        syntax = call.arguments
        final = self._deltas.final
        outer = self._outer()
        others = (*call.opens, *outer.closes, *outer.opens)
        place = skip_spaces(source.text, at)
        marker = source.markers(*inner, *others, *call.closes, *self._ends.others).at(source.text, place)
        if place - at > _BLANKS or (marker == UNDECIDED and final):
            return False
        if marker is None and isinstance(syntax, TaggedParameters | NestedElements):
            if self.parameter != "missing" and (self._block is None or at > source.at):
                return False
            tags = (*inner, *syntax.between, *syntax.values) if isinstance(syntax, TaggedParameters) else inner
            hit = source.markers(*tags, *others, *call.closes).find(source.text, place)
            if hit is None or hit.start > place + _LOOKED_AT:
                return False if final or len(source.text) - place > _LOOKED_AT else None
            inner = tags
            marker = hit.marker if hit.start > place else None
            place = hit.start
        if isinstance(syntax, NestedElements) and marker == syntax.prefix and not final:  # other markers begin with it
            tag = source.text[place + len(marker) : place + _TAG_LIMIT]
            marker = marker if ">" in tag or len(source.text) - place > _TAG_LIMIT else UNDECIDED
        return None if marker == UNDECIDED else marker in inner

    def _doubt(self) -> Progress:
        """Cut the call, whose arguments go on behind what seemed to be its end, and pass over them."""
        self._deltas.repair("malformed_arguments")
        self._deltas.cut_call()
        self._step = self._pass_over
        return Progress.ON

    def _pass_over(self) -> Progress:
        """Pass over more arguments behind those of a call that seemed to end: it cannot be told what the model means."""
        assert self._call is not None
        source = self._source
        outer = self._outer()
        lexer = source.markers(*self._call.opens, *self._call.closes, *outer.closes, *outer.opens)
        hit = lexer.find(source.text, source.at)
        if hit is None:
            source.advance(lexer.held(source.text, source.at))
            return Progress.WAIT
        source.advance(hit.start)
        if hit.marker in self._call.closes:
            lexer.take(hit.marker)
            source.advance(hit.end)
        return self._leave()

    def _without_end(self, call: CallFormat) -> Progress:
        """Continue without an end marker: with another object, or with the end of the call."""
        source = self._source
        if isinstance(call.arguments, JsonEnvelope):
            following = _NEXT_OBJECT.match(source.text, source.at)
            if following is not None:
                self.raw = [source.advance(following.end() - 1)]
                self.opener = self.raw[0]
                self._begin_arguments(call, "", "")
                return Progress.ON
            if _NEXT_OBJECT_SO_FAR.fullmatch(source.text, source.at) and not self._deltas.final:
                return Progress.WAIT
        # Tagged arguments have read the end of their call themselves.
        if call.closes and isinstance(call.arguments, JsonArguments | JsonEnvelope):
            self._deltas.repair("missing_end")
            self.missing_ends = call.closes
        return self._leave()

    def _leave(self) -> Progress:
        """Leave the call: for the next in the block, or for text."""
        if self._block is None:
            return Progress.OVER
        self._step = self._inside_block
        return Progress.ON


def _stray_ends(block: CallBlock) -> tuple[str, ...]:
    """List the ends within a block that mean nothing between its calls."""
    ends: list[str] = []
    for call in block.calls:
        ends += call.closes
        if isinstance(call.arguments, TaggedParameters):
            ends += call.arguments.between
    return tuple(ends)


def _parts_of_call(call: CallFormat) -> tuple[str, ...]:
    """List the markers that belong into a call, and with which arguments go on if one stands behind its end."""
    match call.arguments:
        case TaggedParameters() as syntax:
            return syntax.opens
        case NestedElements() as syntax:
            return (syntax.prefix,)
        case JsonArguments() | RelaxedObject() if call.header is not None:
            ends = call.header.end_tags
            return ("{", *ends) if call.closes else ends  # because a text may stand behind a call that no marker ends
    return ()


def _argument_tags(call: CallFormat) -> tuple[str, ...]:
    """List what may stand behind a header whose own end is missing."""
    syntax = call.arguments
    return (*syntax.opens, *syntax.between, *call.closes, "{") if isinstance(syntax, TaggedParameters) else ()


def _object_in_place_of_header(parts: Sequence[CallFormat | CallBlock]) -> CallFormat | None:
    """Return the call that is an object with name and arguments behind the opening of these, if they have a header."""
    for part in parts:
        calls = part.calls if isinstance(part, CallBlock) else (part,)
        if any(call.header is not None for call in calls):
            return CallFormat(part.opens, JsonEnvelope(), closes=part.closes, fillers=part.fillers, declared_only=True)
    return None
