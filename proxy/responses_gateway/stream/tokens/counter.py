"""The output tokens of a response by kind, and the usage that its client gets.

Counts are exact where the backend sends the ids of its tokens, or where the model's tokenizer is at hand. Otherwise the
output tokens that the backend reports are shared out over text and arguments by their length: an estimate, but one that adds
up.

The tokens of reasoning that a response reports are those of the backend. A backend that streamed reasoning and reports 0, or
nothing, has not counted: then they are counted here, or estimated, and never 0."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Literal

from responses_gateway.stream.tokens.meter import KINDS, Encode, Kind, TokenMeter
from responses_gateway.wire.deltas import Delta, Reasoning, Refusal, Text, ToolArguments, ToolCall, Usage

# Where the number of reasoning tokens comes from.
TokenSource = Literal["backend", "ids", "tokenizer", "estimate"]

_SHOWN = frozenset({Reasoning, Text, Refusal, ToolCall, ToolArguments})
_KIND: dict[type, Kind] = {Reasoning: "reasoning", Text: "text", Refusal: "refusal", ToolArguments: "tool_arguments"}


class TokenCounter:
    """The tokens of one response. `input_tokens` may be set from outside, for backends that report no usage."""

    __slots__ = (
        "_before", "_characters", "_encode", "_meter", "_saw_ids", "_silent_before", "exact", "input_tokens",
        "reasoning_from", "reported", "reported_reasoning", "silent_ids", "usage",
    )  # fmt: skip

    def __init__(self, encode: Encode | None = None) -> None:
        """Count with `encode`, the model's tokenizer, if there is one."""
        self.input_tokens: int | None = None
        self.exact = encode is not None  # tokens are counted here, not only reported
        self.reasoning_from: TokenSource | None = None  # set by `complete_usage`, where the usage tells them
        # What the backend reported, once the stream has ended.
        self.reported: int | None = None
        self.reported_reasoning = 0
        # The tokens of an answer of which nothing was shown yet; None once something was.
        self.silent_ids: list[int] | None = []
        self._encode = encode
        self._meter: TokenMeter | None = None
        self._saw_ids = False
        # The same with the reasoning that was counted here.
        self.usage: Usage | None = None
        self._characters: Mapping[str, int] = {}
        self._before: dict[Kind, int] = dict.fromkeys(KINDS, 0)  # counted before the answer of the model that is counted now
        self._silent_before = True  # nothing was shown before it

    def begin_answer(self) -> None:
        """Count another answer of the model."""
        if self._meter is not None:
            self._before = self._meter.counts
        self._silent_before = self.silent_ids is not None

    def forget_answer(self) -> None:
        """Take back what was counted of this answer by ids: the model begins it again."""
        if self._meter is not None:
            self._meter.counts = self._before
        self.silent_ids = [] if self._silent_before else None

    def count(self, deltas: Sequence[Delta], token_ids: Sequence[int] | None) -> None:
        """Count the deltas of one chunk, by the ids of its tokens if the backend sent them."""
        meter = self._meter
        if meter is None:
            meter = self._meter = TokenMeter(self._encode)
        if token_ids is not None:
            self._saw_ids = self.exact = True
            if self.silent_ids is not None:
                if any(type(delta) in _SHOWN for delta in deltas):
                    self.silent_ids = None
                else:
                    self.silent_ids += token_ids
            _count_ids(meter, deltas, len(token_ids))
        elif self._encode is not None and not self._saw_ids:
            for delta in deltas:
                kind = _KIND.get(type(delta))
                if kind is not None:
                    meter.feed(kind, delta.text)  # type: ignore[union-attr]
                elif type(delta) is ToolCall:
                    meter.split()

    def counted(self, deltas: list[Delta], token_ids: Sequence[int] | None) -> list[Delta]:
        """Count the deltas of one chunk where its tokens can be counted, and return them."""
        if token_ids is not None or self.exact:
            self.count(deltas, token_ids)
        return deltas

    def count_more(self, kind: Kind, tokens: int) -> None:
        """Count the tokens of more of a text, of which a part was counted by its ids before."""
        assert self._meter is not None
        self._meter.count(kind, tokens)

    def subtract(self, tokens: int) -> None:
        """Take back so many tokens, the last ones, which brought nothing: they will be generated again."""
        if self._meter is not None:
            self._meter.count("other", -tokens)
        if self.silent_ids is not None and tokens:
            del self.silent_ids[-tokens:]

    def complete_usage(self, usage: Usage | None, characters: Mapping[str, int]) -> Usage | None:
        """Return the usage to report at the end of the stream, completed by what was counted here. `characters`: the length of
        the output by kind, for the estimate."""
        self.usage = usage
        self._characters = characters
        if usage is not None:
            self.reported = usage.output
            self.reported_reasoning = usage.reasoning or 0
        counted = self._totals() if self.exact else None
        if usage is None or usage.input is None or usage.output is None:
            if counted is None or self.input_tokens is None:
                return usage
            self.reasoning_from = "ids" if self._saw_ids else "tokenizer"
            return Usage(self.input_tokens, sum(counted.values()), reasoning=counted["reasoning"])
        self._complete_reasoning(usage, counted)
        return usage

    def _complete_reasoning(self, usage: Usage, counted: Mapping[Kind, int] | None) -> None:
        if usage.reasoning is not None and (usage.reasoning or not self._characters.get("reasoning")):
            self.reasoning_from = "backend"
            return
        usage.reasoning = None
        if counted is not None:
            self.reasoning_from = "ids" if self._saw_ids else "tokenizer"
            found = counted["reasoning"]
        elif self._characters.get("reasoning"):
            self.reasoning_from = "estimate"
            found = self._estimate().get("reasoning", 0)
        else:
            return
        least = 1 if self._characters.get("reasoning") else 0
        usage.reasoning = min(max(found, least), usage.output or 0)

    def may_miss(self, items: int) -> bool:
        """Tell whether the backend reports more tokens than the text of so many items can have: not of nearly every answer."""
        most = markup_of(items) + (0 if self.exact else sum(self._characters.values()) // 2)
        return self.reported is not None and self.reported > most

    @property
    def disagrees(self) -> bool:
        """Whether the backend reports another number of output tokens than its ids say, or fewer than its text has."""
        usage = self.usage
        if usage is None or usage.output is None or not self.exact:
            return False
        counted = sum(self._totals().values())
        return counted != usage.output if self._saw_ids else counted > usage.output

    def by_kind(self) -> dict[str, int]:
        """Return the output tokens by kind, for the metrics."""
        if self.exact:
            counted = dict(self._totals())
            if not self._saw_ids and self.usage is not None and self.usage.output is not None:
                counted["other"] = max(0, self.usage.output - sum(counted.values()))
            return {kind: count for kind, count in counted.items() if count}
        return self._estimate()

    def _totals(self) -> dict[Kind, int]:
        return self._meter.totals() if self._meter is not None else dict.fromkeys(KINDS, 0)

    def _estimate(self) -> dict[str, int]:
        usage = self.usage
        if usage is None or usage.output is None:
            return {}
        shares = {kind: self._characters.get(kind, 0) for kind in KINDS}
        left = usage.output
        found: dict[str, int] = {}
        if usage.reasoning is not None:
            found["reasoning"] = min(usage.reasoning, left)
            left -= found["reasoning"]
            shares["reasoning"] = 0
        length = sum(shares.values())
        for kind, share in shares.items():
            if share:
                found[kind] = round(left * share / length)
                left -= found[kind]
                length -= share
        if left:
            found["other"] = left
        return {kind: count for kind, count in found.items() if count}


def markup_of(items: int) -> int:
    """Return how many tokens of an answer with so many items may be markup: the end token, an empty thought, the channel of
    each item, the white space beside it. Calls have more."""
    return 8 + 8 * items


def _count_ids(meter: TokenMeter, deltas: Sequence[Delta], tokens: int) -> None:
    """Count tokens by kind. A parser of markup knows those of each delta; else they are shared by length. What is left over is
    markup."""
    texts = [delta for delta in deltas if isinstance(delta, Reasoning | Text | Refusal | ToolArguments)]
    length = sum(len(delta.text) for delta in texts)
    left = tokens
    for delta in texts:
        share = delta.tokens
        if share is None:
            share = round(left * len(delta.text) / length) if length else 0
            length -= len(delta.text)
        meter.count(_KIND[type(delta)], share)
        left -= share
    # A parser tells the tokens of text that it held back when it gives it out: then they were counted as "other" before.
    meter.count("other", left)
