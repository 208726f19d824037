"""Property tests: the regular expression of a grammar agrees with the Lark library, and its pattern matches the same texts."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given, reject, settings
from hypothesis import strategies as st

from responses_gateway.request.grammar.json_pattern import pattern_of
from responses_gateway.request.grammar.lark_reader import UnknownGrammar
from responses_gateway.request.grammar.regex import regex_of
from responses_gateway.wire.tools import Grammar
from tests.thoroughness import examples

re2 = pytest.importorskip("re2", reason="the extra `grammars` is not installed")
lark = pytest.importorskip("lark", reason="the extra `grammars` is not installed")

_LETTERS = "ab\n"
_WORDS = st.text(alphabet=_LETTERS, max_size=6)


def _larger(parts: st.SearchStrategy[str]) -> st.SearchStrategy[str]:
    return st.one_of(
        st.lists(parts, min_size=1, max_size=3).map(" ".join),
        st.lists(parts, min_size=2, max_size=3).map(lambda options: f"({' | '.join(options)})"),
        st.tuples(parts, st.sampled_from(["?", "~1..2", "~2"])).map(lambda pair: f"({pair[0]}){pair[1]}"),
        parts.map(lambda part: f"[{part}]"),
        parts.map(lambda part: f'("a" {part})*'),
        parts.map(lambda part: f'({part} "b")+'),
    )


_LEAVES = st.sampled_from(['"a"', '"b"', '"ab"', r'"\n"', '"A"i', '"a".."b"', r"/[^a]/", "/a|b/", "LETTER", "rule"])
_GRAMMARS = st.recursive(_LEAVES, _larger, max_leaves=8).map(
    lambda body: f'start: {body}\nrule: "a" LETTER | "b"\nLETTER: /[ab]/'
)


@settings(max_examples=examples(100), deadline=None)
@given(definition=_GRAMMARS, words=st.lists(_WORDS, min_size=1, max_size=8))
def test_as_the_lark_library_has_it(definition: str, words: list[str]) -> None:
    ours = re2.compile(regex_of(Grammar("lark", definition)))
    try:
        theirs = lark.Lark(definition, parser="earley", lexer="dynamic_complete")
    except lark.exceptions.GrammarError:
        reject()  # ambiguous for Lark
    for word in words:
        assert (ours.fullmatch(word) is not None) is _takes(theirs, word), (definition, word)


def _takes(parser: Any, word: str) -> bool:
    try:
        parser.parse(word)
    except lark.exceptions.UnexpectedInput:
        return False
    return True


@settings(max_examples=examples(100), deadline=None)
@given(definition=_GRAMMARS, words=st.lists(_WORDS, min_size=1, max_size=8))
def test_a_pattern_says_the_same_of_what_it_is_matched_with(definition: str, words: list[str]) -> None:
    regex = regex_of(Grammar("lark", definition))
    ours = re2.compile(regex)
    as_text = pattern_of(regex, "text")
    as_json = pattern_of(regex, "json")
    for word in words:
        valid = ours.fullmatch(word) is not None
        if as_text is not None:
            assert (re2.compile(as_text).search(word) is not None) is valid
        if as_json is not None:
            assert (re2.compile(as_json).search(json.dumps(word)[1:-1]) is not None) is valid
            assert not valid or "\n" in word or pattern_of(regex, "alike") is not None


@settings(max_examples=examples(300), deadline=None)
@given(st.one_of(st.text(max_size=80), st.text(alphabet='start:|()[]"/\\\n ab*+?~.1%', max_size=80)))
def test_nothing_breaks_the_reader(definition: str) -> None:
    for grammar in (Grammar("lark", definition), Grammar("lark", "start: " + definition), Grammar("regex", definition)):
        try:
            regex = regex_of(grammar)
        except UnknownGrammar:
            continue
        for reading in ("alike", "json", "text"):
            pattern = pattern_of(regex, reading)  # type: ignore[arg-type]
            assert pattern is None or _compiles(pattern), (grammar, pattern)


def _compiles(pattern: str) -> bool:
    options = re2.Options()
    options.log_errors = False
    try:
        re2.compile(pattern, options)
    except re2.error:
        return False
    return True
