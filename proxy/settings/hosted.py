"""Tools that the gateway runs itself."""

from __future__ import annotations

import re

from pydantic import ByteSize, Field, SecretStr, field_validator

from proxy.settings.section import Seconds, Section, TextList

SEARCH_SERVICES = ("searxng", "brave", "tavily", "exa")
_MCP_TOOL = re.compile(r"mcp:[^/\s]+/\S+")
_SERVICE_URL = re.compile(r"https?://[^/?#@\s]+(/[^?#@\s]*)?", re.IGNORECASE)
_PRIVATE_HOST = re.compile(r"(\[[0-9a-f:.]+\]|[a-z0-9_-]+(\.[a-z0-9_-]+)*)(:[0-9]{1,5})?", re.IGNORECASE)


class Hosted(Section):
    """Tools that the gateway runs itself."""

    title = "Hosted tools"

    web_search_provider: str | None = Field(
        default=None,
        description="Who searches the web: `searxng`, `brave`, `tavily`, `exa`, or a tool of an MCP server as "
        "`mcp:LABEL/TOOL`. By default `searxng` if `web_search_url` is set; otherwise there is no web search. See "
        "docs/hosted-tools.md.",
    )
    web_search_url: str | None = Field(
        default=None,
        description="Base URL of the search service, for example `http://searxng:8080`; by default that of the provider. "
        "SearXNG has none: give yours, with the format `json` enabled.",
    )
    web_search_api_key: SecretStr | None = Field(
        default=None, description="Key for Brave, Tavily or Exa. Prefer the environment to the flag."
    )
    web_search_results: int = Field(
        default=8,
        ge=1,
        le=20,
        description="Number of results of a search; half as many for `search_context_size: low`, twice as many for `high`.",
    )
    web_fetch_timeout: Seconds = Field(
        default=15, gt=0, description="Maximum time for a search, and for fetching and reading a page."
    )
    web_fetch_max_bytes: ByteSize = Field(
        default=ByteSize(5_000_000),
        ge=10_000,
        description="Maximum size of a page, compressed or not. Of a larger one the beginning is read.",
    )
    web_fetch_private_hosts: TextList = Field(
        default=[],
        description="Hosts whose pages may be read though their addresses are private, such as `wiki.example.lan` or "
        "`10.1.2.3:8080`; without a port, all ports of the host. By default only public addresses are fetched.",
    )

    @property
    def searches_with(self) -> str | None:
        """The provider that is used, or None if there is no web search."""
        return self.web_search_provider or ("searxng" if self.web_search_url else None)

    @field_validator("web_search_provider")
    @classmethod
    def _check_provider(cls, value: str | None) -> str | None:
        if value is not None and value not in SEARCH_SERVICES and not _MCP_TOOL.fullmatch(value):
            raise ValueError(f"expected one of {', '.join(SEARCH_SERVICES)}, or mcp:LABEL/TOOL")
        return value

    @field_validator("web_search_url")
    @classmethod
    def _check_search_url(cls, value: str | None) -> str | None:
        if value is None:
            return None
        if not _SERVICE_URL.fullmatch(value):
            raise ValueError("expected a URL without user, query and fragment, such as http://searxng:8080")
        return value.rstrip("/")

    @field_validator("web_fetch_private_hosts")
    @classmethod
    def _check_private_hosts(cls, value: list[str]) -> list[str]:
        for host in value:
            if not _PRIVATE_HOST.fullmatch(host):
                raise ValueError("a host is a name or an address, optionally with a port: wiki.example.lan, 10.1.2.3:8080")
        return [host.lower() for host in value]
