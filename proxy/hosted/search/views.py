"""What a model sees of a page: an excerpt with numbered lines, or the places where a text stands."""

from __future__ import annotations

from proxy.hosted.search.pages import Page

_MOST_HITS = 20
# Lines before and after a hit.
_AROUND = 1


def excerpt(page: Page, start: int, longest: int, argument: str) -> str:
    """Return the lines from `start` on, about `longest` characters. `argument` is the name of the one that goes on."""
    if not page.lines:
        return "The page has no text."
    start = min(max(start, 0), len(page.lines) - 1)
    shown: list[str] = []
    size = 0
    for number, line in enumerate(page.lines[start:], start):
        size += len(line) + 8
        if size > longest and shown:
            break
        shown.append(f"L{number}: {line}")
    end = start + len(shown)
    more = f"; for more, open it with {argument} {end}" if end < len(page.lines) else ""
    cut = " The page is longer: its end was not read." if page.cut and end == len(page.lines) else ""
    return "\n".join([f"Lines {start} to {end - 1} of {len(page.lines)}{more}.{cut}", *shown])


def hits(page: Page, pattern: str, longest: int, argument: str) -> str:
    """Return the places where a text stands, without regard to case, each with its neighbouring lines."""
    wanted = pattern.casefold()
    found = [number for number, line in enumerate(page.lines) if wanted in line.casefold()]
    if not found:
        return f"The text was not found in the {len(page.lines)} lines of the page. Try a shorter one, or open the page."
    shown: list[str] = []
    size = 0
    for place in found[:_MOST_HITS]:
        around = range(max(place - _AROUND, 0), min(place + _AROUND + 1, len(page.lines)))
        lines = "\n".join(f"L{number}: {page.lines[number]}" for number in around)
        size += len(lines)
        if size > longest and shown:
            break
        shown.append(lines)
    count = f"{len(found)} lines contain it" if len(found) > 1 else "One line contains it"
    first = f", the first {len(shown)} are shown" if len(shown) < len(found) else ""
    return "\n…\n".join([f"{count}{first}. To read on, open the page with {argument} N.", *shown])


def link_list(page: Page, most: int, longest: int) -> str:
    """Return the links of a page with their numbers, from 1: at most so many, and so many characters."""
    lines = ["Links:"]
    for number, (text, url) in enumerate(page.links[:most], start=1):
        lines.append(f"[{number}] {text or url} ({url})")
        longest -= len(lines[-1])
        if longest < 0:
            lines.pop()
            break
    return "\n".join(lines) if len(lines) > 1 else ""
