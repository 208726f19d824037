"""A markup parser between reader and lifecycle: the model's text goes in, deltas come out, in order among the others.

For a backend that sends raw text, the parser reads all of it. For a backend that parses by itself, it can read what leaked
through (`rescue`); every item that comes of it is counted then."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Sequence
from typing import Literal, NamedTuple, Protocol, TypeAlias

from responses_gateway.parsers import FirstMarker, Parser, marked_call
from responses_gateway.stream.reading.logprobs import ParsedLogprobs
from responses_gateway.wire.chat import Chunk
from responses_gateway.wire.deltas import CALL_PARTS, Delta, FinishReason, Reasoning, Refusal, Text, ToolArguments, ToolCall
from responses_gateway.wire.json_text import read_object

# Calls found in the text are numbered from here, apart from those that the backend itself announces.
_FIRST_CALL = 1_000_000
# Deltas that the backend itself tells apart: they end the stretch of text before them.
_FROM_BACKEND = (Reasoning, Refusal, ToolCall)

# Tells whether a piece of text, with the ids of its tokens, has no markup in it.
IsPlain: TypeAlias = Callable[[str, Sequence[int] | None], bool]


class Shortcut(NamedTuple):
    """How more of an open item can be read without a parser: the field of the chunk in which it comes, and what has to be asked
    about each piece (it counts as fed if the answer is yes)."""

    field: Literal["text", "reasoning"]
    is_plain: IsPlain | None


class Evidence(NamedTuple):
    """What a stream has shown of how the model thinks.

    `field`: reasoning came in a field of its own. `thought`: reasoning was found, or assumed, in the text. `first_marker`: the
    first marker of reasoning there, as `Parser` says. `prompt_known`: the prompt itself shows where the answer begins;
    `prompt_opened`: inside reasoning."""

    field: bool = False
    thought: bool = False
    first_marker: FirstMarker = "none"
    prompt_known: bool = False
    prompt_opened: bool = False

    @property
    def marked(self) -> bool:
        """A marker, in the text or at the end of the prompt, tells reasoning from the answer."""
        return self.prompt_opened or self.first_marker in ("open", "again", "close")


class NewParser(Protocol):
    """Makes a parser."""

    def __call__(self, *, thinking_open: bool | None) -> Parser:
        """Return a new parser. `thinking_open`: whether the text begins inside reasoning; None for the family's default."""


class Markup:
    """Puts a parser between the reader and the lifecycle."""

    def __init__(
        self,
        new_parser: NewParser,
        *,
        thinking_open: bool | None = None,
        prompt_known: bool = False,
        prompt_opens: Callable[[Sequence[int]], bool | None] | None = None,
        rescue: bool = False,
    ) -> None:
        """Begin a stream. `thinking_open`: whether the prompt ends inside reasoning, be it assumed or `prompt_known`;
        `prompt_opens` tells it by the last ids of the prompt, where the backend sends them. `rescue`: the backend parses,
        count what it missed. Where the backend itself announces an item, the text behind it is read by a new parser, from
        outside of reasoning."""
        self._new_parser = new_parser
        self._prompt_opens = prompt_opens
        self._prompt_known = prompt_known
        self._prompt_opened = prompt_known and bool(thinking_open)
        self._field = False  # the backend has sent reasoning of its own
        self._first_marker: FirstMarker = "none"  # of the parsers before this one
        self._thought = False  # a parser has given out reasoning
        self._rescue = rescue
        self._parser = new_parser(thinking_open=thinking_open)
        self._fed = False
        self._begins = True  # the parser reads from the end of the prompt on
        self._thinking = False  # the last delta of the parser was reasoning
        self._calls = _FIRST_CALL
        self._numbers: dict[int, int] = {}
        self._calls_once = _CallsOnce()
        self._logprobs = ParsedLogprobs()
        self._repairs: Counter[str] = Counter()

    @property
    def repairs(self) -> dict[str, int]:
        """What had to be repaired, rescued or dropped, by kind."""
        total = self._repairs + Counter(self._parser.repairs)
        if self._logprobs.dropped:
            total["logprobs_dropped"] = self._logprobs.dropped
        return total

    @property
    def evidence(self) -> Evidence:
        """What the stream has shown of how the model thinks."""
        first = self._first_marker if self._first_marker != "none" else self._parser.first_marker
        return Evidence(self._field, self._thought, first, self._prompt_known, self._prompt_opened)

    @property
    def holds(self) -> bool:
        """Whether some of the text waits for what comes next; False where the parser does not tell."""
        return self._parser.holds or bool(self._calls_once.held)

    def observe(self, chunk: Chunk) -> None:
        """Take the ids of the last tokens of the prompt, if a chunk has them: they come before any text."""
        if chunk.prompt_token_ids:
            self.take_prompt(chunk.prompt_end)

    def take_prompt(self, last_ids: Sequence[int]) -> None:
        """Take the ids of the last tokens of the prompt."""
        opened = self._prompt_opens(last_ids) if self._prompt_opens is not None and not self._fed else None
        if opened is not None:
            self._prompt_known = True
            self._prompt_opened = opened
            self._parser = self._new_parser(thinking_open=opened)

    def read(self, deltas: list[Delta], token_ids: Sequence[int] | None) -> list[Delta]:
        """Return what becomes of the deltas of one chunk. `token_ids`: those of its text, where the backend sends them."""
        out: list[Delta] = []
        text_came = False
        for delta in deltas:
            if type(delta) is Text:
                text_came = self._fed = True
                out += self._read_text(delta, token_ids)
                token_ids = token_ids and ()
                continue
            if type(delta) in _FROM_BACKEND:
                text_came = True
                self._field = self._field or type(delta) is Reasoning
                if self._fed or self._begins:
                    out += self._end_stretch("stop")
            out.append(delta)
        if token_ids and not text_came:  # of text that the backend still holds back
            out += self._numbered(self._parser.feed("", token_ids))
        return self._calls_once.read(out)

    @property
    def reads_all(self) -> bool:
        """Whether the backend sends nothing but raw text, as far as is known."""
        return not self._rescue and not self._field

    def rewind(self, token_ids: Sequence[int]) -> None:
        """Forget the last ids, whose text has not come: they will come again."""
        self._parser.rewind(token_ids)

    def finish(self, reason: FinishReason) -> list[Delta]:
        """Return the rest of the text, which is over: a partial marker at its end is text."""
        return self._calls_once.read(self._end_stretch(reason), last=True)

    def _end_stretch(self, reason: FinishReason) -> list[Delta]:
        out = self._numbered(self._parser.finish(reason))
        self._logprobs.assign(out)
        self._logprobs.forget()
        self._repairs += Counter(self._parser.repairs)
        self._first_marker = self.evidence.first_marker
        self._parser = self._new_parser(thinking_open=False)
        self._fed = self._begins = self._thinking = False
        self._numbers = {}
        return out

    def calls_at_end(self, thought: str, tools: Collection[str]) -> list[Delta]:
        """Return the calls of these tools with which a thought ends, and an answer with it, if they are to be rescued: of a
        model that has not ended its thought before them."""
        if not self._rescue or marked_call(thought, tools) != "whole":
            return []
        parser = self._new_parser(thinking_open=False)
        deltas = [*parser.feed(thought, None), *parser.finish("stop")]
        last = max((at for at, delta in enumerate(deltas) if type(delta) is Text and delta.text.strip()), default=-1)
        return self._numbered([delta for delta in deltas[last + 1 :] if not isinstance(delta, Text | Reasoning)])

    def shortcut(self, kind: str) -> Shortcut | None:
        """Return how more of an open item of this kind can be read without the parser; None where it cannot."""
        if not self._fed:
            return Shortcut("reasoning", None) if kind == "reasoning" else None
        parser = self._parser
        return Shortcut("text", parser.plain) if parser.text_kind == kind else None

    def _read_text(self, delta: Text, token_ids: Sequence[int] | None) -> list[Delta]:
        if delta.logprobs:
            self._logprobs.add(delta.logprobs)
        out = self._numbered(self._parser.feed(delta.text, token_ids))
        self._logprobs.assign(out)
        return out

    def _numbered(self, deltas: list[Delta]) -> list[Delta]:
        for delta in deltas:
            if type(delta) is ToolCall:
                self._numbers[delta.index] = self._calls
                delta.index = self._calls
                delta.parsed = True
                self._calls += 1
                self._repairs["call_rescued"] += self._rescue
            elif isinstance(delta, CALL_PARTS):
                delta.index = self._numbers[delta.index]
            elif type(delta) is Reasoning and not self._thinking:
                self._repairs["reasoning_rescued"] += self._rescue
            self._thinking = type(delta) is Reasoning
            self._thought = self._thought or self._thinking
        return deltas


class _CallsOnce:
    """Passes on what becomes of an answer, with each call once that stands in the text and is announced by the backend, too
    (mlx-vlm): the client would run it twice. Of calls that came one way alone, all are meant."""

    def __init__(self) -> None:
        self._passed: dict[int, list[str]] = {}  # name and arguments of whole calls that came one way so far, by index
        self.held: dict[int, list[Delta]] = {}  # of calls that may be one of those, which the end of the arguments will show
        self._dropped: set[int] = set()

    def read(self, deltas: list[Delta], *, last: bool = False) -> list[Delta]:
        """Return what is passed on of these deltas; `last`: no more come."""
        out: list[Delta] = []
        for delta in deltas:
            index = getattr(delta, "index", -1)
            if type(delta) is ToolCall and self._others(index, delta.name):
                self.held[index] = []
            elif type(delta) is ToolCall:
                self._passed[index] = [delta.name]
            elif type(delta) is ToolArguments and index in self._passed:
                self._passed[index].append(delta.text)
            elif isinstance(delta, CALL_PARTS):  # it was cut, or has what no call in a text has
                self._passed.pop(index, None)
            if index in self.held:
                self.held[index].append(delta)
            elif index not in self._dropped:
                out.append(delta)
        return out + self._settled(last=last)

    def _others(self, index: int, name: str) -> list[int]:
        """Return the calls of this name that came the other way."""
        in_text = index >= _FIRST_CALL
        return [other for other, call in self._passed.items() if call[0] == name and (other >= _FIRST_CALL) != in_text]

    def _settled(self, *, last: bool) -> list[Delta]:
        """Return what was held of calls that are whole, or of all at the end, unless they came before."""
        out: list[Delta] = []
        for index, parts in list(self.held.items()):
            name, *pieces = [part.name if type(part) is ToolCall else getattr(part, "text", "") for part in parts]
            ends = last or (pieces and pieces[-1].rstrip()[-1:] == "}")
            arguments = read_object("".join(pieces) or "{}") if ends else None
            if arguments is None and not last:
                continue
            del self.held[index]
            others = self._others(index, name) if arguments is not None else ()
            same = next((at for at in others if read_object("".join(self._passed[at][1:]) or "{}") == arguments), None)
            if same is None:
                out += parts
            else:
                del self._passed[same]
                self._dropped.add(index)
        return out
