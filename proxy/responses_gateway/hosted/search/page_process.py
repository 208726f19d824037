"""Runs on its own (`python -I page_process.py`): the body of a page on stdin, its text and links as JSON on stdout.

The first line of stdin is JSON: `url` and `charset` of the page; for HTML the folder of the `packages` that read it; the most
characters of text (`longest`) and links (`links`). Nothing of the gateway is imported here."""

from __future__ import annotations

import codecs
import json
import re
import sys
from typing import Any
from urllib.parse import urldefrag, urljoin

# The encodings of the web (https://encoding.spec.whatwg.org), by Python's names. Decoders of other kinds may take forever.
_ENCODINGS = frozenset({
    "utf-8", "utf-16", "utf-16-le", "utf-16-be", "gbk", "gb18030", "big5hkscs", "euc_jp", "iso2022_jp", "cp932", "cp949",
    "koi8-r", "koi8-u", "mac-roman", "mac-cyrillic", "cp866", "cp874", *(f"cp{page}" for page in range(1250, 1259)),
    *(f"iso8859-{part}" for part in (2, 3, 4, 5, 6, 7, 8, 10, 13, 14, 15, 16)),
})  # fmt: skip
# What the web means by some of Python's names: encodings with more characters.
_MEANT = {
    "ascii": "cp1252", "iso8859-1": "cp1252", "iso8859-9": "cp1254", "iso8859-11": "cp874", "tis-620": "cp874",
    "gb2312": "gbk", "big5": "big5hkscs", "shift_jis": "cp932", "euc_kr": "cp949",
}  # fmt: skip
# Labels that Python does not know.
_LABELS = {"windows-874": "cp874", "dos-874": "cp874", "iso-8859-8-i": "iso8859-8", "macintosh": "mac-roman"}
# What a page that begins with a byte order mark is encoded in, whatever else it says.
_MARKS = {codecs.BOM_UTF8: "utf-8-sig", codecs.BOM_UTF16_LE: "utf-16", codecs.BOM_UTF16_BE: "utf-16"}
_DECLARED = re.compile(
    rb"(?:\A\s*<\?xml[^>]{0,200}?\sencoding|<meta[^>]{0,200}?charset)\s*=\s*[\"']?([a-zA-Z0-9_:.-]{1,40})", re.IGNORECASE
)
_DECLARED_WITHIN = 4096
_LONGEST_TITLE = 300
_LONGEST_LINK = 2048
# Less text than this from the main part of a page is not trusted, in characters.
_SHORTEST_MAIN = 200
_WITHOUT_TEXT = ("script", "style", "noscript", "template", "svg", "iframe", "head", "select", "button")
_CELLS = frozenset({"td", "th"})
# Stand before blocks and cells until white space is reduced; no page has them.
_BLOCK = "\0\n"
_CELL = "\0|"
_INLINE = frozenset({
    "a", "abbr", "b", "bdi", "bdo", "cite", "code", "data", "dfn", "em", "font", "i", "img", "input", "kbd", "label", "mark",
    "q", "s", "samp", "small", "span", "strong", "sub", "sup", "time", "tt", "u", "var", "wbr",
})  # fmt: skip


def read(data: bytes, url: str, charset: str | None, packages: str | None, longest: int, links: int) -> dict[str, object]:
    """Return `title`, `text`, `links` (text and URL of each), and whether the text was `cut`."""
    title = ""
    targets: dict[str, str] = {}
    if packages is not None:
        tree = _tree(_decoded(data, charset, _DECLARED.search(data[:_DECLARED_WITHIN])))
        title = _words(tree.findtext(".//title") or "")
        targets = _links(tree, url, links)
        text = _html_text(tree, url)
    else:
        text = _decoded(data, charset, _DECLARED.match(data[:_DECLARED_WITHIN]))
    return {
        "title": title[:_LONGEST_TITLE],
        "text": text[:longest],
        "links": [[label[:_LONGEST_TITLE], link] for link, label in targets.items()],
        "cut": len(text) > longest,
    }


def _decoded(data: bytes, charset: str | None, declared: re.Match[bytes] | None) -> str:
    """Decode a page by its byte order mark, then by the `charset` of its header, then by what it declares itself (`<meta>`, or
    XML), then as UTF-8, then as Windows-1252."""
    inside = _encoding(declared[1].decode()) if declared else None
    if inside is not None and inside.startswith("utf-16"):  # in which it could not be read there
        inside = None
    marked = next((encoding for mark, encoding in _MARKS.items() if data.startswith(mark)), None)
    encoding = marked or _encoding(charset or "") or inside
    if encoding is not None:
        return data.decode(encoding, "replace")
    try:
        return codecs.getincrementaldecoder("utf-8")().decode(data)  # the last character may be cut
    except UnicodeDecodeError:
        return data.decode("cp1252", "replace")


def _encoding(label: str) -> str | None:
    """Return Python's name of an encoding of the web; None for any other."""
    label = label.strip().lower()
    try:
        name = codecs.lookup(_LABELS.get(label, label.removeprefix("x-"))).name
    except (LookupError, ValueError):
        return None
    name = _MEANT.get(name, name)
    return name if name in _ENCODINGS else None


def _tree(page: str) -> Any:
    """Return the tree of an HTML page, whatever is wrong with it."""
    from lxml import etree, html  # noqa: PLC0415  (only now, as for all of the extra: text needs none of it)

    parser = html.HTMLParser(encoding="utf-8", collect_ids=False, remove_comments=True, remove_pis=True)
    try:
        return html.document_fromstring(page.replace("\0", "").encode("utf-8", "replace"), parser=parser)
    except etree.ParserError:  # nothing in it
        return html.document_fromstring("<html><body></body></html>")


def _links(tree: Any, url: str, most: int) -> dict[str, str]:
    """Return the links to web pages, with the first text of each."""
    base = next((_joined(url, element.get("href")) for element in tree.iter("base") if element.get("href")), None) or url
    targets: dict[str, str] = {}
    for element in tree.iter("a"):
        link = _joined(base, element.get("href") or "")
        if link and not targets.get(link) and (link in targets or len(targets) < most):
            targets[link] = _words(element.text_content())
    return targets


def _joined(base: str, href: str) -> str | None:
    """Return the absolute URL of a link; None if it does not lead to a web page."""
    if len(href) > _LONGEST_LINK:
        return None
    try:
        url = urldefrag(urljoin(base, href.strip())).url
    except ValueError:
        return None
    return url if url.startswith(("http://", "https://")) and url != base else None


def _html_text(tree: Any, url: str) -> str:
    """Return the text without navigation and the like, or all of it where too little is left: HTML may be wrong."""
    from trafilatura import extract  # noqa: PLC0415

    main = extract(tree, url=url, output_format="markdown", include_comments=False, favor_recall=True) or ""
    everything = _all_text(tree) if len(main) < _SHORTEST_MAIN else ""
    return everything if len(main) < len(everything) else main


def _all_text(tree: Any) -> str:
    """Return all text of a tree, a line for each block, with the cells of tables side by side."""
    from lxml import etree  # noqa: PLC0415

    pieces: list[str] = []
    walk = etree.iterwalk(tree, events=("start", "end"))
    for event, element in walk:
        if event == "start" and element.tag in _WITHOUT_TEXT:
            walk.skip_subtree()
        elif event == "start":
            pieces += (_CELL if element.tag in _CELLS else _separator(element), element.text or "")
        else:
            pieces += ("" if element.tag in _CELLS else _separator(element), element.tail or "")
    lines = "".join(pieces).split(_BLOCK)
    return "\n".join(filter(None, (_words(line.removeprefix(_CELL).replace(_CELL, " | ")) for line in lines)))


def _separator(element: Any) -> str:
    return "" if element.tag in _INLINE else _BLOCK


def _words(text: str) -> str:
    """Return a text in one line."""
    return " ".join(text.split())


def missing_library(packages: str | None) -> str:
    """Return which library cannot be loaded; empty if all can that are needed."""
    if packages is None:
        return ""
    sys.path.append(packages)
    try:
        import trafilatura  # noqa: F401, PLC0415
    except ImportError as error:
        return str(error).partition("\n")[0][:_LONGEST_TITLE]
    return ""


if __name__ == "__main__":
    question = json.loads(sys.stdin.buffer.readline())
    obstacle = missing_library(question["packages"])
    print(json.dumps({"cannot_start": obstacle} if obstacle else read(sys.stdin.buffer.read(), **question)))
