"""Search services with an HTTP API: how each is asked, and where its results are."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import date, timedelta
from typing import Any, Literal

from responses_gateway.hosted.search.providers import Query

# SearXNG and Brave know four spans, in days.
_SPANS = ((1, "day"), (7, "week"), (31, "month"), (366, "year"))
_BRAVE_SPANS = {"day": "pd", "week": "pw", "month": "pm", "year": "py"}
# What Brave accepts at most, and how much of it domains may take from the question.
_BRAVE_RESULTS = 20
_BRAVE_CHARACTERS = 400
_BRAVE_WORDS = 50
_OPERATORS = 0.5
_TAVILY_RESULTS = 20
_TAVILY_CHARACTERS = 400
_EXA_CHARACTERS = 1000  # characters of text that Exa sends with each result


@dataclass(frozen=True, slots=True)
class ServiceRequest:
    """A request to a service, below its base URL."""

    path: str
    method: Literal["GET", "POST"] = "GET"
    params: Mapping[str, str] = field(default_factory=dict)
    body: Mapping[str, Any] | None = None
    headers: Mapping[str, str] = field(default_factory=dict)
    losses: Sequence[str] = ()


@dataclass(frozen=True, slots=True)
class SearchService:
    """One service: its base URL, if there is one for all, how it is asked, and the names of what it answers. `failed_in` is the
    list of engines behind it that did not answer. `escaped`: its texts are HTML."""

    name: str
    url: str | None
    needs_key: bool
    request: Callable[[Query, str, date], ServiceRequest]
    results_in: tuple[str, ...]
    text_in: tuple[str, ...]
    published_in: tuple[str, ...]
    failed_in: str = ""
    escaped: bool = False


def _searxng(query: Query, key: str, _today: date) -> ServiceRequest:
    params = {"q": " ".join([query.text, *_operators(query)]), "format": "json"}
    if query.recency is not None:
        params["time_range"] = _span(query.recency)
    headers = {"Authorization": f"Bearer {key}"} if key else {}
    losses = ["user_location: SearXNG cannot be told where the user is"] if any(query.location) else []
    return ServiceRequest("/search", params=params, headers=headers, losses=losses)


def _brave(query: Query, key: str, _today: date) -> ServiceRequest:
    text, losses = _brave_text(query)
    params = {"q": text, "count": str(min(query.results, _BRAVE_RESULTS)), "text_decorations": "false"}
    if query.recency is not None:
        params["freshness"] = _BRAVE_SPANS[_span(query.recency)]
    headers = {"X-Subscription-Token": key}
    location = query.location
    country = location.country.upper()
    places = {"City": location.city, "State-Name": location.region, "Country": country, "Timezone": location.timezone}
    headers |= {f"X-Loc-{name}": place for name, place in places.items() if place and place.isascii() and place.isprintable()}
    lost = [place for place in places.values() if place and place not in headers.values()]
    losses += ["user_location: Brave takes names in ASCII only"] if lost else []
    return ServiceRequest("/res/v1/web/search", params=params, headers=headers, losses=losses)


def _tavily(query: Query, key: str, today: date) -> ServiceRequest:
    body: dict[str, Any] = {"query": query.text[:_TAVILY_CHARACTERS], "max_results": min(query.results, _TAVILY_RESULTS)}
    if query.domains.allowed:
        body["include_domains"] = list(query.domains.allowed)
    if query.domains.blocked:
        body["exclude_domains"] = list(query.domains.blocked)
    if query.recency is not None:
        body["start_date"] = _day_before(today, query.recency)
    losses = ["user_location: Tavily takes the name of a country only"] if any(query.location) else []
    return ServiceRequest("/search", "POST", body=body, headers={"Authorization": f"Bearer {key}"}, losses=losses)


def _exa(query: Query, key: str, today: date) -> ServiceRequest:
    body: dict[str, Any] = {
        "query": query.text,
        "numResults": query.results,
        "contents": {"text": {"maxCharacters": _EXA_CHARACTERS}},
    }
    if query.domains.allowed:
        body["includeDomains"] = list(query.domains.allowed)
    if query.domains.blocked:
        body["excludeDomains"] = list(query.domains.blocked)
    if query.recency is not None:
        body["startPublishedDate"] = f"{_day_before(today, query.recency)}T00:00:00.000Z"
    location = query.location
    if location.country:
        body["userLocation"] = location.country.upper()
    lost = location.region or location.city or location.timezone
    losses = ["user_location: Exa takes the country only"] if lost else []
    return ServiceRequest("/search", "POST", body=body, headers={"x-api-key": key}, losses=losses)


SERVICES = {
    service.name: service
    for service in (
        SearchService("searxng", None, False, _searxng, ("results",), ("content",), ("publishedDate",), "unresponsive_engines"),
        SearchService(
            "brave", "https://api.search.brave.com", True, _brave, ("web", "results"), ("description", "extra_snippets"),
            ("page_age", "age"), escaped=True,
        ),
        SearchService("tavily", "https://api.tavily.com", True, _tavily, ("results",), ("content",), ("published_date",)),
        SearchService("exa", "https://api.exa.ai", True, _exa, ("results",), ("summary", "text"), ("publishedDate",)),
    )
}  # fmt: skip


def _operators(query: Query) -> list[str]:
    sites = " OR ".join(f"site:{domain}" for domain in query.domains.allowed)
    others = [f"-site:{domain}" for domain in query.domains.blocked]
    return [*([f"({sites})" if " " in sites else sites] if sites else []), *others]


def _brave_text(query: Query) -> tuple[str, list[str]]:
    """Return the text with the domains, as much as Brave accepts, and what is lost. Results of others are left out later."""
    operators = " ".join(_operators(query)).split()
    taken = len(" ".join(operators))
    losses = []
    if taken > _OPERATORS * _BRAVE_CHARACTERS or len(operators) > _OPERATORS * _BRAVE_WORDS:
        operators = []
        taken = 0
        losses.append("filters: Brave takes few domains, so that there may be fewer results")
    text = " ".join(query.text.split()[: _BRAVE_WORDS - len(operators)])
    return " ".join([text[: _BRAVE_CHARACTERS - taken - 1], *operators]), losses


def _span(days: int) -> str:
    return next((name for most, name in _SPANS if days <= most), "year")


def _day_before(today: date, days: int) -> str:
    return (today - timedelta(days=min(days, 36_500))).isoformat()
