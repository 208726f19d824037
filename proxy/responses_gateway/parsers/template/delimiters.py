"""The delimiters of a template: literals or regular expressions, found in text that arrives in pieces.

The expressions are those of the package `regex`, as in `transformers`: it can tell that a text may still become a match, and
stops at a time limit. An expression that takes longer is not used again in that answer."""

from __future__ import annotations

import importlib
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple, TypeAlias

from responses_gateway.extras import how_to_install
from responses_gateway.parsers.lexer import terminals

_LONGEST = 1024  # characters of a delimiter; a longer match is none
_SECONDS = 0.05  # a search takes microseconds; one that takes longer does not end
_PATTERN_LIMIT = 4096  # characters of an expression


class TemplateError(ValueError):
    """A response template cannot be used. The message tells why."""


class Found(NamedTuple):
    """A delimiter, or what may still become one (`open`: it reaches the end of the text)."""

    start: int
    end: int
    open: bool
    captures: Mapping[str, str]


class Literals:
    """Literals, any of which opens or closes a field."""

    def __init__(self, literals: Sequence[str]) -> None:
        self._terminals = terminals(frozenset(literals))
        # A literal that begins another one may still become that one.
        self._final = not any(one != other and other.startswith(one) for one in literals for other in literals)

    def find(self, text: str, at: int, final: bool) -> Found | None:
        """Find the first one at or after `at`. `final`: no more text will come."""
        match = self._terminals.pattern.search(text, at)
        if match is not None:
            may_grow = not final and not self._final and match.end() == len(text)
            return Found(match.start(), match.end(), may_grow, {})
        start = len(text) if final else self._terminals.held(text, at)
        return Found(start, len(text), True, {}) if start < len(text) else None

    def last_end(self, text: str) -> int:
        """Return where the last one in a text ends; 0 if there is none."""
        return max((match.end() for match in self._terminals.pattern.finditer(text)), default=0)


class Expression:
    """A regular expression that opens or closes a field."""

    def __init__(self, pattern: object) -> None:
        """Compile an expression. Raises `TemplateError`."""
        self._pattern = compile_pattern(pattern)

    def find(self, text: str, at: int, final: bool) -> Found | None:
        """Find the first match at or after `at`. `final`: no more text will come. Raises `TimeoutError`."""
        while True:
            match = self._pattern.search(text, at, partial=not final, timeout=_SECONDS)
            if match is None:
                return None
            start, end = match.span()
            if end - start <= _LONGEST:
                break
            at = start + 1
        may_grow = not final and (match.partial or end == len(text))
        captures = {name: value for name, value in match.groupdict().items() if value is not None}
        return Found(start, end, may_grow, captures)

    def last_end(self, text: str) -> int:
        """Return where the last match in a text ends; 0 if there is none. Raises `TimeoutError`."""
        return max((match.end() for match in self._pattern.finditer(text, timeout=_SECONDS)), default=0)


Delimiter: TypeAlias = Literals | Expression


def compile_pattern(pattern: object) -> Any:
    """Compile an expression of a template. Raises `TemplateError`."""
    if not isinstance(pattern, str) or len(pattern) > _PATTERN_LIMIT:
        raise TemplateError(f"an expression must be a text of at most {_PATTERN_LIMIT} characters")
    try:
        regex = importlib.import_module("regex")
    except ImportError:
        raise TemplateError(f"packages are missing: {how_to_install('tokenizer')}") from None
    try:
        return regex.compile(pattern, regex.DOTALL)
    except regex.error as error:
        raise TemplateError(f"the expression {pattern!r} is not valid: {error}") from None


def find_all(pattern: Any, text: str) -> list[Mapping[str, str | None]]:
    """Return the groups of every match of a compiled expression. Raises `TimeoutError`."""
    return [match.groupdict() for match in pattern.finditer(text, timeout=_SECONDS)]
