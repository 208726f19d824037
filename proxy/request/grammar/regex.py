"""The grammars of custom tools as regular expressions: what can be matched in linear time, and what a backend can enforce.

A grammar in Lark's syntax without recursion describes a regular language, and becomes one regular expression (of RE2's
syntax, which the whole text has to match). That is so for the grammars that clients send: patches, scripts with a head line,
queries. It is a little more generous than Lark, whose terminals take as much text as they can whatever follows.
"""

from __future__ import annotations

import re
from functools import lru_cache

from proxy.request.grammar.lark_reader import (
    CharacterRange,
    Choice,
    LarkGrammar,
    Literal,
    Node,
    Pattern,
    Reference,
    Repetition,
    Sequence,
    UnknownGrammar,
    read_lark,
)
from proxy.wire.tools import Grammar

#: A definition longer than this is neither read nor explained to the model, in characters.
LONGEST_DEFINITION = 16 * 1024
#: A regular expression longer than this is not made, in characters: rules that double each other grow without end.
LONGEST_REGEX = 32 * 1024
#: Rules may stand in one another so deep.
_DEEPEST = 100
_SPECIAL = frozenset(r"\.^$|?*+()[]{}-")
#: An escaped character, a class of characters, or any other character of a regular expression.
_PIECE = re.compile(r"\\.|\[\^?\]?(?:\\.|\[:\w+:\]|[^\]\\])*\]|[^\\\[]", re.DOTALL)
_CONTROL = {"\n": r"\n", "\t": r"\t", "\r": r"\r", "\f": r"\f", "\v": r"\v"}

#: Lark's `common` terminals.
_COMMON = {
    "DIGIT": "[0-9]",
    "HEXDIGIT": "[0-9A-Fa-f]",
    "INT": "[0-9]+",
    "SIGNED_INT": "[+-]?[0-9]+",
    "DECIMAL": r"(?:[0-9]+\.[0-9]*|\.[0-9]+)",
    "FLOAT": r"(?:[0-9]+[eE][+-]?[0-9]+|(?:[0-9]+\.[0-9]*|\.[0-9]+)(?:[eE][+-]?[0-9]+)?)",
    "NUMBER": r"(?:[0-9]+(?:\.[0-9]*)?|\.[0-9]+)(?:[eE][+-]?[0-9]+)?",
    "SIGNED_FLOAT": r"[+-]?(?:[0-9]+[eE][+-]?[0-9]+|(?:[0-9]+\.[0-9]*|\.[0-9]+)(?:[eE][+-]?[0-9]+)?)",
    "SIGNED_NUMBER": r"[+-]?(?:[0-9]+(?:\.[0-9]*)?|\.[0-9]+)(?:[eE][+-]?[0-9]+)?",
    "ESCAPED_STRING": r'"(?:[^"\\\n]|\\[^\n])*"',
    "LCASE_LETTER": "[a-z]",
    "UCASE_LETTER": "[A-Z]",
    "LETTER": "[A-Za-z]",
    "WORD": "[A-Za-z]+",
    "CNAME": "[A-Za-z_][A-Za-z_0-9]*",
    "WS_INLINE": r"[ \t]+",
    "WS": r"[ \t\f\r\n]+",
    "CR": r"\r",
    "LF": r"\n",
    "NEWLINE": r"(?:\r?\n)+",
    "SH_COMMENT": r"#[^\n]*",
    "CPP_COMMENT": r"//[^\n]*",
    "C_COMMENT": r"/\*(?:[^*]|\*+[^*/])*\*+/",
    "SQL_COMMENT": r"--[^\n]*",
}


@lru_cache(maxsize=64)
def regex_of(grammar: Grammar) -> str:
    """The regular expression, in RE2's syntax, that the whole input of a tool has to match.

    Raises `UnknownGrammar` if there is none: the grammar is recursive, too large, or not understood. Whether a terminal is a
    regular expression that RE2 knows is for RE2 to say.
    """
    if len(grammar.definition) > LONGEST_DEFINITION:
        raise UnknownGrammar("it is too long")
    if grammar.syntax == "regex":
        return plain_regex(grammar.definition)
    try:
        return _Conversion(read_lark(grammar.definition)).regex()
    except RecursionError:
        raise UnknownGrammar("it is nested too deep") from None


class _Conversion:
    """Rules are put in where they are named, until no name is left."""

    def __init__(self, grammar: LarkGrammar) -> None:
        self._grammar = grammar
        self._done: dict[str, str] = {}
        self._open: list[str] = []
        self._between = ""  # what may stand before and behind every terminal
        if grammar.ignored:
            ignored = "|".join(self._node(node, lexical=True) for node in grammar.ignored)
            self._between = f"(?:{ignored})*"

    def regex(self) -> str:
        if "start" not in self._grammar.rules:
            raise UnknownGrammar("it has no rule named start")
        return self._bounded(self._between + self._rule("start"))

    def _rule(self, name: str) -> str:
        found = self._done.get(name)
        if found is not None:
            return found
        if name in self._open:
            raise UnknownGrammar(f"{name} contains itself: the grammar is recursive")
        if len(self._open) >= _DEEPEST:
            raise UnknownGrammar("its rules are nested too deep")
        node = self._grammar.rules.get(name)
        if node is None:
            common = _COMMON.get(self._grammar.imported.get(name, ""))
            if common is None:
                raise UnknownGrammar(f"{name} is not defined")
            text = f"(?:{common})"
        else:
            self._open.append(name)
            text = self._node(node, lexical=_is_terminal(name))
            self._open.pop()
            text = f"(?:{text})" if isinstance(node, Choice) else text
        self._done[name] = text
        return text

    def _node(self, node: Node, lexical: bool) -> str:
        """`lexical`: inside a terminal, where nothing is ignored."""
        match node:
            case Literal() | Pattern() | CharacterRange():
                return self._terminal(_leaf(node), lexical)
            case Reference(name):
                text = self._rule(name)
                return self._terminal(text, lexical) if _is_terminal(name) else text
            case Sequence(parts):
                return self._bounded("".join(_grouped(part, self._node(part, lexical)) for part in parts))
            case Choice(options):
                return self._bounded("|".join(self._node(option, lexical) for option in options))
            case Repetition(part, least, most):
                return self._bounded(f"(?:{self._node(part, lexical)}){_times(least, most)}")

    def _terminal(self, text: str, lexical: bool) -> str:
        return text if lexical or not self._between else self._bounded(f"(?:{text}){self._between}")

    def _bounded(self, text: str) -> str:
        if len(text) > LONGEST_REGEX:
            raise UnknownGrammar("as a regular expression it is too long")
        return text


def _is_terminal(name: str) -> bool:
    """Names in capital letters; an underscore may lead."""
    return name.lstrip("_")[:1].isupper()


def _grouped(node: Node, text: str) -> str:
    return f"(?:{text})" if isinstance(node, Choice) else text


def _times(least: int, most: int | None) -> str:
    match (least, most):
        case (0, None):
            return "*"
        case (1, None):
            return "+"
        case (0, 1):
            return "?"
    return f"{{{least}}}" if least == most else f"{{{least},{'' if most is None else most}}}"


def _leaf(node: Literal | Pattern | CharacterRange) -> str:
    if isinstance(node, Literal):
        return "".join(map(_any_case if node.any_case else quoted, node.text))
    if isinstance(node, CharacterRange):
        return f"[{quoted(node.first)}-{quoted(node.last)}]"
    if set(node.flags) - set("imslu"):
        raise UnknownGrammar(f"the flags {node.flags} of a regular expression are not understood")
    flags = "".join(sorted(set(node.flags) & set("im")))
    return f"(?{flags}:{plain_regex(node.source, dot_all='s' in node.flags)})"


def _any_case(character: str) -> str:
    """The character in either case: flags are not known to all engines."""
    cases = dict.fromkeys((character, character.lower(), character.upper()))
    single = [quoted(case) for case in cases if len(case) == 1]
    return single[0] if len(single) == 1 else f"[{''.join(single)}]"


def quoted(character: str) -> str:
    """A character that stands for itself in a regular expression."""
    if character in _CONTROL:
        return _CONTROL[character]
    if character < " ":
        return f"\\x{ord(character):02x}"
    return "\\" + character if character in _SPECIAL else character


def plain_regex(source: str, *, dot_all: bool = False) -> str:
    """A regular expression with every dot written out, since engines differ in whether it takes the end of a line.

    Raises `UnknownGrammar` if it does not close the groups that it opens and no others: put into a larger one, it would reach
    into what stands beside it.
    """
    out: list[str] = []
    depth, at = 0, 0
    while at < len(source):
        piece = _PIECE.match(source, at)
        if piece is None:
            raise UnknownGrammar(f"/{source[:40]}/ is not balanced")
        at = piece.end()
        depth += {"(": 1, ")": -1}.get(piece[0], 0)
        if depth < 0:
            break
        out.append(piece[0] if piece[0] != "." else r"[\s\S]" if dot_all else r"[^\n]")
    if depth:
        raise UnknownGrammar(f"/{source[:40]}/ is not balanced")
    return "".join(out)
