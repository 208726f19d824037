"""Turn arguments that are not JSON into JSON as they arrive: Python literals, and models' own notations.

Both are nested brackets with keys, strings and bare words; they differ in quotes, escapes and where a call's name stands.
Strings are given out piece by piece. A bare word without a meaning becomes a string. An expression of which only a part would
be read (`'a' % b`, `f(x)`, a value without a name) cuts the call: it would run with other arguments than the model's."""

from __future__ import annotations

import ast
import math
import re
from collections.abc import Callable
from dataclasses import dataclass

from responses_gateway.parsers.arguments import NamedCallReader, ReadStatus
from responses_gateway.parsers.arguments.values import dumps, escape
from responses_gateway.parsers.delta_buffer import DeltaBuffer
from responses_gateway.parsers.lexer import UNDECIDED, Lexer, skip_spaces

_WORDS = {"True": "true", "False": "false", "None": "null", "true": "true", "false": "false", "null": "null"}
_WORD_END = re.compile(r"[,()\[\]{}=:'\"\n<]")
_KEY_END = re.compile(r"[=:,(){}\[\]'\"<]")
_NUMBER = re.compile(r"-?(?:0|[1-9][0-9]*)(?:\.[0-9]+)?(?:[eE][+-]?[0-9]+)?")
_SPECIAL = {"'": re.compile(r"['\\]"), '"': re.compile(r'["\\]')}
_CLOSERS = {"(": ")", "[": "]", "{": "}"}
_PYTHON_ESCAPE = re.compile(r"\\(?:x[0-9a-fA-F]{2}|u[0-9a-fA-F]{4}|U[0-9a-fA-F]{8}|[0-7]{1,3}|N\{[^}]*\}|.)", re.DOTALL)
_LONGEST_ESCAPE = 10
# In a word without marks of its own: a part of one, or a sign before a value twice.
_MARKED = re.compile(r'[|"<>]|\A[:=]')
_NAME = re.compile(r'[^\s|"`:]+')
_COMPUTED = re.compile(r"[\"']|\A(?:not\b|[:=])")  # in a bare word: it is an expression, and no text
_PREFIXES = frozenset(("r", "R", "b", "B", "u", "U", "f", "F", "br", "rb", "fr", "rf", "Rb", "bR"))


@dataclass
class _Bracket:
    closer: str
    keyed: bool
    count: int = 0
    commas: int = 0


class LiteralReader:
    """Reads one bracketed group of named values as a JSON object. `quotes` are the model's own string marks: text between them
    has no escapes, and plain double quotes are accepted too. None means Python strings."""

    def __init__(self, emit: Callable[[str], None], deltas: DeltaBuffer, stops: Lexer, quotes: Lexer | None) -> None:
        self.done = False
        self._emit = emit
        self._deltas = deltas
        self._stops = stops
        self._quotes = quotes
        self._stack: list[_Bracket] = []
        self._quote = ""
        self._prefix = ""  # of a Python string
        self._empty = False  # nothing of the string has come
        self._named = True  # the string is a value, and no key
        self._word: list[str] = []
        self._string_open = False  # a string's closing quote waits: another string may follow and continue it
        self._step: Callable[[str, int], int] = self._open_group

    def read(self, text: str, at: int) -> int:
        while not self.done and at < len(text):
            step = self._step
            before = at
            at = step(text, at)
            if at == before and self._step == step:
                break
        return at

    def _open_group(self, text: str, at: int) -> int:
        return self._push(_CLOSERS[text[at]], True, at + 1)

    def _push(self, closer: str, keyed: bool, at: int) -> int:
        self._stack.append(_Bracket(closer, keyed))
        self._emit("{" if keyed else "[")
        self._step = self._key if keyed else self._value
        return at

    def _pop(self, at: int) -> int:
        bracket = self._stack.pop()
        self._emit("}" if bracket.keyed else "]")
        if bracket.closer == ")" and not bracket.keyed and bracket.count > bracket.commas == 0:
            self._cut()  # brackets around one value, which are no list
        self._step = self._next
        self.done = not self._stack
        return at + 1

    def _cut(self) -> None:
        """Cut the call at what cannot be read as written."""
        self._deltas.repair("malformed_arguments")
        self._deltas.cut_call()

    def _separate(self) -> None:
        bracket = self._stack[-1]
        if bracket.count:
            self._emit(", ")
        bracket.count += 1

    # Keys

    def _key(self, text: str, at: int) -> int:
        at = skip_spaces(text, at)
        if at == len(text):
            return at
        if text[at] == self._stack[-1].closer:
            return self._pop(at)
        if text[at] == ",":
            return at + 1
        opened = self._opening_quote(text, at)
        if opened is None:
            return at
        self._named = not opened
        if opened:
            self._separate()
            return self._open_string(opened, at)
        self._step = self._key_word
        return at

    def _key_word(self, text: str, at: int) -> int:
        match = _KEY_END.search(text, at)
        if match is None:
            self._word.append(text[at:])
            return len(text)
        place = match.start()
        char = match.group()
        self._word.append(text[at:place])
        if char in "=:":
            return self._emit_key(place)
        if char == "<":
            passes = self._passes(text, place)
            self._word.append("<" if passes else "")
            return place + passes
        self._cut()  # a value without a name, which JSON objects do not have
        self._word.clear()
        self._step = self._key
        return place if char in (",", self._stack[-1].closer) else place + 1

    def _key_separator(self, text: str, at: int) -> int:
        at = skip_spaces(text, at)
        if at == len(text):
            return at
        self._named = True
        self._step = self._value
        if text[at] in "=:":
            self._emit(": ")
            return at + 1
        self._cut()
        self._step = self._key
        return at

    def _emit_key(self, place: int) -> int:
        key = "".join(self._word).strip()
        if not _NAME.fullmatch(key):
            self._cut()  # a part of an expression, or of a value whose mark is missing
        self._separate()
        self._emit(dumps(key) + ": ")
        self._word.clear()
        self._step = self._value
        return place + 1

    # Values

    def _value(self, text: str, at: int) -> int:
        at = skip_spaces(text, at)
        if at == len(text):
            return at
        char = text[at]
        bracket = self._stack[-1]
        if char == bracket.closer and not bracket.keyed:
            return self._pop(at)
        if char == "," and not bracket.keyed:
            return at + 1
        opened = self._opening_quote(text, at)
        if opened is None:
            return at
        if not bracket.keyed:
            self._separate()
        if opened:
            return self._open_string(opened, at)
        if char in _CLOSERS:
            return self._push(_CLOSERS[char], char == "{", at + 1)
        self._step = self._bare
        return at

    def _opening_quote(self, text: str, at: int) -> str | None:
        """Return the quote that opens a string at `at`; "" if there is none, None if more text is needed to tell."""
        if self._quotes is not None:
            marker = self._quotes.at(text, at)
            if marker:
                self._quotes.take(marker)
            plain = '"' if text[at] == '"' else ""
            return None if marker == UNDECIDED else marker or plain
        char = text[at]
        if char not in "'\"":
            return ""
        if self._step == self._key:  # keys are short: no triple quotes there
            return char
        if text.startswith(char * 3, at):
            return char * 3
        return None if text[at:] in (char, char * 2) else char

    def _open_string(self, quote: str, at: int) -> int:
        self._quote = quote
        if not self._string_open:
            self._empty = True
            self._emit('"')
        self._step = self._string
        return at + len(quote)

    def _string(self, text: str, at: int) -> int:
        return self._python_string(text, at) if self._quote[0] in "'\"" else self._own_string(text, at)

    def _own_string(self, text: str, at: int) -> int:
        assert self._quotes is not None
        hit = self._quotes.find(text, at)
        end = hit.start if hit else self._quotes.held(text, at)
        self._emit(escape(text[at:end]))
        self._empty = self._empty and end == at
        if hit is None:
            return end
        self._quotes.take(hit.marker)
        self._step = self._after_own_string
        return hit.end

    def _after_own_string(self, text: str, at: int) -> int:
        """Read on behind a string mark: models write it twice now and then, before a string and behind it."""
        assert self._quotes is not None
        if not self._empty:
            at = skip_spaces(text, at)
        if at == len(text):
            return at
        again = self._quotes.at(text, at)
        end = self._stops.at(text, at) if self._empty and not again else None
        if UNDECIDED in (again, end):
            return at
        if again:
            self._quotes.take(again)
            at += len(again)
        elif end or not self._empty or text[at] in ",)]}" or text[at].isspace():
            return self._close_string(at)
        else:
            self._step = self._string
        self._deltas.repair("duplicate_start")
        self._empty = False
        return at

    def _python_string(self, text: str, at: int) -> int:
        quote = self._quote
        match = _SPECIAL[quote[0]].search(text, at)
        end = match.start() if match else len(text)
        piece = text[at:end]
        self._emit(escape(piece))
        if "f" in self._prefix and "{" in piece:
            self._cut()
        if match is None:
            return end
        if match.group() == "\\":
            return self._escape(text, end)
        if text.startswith(quote, end):
            self._string_open = True
            self._prefix = ""
            self._step = self._after_string
            return end + len(quote)
        if len(text) - end < len(quote) and text[end:] == quote[0] * (len(text) - end):
            return end
        self._emit(escape(quote[0]))
        return end + 1

    def _escape(self, text: str, at: int) -> int:
        if len(text) - at < _LONGEST_ESCAPE and not self._deltas.final and not _complete(text, at):
            return at
        match = _PYTHON_ESCAPE.match(text, at)
        if match is None:
            return at
        if "r" in self._prefix:
            self._emit(escape(text[at : at + 2]))
            return at + 2
        self._emit(escape(_unescape(match.group())))
        return match.end()

    def _after_string(self, text: str, at: int) -> int:
        """Read on behind a string: Python joins strings that stand side by side, or have a plus between them."""
        at = skip_spaces(text, at)
        if at == len(text):
            return at
        if text[at] == "+" and self._step == self._after_string:
            self._step = self._behind_plus
            return at + 1
        opened = self._opening_quote(text, at)
        if opened is None:
            return at
        if opened:
            return self._open_string(opened, at)
        if self._step == self._behind_plus:
            self._cut()
        self._string_open = False
        return self._close_string(at)

    def _close_string(self, at: int) -> int:
        self._emit('"')
        self._step = self._next if self._named else self._key_separator
        return at

    def _behind_plus(self, text: str, at: int) -> int:
        return self._after_string(text, at)

    def _bare(self, text: str, at: int) -> int:
        match = _WORD_END.search(text, at)
        end = match.start() if match else len(text)
        self._word.append(text[at:end])
        if match is None:
            return end
        char = match.group()
        bracket = self._stack[-1]
        if char in (",", bracket.closer):
            self._emit_word()
            self._step = self._next
            return end
        if char == "<" and not self._passes(text, end):
            return end
        if char in "'\"" and self._quotes is None and "".join(self._word).strip() in _PREFIXES:
            return self._open_prefixed(text, end)
        self._word.append(char)
        return end + 1

    def _passes(self, text: str, at: int) -> bool:
        """Tell whether the `<` at this place is an ordinary character. Close everything if an end marker stands here."""
        marker = self._stops.at(text, at)
        if marker:
            self._deltas.repair("unclosed_json")
            if self._quotes is not None and self._step == self._key_word and "".join(self._word).strip():
                self._cut()  # a name without its value
            if self._step == self._bare:
                self._emit_word()
            while self._stack:
                self._pop(at)
        return marker is None

    def _open_prefixed(self, text: str, at: int) -> int:
        opened = self._opening_quote(text, at)
        if opened is None:
            return at
        self._prefix = "".join(self._word).lower()
        self._word.clear()
        return self._open_string(opened, at)

    def _emit_word(self) -> None:
        word = "".join(self._word).strip()
        self._word.clear()
        unbalanced = any(word.count(bracket) != word.count(closer) for bracket, closer in _CLOSERS.items())
        if not word or unbalanced or (_COMPUTED if self._quotes is None else _MARKED).search(word):
            self._cut()
        value = _literal(word)
        if value is None:
            self._deltas.repair("malformed_arguments")
        self._emit(dumps(word) if value is None else value)

    def _next(self, text: str, at: int) -> int:
        at = skip_spaces(text, at)
        if at == len(text):
            return at
        char = text[at]
        bracket = self._stack[-1]
        if char == bracket.closer:
            return self._pop(at)
        if char == "<" and not self._passes(text, at):
            return at
        self._step = self._key if bracket.keyed else self._value
        if char == ",":
            bracket.commas += 1
            return at + 1
        if bracket.keyed and (char in "'\"<_" or char.isalpha()):
            self._deltas.repair("malformed_arguments")  # a comma is missing, if this is a key
        else:
            self._cut()
        return at


class RelaxedObjectReader(NamedCallReader):
    """Reads the arguments of a call in a model's own notation."""

    def __init__(self, name: str, call_id: str, deltas: DeltaBuffer, stops: Lexer, quotes: Lexer) -> None:
        super().__init__(name, call_id, deltas)
        self._reader = LiteralReader(deltas.arguments, deltas, stops, quotes)

    def read(self, text: str, at: int) -> int:
        """Read on. The header has stopped at the opening bracket, so this is a call from its first character."""
        self._begin()
        at = self._reader.read(text, at)
        if self._reader.done:
            self.status = ReadStatus.DONE
        return at

    def finish(self, _cut: bool, _rest: str) -> None:
        """Tell that the call is cut: its brackets are open."""
        self._deltas.cut_call()


def _literal(word: str) -> str | None:
    """Return a bare word as JSON; None if it has no meaning."""
    if word in _WORDS or _NUMBER.fullmatch(word):
        return _WORDS.get(word, word)
    try:
        value = ast.literal_eval(word)
        return dumps(value) if isinstance(value, str | int) or (isinstance(value, float) and math.isfinite(value)) else None
    except (ValueError, SyntaxError, MemoryError, RecursionError):
        return None


def _complete(text: str, at: int) -> bool:
    """Tell whether the escape at `at` has a length known from its second character, and is complete."""
    kind = text[at + 1 : at + 2]
    sizes = {"x": 4, "u": 6, "U": 10, "N": 99}
    return bool(kind) and not kind.isdigit() and len(text) - at >= sizes.get(kind, 2)


def _unescape(raw: str) -> str:
    if raw == "\\\n":
        return ""
    try:
        value = ast.literal_eval(f'"{raw}"' if raw != '\\"' else "'\"'")
    except (ValueError, SyntaxError):
        return raw
    return str(value)
