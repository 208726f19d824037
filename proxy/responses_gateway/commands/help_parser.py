"""The parser of the command line, whose help is short, and coloured in a terminal."""

from __future__ import annotations

import argparse
import os
import re
import sys
from pathlib import Path
from typing import IO, Any

_HEADING = re.compile(r"^(\S[^\n]*:)$", re.MULTILINE)
_FLAG = re.compile(r"(?<![\w-])--?[a-z][a-z-]*\b")
_FIRST_SENTENCE = re.compile(r"(.+?[.:])(?: |$)", re.DOTALL)
_DEFAULT = re.compile(r" \(default: [^)]*\)$")
_BOLD = "\033[1m\\g<0>\033[0m"
_CYAN = "\033[36m\\g<0>\033[0m"


class HelpParser(argparse.ArgumentParser):
    """An argument parser whose `--help` may leave out what is needed less often; `--help-all` shows everything."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._often: set[str] | None = None  # the flags that `--help` shows; all without a choice

    def show_often(self, flags: set[str]) -> None:
        """Let `--help` show these flags with the first sentence of their descriptions, and add `--help-all` for the rest."""
        self._often = {*flags, "--help", "--help-all"}
        self.add_argument(
            "--help-all", action=_HelpAll, nargs=0, help="show all options with their full descriptions, and exit"
        )

    def complete_paths(self, completion: object) -> None:
        """Have shells complete the values that are paths, as the library of their scripts (shtab) says it."""
        for action in self._actions:
            if action.type is Path:
                action.complete = completion  # type: ignore[attr-defined]

    def print_help(self, file: Any = None) -> None:
        """Print the short help, if there is a choice of flags, else all of it."""
        if self._often is None:
            self.print_full_help(file)
            return
        descriptions = {action: action.help for action in self._actions}
        try:
            for action in self._actions:
                is_shown = not self._often.isdisjoint(action.option_strings)
                action.help = _brief(action.help or "") if is_shown else argparse.SUPPRESS
            self.print_full_help(file)
        finally:
            for action, description in descriptions.items():
                action.help = description

    def print_full_help(self, file: Any = None) -> None:
        """Print everything."""
        stream = file or sys.stdout
        text = self.format_help()
        stream.write(_FLAG.sub(_CYAN, _HEADING.sub(_BOLD, text)) if _has_colours(stream) else text)


class _HelpAll(argparse.Action):
    """Prints the whole help, and exits."""

    def __call__(self, parser: argparse.ArgumentParser, *_unused: Any) -> None:
        if isinstance(parser, HelpParser):
            parser.print_full_help()
        parser.exit()


def _brief(description: str) -> str:
    """Return the first sentence of a description, and the default."""
    default = _DEFAULT.search(description)
    first = _FIRST_SENTENCE.match(description.removesuffix(default[0]) if default else description)
    text = first[1].rstrip(".:") if first else description
    return f"{text}{default[0]}" if default and default[0] not in text and "(default: none)" not in default[0] else text


def _has_colours(stream: IO[str]) -> bool:
    """Tell whether a stream is a terminal that shows colours (see https://no-color.org). Python 3.14's argparse has its own."""
    wanted = not os.environ.get("NO_COLOR") and os.environ.get("TERM") != "dumb"
    return stream.isatty() and wanted and sys.version_info < (3, 14)
