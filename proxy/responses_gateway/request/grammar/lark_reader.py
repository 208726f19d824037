"""Read grammars in the syntax of Lark: text in, syntax trees of rules and terminals out.

Supported is the part of Lark's syntax that custom tools use: rules, terminals, strings, regular expressions, repetition,
`%import common.X` and `%ignore`. Templates and other directives are refused.

The library `lark` can read its own syntax too, but with it a grammar takes five to a hundred times as long, during which no
stream goes on, and it is an extra, while patterns are sent without one."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import Any, NamedTuple, TypeAlias

_DEEPEST = 50  # the deepest nesting of groups

_TOKEN = re.compile(
    r"""
      (?P<SPACE>   \s+ | //[^\n]* | \#[^\n]* )
    | (?P<HEAD>    (?m:^)[?!]*[A-Za-z_]\w*(?:\.-?\d+)?[ \t]*: )
    | (?P<IMPORT>  %import\b[^\n]* )
    | (?P<IGNORE>  %ignore\b )
    | (?P<STRING>  "(?:\\.|[^"\\\n])*"i? )
    | (?P<REGEXP>  /(?!/)(?:\\.|[^/\\\n])+/[a-z]* )
    | (?P<ALIAS>   ->[ \t]*[A-Za-z_]\w* )
    | (?P<RANGE>   \.\. )
    | (?P<TIMES>   ~[ \t]*\d{1,9}(?:[ \t]*\.\.[ \t]*\d{1,9})? )
    | (?P<NAME>    [A-Za-z_]\w* )
    | (?P<SIGN>    [|()\[\]*+?] )
    """,
    re.VERBOSE,
)
_IMPORT = re.compile(r"%import\s+common\s*(?:\.\s*(?P<one>\w+)(?:\s*->\s*(?P<as>\w+))?|\((?P<many>[\w\s,]+)\))\s*(?://.*)?")
_ESCAPE = re.compile(r"\\(u[0-9a-fA-F]{4}|x[0-9a-fA-F]{2}|.)", re.DOTALL)
_SIGNS: dict[str, tuple[int, int | None]] = {"*": (0, None), "+": (1, None), "?": (0, 1)}
_LETTERS = {"n": "\n", "t": "\t", "r": "\r", "f": "\f", "v": "\v", "0": "\0"}


class UnknownGrammar(ValueError):
    """The grammar has a syntax error or uses an unsupported feature; the message says which."""


class String(NamedTuple):
    """A string literal. `any_case`: upper and lower case are the same."""

    text: str
    any_case: bool = False


class Regexp(NamedTuple):
    """A regular expression, with the letters of its flags."""

    source: str
    flags: str


class CharacterRange(NamedTuple):
    """One character of a range, both ends included."""

    first: str
    last: str


class Reference(NamedTuple):
    """The name of a rule, or (in capital letters) of a terminal."""

    name: str


class Concatenation(NamedTuple):
    """All parts, one after the other."""

    parts: tuple[Any, ...]


class Alternation(NamedTuple):
    """One of the options."""

    options: tuple[Any, ...]


class Repetition(NamedTuple):
    """A part repeated; `most` is None for no limit."""

    part: Any
    least: int
    most: int | None


Node: TypeAlias = String | Regexp | CharacterRange | Reference | Concatenation | Alternation | Repetition


@dataclass
class LarkGrammar:
    """Rules and terminals by name; `imported`: local name → name in Lark's `common`; `ignored`: what may occur anywhere."""

    rules: dict[str, Node] = field(default_factory=dict)
    imported: dict[str, str] = field(default_factory=dict)
    ignored: list[Node] = field(default_factory=list)


class _Token(NamedTuple):
    kind: str
    text: str


def read_lark(definition: str) -> LarkGrammar:
    """Parse a grammar. Raises `UnknownGrammar`."""
    return _Parser(_tokens(definition)).grammar()


def _tokens(definition: str) -> list[_Token]:
    tokens: list[_Token] = []
    at = 0
    while at < len(definition):
        match = _TOKEN.match(definition, at)
        if match is None:
            line = definition.count("\n", 0, at) + 1
            raise UnknownGrammar(f"line {line} of the grammar is not valid")
        at = match.end()
        kind = str(match.lastgroup)
        if kind != "SPACE":
            tokens.append(_Token(kind, match[0]))
    return tokens


@dataclass
class _Parser:
    """A recursive descent parser."""

    _tokens: list[_Token]
    _at: int = 0
    _depth: int = 0

    def grammar(self) -> LarkGrammar:
        grammar = LarkGrammar()
        while (token := self._peek()) is not None:
            self._at += 1
            if token.kind == "HEAD":
                name = re.split(r"\W", token.text.lstrip("?!"), maxsplit=1)[0]
                if name in grammar.rules:
                    raise UnknownGrammar(f"{name} is defined twice")
                grammar.rules[name] = self._alternation()
            elif token.kind == "IMPORT":
                grammar.imported.update(_imported(token.text))
            elif token.kind == "IGNORE":
                grammar.ignored.append(self._alternation())
            else:
                raise UnknownGrammar(f"{token.text[:40]!r} is not valid here")
        return grammar

    def _alternation(self) -> Node:
        options = [self._concatenation()]
        while self._take("|"):
            options.append(self._concatenation())
        return options[0] if len(options) == 1 else Alternation(tuple(options))

    def _concatenation(self) -> Node:
        parts: list[Node] = []
        while (part := self._repeated()) is not None:
            parts.append(part)
        token = self._peek()
        if token is not None and token.kind == "ALIAS":
            self._at += 1
        return parts[0] if len(parts) == 1 else Concatenation(tuple(parts))

    def _repeated(self) -> Node | None:
        part = self._atom()
        if part is None:
            return None
        token = self._peek()
        if token is None or (token.kind != "TIMES" and token.text not in _SIGNS):
            return part
        self._at += 1
        if token.kind != "TIMES":
            return Repetition(part, *_SIGNS[token.text])
        low, _, high = token.text[1:].partition("..")
        return Repetition(part, int(low), int(high or low))

    def _atom(self) -> Node | None:
        if self._take("("):
            return self._group(")")
        if self._take("["):
            return Repetition(self._group("]"), 0, 1)
        token = self._peek()
        if token is None or token.kind not in ("STRING", "REGEXP", "NAME"):
            return None
        self._at += 1
        if token.kind == "NAME":
            return Reference(token.text)
        if token.kind == "REGEXP":
            source, _, flags = token.text[1:].rpartition("/")
            return Regexp(source.replace(r"\/", "/"), flags)
        first = _string(token.text)
        following = self._peek()
        if following is None or following.kind != "RANGE":
            return first
        self._at += 1
        return CharacterRange(first.text, self._range_end(first))

    def _range_end(self, first: String) -> str:
        token = self._peek()
        last = _string(token.text) if token is not None and token.kind == "STRING" else String("")
        self._at += 1
        if len(first.text) != 1 or len(last.text) != 1 or last.text < first.text:
            raise UnknownGrammar("a range needs two characters, the smaller one first")
        return last.text

    def _group(self, end: str) -> Node:
        self._depth += 1
        if self._depth > _DEEPEST:
            raise UnknownGrammar("its groups are nested too deeply")
        inner = self._alternation()
        self._depth -= 1
        if not self._take(end):
            raise UnknownGrammar(f"a {end} is missing")
        return inner

    def _peek(self) -> _Token | None:
        return self._tokens[self._at] if self._at < len(self._tokens) else None

    def _take(self, sign: str) -> bool:
        token = self._peek()
        matches = token is not None and token.kind == "SIGN" and token.text == sign
        self._at += matches
        return matches


def _imported(line: str) -> dict[str, str]:
    match = _IMPORT.fullmatch(line.strip())
    if match is None:
        raise UnknownGrammar("only terminals of Lark's `common` can be imported")
    if match["one"]:
        return {match["as"] or match["one"]: match["one"]}
    return {name.strip(): name.strip() for name in match["many"].split(",") if name.strip()}


def _string(text: str) -> String:
    body, _, flag = text[1:].rpartition('"')
    return String(_ESCAPE.sub(_character, body), flag == "i")


def _character(match: re.Match[str]) -> str:
    escape = match[1]
    character = chr(int(escape[1:], 16)) if len(escape) > 1 else _LETTERS.get(escape, escape)
    if "\ud800" <= character < "\ue000":
        raise UnknownGrammar("half a surrogate pair stands in no text")
    return character
