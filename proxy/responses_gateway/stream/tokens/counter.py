"""The output tokens of a response by kind, and the usage that its client gets.

The tokens of reasoning that a response reports are the same however the server cut the answer into chunks. They are counted by
the ids of the tokens, if the backend sends them and it is known which of them begin and end a thought; else with the model's
tokenizer, if it is at hand; both are exact. Otherwise they are what the backend reports. A backend that streamed reasoning and
reports 0, or nothing, has not counted: then its output tokens are shared out over reasoning, text and arguments by their
length: an estimate, but one that adds up.

Tokens that the backend used, and of which nothing came, show that a parser of the server does not fit the model and leaves
calls out (`unseen_tokens`). Nothing is said where the difference may be markup, the end token or white space, and nothing of
answers that this gateway left something out of itself. What came is taken to have as many tokens as it can have."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Literal

import msgspec

from responses_gateway.parsers import ThoughtTokens
from responses_gateway.stream.tokens.meter import KINDS, Encode, Kind, TokenMeter
from responses_gateway.wire.deltas import Delta, Finish, Reasoning, Refusal, Text, ToolArguments, ToolCall, Usage

# Where the number of reasoning tokens comes from.
TokenSource = Literal["backend", "ids", "tokenizer", "estimate"]

_SHOWN = frozenset({Reasoning, Text, Refusal, ToolCall, ToolArguments})
_KIND: dict[type, Kind] = {Reasoning: "reasoning", Text: "text", Refusal: "refusal", ToolArguments: "tool_arguments"}
_NO_TOKENS = ThoughtTokens(frozenset(), frozenset())
_ANSWER = frozenset({Text, Refusal})
_TEXTS = _ANSWER | {Reasoning}
_PER_CALL = 40  # tokens of a call that are markup: its name, the syntax around its arguments
# Repairs that leave out what the model said.
_OMISSIONS = frozenset({"call_suppressed", "stray_arguments", "cut_call_omitted", "broken_text_omitted"})


class IdCount:
    """The tokens of one turn of the model, and of its thoughts, by their ids, however they were cut into chunks: `take` gets
    all ids in order, `note` what the chunks brought. `total` is the number of ids.

    A thought is what stands between two markers. So its tokens are counted where their ids stand, and not where text comes: a
    server may send several tokens in one chunk, sends those of a character without text but for the last one, and leaves
    markers out of the text."""

    __slots__ = (
        "_before", "_came", "_first", "_marked", "_markers", "_open_at", "_stopped", "_thought", "_tokens", "total",
    )  # fmt: skip

    def __init__(self, tokens: ThoughtTokens | None) -> None:
        """`tokens` are those that begin and end a thought, if they are known."""
        self._tokens = tokens or _NO_TOKENS
        self._markers = self._tokens.opens | self._tokens.closes | self._tokens.calls
        self._came: set[type] = set()  # the kinds of what the ids said
        self._stopped = False  # the model ended by itself: the last id is the end token
        self.restart()

    def restart(self, ids: Sequence[int] = ()) -> None:
        """Count these ids in the place of all before. What was noted stays."""
        self.total = 0
        self._first: Literal["none", "open", "close", "call"] = "none"  # what the first marker did
        self._before = 0  # tokens before it
        self._thought = 0  # tokens of thoughts behind it that are over
        self._open_at: int | None = None  # where the thought began that is not over
        self._marked = 0  # markers
        if ids:
            self.take(ids)

    def take(self, ids: Sequence[int]) -> None:
        """Count the ids of a chunk."""
        if self._markers.isdisjoint(ids):  # nearly always
            self.total += len(ids)
        else:
            for token in ids:
                if token in self._markers:
                    self._take_marker(token)
                self.total += 1

    def _take_marker(self, token: int) -> None:
        tokens = self._tokens
        opens = token in tokens.opens
        if self._first == "none":
            self._first = "open" if opens else "close" if token in tokens.closes else "call"
            self._before = self.total
        if self._open_at is not None:
            self._thought += self.total - self._open_at
        self._open_at = self.total + 1 if opens else None
        self._marked += 1

    def note(self, deltas: Iterable[Delta]) -> None:
        """Note what came of the ids."""
        for delta in deltas:
            if type(delta) is Finish:
                self._stopped = delta.reason == "stop"
            elif type(delta) is ToolCall or (type(delta) in _TEXTS and not delta.text.isspace()):  # type: ignore[union-attr]
                self._came.add(type(delta))

    @property
    def markup(self) -> int:
        """The tokens that are known to be no text: markers, and the end token."""
        return self._marked + (self._stopped and self.total > self._marked)

    @property
    def thought(self) -> int | None:
        """The tokens of the thoughts, without markers; None if the ids do not tell. Where the first marker does not open a
        thought, the prompt has opened it."""
        if Reasoning not in self._came:
            return 0
        texted = not _ANSWER.isdisjoint(self._came)
        unclosed = 0 if self._open_at is None else self.total - self._open_at
        match self._first:
            case "open":
                tokens = self._thought
            case "close":
                tokens = self._before + self._thought
            case "call" if not texted:
                tokens = self._before + self._thought
            case "none" if self._markers and not texted and ToolCall not in self._came:
                tokens = 0
                unclosed = self.total
            case _:
                return None
        return tokens + unclosed - (unclosed > 0 and self._stopped)


class TokenCounter:
    """The tokens of one response. `input_tokens` may be set from outside, for backends that report no usage. `ids` are those of
    this turn of the model, `meter` counts text with the model's tokenizer; None where that is not needed."""

    __slots__ = (
        "_characters", "_ids_before", "_silent_before", "_thoughts", "_total_before", "ids", "input_tokens", "meter",
        "reasoning_from", "reported", "reported_reasoning", "silent_ids", "usage",
    )  # fmt: skip

    def __init__(self, encode: Encode | None = None, thoughts: ThoughtTokens | None = None) -> None:
        """Count with `encode`, the model's tokenizer, and by the `thoughts` that are seen in ids, if there is either."""
        self.input_tokens: int | None = None
        self.reasoning_from: TokenSource | None = None  # set by `complete_usage`, where the usage tells them
        # What the backend reported, once the stream has ended.
        self.reported: int | None = None
        self.reported_reasoning = 0
        # The tokens of an answer of which nothing was shown yet; None once something was.
        self.silent_ids: list[int] | None = []
        self.meter = None if encode is None else TokenMeter(encode)
        self.ids = IdCount(thoughts)
        # The same with the reasoning that was counted here.
        self.usage: Usage | None = None
        self._thoughts = thoughts
        self._ids_before: list[IdCount] = []  # those of earlier turns
        self._total_before = 0  # the number of their ids
        self._characters: Mapping[str, int] = {}
        self._silent_before = True  # nothing was shown before this turn

    def begin_answer(self) -> None:
        """Count another turn of the model."""
        self._ids_before.append(self.ids)
        self._total_before += self.ids.total
        self.ids = IdCount(self._thoughts)
        self._silent_before = self.silent_ids is not None

    def forget_answer(self) -> None:
        """Take back the ids of this answer: the model begins it again."""
        self.ids = IdCount(self._thoughts)
        self.silent_ids = [] if self._silent_before else None

    def keep(self, ids: Sequence[int], dropped: int) -> None:
        """Keep these ids of this turn, and forget those `dropped`, which were the last ones: they will be generated again."""
        self.ids.restart(ids)
        if self.silent_ids is not None and dropped:
            del self.silent_ids[-dropped:]

    def counted(self, deltas: list[Delta], token_ids: Sequence[int] | None) -> list[Delta]:
        """Count the deltas of one chunk where its tokens can be counted, and return them. `token_ids` are those of the chunk,
        if the backend sent them."""
        if token_ids is not None:
            self._count_ids(deltas, token_ids)
        self.ids.note(deltas)  # also before the first ids: what continues these deltas may come with some
        if self.meter is not None:
            for delta in deltas:
                kind = _KIND.get(type(delta))
                if kind is not None:
                    self.meter.feed(kind, delta.text)  # type: ignore[union-attr]
                elif type(delta) is ToolCall:
                    self.meter.split()
        return deltas

    def _count_ids(self, deltas: Sequence[Delta], token_ids: Sequence[int]) -> None:
        self.ids.take(token_ids)
        if self._thoughts is not None and token_ids:
            self.meter = None  # ids tell what reading the text would
        if self.silent_ids is not None:
            if not _SHOWN.isdisjoint(map(type, deltas)):
                self.silent_ids = None
            else:
                self.silent_ids += token_ids

    def complete_usage(self, usage: Usage | None, characters: Mapping[str, int]) -> Usage | None:
        """Return the usage to report at the end of the stream, completed by what was counted here. `characters`: the length of
        the output by kind, for the estimate."""
        self.usage = usage
        self._characters = characters
        if usage is not None:
            self.reported = usage.output
            self.reported_reasoning = usage.reasoning or 0
        if usage is None or usage.input is None or usage.output is None:
            total = self._counted_output()
            if total is None or self.input_tokens is None:
                return usage
            usage = Usage(self.input_tokens, total)
        self._complete_reasoning(usage)
        return usage

    def _complete_reasoning(self, usage: Usage) -> None:
        assert usage.output is not None
        if not self._characters.get("reasoning"):
            self._complete_unshown(usage)
            return
        tokens = self._thought_by_ids(usage.output)
        self.reasoning_from = "ids"
        if tokens is None:
            tokens = self._thought_by_text(usage.output)
            self.reasoning_from = "tokenizer"
        if tokens is None:
            tokens = usage.reasoning
            self.reasoning_from = "backend"
        if not tokens and self.reasoning_from == "backend":
            tokens = _shared_out(usage.output, None, self._characters).get("reasoning", 0)
            self.reasoning_from = "estimate"
        usage.reasoning = min(max(tokens or 0, 1), usage.output)

    def _complete_unshown(self, usage: Usage) -> None:
        """Tell the tokens of reasoning where none was shown. A backend that hides thoughts does not send their ids; where all
        ids came, only the white space of an empty thought may have been counted."""
        if usage.output and self._id_total == usage.output:
            usage.reasoning = 0
            self.reasoning_from = "ids"
        else:
            self.reasoning_from = None if usage.reasoning is None else "backend"

    def _thought_by_ids(self, output: int) -> int | None:
        """Return the tokens of all thoughts; None if the ids do not tell, or are not those of the whole output."""
        if self._id_total != output:
            return None
        counts = [turn.thought for turn in self._turns]
        return None if None in counts else sum(count or 0 for count in counts)

    def _thought_by_text(self, output: int) -> int | None:
        """Return the tokens of all reasoning that was shown; None without a tokenizer that fits the model."""
        if self.meter is None:
            return None
        totals = self.meter.totals()
        return totals["reasoning"] if sum(totals.values()) <= output else None

    @property
    def _turns(self) -> tuple[IdCount, ...]:
        return (*self._ids_before, self.ids)

    @property
    def _id_total(self) -> int:
        return self._total_before + self.ids.total

    def _counted_output(self) -> int | None:
        """Return the output tokens that were counted here; None if none were."""
        if self.meter is not None and not self._id_total:
            return sum(self.meter.totals().values())
        return self._id_total or None

    def may_miss(self, items: int) -> bool:
        """Tell whether the backend reports more tokens than the text of so many items can have: not of nearly every answer."""
        most = markup_of(items)
        if self.reported is None or self.reported <= most:
            return False
        return self.meter is not None or self.reported > most + sum(self._characters.values()) // 2

    @property
    def disagrees(self) -> bool:
        """Whether the backend reports another number of output tokens than its ids say, or fewer than its text has."""
        usage = self.usage
        if usage is None or usage.output is None:
            return False
        if self._id_total:
            return self._id_total != usage.output
        return self.meter is not None and sum(self.meter.totals().values()) > usage.output

    def by_kind(self) -> dict[str, int]:
        """Return the output tokens by kind, for the metrics: counted with the model's tokenizer, or else shared out."""
        usage = self.usage
        id_total = self._id_total
        output = usage.output if usage is not None and usage.output is not None else id_total
        counts: dict[Kind, int]
        if self.meter is not None:
            counts = self.meter.totals()
            counts["other"] = max(0, output - sum(counts.values()))
        else:
            reasoning = None if usage is None else usage.reasoning
            markup = 0
            if id_total:
                if reasoning is None:
                    reasoning = self._thought_by_ids(output)
                markup = min(sum([turn.markup for turn in self._turns]), output - (reasoning or 0))
            counts = _shared_out(output - markup, reasoning, self._characters)
            if markup:
                counts["other"] = counts.get("other", 0) + markup
        return {kind: count for kind, count in counts.items() if count}


def markup_of(items: int) -> int:
    """Return how many tokens of an answer with so many items may be markup: the end token, an empty thought, the channel of
    each item, the white space beside it. Calls have more."""
    return 8 + 8 * items


def _shared_out(output: int, reasoning: int | None, characters: Mapping[str, int]) -> dict[Kind, int]:
    """Share the tokens of an output out over its parts by their `characters`, those of `reasoning` if they are not known."""
    if reasoning is None and len(characters) == 1:  # as most answers have text alone
        [(only, length)] = characters.items()
        if length:
            return {only: output}  # type: ignore[dict-item]
    left = output
    tokens: dict[Kind, int] = {}
    if reasoning is not None:
        tokens["reasoning"] = min(reasoning, left)
        left -= tokens["reasoning"]
    shares = [(kind, characters[kind]) for kind in KINDS if kind in characters and kind not in tokens]
    length = sum([share for _, share in shares])
    for kind, share in shares:
        if share:
            tokens[kind] = round(left * share / length)
            left -= tokens[kind]
            length -= share
    if left:
        tokens["other"] = left
    return tokens


def unseen_tokens(tokens: TokenCounter, output: Sequence[str], repairs: Mapping[str, int]) -> int:
    """Return how many of the tokens that a completed answer used never came, 0 if there is no sign of that. `output`: the JSON
    of its items; `repairs`: those of the lifecycle."""
    used = tokens.reported
    if used is None or not _OMISSIONS.isdisjoint(repairs):
        return 0
    markup = markup_of(len(output))
    items = [msgspec.json.decode(item) for item in output]
    calls = [item for item in items if item["type"] not in ("message", "reasoning")]
    # What markup a call has depends on how the model writes it; the more arguments, the more there may be.
    markup += sum(_PER_CALL + len(_arguments(call)) // 2 for call in calls)
    thought = tokens.reported_reasoning
    seen = thought + sum(_most_tokens(text) for text in _texts(items, with_reasoning=not thought))
    if tokens.meter is not None:
        seen = max(seen, sum(count for kind, count in tokens.by_kind().items() if kind != "other"))
    return used - seen if used > seen + markup else 0


def said_more(used: int | None, thought: int | None, reasoning: str) -> bool:
    """Tell whether an answer used more tokens than its reasoning, which is all that was sent: something else was left out.
    `used` and `thought` are what the backend reports of the answer and of its reasoning."""
    if used is None:
        return False
    seen = thought or 0
    if not seen or not reasoning.isascii():  # vLLM does not count tokens that end inside a character
        seen = max(seen, _most_tokens(reasoning))
    return used > seen + markup_of(1)


def _texts(items: Iterable[dict[str, Any]], *, with_reasoning: bool) -> Iterable[str]:
    for item in items:
        if item["type"] == "message" or (item["type"] == "reasoning" and with_reasoning):
            for part in item.get("content") or ():
                yield part.get("text") or part.get("refusal") or ""
        elif item["type"] != "reasoning":
            yield _arguments(item)


def _arguments(call: dict[str, Any]) -> str:
    value = call.get("arguments", call.get("input", call.get("action")))
    return value if isinstance(value, str) else msgspec.json.encode(value).decode()


def _most_tokens(text: str) -> int:
    """Return how many tokens a text has at most, as language models count: a letter is half a token at most, a byte of anything
    else one."""
    letters = sum(map(str.isalpha, text)) if text.isascii() else 0
    return letters // 2 + len(text.encode("utf-8", "replace")) - letters
