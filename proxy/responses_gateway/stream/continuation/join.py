"""The answer of another backend is joined to what the first one wrote."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import msgspec

from responses_gateway.stream.continuation.catch_up import CatchUp, Diverged
from responses_gateway.stream.continuation.ledger import PartialAnswer
from responses_gateway.stream.lifecycle.machine import Lifecycle
from responses_gateway.stream.reading.markup import Markup
from responses_gateway.wire.chat import Chunk
from responses_gateway.wire.chat import Delta as ChatDelta
from responses_gateway.wire.deltas import Delta, Text, Usage


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
        self._asked: list[int] | None = [*prompt, *generated]  # until it is found in the answer
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
            given = bytes(chunk.prompt_token_ids or choice.prompt_token_ids)
            if given[:1] != b"[" or msgspec.json.decode(given, type=list[int]) != self._asked:
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
