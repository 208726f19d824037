"""Asks a search service over HTTP. Its answer may be anything: its size, types and time are bounded."""

from __future__ import annotations

import asyncio
import html
import re
from collections.abc import Callable, Iterator
from datetime import UTC, date, datetime
from typing import Any

import aiohttp
import msgspec

from responses_gateway.hosted.fetch import read_bounded
from responses_gateway.hosted.interface import ToolFailure
from responses_gateway.hosted.search.providers import Query, Results, WebResult, is_web_url
from responses_gateway.hosted.search.services import SearchService, ServiceRequest
from responses_gateway.wire.json_text import with_whole_characters

_MOST_BYTES = 2 * 1024 * 1024
# Results that are looked at, and characters that are kept of each field.
_MOST_RESULTS = 100
_LONGEST_FIELD = 4000
_TAG = re.compile(r"</?[a-z]{1,10}>", re.IGNORECASE)
_HEADERS = {"Accept": "application/json", "Accept-Encoding": "gzip, deflate", "User-Agent": "responses-gateway"}


def _today() -> date:
    return datetime.now(UTC).date()


class ServiceProvider:
    """Searches with one service. Create it inside the running event loop, and close it."""

    def __init__(
        self, service: SearchService, *, url: str, key: str, timeout: float, today: Callable[[], date] = _today
    ) -> None:
        """`url` is the base URL without a slash at its end, `timeout` in seconds."""
        self._service = service
        self._url = url
        self._key = key
        self._timeout = timeout
        self._today = today
        self._session = aiohttp.ClientSession(
            cookie_jar=aiohttp.DummyCookieJar(), auto_decompress=False, timeout=aiohttp.ClientTimeout(total=None)
        )

    async def close(self) -> None:
        """Close the connections."""
        await self._session.close()

    async def search(self, query: Query) -> Results:
        """Return the results of one search. Raise `ToolFailure`."""
        request = self._service.request(query, self._key, self._today())
        try:
            async with asyncio.timeout(self._timeout):
                data = await self._ask(request)
        except TimeoutError:
            raise ToolFailure(f"The search service did not answer within {self._timeout:g} seconds. Try again.") from None
        except (aiohttp.ClientError, OSError, ValueError):
            raise ToolFailure("The search service cannot be reached at the moment. Go on without it, or try later.") from None
        return Results(_read(data, self._service), losses=request.losses)

    async def _ask(self, request: ServiceRequest) -> bytes:
        async with self._session.request(
            request.method,
            self._url + request.path,
            params=request.params,
            json=request.body,
            headers={**_HEADERS, **request.headers},
            allow_redirects=False,  # another server would get the key
        ) as answer:
            if answer.status != 200:
                raise ToolFailure(_refusal(answer.status))
            data, cut = await read_bounded(answer, _MOST_BYTES)
            if cut:
                raise ToolFailure("The answer of the search service is too large. Ask for something else.")
            return data


def _refusal(status: int) -> str:
    if status in (401, 403):
        return (
            f"The search service refuses the gateway (status {status}): web search is not available. Its operator has to check "
            "the key, and for SearXNG that the format json is enabled."
        )
    if status in (402, 432, 433):
        return f"The search service has no credit left (status {status}): web search is not available until its operator acts."
    if status == 429:
        return "The search service has had too many requests. Wait, or go on without it."
    return f"The search service answered with status {status}. Go on without it, or try later."


def _read(data: bytes, service: SearchService) -> list[WebResult]:
    """Return the results in an answer, without what is not one. Raise `ToolFailure`."""
    try:
        content = msgspec.json.decode(with_whole_characters(data))
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        raise ToolFailure("The answer of the search service cannot be read: it is not JSON.") from None
    failed = content.get(service.failed_in) if isinstance(content, dict) else None
    for name in service.results_in:
        content = content.get(name) if isinstance(content, dict) else None
    if not content and isinstance(failed, list) and failed:
        raise ToolFailure("Nothing was found, and not all search engines have answered. Try later, or go on without them.")
    if not isinstance(content, list):
        return []
    return list(_each(content[:_MOST_RESULTS], service))


def _each(entries: list[Any], service: SearchService) -> Iterator[WebResult]:
    for entry in entries:
        if isinstance(entry, dict):
            url = _text(entry, "url")
            if is_web_url(url):
                text = next(filter(None, (_text(entry, name) for name in service.text_in)), "")
                title = _text(entry, "title")
                if service.escaped:
                    text = _unescaped(text)
                    title = _unescaped(title)
                published = next(filter(None, (_text(entry, name) for name in service.published_in)), "")
                yield WebResult(title or url, url, text, published[:40])


def _unescaped(text: str) -> str:
    return html.unescape(_TAG.sub("", text))


def _text(entry: dict[str, Any], name: str) -> str:
    value = entry.get(name)
    if isinstance(value, list):
        value = " … ".join(part for part in value if isinstance(part, str))
    return value[:_LONGEST_FIELD] if isinstance(value, str) else ""
