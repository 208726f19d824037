"""How many tokens each kind of output cost, whoever parsed it.

Exact where the backend sends the ids of its tokens, or where the model's tokenizer is at hand. Otherwise the output tokens
that the backend reports are shared out over text and arguments by their length: an estimate, but one that adds up."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from proxy.stream.tokens.meter import KINDS, Encode, Kind, TokenMeter
from proxy.wire.deltas import Delta, Reasoning, Refusal, Text, ToolArguments, ToolCall, Usage

_KIND: dict[type, Kind] = {
    Reasoning: "reasoning",
    Text: "text",
    Refusal: "refusal",
    ToolArguments: "tool_arguments",
}


class TokenCounter:
    """The tokens of one response. `input_tokens` may be set from outside, for backends that report no usage."""

    __slots__ = ("_characters", "_encode", "_meter", "_saw_ids", "_usage", "exact", "input_tokens")

    def __init__(self, encode: Encode | None = None) -> None:
        """Count with `encode`, the model's tokenizer, if there is one."""
        self.input_tokens: int | None = None
        self.exact = encode is not None  # tokens are counted here, not only reported
        self._encode = encode
        self._meter: TokenMeter | None = None
        self._saw_ids = False
        self._usage: Usage | None = None
        self._characters: Mapping[str, int] = {}

    def count(self, deltas: Sequence[Delta], token_ids: Sequence[int] | None) -> None:
        """Count the deltas of one chunk, by the ids of its tokens if the backend sent them."""
        meter = self._meter
        if meter is None:
            meter = self._meter = TokenMeter(self._encode)
        if token_ids is not None:
            self._saw_ids = self.exact = True
            _count_ids(meter, deltas, len(token_ids))
        elif self._encode is not None and not self._saw_ids:
            for delta in deltas:
                kind = _KIND.get(type(delta))
                if kind is not None:
                    meter.feed(kind, delta.text)  # type: ignore[union-attr]
                elif type(delta) is ToolCall:
                    meter.split()

    def complete_usage(self, usage: Usage | None, characters: Mapping[str, int]) -> Usage | None:
        """Return the usage to report at the end of the stream, completed by what was counted here. `characters`: the length of
        the output by kind, for the estimate."""
        self._usage = usage
        self._characters = characters
        counted = self._totals() if self.exact else None
        if usage is None or usage.input is None or usage.output is None:
            if counted is None or self.input_tokens is None:
                return usage
            return Usage(self.input_tokens, sum(counted.values()), reasoning=counted["reasoning"])
        if usage.reasoning is None and counted is not None:
            usage.reasoning = min(counted["reasoning"], usage.output)
        return usage

    @property
    def disagrees(self) -> bool:
        """Whether the backend reports another number of output tokens than its ids say, or fewer than its text has."""
        usage = self._usage
        if usage is None or usage.output is None or not self.exact:
            return False
        counted = sum(self._totals().values())
        return counted != usage.output if self._saw_ids else counted > usage.output

    def by_kind(self) -> dict[str, int]:
        """Return the output tokens by kind, for the metrics."""
        if self.exact:
            counted = dict(self._totals())
            if not self._saw_ids and self._usage is not None and self._usage.output is not None:
                counted["other"] = max(0, self._usage.output - sum(counted.values()))
            return {kind: count for kind, count in counted.items() if count}
        return self._estimate()

    def _totals(self) -> dict[Kind, int]:
        return self._meter.totals() if self._meter is not None else dict.fromkeys(KINDS, 0)

    def _estimate(self) -> dict[str, int]:
        usage = self._usage
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
