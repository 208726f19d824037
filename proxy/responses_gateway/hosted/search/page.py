"""A page as text in lines, and what a model sees of it: an excerpt with numbered lines, or the places where a text stands."""

from __future__ import annotations

from dataclasses import dataclass

from responses_gateway.hosted.result_text import clean_line

# Characters of a line.
_LONGEST_LINE = 400
_MOST_HITS = 20
_AROUND = 1  # lines before and after a hit


@dataclass(frozen=True, slots=True)
class WebPage:
    """A page as text. `links` are texts and URLs; `cut`: the page is longer."""

    url: str
    title: str
    lines: tuple[str, ...]
    links: tuple[tuple[str, str], ...] = ()
    cut: bool = False

    @property
    def size(self) -> int:
        """Characters, roughly."""
        return sum(map(len, self.lines)) + sum(len(text) + len(url) for text, url in self.links)


def lines_of(text: str) -> tuple[str, ...]:
    """Return lines of a bounded length; those that are empty stay where they separate others."""
    lines: list[str] = []
    for line in text.splitlines():
        rest = clean_line(line).rstrip()
        while len(rest) > _LONGEST_LINE:
            end = rest.rfind(" ", _LONGEST_LINE // 2, _LONGEST_LINE)
            end = _LONGEST_LINE if end < 0 else end
            lines.append(rest[:end])
            rest = rest[end:].lstrip()
        if rest or (lines and lines[-1]):
            lines.append(rest)
    return tuple(lines)


def excerpt(page: WebPage, start: int, longest: int, argument: str) -> str:
    """Return the lines from `start` on, about `longest` characters. `argument` is the one by which the model reads on."""
    if not page.lines:
        return "The page has no text."
    start = min(max(start, 0), len(page.lines) - 1)
    lines: list[str] = []
    size = 0
    for number, line in enumerate(page.lines[start:], start):
        size += len(line) + 8
        if size > longest and lines:
            break
        lines.append(f"L{number}: {line}")
    end = start + len(lines)
    more = f"; for more, open it with {argument} {end}" if end < len(page.lines) else ""
    cut = " The page is longer: its end was not read." if page.cut and end == len(page.lines) else ""
    return "\n".join([f"Lines {start} to {end - 1} of {len(page.lines)}{more}.{cut}", *lines])


def hits(page: WebPage, pattern: str, longest: int, argument: str) -> str:
    """Return the places where a text stands, without regard to case, each with its neighbouring lines."""
    wanted = pattern.casefold()
    places = [number for number, line in enumerate(page.lines) if wanted in line.casefold()]
    if not places:
        return f"The text was not found in the {len(page.lines)} lines of the page. Try a shorter one, or open the page."
    passages: list[str] = []
    size = 0
    for place in places[:_MOST_HITS]:
        around = range(max(place - _AROUND, 0), min(place + _AROUND + 1, len(page.lines)))
        lines = "\n".join(f"L{number}: {page.lines[number]}" for number in around)
        size += len(lines)
        if size > longest and passages:
            break
        passages.append(lines)
    count = f"{len(places)} lines contain it" if len(places) > 1 else "One line contains it"
    first = f", the first {len(passages)} are shown" if len(passages) < len(places) else ""
    return "\n…\n".join([f"{count}{first}. To read on, open the page with {argument} N.", *passages])


def link_list(page: WebPage, most: int, longest: int) -> str:
    """Return the links of a page with their numbers, from 1: at most so many, and so many characters."""
    lines = ["Links:"]
    for number, (text, url) in enumerate(page.links[:most], start=1):
        lines.append(f"[{number}] {text or url} ({url})")
        longest -= len(lines[-1])
        if longest < 0:
            lines.pop()
            break
    return "\n".join(lines) if len(lines) > 1 else ""
