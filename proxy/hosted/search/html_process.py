"""Runs on its own (`python -I html_process.py`): an HTML page on stdin, its text and links as JSON on stdout.

The first line of stdin is JSON: `url` and `charset` of the page, the most characters of text (`longest`) and links (`links`).
Reading a hostile page can take forever; a process can be killed, a thread cannot. Nothing of the gateway is imported here."""

from __future__ import annotations

import codecs
import json
import re
import sys
from html.parser import HTMLParser
from urllib.parse import urldefrag, urljoin

# CPU time in seconds, and address space in bytes.
_CPU = 20
_MEMORY = 1024 * 1024 * 1024
_META_CHARSET = re.compile(rb"<meta[^>]{0,200}?charset\s*=\s*[\"']?([a-zA-Z0-9_:.-]{1,40})", re.IGNORECASE)
_WHITE = re.compile(r"\s+")
_META_WITHIN = 4096
_LONGEST_TITLE = 300
_LONGEST_LINK = 2048
# Less text than this from the main part of a page is not trusted, in characters.
_SHORTEST_MAIN = 200
# The main part of a page has at least this share of the text, or is taken for a mistake.
_SMALLEST_MAIN = 0.2
# Parts around what a page is about.
_AROUND = ("nav", "footer")
_CELLS = frozenset({"td", "th"})
# Stand for the beginning of a cell, and for the spaces of preformatted text until those of the other text are reduced.
_CELL = "\1"
_SPACE = "\0"
# What lines begin with, as in Markdown.
_MARKS = {"li": "- ", **{f"h{level}": f"{'#' * level} " for level in range(1, 7)}}
_WITHOUT_TEXT = frozenset({"script", "style", "noscript", "template", "svg", "iframe", "head", "select", "button"})
_INLINE = frozenset({
    "a", "abbr", "b", "bdi", "bdo", "cite", "code", "data", "dfn", "em", "font", "i", "img", "input", "kbd", "label", "mark",
    "q", "s", "samp", "small", "span", "strong", "sub", "sup", "time", "tt", "u", "var", "wbr",
})  # fmt: skip


def _limit() -> None:
    try:
        import resource  # noqa: PLC0415  (not on Windows)
    except ImportError:
        return
    resource.setrlimit(resource.RLIMIT_CPU, (_CPU, _CPU))
    resource.setrlimit(resource.RLIMIT_AS, (_MEMORY, _MEMORY))


class _Reader(HTMLParser):
    """Collects the title, the links with their text, and the text: all of it, what is neither navigation nor a footer, and the
    main part as far as the page says which it is."""

    def __init__(self, url: str, most_links: int) -> None:
        super().__init__()
        self.title = ""
        self.links: dict[str, str] = {}
        self._text: list[str] = []
        self._content: list[str] = []
        self._main: list[str] = []
        self._base = url
        self._most_links = most_links
        self._hidden: list[str] = []
        self._in_title = False
        self._link: str | None = None
        self._main_tag = ""
        self._depths = dict.fromkeys((*_AROUND, "pre", "main"), 0)

    @property
    def everything(self) -> str:
        """All text."""
        return _plain(self._text)

    @property
    def best(self) -> str:
        """The text that a reader would want, unless too little is left of it: HTML may be wrong."""
        everything = self.everything
        content = _plain(self._content)
        main = _plain(self._main)
        least = min(_SHORTEST_MAIN, len(everything))
        if len(main) >= max(least, _SMALLEST_MAIN * len(content)):
            return main
        return content if len(content) >= max(least, _SMALLEST_MAIN * len(everything)) else everything

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        given = dict(attrs)
        self._in_title = tag == "title" and not self.title
        if tag == "base" and given.get("href"):
            self._base = _joined(self._base, given["href"] or "") or self._base
        if tag == "a":
            self._open_link(given.get("href"))
        if tag in _WITHOUT_TEXT:
            self._hidden.append(tag)
        elif tag == "body":
            self._hidden.clear()  # a head that was not closed
        elif tag in _CELLS:
            self._add(_CELL)
        elif tag not in _INLINE:
            self._add(f"\n{_MARKS.get(tag, '')}")
        self._enter(tag, given.get("role"))

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        if tag not in _WITHOUT_TEXT:
            self.handle_starttag(tag, attrs)

    def handle_endtag(self, tag: str) -> None:
        self._in_title = False
        if tag == "a":
            self._link = None
        if tag in self._hidden:
            while self._hidden.pop() != tag:
                pass
        elif tag not in _INLINE and tag not in _CELLS:
            self._add("\n")
        self._leave(tag)

    def handle_data(self, data: str) -> None:
        if self._in_title:
            self.title += data
        elif not self._hidden:
            self._add(data.expandtabs().replace(" ", _SPACE) if self._depths["pre"] else _WHITE.sub(" ", data))
            if self._link is not None:
                self.links[self._link] += data

    def _add(self, piece: str) -> None:
        self._text.append(piece)
        if not any(self._depths[tag] for tag in _AROUND):
            self._content.append(piece)
            if self._depths["main"]:
                self._main.append(piece)

    def _enter(self, tag: str, role: str | None) -> None:
        if tag in self._depths and tag != "main":
            self._depths[tag] += 1
        if tag == self._main_tag:
            self._depths["main"] += 1
        elif not self._depths["main"] and (tag == "main" or role == "main"):
            self._main_tag = tag
            self._depths["main"] = 1

    def _leave(self, tag: str) -> None:
        if self._depths.get(tag) and tag != "main":
            self._depths[tag] -= 1
        if tag == self._main_tag:
            self._depths["main"] -= 1
            self._main_tag = tag if self._depths["main"] else ""

    def _open_link(self, href: str | None) -> None:
        url = _joined(self._base, href or "") if href else None
        self._link = None
        if url and (url in self.links or len(self.links) < self._most_links):
            self.links.setdefault(url, "")
            if not self.links[url]:
                self._link = url


def _joined(base: str, href: str) -> str | None:
    """Return the absolute URL of a link; None if it does not lead to a web page."""
    if len(href) > _LONGEST_LINK:
        return None
    try:
        url = urldefrag(urljoin(base, href.strip())).url
    except ValueError:
        return None
    return url if url.startswith(("http://", "https://")) and url != base else None


def _decoded(data: bytes, charset: str | None) -> str:
    named = _META_CHARSET.search(data[:_META_WITHIN])
    for name in (charset, named.group(1).decode() if named else None, "utf-8"):
        try:
            codec = codecs.lookup(name or "")
            text, _ = codec.decode(data, "strict" if name == "utf-8" else "replace")
            return str(text)
        except (LookupError, ValueError, TypeError):
            continue
    return data.decode("cp1252", "replace")


def _plain(pieces: list[str]) -> str:
    lines = map(_line, "".join(pieces).split("\n"))
    return "\n".join(line for line in lines if line)


def _line(text: str) -> str:
    """Return a line with single spaces, except in preformatted text, and with its cells side by side."""
    cells = [" ".join(cell.split()).replace(_SPACE, " ").rstrip() for cell in text.split(_CELL)]
    return " | ".join(cells if cells[0] else cells[1:]) if any(cells) else ""


def _main_text(page: str, url: str) -> str:
    """Return the text without navigation and the like; nothing if the library is not installed or finds none."""
    try:
        import trafilatura  # noqa: PLC0415  (an extra)
    except ImportError:
        return ""
    found = trafilatura.extract(page, url=url, output_format="markdown", include_comments=False, favor_recall=True)
    return found or ""


def read(data: bytes, url: str, charset: str | None, longest: int, links: int) -> dict[str, object]:
    """Return `title`, `text`, `links` (text and URL of each), and whether the text was `cut`."""
    page = _decoded(data, charset).replace(_SPACE, "").replace(_CELL, "")
    reader = _Reader(url, links)
    reader.feed(page)
    text = _main_text(page, url)
    if len(text) < min(_SHORTEST_MAIN, len(reader.everything)):
        text = reader.best
    return {
        "title": " ".join(reader.title.split())[:_LONGEST_TITLE],
        "text": text[:longest],
        "links": [[" ".join(label.split())[:_LONGEST_TITLE], link] for link, label in reader.links.items()],
        "cut": len(text) > longest,
    }


if __name__ == "__main__":
    _limit()
    question = json.loads(sys.stdin.buffer.readline())
    print(json.dumps(read(sys.stdin.buffer.read(), **question)))
