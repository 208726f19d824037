"""From the opening of a call, or of a block of calls, to its end.

What begins like a call is given out only when it is one; until then its raw text is kept.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from enum import Enum, auto

from proxy.parsers.arguments.choose import body_of
from proxy.parsers.arguments.reader import Body, Status
from proxy.parsers.format import Block, Call, JsonArguments, JsonEnvelope
from proxy.parsers.lexer import UNDECIDED
from proxy.parsers.output import Output
from proxy.parsers.source import Source
from proxy.parsers.transitions import pattern

_NEXT_OBJECT = re.compile(r"[;,]?\s*\{")
_NEXT_OBJECT_SO_FAR = re.compile(r"[;,]?\s*")


class Progress(Enum):
    ON = auto()  # a step was made
    WAIT = auto()  # more text is needed
    OVER = auto()  # the call, or the block, is over: free text follows
    REJECTED = auto()  # it was none: `raw` is text


class CallReader:
    """Reads one call, or one block of calls. `ends`: markers that end a call though its own end is missing."""

    def __init__(self, source: Source, output: Output, ends: tuple[str, ...], marker: str) -> None:
        self.raw = [marker]  # what was read while nothing of it has been given out
        self.opener = marker
        self.begun = False  # something has been given out as a call
        self.owed: tuple[str, ...] = ()  # end markers that did not come, and may yet
        self._source = source
        self._output = output
        self._ends = ends
        self._candidates: Sequence[Call | Block] = ()
        self._block: Block | None = None
        self._block_calls = 0
        self._call: Call | None = None
        self._body: Body | None = None
        self._calls_before = 0
        self._step: Callable[[], Progress] = self._choose

    @classmethod
    def after_marker(
        cls, source: Source, output: Output, ends: tuple[str, ...], marker: str, candidates: Sequence[Call | Block]
    ) -> CallReader:
        """After an opening that one or several kinds of call share."""
        reader = cls(source, output, ends, marker)
        reader._candidates = candidates
        return reader

    @classmethod
    def with_name(cls, source: Source, output: Output, ends: tuple[str, ...], call: Call, name: str) -> CallReader:
        """At the arguments of a call whose name is known."""
        reader = cls(source, output, ends, "")
        reader._begin_body(call, name, "")
        return reader

    def step(self) -> Progress:
        return self._step()

    @property
    def tentative(self) -> bool:
        """What is being read may still turn out to be text."""
        if self._step == self._inside_block:
            return not self._block_calls
        if self._step == self._arguments:
            return self._output.calls == self._calls_before
        return self._step != self._after_arguments

    def finish(self, cut: bool) -> None:
        """The text has ended inside the call."""
        if self._step == self._arguments and self._body is not None:
            self._body.finish(cut)
            self._output.end()

    def _consume(self, end: int) -> None:
        self.raw.append(self._source.advance(end))

    def _skip(self) -> bool:
        """Skip white space; False if nothing visible follows yet."""
        self.raw.append(self._source.spaces())
        return not self._source.empty

    def _choose(self) -> Progress:
        """The first visible character after the opening tells what it opens, if anything."""
        if not self._skip():
            return Progress.WAIT
        char = self._source.text[self._source.at]
        part = next((part for part in self._candidates if pattern(part.first).match(char)), None)
        if part is None:
            return Progress.REJECTED
        if isinstance(part, Block):
            self._block = part
            self._step = self._inside_block
        else:
            self._begin_call(part)
        return Progress.ON

    def _inside_block(self) -> Progress:
        """Between the calls of a block."""
        assert self._block is not None
        block, source = self._block, self._source
        if not self._skip():
            return Progress.WAIT
        opens = tuple(marker for call in block.calls for marker in call.opens)
        lexer = source.markers(*opens, *block.closes)
        marker = lexer.at(source.text, source.at)
        if marker == UNDECIDED:
            return Progress.WAIT
        if not self._block_calls and (marker is None or marker in block.closes):
            return Progress.REJECTED
        if marker is None:
            self._output.repair("missing_end")
            self.owed = block.closes
            return Progress.OVER
        lexer.take(marker)
        if self._block_calls:
            self.opener, self.raw = marker, []
        self._consume(source.at + len(marker))
        if marker in block.closes:
            return Progress.OVER
        self._begin_call(next(call for call in block.calls if marker in call.opens))
        return Progress.ON

    def _begin_call(self, call: Call) -> None:
        self._call = call
        if call.header is not None:
            self._step = self._header
        else:
            self._begin_body(call, "", "")

    def _header(self) -> Progress:
        assert self._call is not None
        assert self._call.header is not None
        header, source = self._call.header, self._source
        lexer = source.markers(*header.ends, *header.stops)
        hit = lexer.find(source.text, source.at)
        so_far = source.text[source.at : hit.start if hit else lexer.held(source.text, source.at)]
        if not pattern(header.partial).fullmatch(so_far):
            return Progress.REJECTED
        if hit is None:
            return Progress.WAIT
        found = pattern(header.pattern).fullmatch(so_far)
        if found is None:
            return Progress.REJECTED
        groups = found.groupdict()
        if self._call.declared_only and not self._output.declared(groups["name"]):
            self._output.repair("undeclared_tool")
            return Progress.REJECTED
        if hit.marker in header.ends:
            lexer.take(hit.marker)
            self._consume(hit.end)
        else:
            self._consume(hit.start)
        self._begin_body(self._call, groups["name"], groups.get("id") or "")
        return Progress.ON

    def _begin_body(self, call: Call, name: str, call_id: str) -> None:
        self._call = call
        self._body = body_of(call, name, call_id, self._output, self._source.markers, self._outer())
        self._calls_before = self._output.calls
        self._step = self._arguments

    def _outer(self) -> tuple[str, ...]:
        if self._block is None:
            return self._ends
        return (*self._block.closes, *(marker for call in self._block.calls for marker in call.opens))

    def _arguments(self) -> Progress:
        assert self._body is not None
        source = self._source
        end = self._body.read(source.text, source.at)
        piece = source.advance(end)
        if self._body.status is Status.REJECTED:
            self.raw.append(piece)
            return Progress.REJECTED
        if self.tentative:
            self.raw.append(piece)
        elif self.raw:
            self.raw.clear()
            self.begun = True
            self._block_calls += 1
        if self._body.status is Status.READING:
            return Progress.WAIT
        self._output.end()
        self._step = self._after_arguments
        return Progress.ON

    def _after_arguments(self) -> Progress:
        """Between the arguments and the end marker of the call."""
        assert self._call is not None
        call, source = self._call, self._source
        source.spaces()
        if source.empty:
            return Progress.WAIT
        lexer = source.markers(*call.closes, *call.fillers)
        marker = lexer.at(source.text, source.at)
        if marker == UNDECIDED:
            return Progress.WAIT
        if marker is None:
            return self._without_end(call)
        lexer.take(marker)
        source.advance(source.at + len(marker))
        if marker in call.closes:
            return self._leave()
        if marker in ("}", "]"):
            self._output.repair("extra_bracket")
        return Progress.ON

    def _without_end(self, call: Call) -> Progress:
        """No end marker: another object may follow, or the call is over all the same."""
        source = self._source
        if isinstance(call.arguments, JsonEnvelope):
            following = _NEXT_OBJECT.match(source.text, source.at)
            if following is not None:
                self.raw = [source.advance(following.end() - 1)]
                self.opener = self.raw[0]
                self._begin_body(call, "", "")
                return Progress.ON
            if _NEXT_OBJECT_SO_FAR.fullmatch(source.text, source.at) and not self._output.final:
                return Progress.WAIT
        # Tagged arguments have read the end of their call themselves.
        if call.closes and isinstance(call.arguments, JsonArguments | JsonEnvelope):
            self._output.repair("missing_end")
            self.owed = call.closes
        return self._leave()

    def _leave(self) -> Progress:
        """The call is over: the next is looked for in the block, or text follows."""
        if self._block is None:
            return Progress.OVER
        self._step = self._inside_block
        return Progress.ON
