"""Read what the tool of an MCP server found in files.

Understood are, as structured content or as JSON in the text:

- `{"results": [{"id", "title", "text", "url"?}]}`, the convention for tools named `search`; - `{"data": [{"file_id",
"filename", "score", "attributes", "content": [{"type": "text", "text"}]}]}`, as a vector store answers; - a list of such
entries, with these names or `name`, `snippet`, `content`, `metadata`.

Any other text is one result."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

_LISTS = ("results", "data", "documents", "matches", "result")
_IDS = ("file_id", "id", "document_id", "uri", "path")
_NAMES = ("filename", "title", "name", "path")
_TEXTS = ("text", "content", "snippet", "chunk", "page_content", "summary")
_SCORES = ("score", "similarity", "relevance")
_ATTRIBUTES = ("attributes", "metadata")
_MOST_RESULTS = 500
_LONGEST_NAME = 512
_MOST_ATTRIBUTES = 16
_LONGEST_KEY = 64


class Found(NamedTuple):
    """One result: a passage of a file."""

    file_id: str
    filename: str
    text: str
    score: float | None
    attributes: Mapping[str, str | float | bool]
    url: str | None = None

    def as_item(self) -> dict[str, Any]:
        """Return the result as an entry of a `file_search_call` item."""
        members: dict[str, Any] = {
            "attributes": dict(self.attributes), "file_id": self.file_id, "filename": self.filename, "text": self.text
        }  # fmt: skip
        return members if self.score is None else {**members, "score": self.score}


def read_found(text: str, structured: Any, source: str) -> list[Found]:
    """Return the results of a call. `source` names what has no name: the tool."""
    entries = _entries(structured)
    if entries is None:
        entries = _entries(_parsed(text))
    if entries is None:
        return [Found(source, source, text.strip(), None, {})] if text.strip() else []
    found = (_found(entry, source, number) for number, entry in enumerate(entries[:_MOST_RESULTS], 1))
    return [result for result in found if result is not None]


def _parsed(text: str) -> Any:
    if text.lstrip()[:1] not in ("{", "["):
        return None
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        return None


def _entries(value: Any) -> list[Any] | None:
    if isinstance(value, list):
        return value
    if isinstance(value, dict):
        for name in _LISTS:
            if name in value:
                return _entries(value[name])
    return None


def _found(entry: Any, source: str, number: int) -> Found | None:
    if isinstance(entry, str):
        return Found(f"{source}#{number}", source, entry, None, {}) if entry.strip() else None
    if not isinstance(entry, dict):
        return None
    filename = _word(entry, _NAMES)
    file_id = _word(entry, _IDS) or filename or f"{source}#{number}"
    text = next((found for name in _TEXTS if (found := _text(entry.get(name)))), "")
    attributes = next((_attributes(entry[name]) for name in _ATTRIBUTES if isinstance(entry.get(name), dict)), {})
    url = entry.get("url")
    return Found(file_id, filename or file_id, text, _score(entry), attributes, url if isinstance(url, str) and url else None)


def _word(entry: Mapping[str, Any], names: Sequence[str]) -> str | None:
    for name in names:
        value = entry.get(name)
        if isinstance(value, str | int) and not isinstance(value, bool) and str(value).strip():
            return " ".join(str(value).split())[:_LONGEST_NAME]
    return None


def _text(value: Any) -> str:
    """Return a text, or the texts of a list of parts."""
    if isinstance(value, str):
        return value
    if isinstance(value, list):
        return "\n".join(part for part in (_text(entry) for entry in value[:_MOST_RESULTS]) if part)
    if isinstance(value, dict) and isinstance(value.get("text"), str):
        return str(value["text"])
    return ""


def _score(entry: Mapping[str, Any]) -> float | None:
    for name in _SCORES:
        value = entry.get(name)
        if isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value):
            return float(value)
    return None


def _attributes(value: Mapping[str, Any]) -> dict[str, str | float | bool]:
    found: dict[str, str | float | bool] = {}
    for name, content in value.items():
        if len(found) == _MOST_ATTRIBUTES or len(name) > _LONGEST_KEY:
            continue
        if isinstance(content, str):
            found[name] = content[:_LONGEST_NAME]
        elif isinstance(content, bool) or (isinstance(content, int | float) and math.isfinite(content)):
            found[name] = content
    return found
