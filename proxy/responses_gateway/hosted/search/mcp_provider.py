"""Searches the web with a tool of an MCP server."""

from __future__ import annotations

import re
from collections.abc import Callable

from responses_gateway.hosted.mcp.search_results import SearchResult, read_results
from responses_gateway.hosted.mcp.servers import ToolCaller
from responses_gateway.hosted.search.providers import Query, Results, WebResult, is_web_url

# Returns what calls the tool for a tenant, over a connection that no other tenant has.
CallerFor = Callable[[str], ToolCaller]

_URL_IN_TEXT = re.compile(r"https?://[^\s<>\"'()\[\]]{1,2048}", re.IGNORECASE)
_MOST_URLS = 100
_LONGEST_TEXT = 40_000
# Characters of the text of a result.
_LONGEST_FIELD = 4000
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
        for results in read_results(text, structured):
            pages = [_found(result) for result in results if is_web_url(result.url)]
            if pages:
                return Results(pages, losses=losses)
        urls = dict.fromkeys(url.rstrip(".,;:") for url in _URL_IN_TEXT.findall(text[:_LONGEST_TEXT]))
        mentioned = [WebResult(url, url, "") for url in list(urls)[:_MOST_URLS]]
        return Results(mentioned, text[:_LONGEST_TEXT], losses)


def _found(result: SearchResult) -> WebResult:
    return WebResult(result.title or result.url, result.url, result.text[:_LONGEST_FIELD])
