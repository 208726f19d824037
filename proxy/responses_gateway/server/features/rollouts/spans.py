"""Which of the sampled tokens are those of each item: exact, or not told.

The texts of the tokens, which come with their log probabilities, show where markers stand. What is between two markers has to
be what the item says, and each item has to have its place: so the spans are the same however an answer was cut into chunks."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Literal, NamedTuple, TypeAlias

import msgspec

from responses_gateway.parsers import item_markers
from responses_gateway.server.features.rollouts.token_prompt import ENDS
from responses_gateway.stream.sampling import SampledCall, SampledTokens

Kind: TypeAlias = Literal["reasoning", "message", "call"]
_KINDS: Mapping[str, Kind] = {"reasoning": "reasoning", "message": "message"}
# How the last token looks if the model has ended by itself. Not every server sends it, or its text.
_END_TOKEN = re.compile(r"<[^<>]+>|\[[^\[\]]+\]")
# A call without markers: there is nothing else in the answer.
_BARE_CALL = re.compile(r"[\[{].*[\]}]", re.DOTALL)
# A part of a character: its text comes with the last of its tokens, or not at all.
_BROKEN = re.compile("\ufffd+")


class ItemSpan(msgspec.Struct, frozen=True, rename={"start": "from", "end": "to"}):
    """The tokens of an item, from the first one to the one behind the last, without the markers and the white space around."""

    item_id: str
    start: int
    end: int


class _Segment(NamedTuple):
    """What stands between two markers. `kind` is None at the beginning, where the prompt may have opened a thought."""

    kind: Kind | None
    start: int
    end: int


def shown(call: SampledCall, items: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """Return what a client gets of a call that made these items: the members that NeMo Gym reads, all of them or none, and the
    spans of the items."""
    tokens = call.tokens()
    if tokens.prompt is None or tokens.ids is None or tokens.log_probs is None:
        return {}
    return {
        "prompt_token_ids": tokens.prompt.tolist(),
        "generation_token_ids": tokens.ids.tolist(),
        "generation_log_probs": tokens.log_probs.tolist(),
        "item_spans": item_spans(call.texts, tokens, items),
    }


def item_spans(texts: Sequence[str], tokens: SampledTokens, items: Sequence[Mapping[str, Any]]) -> list[ItemSpan] | None:
    """Return the spans of the items of an answer, given the text of each token. None where they are not certain."""
    if tokens.ids is None or len(texts) != len(tokens.ids):
        return None
    segments = list(_segments(texts, ended=tokens.finish_reason in ENDS))
    if len(segments) != len(items):
        return None
    spans: list[ItemSpan] = []
    for segment, item in zip(segments, items, strict=True):
        kind = _KINDS.get(item["type"], "call")
        text = "".join(texts[segment.start : segment.end]).strip()
        if segment.kind is None and kind == "call":
            fits = _BARE_CALL.fullmatch(text) is not None
        else:
            fits = segment.kind in (kind, None)
        if not fits or not _says(text, kind, item):
            return None
        spans.append(ItemSpan(item["id"], segment.start, segment.end))
    return spans


def _segments(texts: Sequence[str], *, ended: bool) -> Iterator[_Segment]:
    """Divide tokens at the markers. White space alone is no segment."""
    markers = item_markers()
    kind: Kind | None = None
    start = 0
    for place, text in enumerate(texts):
        if text in markers:
            yield from _trimmed(texts, _Segment(kind, start, place))
            kind = markers[text]
            start = place + 1
    end = len(texts)
    if ended and end > start and _END_TOKEN.fullmatch(texts[-1]) is not None:
        end -= 1
    yield from _trimmed(texts, _Segment(kind, start, end))


def _trimmed(texts: Sequence[str], segment: _Segment) -> Iterator[_Segment]:
    kind, start, end = segment
    while start < end and not texts[start].strip():
        start += 1
    while start < end and not texts[end - 1].strip():
        end -= 1
    if start < end:
        yield _Segment(kind, start, end)


def _says(written: str, kind: Kind, item: Mapping[str, Any]) -> bool:
    """Tell whether tokens are those of an item: they spell a text; of a call they have its name, since servers write its
    arguments anew."""
    if kind == "call":
        return str(item.get("name") or "") in written
    text = "".join(part.get("text") or part.get("refusal") or "" for part in item["content"]).strip()
    first, *others = _BROKEN.split(written)
    if not others:
        return text == first
    last = others.pop()
    if not text.startswith(first) or not text.endswith(last):
        return False
    place = len(first)
    for piece in others:
        place = text.find(piece, place)
        if place < 0:
            return False
        place += len(piece)
    return place + len(last) <= len(text)
