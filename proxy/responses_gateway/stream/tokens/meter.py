"""Counting the tokens of text that arrives in pieces, with a tokenizer that is given.

A tokenizer encodes whole texts: two halves encoded apart may give other tokens than the two together. What makes it possible
to work in pieces are *seams*: places where the tokens before are settled whatever follows, and where the rest, encoded by
itself, gives the very tokens that it has in the whole. A seam is never guessed from the text alone. It is a boundary
between two tokens of the whole, and the rest has been encoded by itself and compared.

Two things are trusted. Before the space between two words every known tokenizer ends a token (what comes later cannot
reach back over it). Elsewhere `_LOOKAHEAD` characters to the right of a boundary settle it. This holds for BPE, the kind of
nearly all language models; a Unigram model may be off by a token or two within a long repetition (a line of dashes)."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Literal, NamedTuple, Protocol, TypeAlias

# `other`: tokens that belong to no item, such as markers, channel headers and the end token.
Kind = Literal["reasoning", "text", "refusal", "tool_arguments", "other"]
KINDS: tuple[Kind, ...] = ("reasoning", "text", "refusal", "tool_arguments", "other")

# Characters encoded at once: enough to make the cost of a call small, few enough for a fraction of a millisecond.
_BATCH = 384
# A text without any seam is cut at this length all the same: two tokens may then be counted where there is one.
_LIMIT = 4 * _BATCH
# Characters to the right that settle a boundary which is not between words: more than a word, or a syllable, has.
_LOOKAHEAD = 48
# The same within a repetition (a rule of dashes, an indentation): vocabularies have tokens of up to 128 equal characters.
_REPETITION = 160
# Characters from the end of a batch within which a seam is sought, and how many boundaries are tried.
_REACH = 224
_TRIES = 8


class Encoding(Protocol):
    """The tokens of a text, as `tokenizers.Encoding` has them: ids, where each token begins and ends in the text, and the
    number of the word that it belongs to (words are what the tokenizer looks at one by one)."""

    @property
    def ids(self) -> list[int]: ...

    @property
    def offsets(self) -> list[tuple[int, int]]: ...

    @property
    def word_ids(self) -> list[int | None]: ...

    def __len__(self) -> int: ...


# Encodes a text without adding anything to it (no prefix space, no start token).
Encode: TypeAlias = Callable[[str], Encoding]


class Seam(NamedTuple):
    """Where a text is cut: the ids before, and the index in the text."""

    ids: list[int]
    at: int


def cut(encode: Encode, text: str) -> Seam | None:
    """Seam the text at its last seam; None if none is found near its end."""
    encoding = encode(text)
    ids = encoding.ids
    offsets = encoding.offsets
    for count in _boundaries(text, encoding, offsets):
        at = offsets[count - 1][1]
        if encode(text[at:]).ids == ids[count:]:
            return Seam(ids[:count], at)
    return None


def _cut_anyway(encode: Encode, text: str) -> Seam:
    """Seam a text that has no seam some way before its end."""
    encoding = encode(text)
    ids = encoding.ids
    offsets = encoding.offsets
    for count in range(len(ids) - 1, 0, -1):
        if 0 < offsets[count - 1][1] <= len(text) - _LOOKAHEAD:
            return Seam(ids[:count], offsets[count - 1][1])
    return Seam(ids, len(text))


def _boundaries(text: str, encoding: Encoding, offsets: Sequence[tuple[int, int]]) -> Iterator[int]:
    """Yield places worth trying, as the number of tokens before: those between words first, then the others, the last first."""
    end = len(text)
    edges: list[int] = []
    inner: list[int] = []
    words: list[int | None] = []
    tries = 0
    for count in range(len(offsets) - 1, 0, -1):
        at = offsets[count - 1][1]
        if at < end - _REACH or tries == _TRIES:
            break
        if at <= 0 or offsets[count][0] < at:  # the two tokens share a character
            continue
        # A single space, with no white space on either side of it.
        if text[at] == " " and at + 1 < len(text) and not text[at + 1].isspace() and not text[at - 1].isspace():
            if at <= end - _LOOKAHEAD:
                tries += 1
                yield count
        elif at <= end - (_REPETITION if _repeats(text, at) else _LOOKAHEAD):
            if text[at - 1].isdigit() and text[at].isdigit():
                words = words or encoding.word_ids
                if words[count] == words[count - 1]:
                    continue  # many tokenizers take digits three by three: these would come out of step
            (edges if text[at - 1].isalnum() != text[at].isalnum() else inner).append(count)
    yield from [*edges, *inner][:_TRIES]


def _repeats(text: str, at: int) -> bool:
    """Tell whether the same character, or the same two, stand on both sides."""
    return text[at - 1] == text[at] or (at > 1 and text[at - 2 : at] == text[at : at + 2])


@dataclass(slots=True, eq=False)
class _Run:
    """A text of one kind, tokenized by itself. `size` is the number of characters not yet counted."""

    kind: Kind
    pieces: list[str] = field(default_factory=list)
    size: int = 0
    window: int = _BATCH  # how much is encoded next; grows where no seam was found

    def text(self) -> str:
        if len(self.pieces) > 1:
            self.pieces = ["".join(self.pieces)]
        return self.pieces[0] if self.pieces else ""

    def drop(self, length: int) -> None:
        self.pieces = [self.text()[length:]]
        self.size -= length
        self.window = _BATCH


class TokenMeter:
    """Counts the tokens of the text of one response by kind. The text of one kind without interruption is one text for the
    tokenizer; another kind, or `split`, begins a new one. `feed` costs an append, and every few hundred characters the encoding
    of one batch, so that no call takes long; what a single huge piece leaves is worked off by later calls, or by `totals`."""

    def __init__(self, encode: Encode) -> None:
        """Begin at zero."""
        self._encode = encode
        self._counts: dict[Kind, int] = dict.fromkeys(KINDS, 0)
        self._runs: deque[_Run] = deque()  # the last one is open
        self._open: _Run | None = None

    def feed(self, kind: Kind, text: str) -> None:
        """Add the next piece of text."""
        run = self._open
        if run is None or run.kind != kind:
            run = self._begin(kind)
        run.pieces.append(text)
        run.size += len(text)
        if run.size >= run.window or len(self._runs) > 1:
            self._work()

    def split(self) -> None:
        """Begin another item: its text is not joined with the text before, though both may be of the same kind."""
        self._open = None

    def totals(self) -> dict[Kind, int]:
        """Return the tokens of each kind so far, as if the text ended here (it may continue)."""
        while self._runs and (self._runs[0] is not self._open or self._runs[0].size >= self._runs[0].window):
            self._work()
        totals = dict(self._counts)
        if self._runs:
            totals[self._runs[0].kind] += len(self._encode(self._runs[0].text()))
        return totals

    def _begin(self, kind: Kind) -> _Run:
        self._open = run = _Run(kind)
        self._runs.append(run)
        return run

    def _work(self) -> None:
        """Count one batch of the oldest text."""
        run = self._runs[0]
        if run.size <= run.window and run is not self._open:
            self._counts[run.kind] += len(self._encode(run.text()))
            self._runs.popleft()
            return
        text = run.text()[: run.window]
        piece = cut(self._encode, text)
        if piece is None and run.window < _LIMIT:
            run.window *= 2
            return
        piece = piece or _cut_anyway(self._encode, text)
        self._counts[run.kind] += len(piece.ids)
        run.drop(piece.at)
