r"""Convert regular expressions to the `pattern` of a string in the schema of a function.

Backends disagree about what such a pattern is matched with. llguidance uses the decoded text of the JSON string, as does every
server for a model that writes its arguments as XML. xgrammar (vLLM's default) uses the JSON source, in which a line feed is
`\n` and a quote `\"`, and its character classes match nothing that JSON would escape. They agree only if no text of the
language has such a character: on dates, numbers, names and small expressions, but not on patches and programs. For those the
backend must be known (`responses-gateway doctor` finds out), and with one that uses the source, every text must need an escape,
as every patch does; otherwise xgrammar excludes the texts that need one.

Dialects differ too, so a pattern has only what all of them support, llama.cpp included: plain groups, alternatives,
repetition, characters and classes, and no unnecessary escapes.
"""

from __future__ import annotations

import re
from functools import lru_cache
from typing import Literal, NamedTuple, TypeAlias

# What the backend matches a pattern with: the "json" source, the decoded "text", or unknown ("alike": it must not matter).
Reading: TypeAlias = Literal["alike", "json", "text"]
# First and last character of each range, sorted and not adjacent.
Ranges: TypeAlias = tuple[tuple[int, int], ...]

LONGEST_PATTERN = 4000  # the longest pattern that is sent, in characters: schemas become part of the prompt

_PIECE = re.compile(
    r"""
      (?P<GROUP>  \(\?: | \((?!\?) | \) | \| )
    | (?P<TIMES>  [*+?] | \{\d+(?:,\d*)?\} )
    | (?P<CLASS>  \[\^?\]?(?:\\.|[^\]\\])*\] )
    | (?P<ESCAPE> \\. )
    | (?P<OTHER>  [^\\\[\]{}^$.()] )
    """,
    re.VERBOSE | re.DOTALL,
)
_MEMBER = re.compile(r"\\(?P<escaped>.)|(?P<plain>.)", re.DOTALL)
_LAST = 0x10FFFF
_ALL: Ranges = ((0, _LAST),)
_SHORTHANDS: dict[str, Ranges] = {
    "d": ((0x30, 0x39),),
    "w": ((0x30, 0x39), (0x41, 0x5A), (0x5F, 0x5F), (0x61, 0x7A)),
    "s": ((0x09, 0x0D), (0x20, 0x20)),
}
_CONTROL = {"n": "\n", "t": "\t", "r": "\r", "f": "\f", "v": "\v"}
# JSON escapes; other control characters are not needed.
_ESCAPED = {'"': '\\"', "\\": "\\\\", "\n": "\\n", "\t": "\\t", "\r": "\\r", "\f": "\\f"}
# The characters that JSON escapes; and these with all that are not printable ASCII.
_BEYOND_JSON: Ranges = ((0, 0x1F), (0x22, 0x22), (0x5C, 0x5C))
_BEYOND_PLAIN: Ranges = ((0, 0x1F), (0x22, 0x22), (0x5C, 0x5C), (0x7F, _LAST))


class _Unfit(Exception):
    """The expression cannot be converted to a pattern."""


class _Token(NamedTuple):
    kind: str
    text: str


@lru_cache(maxsize=64)
def pattern_of(regex: str, reading: Reading) -> str | None:
    """Convert a regular expression to an anchored pattern for a backend with this reading; None if that is impossible. `regex`
    has RE2's syntax, without dots (see `regex.plain_regex`)."""
    try:
        tokens = _tokens(regex)
        if reading != "json":
            return _anchored(tokens, reading)
        # Every text must need an escape: xgrammar matches a pattern with the source only if it would match nothing otherwise.
        return _anchored(tokens, "json" if _always_escaped(tokens) else "alike")
    except _Unfit:
        return None


def _tokens(regex: str) -> list[_Token]:
    at = 0
    tokens = [_Token("GROUP", "")]
    while at < len(regex):
        match = _PIECE.match(regex, at)
        if match is None:
            raise _Unfit
        at = match.end()
        token = _Token(str(match.lastgroup), match[0])
        if token.kind == "TIMES" and tokens[-1].kind in ("TIMES", "GROUP") and tokens[-1].text != ")":
            if token.text == "?" and tokens[-1].kind == "TIMES":
                continue  # lazy or greedy: the language is the same
            raise _Unfit
        tokens.append(token)
        if len(tokens) > LONGEST_PATTERN:  # each becomes a character at least
            raise _Unfit
    return tokens


def _anchored(tokens: list[_Token], reading: Reading) -> str:
    pattern = "^("
    for kind, text in tokens:
        if kind in ("TIMES", "GROUP"):
            pattern += "(" if text == "(?:" else text  # llama.cpp supports no other groups
        else:
            pattern += _characters(_set_of(text), reading)
        if len(pattern) > LONGEST_PATTERN - len(")$"):
            raise _Unfit
    return pattern + ")$"


def _always_escaped(tokens: list[_Token]) -> bool:
    """Tell whether every text of the language has a character that JSON escapes."""
    levels = [[True, False]]  # for each open group: whether all previous options have one, and this option
    for token, following in zip(tokens, [*tokens[1:], _Token("GROUP", "")], strict=True):
        may_be_absent = following.text in ("*", "?") or following.text.startswith("{0")
        if token.text in ("(", "(?:") and token.kind == "GROUP":
            levels.append([True, False])
        elif token.text == "|" and token.kind == "GROUP":
            levels[-1] = [levels[-1][0] and levels[-1][1], False]
        elif token.text == ")" and token.kind == "GROUP":
            every, this = levels.pop()
            if not levels:
                raise _Unfit
            levels[-1][1] = levels[-1][1] or (every and this and not may_be_absent)
        elif token.kind in ("CLASS", "ESCAPE", "OTHER") and not may_be_absent:
            levels[-1][1] = levels[-1][1] or not _without(_set_of(token.text), _BEYOND_JSON)
    [[every, this]] = levels[:1]
    return every and this


# ---- sets of characters ------------------------------------------------------------------------------------------------


@lru_cache(maxsize=64)
def _set_of(text: str) -> Ranges:
    """Return the characters that a class, an escape or a single character matches."""
    if text.startswith("[") and len(text) > 1:
        negated = text.startswith("[^")
        inside = _class(text[2:-1] if negated else text[1:-1])
        return _without(_ALL, inside) if negated else inside
    return _escaped(text[1]) if len(text) == 2 else ((ord(text), ord(text)),)


def _escaped(letter: str) -> Ranges:
    if letter.lower() in _SHORTHANDS:
        members = _SHORTHANDS[letter.lower()]
        return members if letter.islower() else _without(_ALL, members)
    character = _CONTROL.get(letter, letter)
    if character.isalnum():
        raise _Unfit  # a boundary, a character code, a property
    return ((ord(character), ord(character)),)


def _class(inside: str) -> Ranges:
    if "[:" in inside:
        raise _Unfit
    members = list(_MEMBER.finditer(inside))
    ranges: list[tuple[int, int]] = []
    at = 0
    while at < len(members):
        first = _member(members[at])
        if at + 2 < len(members) and members[at + 1][0] == "-":
            last = _member(members[at + 2])
            if len(first) != 1 or len(last) != 1 or first[0][0] != first[0][1] or last[0][0] < first[0][0]:
                raise _Unfit
            ranges.append((first[0][0], last[0][1]))
            at += 3
        else:
            ranges += first
            at += 1
    return _joined(ranges)


def _member(match: re.Match[str]) -> Ranges:
    return _escaped(match["escaped"]) if match["escaped"] else ((ord(match["plain"]), ord(match["plain"])),)


def _joined(ranges: list[tuple[int, int]]) -> Ranges:
    out: list[tuple[int, int]] = []
    for first, last in sorted(ranges):
        if out and first <= out[-1][1] + 1:
            out[-1] = (out[-1][0], max(last, out[-1][1]))
        else:
            out.append((first, last))
    return tuple(out)


def _without(ranges: Ranges, holes: Ranges) -> Ranges:
    """Subtract `holes` from `ranges`, in one pass through both."""
    out: list[tuple[int, int]] = []
    place = 0
    for first, last in ranges:
        begin = first
        while begin <= last and place < len(holes) and holes[place][0] <= last:
            low, high = holes[place]
            if begin < low:
                out.append((begin, low - 1))
            begin = max(begin, high + 1)
            place += high <= last  # else it may reach into the next range
        if begin <= last:
            out.append((begin, last))
    return tuple(out)


def _contains(ranges: Ranges, character: str) -> bool:
    return any(first <= ord(character) <= last for first, last in ranges)


# ---- output -------------------------------------------------------------------------------------------------------------


def _characters(ranges: Ranges, reading: Reading) -> str:
    if reading == "text":
        return _written(ranges)
    if reading == "alike":
        if _without(ranges, _BEYOND_PLAIN) != ranges:
            raise _Unfit
        return _written(ranges)
    plain = _without(ranges, _BEYOND_JSON)
    options = [_written(plain)] if plain else []
    options += ["".join(map(_quoted, spelled)) for character, spelled in _ESCAPED.items() if _contains(ranges, character)]
    if not options:
        raise _Unfit
    return options[0] if len(options) == 1 and plain else f"({'|'.join(options)})"


def _written(ranges: Ranges) -> str:
    """Write a set as a character or a class; a set without an upper end as a negated class."""
    if len(ranges) == 1 and ranges[0][0] == ranges[0][1]:
        return _quoted(chr(ranges[0][0]))
    if not ranges:
        raise _Unfit
    if ranges == _ALL:
        return r"[\s\S]"
    if ranges[-1][1] == _LAST:
        return f"[^{_listed(_without(_ALL, ranges))}]"
    return f"[{_listed(ranges)}]"


def _listed(ranges: Ranges) -> str:
    """Write the members of a class: a hyphen first and a caret last, where no dialect needs an escape for them."""
    marks = "".join(mark for mark in "-^" if _contains(ranges, mark))
    others = _without(ranges, ((ord("-"), ord("-")), (ord("^"), ord("^"))))
    members = "".join(_in_class(first) if first == last else f"{_in_class(first)}-{_in_class(last)}" for first, last in others)
    return marks.replace("^", "") + members + ("^" if "^" in marks else "")


def _in_class(code: int) -> str:
    return "\\" + chr(code) if chr(code) in "\\[]" else _control(chr(code)) or chr(code)


def _quoted(character: str) -> str:
    """Quote a character outside of classes."""
    return "\\" + character if character in r"\.^$|?*+()[]{}" else _control(character) or character


def _control(character: str) -> str:
    letter = next((name for name, control in _CONTROL.items() if control == character), None)
    if letter is not None:
        return "\\" + letter
    return f"\\x{ord(character):02x}" if character < " " or character == "\x7f" else ""
