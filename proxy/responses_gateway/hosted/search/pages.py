"""Fetches pages of the web, has them read, and keeps them for a moment."""

from __future__ import annotations

import asyncio
import json
import re
import time
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

from responses_gateway.bounded_memory import TenantValues
from responses_gateway.child_process import CannotStart, obstacle, run_program
from responses_gateway.extras import how_to_install, packages_with
from responses_gateway.fair_queue import FairQueue
from responses_gateway.hosted.documents import read_pdf
from responses_gateway.hosted.fetch import Fetched, Fetcher
from responses_gateway.hosted.interface import ToolFailure
from responses_gateway.hosted.result_text import clean_line
from responses_gateway.hosted.search.page import WebPage, lines_of

# Characters and links of a page that are kept.
_LONGEST_TEXT = 200_000
_MOST_LINKS = 300
# Pages that are fetched and read at the same time, of all tenants and of one: each may be in memory twice. Others wait.
AT_ONCE = 32
SHARE_AT_ONCE = 24
# Processes that read pages at the same time, of HTML and of text: they take CPU time, and memory.
_PROCESSES = 3
SHARE_OF_PROCESSES = 2
# Pages of a tenant that are kept, how many characters those of all may have together, with so many pages at most, and for how
# many seconds.
KEPT_PAGES = 256
KEPT_CHARACTERS = 20_000_000
_KEPT_OF_ALL = 10_000
_KEPT_FOR = 300.0
PAGE_PROCESS = Path(__file__).with_name("page_process.py")
_HTML = frozenset({"text/html", "application/xhtml+xml"})
_TEXT = re.compile(r"text/.*|application/(.*[+.-])?(json|xml|yaml|toml|javascript|x-ndjson|sql)")
_UNKNOWN_TYPE = "application/octet-stream"
_UNREADABLE = "The page cannot be read: it is too large or too complicated. Try another one."


def _too_many() -> ToolFailure:
    return ToolFailure("The gateway reads too many pages at the moment. Try again later.")


class WebPages:
    """Opens pages. Nothing is shared between tenants: no page, and not whether somebody has read it."""

    def __init__(self, fetcher: Fetcher, *, timeout: float, clock: Callable[[], float] = time.monotonic) -> None:
        """`timeout` in seconds to wait for a turn, and again to make text of a page."""
        self._fetcher = fetcher
        self._timeout = timeout
        self._clock = clock
        self._places = FairQueue(AT_ONCE, SHARE_AT_ONCE, timeout, _too_many)
        self._html_processes = FairQueue(_PROCESSES, SHARE_OF_PROCESSES, timeout, _too_many)
        # Apart, since text never takes long.
        self._text_processes = FairQueue(_PROCESSES, SHARE_OF_PROCESSES, timeout, _too_many)
        self._kept: TenantValues[tuple[float, WebPage]] = TenantValues(KEPT_PAGES, KEPT_CHARACTERS)

    async def close(self) -> None:
        """Close the connections."""
        await self._fetcher.close()

    async def open(self, url: str, tenant: str) -> WebPage:
        """Return a page, as it was up to five minutes ago. Raise `ToolFailure`."""
        kept = self._kept.get(tenant, url)
        if kept is not None and kept[0] >= self._clock():
            return kept[1]
        async with self._places.take(tenant):
            fetched = await self._fetcher.fetch(url)
            page = await self._read(fetched, tenant)
        size = max(page.size, KEPT_CHARACTERS // _KEPT_OF_ALL)
        self._kept.put(tenant, url, (self._clock() + _KEPT_FOR, page), size)
        return page

    async def _read(self, fetched: Fetched, tenant: str) -> WebPage:
        kind = fetched.content_type.lower()
        if kind in _HTML or (kind == _UNKNOWN_TYPE and fetched.body.lstrip()[:1] == b"<"):
            async with self._html_processes.take(tenant):
                return await self._read_in_process(fetched, html=True)
        if _TEXT.fullmatch(kind):
            async with self._text_processes.take(tenant):
                return await self._read_in_process(fetched, html=False)
        if kind == "application/pdf" and not fetched.cut:
            return await self._read_pdf(fetched, tenant)
        named = "a PDF document" if kind == "application/pdf" else f"of the type {kind[:80]}"
        raise ToolFailure(f"This page is {named}, which cannot be read here. Look for the same as a web page.")

    async def _read_pdf(self, fetched: Fetched, tenant: str) -> WebPage:
        async with self._html_processes.take(tenant):
            try:
                async with asyncio.timeout(self._timeout):
                    document = await read_pdf(fetched.body)
            except (TimeoutError, OSError):
                raise ToolFailure(_UNREADABLE) from None
        if document.reason == "missing":
            raise ToolFailure("This page is a PDF document, and this gateway reads none. Look for the same as a web page.")
        if not document.text:
            raise ToolFailure(
                "This page is a PDF document without text that can be read here. Look for the same as a web page."
            )
        return WebPage(fetched.url, "", lines_of(document.text), cut=document.read < document.pages)

    async def _read_in_process(self, fetched: Fetched, *, html: bool) -> WebPage:
        try:
            async with asyncio.timeout(self._timeout):
                answer = await _run_page_process(fetched, html)
        except TimeoutError:
            raise ToolFailure(_UNREADABLE) from None
        except OSError:
            raise ToolFailure("The gateway has no room to read a page. Try again later.") from None
        links = tuple((clean_line(text), url) for text, url in answer["links"])
        return WebPage(fetched.url, clean_line(answer["title"]), lines_of(answer["text"]), links, fetched.cut or answer["cut"])


def html_packages() -> str:
    """Return the folder of the packages that read HTML. Raise `ValueError` if they are not installed."""
    folder = packages_with("trafilatura")
    if folder is None:
        raise ValueError(f"web search needs an extra, to read pages: {how_to_install('web')}")
    return folder


@cache
def page_obstacle() -> str:
    """Return why no page can be read though the extra `web` is installed: a library that cannot be loaded. Empty if it can.
    This takes a second the first time."""
    folder = packages_with("trafilatura")
    return "" if folder is None else obstacle(PAGE_PROCESS, _question("", None, folder) + b"<p>Hello</p>")


def _question(url: str, charset: str | None, packages: str | None) -> bytes:
    question = {"url": url, "charset": charset, "packages": packages, "longest": _LONGEST_TEXT, "links": _MOST_LINKS}
    return json.dumps(question).encode() + b"\n"


async def _run_page_process(fetched: Fetched, html: bool) -> Any:
    """Return the answer of the process that reads a page. Raise `ToolFailure`, `OSError`."""
    question = _question(fetched.url, fetched.charset, html_packages() if html else None)
    try:
        return await run_program(PAGE_PROCESS, question + fetched.body)
    except CannotStart as error:
        raise ToolFailure(
            f"This gateway cannot read web pages, because a library is missing: {error}. Try no other page."
        ) from None
    except ValueError:  # it was killed for want of memory or time, or failed
        raise ToolFailure(_UNREADABLE) from None
