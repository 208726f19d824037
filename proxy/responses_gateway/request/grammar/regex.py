"""Convert the grammars of custom tools to regular expressions, which a backend can enforce and RE2 matches in linear time.

A grammar in Lark's syntax without recursion describes a regular language and becomes one regular expression in RE2's syntax,
to be matched with the whole text. The grammars that clients send are of this kind: patches, scripts with a header line,
queries. The expression is slightly more permissive than Lark, whose terminals are greedy without backtracking."""

from __future__ import annotations

import re
from collections.abc import Iterable
from functools import lru_cache

from responses_gateway.request.grammar.lark_reader import (
    Alternation,
    CharacterRange,
    Concatenation,
    LarkGrammar,
    Node,
    Reference,
    Regexp,
    Repetition,
    String,
    UnknownGrammar,
    read_lark,
)
from responses_gateway.wire.tools import Grammar

# The longest definition that is converted or explained to the model, in characters.
LONGEST_DEFINITION = 16 * 1024
# The longest regular expression, in characters: rules that double each other grow exponentially.
LONGEST_REGEX = 32 * 1024
# The deepest nesting of rules.
_DEEPEST = 100
_SPECIAL = frozenset(r"\.^$|?*+()[]{}-")
# An escaped character, a class of characters, or any other character of a regular expression.
_PIECE = re.compile(r"\\.|\[\^?\]?(?:\\.|\[:\w+:\]|[^\]\\])*\]|[^\\\[]", re.DOTALL)
_SIGNS = {(0, None): "*", (1, None): "+", (0, 1): "?"}
# Where a group or the whole expression has a flag by which its dots match the end of a line.
_DOTS_MATCH_ALL = re.compile(r"(?<!\\)\(\?[a-zA-Z]*s")
_CONTROL = {"\n": r"\n", "\t": r"\t", "\r": r"\r", "\f": r"\f", "\v": r"\v"}

# Lark's `common` terminals.
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
    """Return the regular expression, in RE2's syntax, that the whole input of a tool must match. Raises `UnknownGrammar` if the
    grammar is recursive, too large, invalid or unsupported. Whether RE2 accepts the expression of a terminal is not checked."""
    if len(grammar.definition) > LONGEST_DEFINITION:
        raise UnknownGrammar("it is too long")
    if grammar.syntax == "regex":
        return plain_regex(grammar.definition)
    try:
        return _Conversion(read_lark(grammar.definition)).regex()
    except RecursionError:
        raise UnknownGrammar("it is nested too deeply") from None


class _Conversion:
    """Replaces the names of rules by their definitions until no name is left."""

    def __init__(self, grammar: LarkGrammar) -> None:
        self._grammar = grammar
        self._done: dict[str, str] = {}
        self._open: list[str] = []
        self._between = ""  # ignored text that may occur before and after every terminal
        if grammar.ignored:
            ignored = _joined("|", (self._node(node, lexical=True) for node in grammar.ignored))
            self._between = f"(?:{ignored})*"

    def regex(self) -> str:
        if "start" not in self._grammar.rules:
            raise UnknownGrammar("it has no rule named start")
        return _joined("", (self._between, self._rule("start")))

    def _rule(self, name: str) -> str:
        done = self._done.get(name)
        if done is not None:
            return done
        if name in self._open:
            raise UnknownGrammar(f"{name} contains itself: the grammar is recursive")
        if len(self._open) >= _DEEPEST:
            raise UnknownGrammar("its rules are nested too deeply")
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
            text = _grouped(node, text)
        self._done[name] = text
        return text

    def _node(self, node: Node, lexical: bool) -> str:
        """Convert a node. `lexical`: it is inside a terminal, where nothing is ignored."""
        match node:
            case String() | Regexp() | CharacterRange():
                return self._terminal(_leaf(node), lexical)
            case Reference(name):
                text = self._rule(name)
                return self._terminal(text, lexical) if _is_terminal(name) else text
            case Concatenation(parts):
                return _joined("", (_grouped(part, self._node(part, lexical)) for part in parts))
            case Alternation(options):
                return _joined("|", (self._node(option, lexical) for option in options))
            case Repetition(part, least, most):
                return f"(?:{self._node(part, lexical)}){_times(least, most)}"

    def _terminal(self, text: str, lexical: bool) -> str:
        return text if lexical or not self._between else f"(?:{text}){self._between}"


def _joined(separator: str, texts: Iterable[str]) -> str:
    """Join the parts of an expression. Raise `UnknownGrammar` before they are too long: one may occur a thousand times."""
    room = LONGEST_REGEX
    parts: list[str] = []
    for text in texts:
        parts.append(text)
        room -= len(separator) + len(text)
        if room < 0:
            raise UnknownGrammar("its regular expression is too long")
    return separator.join(parts)


def _is_terminal(name: str) -> bool:
    """Tell whether a name is in capital letters, after leading underscores."""
    return name.lstrip("_")[:1].isupper()


def _grouped(node: Node, text: str) -> str:
    return f"(?:{text})" if isinstance(node, Alternation) else text


def _times(least: int, most: int | None) -> str:
    if (least, most) in _SIGNS:
        return _SIGNS[least, most]
    return f"{{{least}}}" if least == most else f"{{{least},{'' if most is None else most}}}"


def _leaf(node: String | Regexp | CharacterRange) -> str:
    if isinstance(node, String):
        return "".join(map(_any_case if node.any_case else quoted, node.text))
    if isinstance(node, CharacterRange):
        return f"[{quoted(node.first)}-{quoted(node.last)}]"
    if set(node.flags) - set("imslu"):
        raise UnknownGrammar(f"the flags {node.flags} of a regular expression are not supported")
    flags = "".join(sorted(set(node.flags) & set("im")))
    return f"(?{flags}:{plain_regex(node.source, dot_all='s' in node.flags)})"


def _any_case(character: str) -> str:
    """Match the character in either case; not all engines support flags."""
    cases = dict.fromkeys((character, character.lower(), character.upper()))
    single = [quoted(case) for case in cases if len(case) == 1]
    return single[0] if len(single) == 1 else f"[{''.join(single)}]"


def quoted(character: str) -> str:
    """Quote a character for use in a regular expression."""
    if character in _CONTROL:
        return _CONTROL[character]
    if character < " ":
        return f"\\x{ord(character):02x}"
    return "\\" + character if character in _SPECIAL else character


def plain_regex(source: str, *, dot_all: bool = False) -> str:
    """Replace every dot of a regular expression, since engines differ in whether it matches the end of a line, unless its flags
    say that. Raises `UnknownGrammar` if its groups are not balanced, since it becomes part of a larger expression."""
    dot = r"[\s\S]" if dot_all else "." if _DOTS_MATCH_ALL.search(source) else r"[^\n]"
    out: list[str] = []
    depth = 0
    at = 0
    while at < len(source):
        piece = _PIECE.match(source, at)
        if piece is None:
            raise UnknownGrammar(f"/{source[:40]}/ is not balanced")
        at = piece.end()
        depth += {"(": 1, ")": -1}.get(piece[0], 0)
        if depth < 0:
            break
        out.append(dot if piece[0] == "." else piece[0])
    if depth:
        raise UnknownGrammar(f"/{source[:40]}/ is not balanced")
    return "".join(out)
