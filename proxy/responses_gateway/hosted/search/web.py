"""Access to the web: one search provider, and pages."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal

from responses_gateway.hosted.interface import ToolFailure
from responses_gateway.hosted.search.page import WebPage
from responses_gateway.hosted.search.pages import WebPages
from responses_gateway.hosted.search.providers import (
    ANY_DOMAIN,
    ANYWHERE,
    Domains,
    Location,
    Provider,
    Query,
    Results,
    WebResult,
    domain_name,
    is_web_url,
)

ContextSize = Literal["low", "medium", "high"]
_MOST_DOMAINS = 100
_LONGEST_NAME = 253
_LONGEST_QUERY = 1000


@dataclass(frozen=True, slots=True)
class SearchOptions:
    """What a request asks of all its searches. `page_domains`: those of the pages that are opened, if they are others than
    those that are searched. `pages_allowed`: pages may be opened, not just found. `most_queries` and `most_pages`: how many may
    be searched for and opened, where the request has a limit."""

    domains: Domains = ANY_DOMAIN
    location: Location = ANYWHERE
    context_size: ContextSize = "medium"
    pages_allowed: bool = True
    page_domains: Domains | None = None
    most_queries: int | None = None
    most_pages: int | None = None


@dataclass(frozen=True, slots=True)
class Amounts:
    """How much a model gets, in characters: of each result, and of a page."""

    result: int
    page: int


AMOUNTS: dict[ContextSize, Amounts] = {
    "low": Amounts(300, 8_000),
    "medium": Amounts(800, 20_000),
    "high": Amounts(2_000, 50_000),
}


class Web:
    """The access to the web of one process."""

    def __init__(self, provider: Provider, pages: WebPages, results: int) -> None:
        """`results` is the number of results of a search of medium size."""
        self._provider = provider
        self._pages = pages
        self._results = results

    async def close(self) -> None:
        """Close all connections."""
        await self._provider.close()
        await self._pages.close()

    async def search(
        self, text: str, options: SearchOptions, tenant: str, *, recency: int | None = None, domains: Domains | None = None
    ) -> Results:
        """Return the results of one search; `domains` replaces those of the options. Raise `ToolFailure`."""
        if not text.strip():
            raise ToolFailure("The query is empty: nothing was searched.")
        wanted = {"low": max(1, self._results // 2), "medium": self._results, "high": 2 * self._results}
        chosen = options.domains if domains is None else domains
        most = wanted[options.context_size]
        query = Query(text.strip()[:_LONGEST_QUERY], most, chosen, recency, options.location, tenant)
        results = await self._provider.search(query)
        allowed: dict[str, WebResult] = {}
        for result in results.found:
            if chosen.allow(result.url) and options.domains.allow(result.url):
                allowed.setdefault(result.url, result)
        words = results.text
        losses = list(results.losses)
        if words and (any(chosen) or any(options.domains)):  # nobody can tell from which domains they are
            words = ""
            losses.append("text of the search tool: left out, because results of some domains only are allowed")
        return Results(list(allowed.values())[: query.results], words, losses)

    async def open(self, url: str, options: SearchOptions, tenant: str) -> WebPage:
        """Return a page. Raise `ToolFailure`."""
        if not options.pages_allowed:
            raise ToolFailure("Pages cannot be opened in this session: only search results may be used.")
        if not is_web_url(url):
            raise ToolFailure("This is not the URL of a web page: give one that begins with https:// or http://.")
        self._check(url, options)
        page = await self._pages.open(url, tenant)
        self._check(page.url, options)
        return page

    def _check(self, url: str, options: SearchOptions) -> None:
        domains = options.domains if options.page_domains is None else options.page_domains
        if not domains.allow(url):
            allowed = ", ".join(domains.allowed[:10])
            raise ToolFailure(f"Pages of this domain may not be read here.{f' Allowed are: {allowed}.' if allowed else ''}")


def search_options(tool: Mapping[str, Any]) -> SearchOptions:
    """Return the options in a declared `web_search` tool or the settings of Codex. What is of another type counts as absent."""
    filters = tool.get("filters")
    filters = filters if isinstance(filters, Mapping) else {}
    size = tool.get("search_context_size")
    return SearchOptions(
        domains=Domains(domain_names(filters.get("allowed_domains")), domain_names(filters.get("blocked_domains"))),
        location=_location(tool.get("user_location")),
        context_size=size if isinstance(size, str) and size in AMOUNTS else "medium",
        pages_allowed=tool.get("external_web_access") in (None, True),
    )


def domain_names(value: object) -> tuple[str, ...]:
    """Return the domains in a list of texts."""
    texts = [text for text in value if isinstance(text, str)] if isinstance(value, list) else []
    names = (domain_name(text[: 2 * _LONGEST_NAME]) for text in texts[:_MOST_DOMAINS])
    return tuple(dict.fromkeys(name for name in names if name and not name.isspace()))


def _location(value: object) -> Location:
    if not isinstance(value, Mapping):
        return Location()
    place = value.get("approximate", value)  # nested in the chat API's declaration
    place = place if isinstance(place, Mapping) else {}
    fields = {name: place.get(name) for name in Location._fields}
    return Location(**{name: text[:100] for name, text in fields.items() if isinstance(text, str)})
