"""Read what a tool of an MCP server found, in the web or in files.

There is no convention that all servers keep. Understood are, as structured content or as JSON in the text:

- `{"results": [{"id", "title", "text", "url"?}]}`, as tools named `search` answer;
- `{"data": [{"file_id", "filename", "score", "attributes", "content": [{"type": "text", "text"}]}]}`, as vector stores do;
- a list of such entries, with the names below, also one or two objects deeper (`{"data": {"web": [...]}}`)."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from responses_gateway.wire.json_text import plain_json

# Names that servers use for the same, the more usual first.
_LISTS = ("results", "data", "items", "documents", "matches", "organic", "web", "result")
_IDS = ("file_id", "id", "document_id", "uri", "path")
_TITLES = ("filename", "title", "name", "path")
_TEXTS = ("text", "content", "snippet", "description", "chunk", "page_content", "body", "summary")
_URLS = ("url", "link", "href")
_SCORES = ("score", "similarity", "relevance")
_ATTRIBUTES = ("attributes", "metadata")
# Objects around the list of results.
_DEEPEST = 4
_MOST_RESULTS = 500
# Commas and brackets in a text that is read as JSON: there are no more values than these.
_MOST_VALUES = 50_000
# Characters of an id, a title, an attribute; of a URL; of the name of an attribute.
_LONGEST_FIELD = 512
_LONGEST_URL = 4000
_LONGEST_KEY = 64
_MOST_ATTRIBUTES = 16


class SearchResult(NamedTuple):
    """One result. What the server does not say is empty or None."""

    id: str = ""
    title: str = ""
    text: str = ""
    url: str = ""
    score: float | None = None
    attributes: Mapping[str, str | float | bool] = {}


def read_results(text: str, structured: Any) -> Iterator[list[SearchResult]]:
    """Yield the results in the structured content of a tool's answer, then those in its text: each only if there is a list of
    results, which may be empty."""
    yield from _lists(structured)
    yield from _lists(_parsed(text))


def _lists(content: Any) -> Iterator[list[SearchResult]]:
    entries = _entries(content)
    if entries is not None:
        yield [result for result in map(_result, entries[:_MOST_RESULTS]) if result is not None]


def _parsed(text: str) -> Any:
    if text.lstrip()[:1] not in ("{", "[") or sum(map(text.count, ",[{")) > _MOST_VALUES:
        return None
    return plain_json(text)


def _entries(content: Any) -> list[Any] | None:
    """Return the list of results in an answer, which may be an object within objects; None if there is none."""
    for _ in range(_DEEPEST):
        if not isinstance(content, dict):
            break
        content = next((content[name] for name in _LISTS if isinstance(content.get(name), list | dict)), None)
    return content if isinstance(content, list) else None


def _result(entry: Any) -> SearchResult | None:
    if isinstance(entry, str):
        return SearchResult(text=entry) if entry.strip() else None
    if not isinstance(entry, dict):
        return None
    return SearchResult(
        _word(entry, _IDS),
        _word(entry, _TITLES),
        next(filter(None, (_text(entry.get(name)) for name in _TEXTS)), ""),
        next((url[:_LONGEST_URL] for name in _URLS if isinstance(url := entry.get(name), str) and url), ""),
        _score(entry),
        next((_attributes(entry[name]) for name in _ATTRIBUTES if isinstance(entry.get(name), dict)), {}),
    )


def _word(entry: Mapping[str, Any], names: Sequence[str]) -> str:
    """Return the first text or number with one of these names, in one line."""
    for name in names:
        value = entry.get(name)
        if isinstance(value, str | int) and not isinstance(value, bool) and str(value).strip():
            return " ".join(str(value).split())[:_LONGEST_FIELD]
    return ""


def _text(value: Any) -> str:
    """Return a text, or the texts of a list of parts."""
    parts = value[:_MOST_RESULTS] if isinstance(value, list) else [value]
    texts = (part.get("text") if isinstance(part, dict) else part for part in parts)
    return "\n".join(text for text in texts if isinstance(text, str) and text)


def _score(entry: Mapping[str, Any]) -> float | None:
    return next((float(entry[name]) for name in _SCORES if _is_number(entry.get(name))), None)


def _is_number(value: Any) -> bool:
    """Tell whether a value is a number that JSON and floats can represent."""
    try:
        return isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value)
    except OverflowError:  # an integer of hundreds of digits
        return False


def _attributes(value: Mapping[str, Any]) -> dict[str, str | float | bool]:
    attributes: dict[str, str | float | bool] = {}
    for name, content in value.items():
        if len(attributes) == _MOST_ATTRIBUTES or len(name) > _LONGEST_KEY:
            continue
        if isinstance(content, str):
            attributes[name] = content[:_LONGEST_FIELD]
        elif isinstance(content, bool) or _is_number(content):
            attributes[name] = content
    return attributes
