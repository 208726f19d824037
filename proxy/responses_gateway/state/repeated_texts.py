"""Long texts that many responses repeat, such as instructions and tools: each is stored once for each tenant.

Where a text was, `MARK` stands: JSON never contains that character. The texts of a response are a history of their own (see
`histories.py`), so responses with the same ones share it, and it goes with the last of them."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import cycle
from typing import AnyStr

from responses_gateway.state import histories
from responses_gateway.state.interfaces import Sql
from responses_gateway.state.records import Place

MARK = "\x1f"
_MARK = MARK.encode()
_BEGINNING = 64
_ESCAPED = "\\u001f"


def save(sql: Sql, tenant: str, texts: Sequence[str]) -> Place:
    """Store texts, or find them. Return the place of the last one."""
    return histories.append_texts(sql, tenant, texts)


def load(sql: Sql, place: Place) -> list[str]:
    """Return the texts up to a place."""
    return histories.texts(sql, place)


def shortened(text: str, repeated: Sequence[str]) -> str:
    """Replace repeated texts, which occur in their order, perhaps several times over."""
    return _shortened(text.replace(MARK, _ESCAPED), repeated, MARK) if repeated else text


def restored(text: str, repeated: Sequence[str]) -> str:
    """Return what was shortened."""
    return _restored(text, repeated, MARK) if repeated else text


def shortened_events(data: bytes, repeated: Sequence[str]) -> bytes:
    """Replace repeated texts in events."""
    if not repeated:
        return data
    return _shortened(data.replace(_MARK, _ESCAPED.encode()), [text.encode() for text in repeated], _MARK)


def restored_events(data: bytes, repeated: Sequence[str]) -> bytes:
    """Return the events that were shortened."""
    return _restored(data, [text.encode() for text in repeated], _MARK) if repeated else data


def is_shortened(data: bytes) -> bool:
    """Tell whether events may have been shortened."""
    return _MARK in data


def _shortened(text: AnyStr, repeated: Sequence[AnyStr], mark: AnyStr) -> AnyStr:
    pieces: list[AnyStr] = []
    begin = 0
    for wanted in cycle(repeated):
        found = _find(text, wanted, begin)
        if found < 0:
            break
        pieces.append(text[begin:found])
        begin = found + len(wanted)
    pieces.append(text[begin:])
    return mark.join(pieces)


def _find(text: AnyStr, wanted: AnyStr, begin: int) -> int:
    """Find a long text. Its beginning is usually enough, and looking for that costs much less."""
    found = text.find(wanted[:_BEGINNING], begin)
    return found if found < 0 or text.startswith(wanted, found) else text.find(wanted, found)


def _restored(text: AnyStr, repeated: Sequence[AnyStr], mark: AnyStr) -> AnyStr:
    pieces = text.split(mark)
    whole = pieces[:1]
    for each, piece in zip(cycle(repeated), pieces[1:], strict=False):
        whole += [each, piece]
    return mark[:0].join(whole)
