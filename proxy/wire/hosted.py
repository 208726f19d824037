"""What a hosted call told the model, kept beside its item, so that the model can be told again in a later turn."""

from __future__ import annotations

from collections.abc import Iterable

import msgspec


class CitedSource(msgspec.Struct, frozen=True):
    """A source that may be cited by its number: a web page, or a file."""

    number: int
    title: str
    url: str | None = None
    file_id: str | None = None

    def annotation(self, start: int, end: int) -> dict[str, object]:
        """Return the annotation of the text between these indices, in code points."""
        if self.file_id is not None:
            return {"type": "file_citation", "file_id": self.file_id, "filename": self.title, "index": end}
        return {"type": "url_citation", "url": self.url or "", "title": self.title, "start_index": start, "end_index": end}


class KeptResult(msgspec.Struct, frozen=True):
    """The arguments of a call as the model wrote them, and the text that it got. `sources` may be cited from then on."""

    arguments: str
    text: str
    sources: tuple[CitedSource, ...] = ()

    def encode(self) -> bytes:
        """Return it as JSON."""
        return msgspec.json.encode(self)


decode_result = msgspec.json.Decoder(KeptResult).decode


def citable(sources: Iterable[CitedSource]) -> dict[int, CitedSource]:
    """Return the sources by number, without the numbers that several of them have: nobody can tell which one is meant."""
    found: dict[int, CitedSource] = {}
    ambiguous: set[int] = set()
    for source in sources:
        other = found.setdefault(source.number, source)
        if (other.url, other.file_id) != (source.url, source.file_id):
            ambiguous.add(source.number)
    return {number: source for number, source in found.items() if number not in ambiguous}
