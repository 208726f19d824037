"""The answer of another backend is joined to what the first one wrote.

Where a backend with parsers of its own broke off, the text of its tokens is read again by a parser of ours, from the beginning,
and catches up with the first reading. Until that has said what was said before, to the character, nothing is passed on; from
there on, everything is. Where it says anything else, the rest of the answer cannot be known, and it ends."""

from __future__ import annotations

from array import array
from collections.abc import Sequence
from typing import Any, NamedTuple

import msgspec

from responses_gateway.stream.continuation.ledger import PartialAnswer
from responses_gateway.stream.lifecycle.machine import Lifecycle
from responses_gateway.stream.reading.citations import CitationReader
from responses_gateway.stream.reading.markup import Markup
from responses_gateway.wire.chat import Chunk, ids_in
from responses_gateway.wire.chat import Delta as ChatDelta
from responses_gateway.wire.deltas import CALL_PARTS, Delta, Finish, Reasoning, Refusal, Text, ToolArguments, ToolCall, Usage

# Generated for each item, and of no meaning.
_GENERATED = ("id", "call_id", "encrypted_content")

_TEXT_ITEMS = ("reasoning", "message")
_KINDS: dict[type, str] = {Reasoning: "reasoning", Text: "text", Refusal: "refusal"}
_TEXTS: dict[type, str] = {Reasoning: "reasoning", Text: "text", Refusal: "refusal", ToolArguments: "call"}


class Part(NamedTuple):
    """An item that is not done: its kind, the name of a call, its text or arguments, and how many annotations a text has."""

    kind: str
    name: str
    text: str
    annotations: int = 0


class Transcript(NamedTuple):
    """The items that are done; the open one, and what is held behind it; and the white space at the end."""

    done: list[dict[str, Any]]
    parts: list[Part]
    space: str


def transcript_of(lifecycle: Lifecycle, first_item: int = 0) -> Transcript:
    """Return what a lifecycle has written and holds, without the items before `first_item`."""
    done = [without_generated_ids(item) for item in lifecycle.writer.done[first_item:]]
    if lifecycle.call is not None:
        parts = [Part("call", lifecycle.call.made.name, lifecycle.call.arguments.text)]
        space = ""
        for first, text in lifecycle.pending.texts() if lifecycle.pending is not None else ():
            if type(first) is ToolCall:
                parts.append(Part("call", first.name, text))
                space = ""
            elif not text.isspace():
                parts.append(Part(_KINDS[type(first)], "", text.strip()))
                space = text[len(text.rstrip()) :]
        return Transcript(done, parts, space)
    item = lifecycle.item
    if item is not None:
        return Transcript(done, [Part(lifecycle.state, "", item.text, len(item.annotations))], lifecycle.space.text)
    return Transcript(done, [], "")


def call_numbers(lifecycle: Lifecycle) -> list[int]:
    """Return the model's numbers of the open call, and of those that are held behind it."""
    held = lifecycle.pending.call_numbers if lifecycle.pending is not None else []
    return [] if lifecycle.call is None else [lifecycle.call.made.index, *held]


def is_prefix_of(part: Part, item: dict[str, Any]) -> bool:
    """Tell whether an open item may become this item, which is done."""
    if part.kind == "call":
        return item["type"] not in _TEXT_ITEMS
    if item["type"] != ("reasoning" if part.kind == "reasoning" else "message"):
        return False
    content: list[dict[str, str]] = item.get("content") or []
    return not content or "".join(piece.get("text", piece.get("refusal", "")) for piece in content).startswith(part.text)


def without_generated_ids(item: str) -> dict[str, Any]:
    """Return an item that is done, given its JSON, without its ids and its encrypted content."""
    fields: dict[str, Any] = msgspec.json.decode(item)
    return {name: value for name, value in fields.items() if name not in _GENERATED}


class Diverged(Exception):
    """The continuation does not fit what was said before."""


class CatchUp:
    """Takes the deltas of the second reading, and returns those that were not said before. Marks of citations are taken out of
    all of them: what was said before has none."""

    def __init__(self, lifecycle: Lifecycle) -> None:
        """`lifecycle` has written what is to be said again, in its present turn."""
        self._lifecycle = lifecycle
        self._wanted = transcript_of(lifecycle, lifecycle.turn.first_item)
        self._again = lifecycle.as_turn_began()
        self._citations = CitationReader(lifecycle.sources)
        self._compared = 0  # items that are done in both
        self._numbers: dict[int, int] = {}  # of the calls in the second reading -> in the first
        self.caught_up = False

    def take(self, deltas: list[Delta], *, last: bool = False) -> list[Delta]:
        """Return the deltas, or parts of them, behind what was said before. `last`: no more follow. Raise `Diverged`."""
        deltas = self._citations.read(deltas)
        if last:
            deltas += self._citations.finish()
        unseen: list[Delta] = []
        for delta in deltas:
            if self.caught_up or isinstance(delta, Finish | Usage):
                unseen.append(self._renumbered(delta))
            elif isinstance(delta, Reasoning | Text | Refusal | ToolArguments):
                rest = self._say(delta)
                if rest is not None:
                    unseen.append(self._renumbered(rest))
            else:
                self._again.step(delta)
                self._compare()
        return unseen

    def _say(self, delta: Reasoning | Text | Refusal | ToolArguments) -> Delta | None:
        """Say a text again, up to where the first reading has ended; return what is left of it."""
        text = delta.text
        while text:
            end = self._next_end(_TEXTS[type(delta)], text)
            self._again.step(_with_text(delta, text[:end]))
            self._compare()
            text = text[end:]
            if self.caught_up:
                break
        return _with_text(delta, text) if text else None

    def _next_end(self, kind: str, text: str) -> int:
        """Return how much of a text can be said before the two have to be compared again: where it begins something, the first
        visible character; within what is the last in both, as much as the first reading has."""
        transcript = transcript_of(self._again)
        if not transcript.parts or transcript.parts[-1].kind != kind:
            return len(text) - len(text.lstrip()) + 1
        wanted = self._wanted
        if len(transcript.done) < len(wanted.done) or len(transcript.parts) < len(wanted.parts):
            return len(text)
        behind = len(wanted.parts[-1].text) - len(transcript.parts[-1].text) - len(transcript.space)
        return max(1, min(len(text), behind))

    def _compare(self) -> None:
        wanted = self._wanted
        done = self._again.writer.done
        while self._compared < len(done):
            at = self._compared
            if at >= len(wanted.done) or without_generated_ids(done[at]) != wanted.done[at]:
                raise Diverged
            self._compared += 1
        transcript = transcript_of(self._again)
        if not transcript.parts:
            return
        if self._compared < len(wanted.done):
            if not is_prefix_of(transcript.parts[0], wanted.done[self._compared]):
                raise Diverged
            return
        *before, last = transcript.parts
        if before != wanted.parts[: len(before)] or len(before) == len(wanted.parts):
            raise Diverged
        if not _may_grow(last, wanted.parts[len(before)]):
            raise Diverged
        if transcript.parts == wanted.parts:
            self._arrive()

    def _arrive(self) -> None:
        self.caught_up = True
        self._lifecycle.forget_space()  # it comes again
        self._numbers = dict(zip(call_numbers(self._again), call_numbers(self._lifecycle), strict=True))

    def _renumbered(self, delta: Delta) -> Delta:
        """Return a delta with the first reading's number of its call."""
        if isinstance(delta, CALL_PARTS):
            delta.index = self._numbers.get(delta.index, delta.index)
        return delta


def _may_grow(part: Part, wanted: Part) -> bool:
    """Tell whether something is the other, or a beginning of it."""
    same = (part.kind, part.name) == (wanted.kind, wanted.name)
    return same and wanted.text.startswith(part.text) and part.annotations <= wanted.annotations


def _with_text(delta: Reasoning | Text | Refusal | ToolArguments, text: str) -> Reasoning | Text | Refusal | ToolArguments:
    if isinstance(delta, ToolArguments):
        return ToolArguments(delta.index, text)
    return msgspec.structs.replace(delta, text=text)


class JoinPoint(msgspec.Struct, frozen=True, omit_defaults=True):
    """Where a continuation is joined to the answer that broke off, as plain data: how many tokens of the answer are part of its
    prompt, and the text that it repeats of what was sent already. Where a parser of ours reads the answer again: the text of
    those tokens, and how it is read."""

    generated: int
    overlap: str = ""
    text: str | None = None
    start: Any = None


class Join:
    """How a continuation is read. Its own prompt must be the one that was asked for, and its first text what was sent already
    (`overlap`, `catch_up`); behind that, it is new.

    `generated`: the number of tokens of the answer that are part of its prompt. `unseen`: what the second reading of the answer
    found that the first one had not said yet. `point`: the same as plain data, for the tape."""

    def __init__(
        self,
        prompt: Sequence[int],
        generated: Sequence[int],
        *,
        overlap: str = "",
        catch_up: CatchUp | None = None,
        unseen: Sequence[Delta] = (),
        point: JoinPoint | None = None,
    ) -> None:
        self.point = point or JoinPoint(len(generated), overlap)
        self.generated = len(generated)
        self.unseen = unseen
        self._prompt_tokens = len(prompt)
        self._asked: array[int] | None = array("q", [*prompt, *generated])  # until it is found in the answer
        self._overlap = overlap
        self._catch_up = catch_up

    @property
    def caught_up(self) -> bool:
        """Whether the second reading, if there is one, has said all that was said before."""
        return self._catch_up is None or self._catch_up.caught_up

    @property
    def joined(self) -> bool:
        """Whether the continuation has repeated everything that the client already has."""
        return self._asked is None and not self._overlap and self.caught_up

    def follow(self, earlier: Join) -> None:
        """Take over what an earlier continuation, whose parser reads on, still had to repeat when it broke off itself."""
        self._overlap += earlier._overlap
        self._catch_up = earlier._catch_up

    def observe(self, chunk: Chunk) -> None:
        """Take a chunk before anything else does: text completions become chat chunks. Raise `Diverged` if the backend has
        not continued from the ids that it was given."""
        choices = chunk.choices
        if not choices:
            return
        choice = choices[0]
        if self._asked is not None:
            if ids_in(chunk.prompt_ids) != self._asked:
                raise Diverged("other_prompt")
            self._asked = None
        if choice.delta is None and isinstance(choice.text, str):
            choice.delta = ChatDelta(content=choice.text)

    def without_overlap(self, deltas: list[Delta], _token_ids: Sequence[int] | None = None) -> list[Delta]:
        """Return the deltas without the text that was said before. Raise `Diverged` if it is another one."""
        if not self._overlap:
            return deltas
        kept: list[Delta] = []
        for delta in deltas:
            if type(delta) is Text and self._overlap:
                size = min(len(delta.text), len(self._overlap))
                if delta.text[:size] != self._overlap[:size]:
                    raise Diverged("text_differs")
                self._overlap = self._overlap[size:]
                delta.text = delta.text[size:]
                if not delta.text:
                    continue
            kept.append(delta)
        return kept

    def unseen_part(self, deltas: list[Delta], _token_ids: Sequence[int] | None = None, *, last: bool = False) -> list[Delta]:
        """Return what the deltas bring that was not said before. `last`: no more follow. Raise `Diverged` if they differ."""
        if self._catch_up is not None:
            deltas = self._catch_up.take(deltas, last=last)
        return [self._usage(delta) if type(delta) is Usage else delta for delta in deltas]

    def _usage(self, usage: Usage) -> Usage:
        """Return the usage of the whole answer. What the first backend had in its cache is not known."""
        output = None if usage.output is None else usage.output + self.generated
        return Usage(self._prompt_tokens, output, cached=0)


def join_at(point: JoinPoint, partial: PartialAnswer, lifecycle: Lifecycle, markup: Markup | None) -> Join:
    """Return how the continuation of an answer is read. `markup` reads it again, if anything does. Raise `Diverged`."""
    ids = partial.ids[: point.generated]
    if markup is None:
        return Join(partial.prompt, ids, overlap=point.overlap, point=point)
    text = point.text or ""
    catch_up = CatchUp(lifecycle)
    unseen = catch_up.take(markup.read([Text(text)], ids) if text or ids else [])
    return Join(partial.prompt, ids, catch_up=catch_up, unseen=unseen, point=point)
