"""Searches with a tool of an MCP server. There is no convention for what such a tool answers: the usual shapes are read."""

from __future__ import annotations

import json
import re
from collections.abc import Awaitable, Callable, Iterator, Mapping
from typing import Any

from proxy.hosted.search.providers import Found, Query, Results, is_web_url

# Calls the tool with arguments; returns its text and its structured content, if there is any. Raises `ToolFailure`.
CallTool = Callable[[Mapping[str, Any]], Awaitable[tuple[str, Any]]]
# Returns what calls it for a tenant, over a connection that no other tenant has.
CallerFor = Callable[[str], CallTool]

_URL_IN_TEXT = re.compile(r"https?://[^\s<>\"'()\[\]]{1,2048}", re.IGNORECASE)
_MOST_RESULTS = 100
_LONGEST_TEXT = 40_000
_LONGEST_FIELD = 4000
# Names that servers use for the same.
_LISTS = ("results", "items", "data", "organic", "web")
_URLS = ("url", "link", "href")
_TITLES = ("title", "name")
_TEXTS = ("content", "snippet", "description", "text", "body", "summary")
_LOSSES = {
    "recency": "recency: the MCP tool is given the query alone",
    "location": "user_location: the MCP tool is given the query alone",
}


class McpProvider:
    """Searches with one tool, which gets the query as `query`."""

    def __init__(self, caller_for: CallerFor) -> None:
        self._caller_for = caller_for

    async def close(self) -> None:
        """Do nothing: the connection is another's."""

    async def search(self, query: Query) -> Results:
        """Return the results in the tool's answer, or its text as it is. Raise `ToolFailure`."""
        text, structured = await self._caller_for(query.tenant)({"query": query.text})
        losses = [_LOSSES["recency"]] if query.recency is not None else []
        losses += [_LOSSES["location"]] if any(query.location) else []
        found = list(_results(structured)) or list(_results(_decoded(text)))
        if found:
            return Results(found, losses=losses)
        urls = dict.fromkeys(url.rstrip(".,;:") for url in _URL_IN_TEXT.findall(text[:_LONGEST_TEXT]))
        mentioned = [Found(url, url, "") for url in list(urls)[:_MOST_RESULTS]]
        return Results(mentioned, text[:_LONGEST_TEXT], losses)


def _decoded(text: str) -> Any:
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        return None


def _results(content: Any) -> Iterator[Found]:
    for _ in range(3):  # such as {"data": {"web": [...]}}
        if isinstance(content, dict):
            content = next((content[name] for name in _LISTS if isinstance(content.get(name), list | dict)), None)
    for entry in content[:_MOST_RESULTS] if isinstance(content, list) else ():
        url = _field(entry, _URLS)
        if is_web_url(url):
            yield Found(_field(entry, _TITLES) or url, url, _field(entry, _TEXTS))


def _field(entry: Any, names: tuple[str, ...]) -> str:
    values = (entry.get(name) for name in names) if isinstance(entry, dict) else ()
    return next((value[:_LONGEST_FIELD] for value in values if isinstance(value, str) and value), "")
