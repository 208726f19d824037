"""Citations: the marks in the model's text by which it names a source become annotations.

The results of a search are shown to the model with numbers, and it has to write `【3】` behind what it takes from the third
source. Such a mark is taken out of the text while it streams, wherever the backend cuts it. gpt-oss adds more by itself
(`【3†L10-L12】`). Brackets around anything else than the number of a known source are text."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence

from responses_gateway.wire import chat
from responses_gateway.wire.chat import TokenLogprob
from responses_gateway.wire.deltas import Citation, Delta, Image, Text
from responses_gateway.wire.hosted import CitedSource

# A mark, with the space before it that the model would not have written without it.
_MARK = re.compile(r" ?【(\d{1,4}(?:\s*,\s*\d{1,4})*)(?:†[^【】\n]{0,60})?】")
# The end of a text that may be the beginning of a mark.
_BEGUN = re.compile(r" ?【[^【】\n]{0,90}$| $")
# Characters of the sentence before a mark: of a longer one the annotation has the end.
LONGEST_SENTENCE = 1000
MOST_CITED = 100  # sources that a server cites in one text
_SENTENCE_END = re.compile(r"[.!?。！？]\s+|[。！？]|\n")


class CitationReader:
    """Takes the marks out of the text of one response. To be used behind the counting of tokens."""

    __slots__ = ("_held", "_sources", "_spaced")

    def __init__(self, sources: Mapping[int, CitedSource]) -> None:
        """Begin without text. `sources` may grow."""
        self._sources = sources
        self._held = ""  # the end of the text so far, which may be the beginning of a mark
        self._spaced = False  # a mark was taken out with the space before it

    def read(self, deltas: list[Delta], _token_ids: Sequence[int] | None = None) -> list[Delta]:
        """Return the deltas with marks replaced by citations. Log probabilities of a text with a mark are left out."""
        if not self._sources:
            return deltas
        out: list[Delta] = []
        for delta in deltas:
            if type(delta) is Text and (self._held or self._spaced or "【" in delta.text or delta.text.endswith(" ")):
                self._read_text(delta, out)
                continue
            if type(delta) is not Text and self._held:
                out.append(Text(self._take()))
            out.append(delta)
        return out

    def finish(self) -> list[Delta]:
        """Return the text that was held for its rest."""
        held = self._take()
        return [Text(held)] if held else []

    def _take(self) -> str:
        held = self._held
        self._held = ""
        self._spaced = False
        return held

    def _read_text(self, delta: Text, out: list[Delta]) -> None:
        text = self._held + delta.text
        logprobs = delta.logprobs if not self._held else None
        begun = _BEGUN.search(text)
        self._held = text[begun.start() :] if begun is not None else ""
        text = text[: len(text) - len(self._held)]
        at = 0
        for mark in _MARK.finditer(text):
            numbers = [int(number) for number in mark[1].split(",")]
            if not all(number in self._sources for number in numbers):
                continue
            self._write(text[at : mark.start()], None, out)
            out += [Citation(number) for number in dict.fromkeys(numbers)]
            self._spaced = mark[0].startswith(" ")
            at = mark.end()
        self._write(text[at:], logprobs if not at else None, out)

    def _write(self, text: str, logprobs: list[TokenLogprob] | None, out: list[Delta]) -> None:
        if not text:
            return
        if self._spaced and text[0].isalnum():
            text = " " + text
        self._spaced = False
        out.append(Text(text, logprobs))


def attached(delta: chat.Delta) -> Iterator[Citation | Image]:
    """Yield the sources that a server cites which searches by itself, as OpenAI's chat API has them, and images."""
    if delta.images:
        yield Image()
    for annotation in delta.annotations[:MOST_CITED] if isinstance(delta.annotations, list) else ():
        match annotation:
            case {"type": "url_citation", "url_citation": {"url": str(url), **fields}}:
                title = fields.get("title")
                start = fields.get("start_index")
                end = fields.get("end_index")
                place = (start, end) if type(start) is int and type(end) is int and 0 <= start < end else (0, 0)
                yield Citation(0, CitedSource(0, title if isinstance(title, str) else "", url), *place)


def sentence_start(text: str) -> int:
    """Return where the sentence begins that ends at the end of a text."""
    end = len(text.rstrip(" .!?。！？\n"))
    start = 0
    for match in _SENTENCE_END.finditer(text, 0, end):
        start = match.end()
    return start
