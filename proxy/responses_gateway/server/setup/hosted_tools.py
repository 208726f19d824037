"""The hosted tools of the settings: the limits of their calls, and the access to the web."""

from __future__ import annotations

from responses_gateway.hosted.fetch import Fetcher
from responses_gateway.hosted.search.mcp_provider import CallerFor, McpProvider
from responses_gateway.hosted.search.pages import WebPages, html_packages
from responses_gateway.hosted.search.providers import Provider
from responses_gateway.hosted.search.service_provider import ServiceProvider
from responses_gateway.hosted.search.services import SERVICES
from responses_gateway.hosted.search.web import Web
from responses_gateway.hosted.tool_runner import HostedLimits
from responses_gateway.settings import Settings

# Until a container runs, on a busy machine, in seconds.
_STARTING = 15


def hosted_limits(settings: Settings) -> HostedLimits:
    """Return the limits of one response."""
    return HostedLimits(
        turns=settings.hosted_turns,
        calls=settings.hosted_calls,
        call_seconds=settings.hosted_call_timeout,
        # The sandbox stops code by itself, and keeps its files then.
        code_seconds=max(settings.hosted_call_timeout, settings.code_interpreter_timeout + _STARTING),
        total_seconds=settings.hosted_total_timeout,
        result_bytes=settings.hosted_result_bytes,
    )


def open_web(settings: Settings, caller_for: CallerFor | None = None) -> Web | None:
    """Return the access to the web; None without a search provider. `caller_for` returns what calls the MCP tool that the
    settings name. Call this inside the running event loop. Raise `ValueError` for settings that cannot be used."""
    name = settings.searches_with
    if name is None:
        return None
    html_packages()
    provider = _provider(name, settings, caller_for)
    fetcher = Fetcher(
        timeout=settings.web_fetch_timeout,
        max_bytes=settings.web_fetch_max_bytes,
        private_hosts=settings.web_fetch_private_hosts,
    )
    pages = WebPages(fetcher, timeout=settings.web_fetch_timeout)
    return Web(provider, pages, settings.web_search_results)


def _provider(name: str, settings: Settings, caller_for: CallerFor | None) -> Provider:
    if name.startswith("mcp:"):
        if caller_for is None:
            raise ValueError(f"web_search_provider: there is no MCP server for {name}")
        return McpProvider(caller_for)
    service = SERVICES[name]
    url = settings.web_search_url or service.url
    key = settings.web_search_api_key
    if url is None:
        raise ValueError(f"web_search_provider: {name} needs the setting web_search_url, such as http://searxng:8080")
    if key is None and service.needs_key:
        raise ValueError(f"web_search_provider: {name} needs the setting web_search_api_key")
    return ServiceProvider(service, url=url, key=key.get_secret_value() if key else "", timeout=settings.web_fetch_timeout)
