"""Values of pythonic calls that are expressions: a call has what Python makes of them, or is not completed."""

from __future__ import annotations

import ast
import json

import pytest
from markup_outcome import TOOLS, Outcome, Piece, characters, halves, play, whole

from responses_gateway.parsers import parser

VALUES = (
    "'a' + 'b'", "'a' 'b'", "'a' + \"b\" + 'c'", "r'a\\d'", "'a\\n'", "'a\\u00e9'", "'a\\x41'", "u'a'", "f'{x}'",
    "'''a'b'''", '"""a\n"b"""', "''", "('a')", "('a',)", "('a', 'b')", "['a', ['b']]", "{'a': 1}", "{'a': {'b': None}}", "{}",
    "[]", "()", "'a' + b", "'a' + 1", "'a' * 2", "'a'[0]", "'a'.upper()", "f('a')", "-1", "1.5e3", "0x10", "1_000",
    f"0x{'f' * 512}",
    "True", "None", "'a' if x else 'b'", "not x", "'a' +", "+ 'a'", "'a' + + 'b'", "'a\\'b'", "'a\\", "'a",
)  # fmt: skip
# Models write these for strings.
WORDS = {"b'a'": "a", "f'a'": "a", "x": "x", "x y": "x y"}


def read(pieces: list[Piece]) -> Outcome:
    return play(parser(None, "pythonic", schemas=TOOLS), pieces)


@pytest.mark.parametrize("value", [*VALUES, *WORDS])
def test_an_expression_is_read_whole_or_not_at_all(value: str) -> None:
    text = f"[search(query={value})]"
    outcome = read(whole(text))
    for item in outcome.items:
        if "call" in item and "cut" not in item:
            meant = WORDS.get(value) or ast.literal_eval(value.replace(" + ", " "))
            assert json.loads(item["arguments"]) == {"query": json.loads(json.dumps(meant))}, outcome
    for pieces in (characters(text), *halves(text)):
        assert read(pieces) == outcome
