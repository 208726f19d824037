"""`responses-gateway docs`: the pages of the documentation as they are in this version, for who has only installed it.

A wheel has a copy of `docs/` beside its modules (`hatch_build.py`); a checkout has the pages themselves."""

from __future__ import annotations

import argparse
import re
from pathlib import Path

from responses_gateway.commands import Unusable
from responses_gateway.settings import suggestion

_PACKAGE = Path(__file__).parents[1]
_FOLDERS = (_PACKAGE / "docs", _PACKAGE.parents[1] / "docs")
_TITLE = re.compile(r"^# (.+)$", re.MULTILINE)
# Marks for other programs: anchors of links, and the bounds of generated parts.
_MARKS = re.compile(r'<a id="[^"]*"></a>|<!--.*?-->\n?', re.DOTALL)
_SETTING = re.compile(r'^- <a id="([^"]+)"></a>.*$', re.MULTILINE)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the topic."""
    parser.add_argument("topic", metavar="TOPIC", nargs="?", help="a page or a setting; without it, the pages are listed")


def run(args: argparse.Namespace) -> int:
    """Print the page. Returns 0. Raises `Unusable` with the status 2 if there is none."""
    pages = _pages()
    if args.topic is None:
        titles = {name: _TITLE.search(_text(page)) for name, page in pages.items()}
        print("\n".join(f"{name:20} {title[1] if title else ''}" for name, title in titles.items()))
        return 0
    topic = args.topic.partition("#")[0].removeprefix("docs/").removesuffix(".md")
    text = _shown(topic, pages)
    if text is None:
        known = [*pages, *_settings(pages)]
        message = f"there is no page {args.topic}{suggestion(topic, known)}; `responses-gateway docs` lists all"
        raise Unusable(message, status=2)
    print(_MARKS.sub("", text).strip())
    return 0


def _shown(topic: str, pages: dict[str, Path]) -> str | None:
    """Return the page of this name, the one that begins so, or what the reference says of a setting."""
    settings = _settings(pages)
    if topic not in pages and topic in settings:
        return settings[topic]
    alike = [name for name in pages if name.startswith(topic)]
    name = topic if topic in pages else alike[0] if len(alike) == 1 else None
    return None if name is None else _text(pages[name])


def _pages() -> dict[str, Path]:
    folder = next((folder for folder in _FOLDERS if folder.is_dir()), _FOLDERS[0])
    return {page.stem: page for page in sorted(folder.glob("[a-z]*.md"))}


def _settings(pages: dict[str, Path]) -> dict[str, str]:
    reference = pages.get("configuration")
    return {} if reference is None else {match[1]: match[0] for match in _SETTING.finditer(_text(reference))}


def _text(page: Path) -> str:
    return page.read_text(encoding="utf-8")
