"""What search providers are asked, and what they answer."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import NamedTuple, Protocol
from urllib.parse import urlsplit

from responses_gateway.hosted.mcp.search_results import SearchResult, read_results
from responses_gateway.hosted.mcp.servers import ToolCaller

_WEB_URL = re.compile(r"https?://[^\s<>\"]{1,2048}", re.IGNORECASE)
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


class Domains(NamedTuple):
    """Domains, each with those below it, that results and pages may come from. Without `allowed` all are."""

    allowed: tuple[str, ...] = ()
    blocked: tuple[str, ...] = ()

    def allow(self, url: str) -> bool:
        """Tell whether a URL may be used."""
        host = _host(url).removesuffix(".")
        if any(_is_below(host, domain) for domain in self.blocked):
            return False
        return not self.allowed or any(_is_below(host, domain) for domain in self.allowed)


class Location(NamedTuple):
    """Where the user is, as far as is known. `country` has two letters (ISO 3166-1)."""

    country: str = ""
    region: str = ""
    city: str = ""
    timezone: str = ""


ANY_DOMAIN = Domains()
ANYWHERE = Location()


@dataclass(frozen=True, slots=True)
class Query:
    """One search, for one tenant. `recency` is in days."""

    text: str
    results: int
    domains: Domains = ANY_DOMAIN
    recency: int | None = None
    location: Location = ANYWHERE
    tenant: str = ""


class WebResult(NamedTuple):
    """One result."""

    title: str
    url: str
    text: str
    published: str = ""


@dataclass(frozen=True, slots=True)
class Results:
    """The answer to a search. `text` is there if the provider answers in its own words. `losses` names what it cannot do."""

    found: Sequence[WebResult]
    text: str = ""
    losses: Sequence[str] = ()


class Provider(Protocol):
    """Searches the web. It is asked several things at once."""

    async def search(self, query: Query) -> Results:
        """Return results, the best first. Domains need not be respected: they are checked afterwards. Raise `ToolFailure`."""

    async def close(self) -> None:
        """Close the connections."""


def is_web_url(text: str) -> bool:
    """Tell whether a text is the URL of a web page, and nothing else."""
    return _WEB_URL.fullmatch(text) is not None


def domain_name(text: str) -> str:
    """Return the domain that a filter names: clients also send URLs, or a wildcard before it."""
    name = _host(text) if "://" in text else text.partition("/")[0]
    return name.strip().lower().removeprefix("*.").strip(".")


def _host(url: str) -> str:
    try:
        return urlsplit(url).hostname or ""
    except ValueError:
        return ""


def _is_below(host: str, domain: str) -> bool:
    return host == domain or host.endswith(f".{domain}")


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
