"""Grammars of custom tools: which can be converted to regular expressions, and which to patterns of a schema."""

from __future__ import annotations

import contextlib
import json
import time
import tracemalloc
from typing import Any

import pytest

from responses_gateway.request import Policy
from responses_gateway.request.grammar.json_pattern import pattern_of
from responses_gateway.request.grammar.lark_reader import UnknownGrammar
from responses_gateway.request.grammar.regex import LONGEST_DEFINITION, regex_of
from responses_gateway.wire.tools import Grammar
from tests.request.builders import chat_request, outcomes, refusal
from tests.request.example_grammars import PATCHES, SCRIPTS

re2 = pytest.importorskip("re2", reason="the extra `grammars` is not installed")

SUM = 'start: NUMBER (SPACE SIGN SPACE NUMBER)*\nSIGN: "+" | "-"\nSPACE: " "\nNUMBER: /[0-9]+/'


def lark(definition: str) -> str:
    return regex_of(Grammar("lark", definition))


def matches(definition: str, text: str) -> bool:
    return re2.compile(lark(definition)).fullmatch(text) is not None


PATCH = (
    '*** Begin Patch\n*** Update File: a.py\n*** Move to: b.py\n@@ def f():\n-old\n+new \\ "é"\n \n'
    "*** End of File\n*** End Patch"
)


@pytest.mark.parametrize(
    ("text", "valid"),
    [
        (PATCH, True),
        (PATCH + "\n", True),
        ("*** Begin Patch\n*** Add File: a\n+x\n+\n*** Delete File: b\n*** End Patch", True),
        ("*** Begin Patch\n*** Update File: a\n*** End Patch", True),
        ("*** Begin Patch\n*** End Patch", False),
        ("*** Begin Patch\n*** Add File: a\nx\n*** End Patch", False),
        (PATCH.removesuffix("*** End Patch"), False),
        (f"```\n{PATCH}\n```", False),
        (f"apply_patch <<'EOF'\n{PATCH}\nEOF", False),
        ("", False),
    ],
)
def test_patches(text: str, valid: bool) -> None:
    assert matches(PATCHES, text) is valid


def test_scripts_with_a_head_line() -> None:
    assert matches(SCRIPTS, "// @exec: fast\nconsole.log(1)\n")
    assert matches(SCRIPTS, "console.log(`\n`)")
    assert not matches(SCRIPTS, "")


@pytest.mark.parametrize(
    ("definition", "yes", "no"),
    [
        ('start: "a" | "b"\n  | "c"', ["a", "c"], ["ab", ""]),
        ('start: "a"i "."', ["a.", "A."], ["ab"]),
        ('start: ["x"] ("a".."c")+ "z"?', ["xabz", "c"], ["x", "dz"]),
        ('start: A~2 B~1..3\nA: "a"\nB: "b"', ["aab", "aabbb"], ["ab", "aabbbb"]),
        ("start: INT\n%import common.INT", ["42"], ["x"]),
        ("start: N\n%import common.SIGNED_NUMBER -> N", ["-4.5e3"], ["x"]),
        ("start: A WS B // both\n%import common (WS, CNAME)\nA: CNAME\nB: CNAME # or not", ["a b_1"], ["ab", "a 1"]),
        ('start: x ("," x)*\nx: /\\d+/\n%ignore " "', ["1, 2", " 1 ,2 "], ["1 2", ""]),
        ("start: STRING\n%import common.ESCAPED_STRING -> STRING", [r'"a\"b"'], ['"a"b"']),
        ("start: /a.b/", ["axb"], ["a\nb"]),
        ("start: /a.b/s", ["a\nb"], ["ab"]),
        ("start: /[.]+/ /a|b/ /c/", ["..ac"], ["xac", "..a"]),
        (r"start: /\/\*.*\*\//", ["/* x */"], ["/* x"]),
        (r'start: "\"\\\n\t\x41\u00e9"', ['"\\\n\tAé'], ["x"]),
        ('?start: _x -> name\n!_x.2: "a" | ', ["a", ""], ["b"]),
        ("start: A\nA: B\nB: /x/i", ["X"], ["y"]),
        ('start: "\\u0000" "*"', ["\0*"], ["*"]),
    ],
)
def test_what_is_regular(definition: str, yes: list[str], no: list[str]) -> None:
    assert [text for text in yes if not matches(definition, text)] == []
    assert [text for text in no if matches(definition, text)] == []


DOUBLING = "\n".join(["start: a0 a0", *(f"a{n}: a{n + 1} a{n + 1}" for n in range(40)), 'a40: "x"'])
DEEP = "start: " + "(" * 40 + '"x"' + ")" * 40


@pytest.mark.parametrize(
    ("definition", "reason"),
    [
        ('start: "(" start ")" | "x"', "recursive"),
        ("start: a\na: b\nb: a", "recursive"),
        (DOUBLING, "too long"),
        ("start: " + "(" * 200 + '"x"' + ")" * 200, "nested"),
        ("\n".join(["start: a0", *(f"a{n}: {'(' * 40}a{n + 1}{')' * 40}+" for n in range(99)), 'a99: "x"']), "nested"),
        ("x" * (LONGEST_DEFINITION + 1), "too long"),
        ("", "start"),
        ('begin: "x"', "start"),
        ("start: missing", "missing"),
        ('start: "a"\nstart: "b"', "twice"),
        ("start: /a)(b/", "balanced"),
        ("start: /(a/", "balanced"),
        ("start: /[a/", "balanced"),
        ("start: /a/x", "flags"),
        ('start: ("a"', "missing"),
        ('start: "a" )', "not valid"),
        ('start: "b".."a"', "range"),
        (f'start: "a"~{"9" * 5000}', "not valid"),
        (r'start: "\ud83d"', "surrogate"),
        ('start: "a"..', "range"),
        ("start: X\n%import .files (X)", "common"),
        ("start: X\n%import common.NOTHING -> X", "not defined"),
        ('start: twice{"a"}\ntwice{x}: x x', "not valid"),
        ("start: <|token|>", "not valid"),
        ("<578 chars elided>", "not valid"),
        ("%declare A", "not valid"),
    ],
)
def test_what_is_not(definition: str, reason: str) -> None:
    with pytest.raises(UnknownGrammar, match=reason):
        lark(definition)


def test_groups_are_nested_as_deep_as_is_reasonable() -> None:
    assert matches(DEEP, "x")


@pytest.mark.parametrize(
    ("regex", "pattern"),
    [
        ("[0-9]{4}-[0-9]{2}", r"^([0-9]{4}-[0-9]{2})$"),
        (r"\d+(a|b)*?", "^([0-9]+(a|b)*)$"),
        (r"[\w.\-]+\.txt", r"^([-.0-9A-Z_a-z]+\.txt)$"),
        (r"[\]a^]", r"^([\]a^])$"),
        (lark(SUM), r"^(([0-9]+)( (\+|-) ([0-9]+))*)$"),
    ],
)
def test_what_may_be_a_pattern(regex: str, pattern: str) -> None:
    assert pattern_of(regex, "alike") == pattern


@pytest.mark.parametrize(
    "regex",
    [
        *(r".", "[^a]", r"\s", r"\W", r"a\nb", "a\nb", '"', r"\\", "é", "[ -~]", "[é]", r"[\s]", r"[\n]", "[z-a]", "[a-\\d]"),
        *("(?i:a)", "(?=a)", "(?P<n>a)", r"\ba", "^a$", "a**", "*a", "(*a)", "[[:alpha:]]", "a{", "[", "a|+", "x" * 5000),
    ],
)
def test_what_may_not(regex: str) -> None:
    assert pattern_of(regex, "alike") is None


def custom(definition: str, syntax: str = "lark") -> dict[str, Any]:
    return {
        "type": "custom",
        "name": "t",
        "format": {"type": "grammar", "syntax": syntax, "definition": definition},
    }


def offered(tool: dict[str, Any], policy: Policy | None = None) -> tuple[dict[str, Any], dict[str, Grammar]]:
    """Return the function that is offered for the tool, and the grammars to check."""
    result = chat_request(tools=[tool], policy=policy)
    function: dict[str, Any] = result.body["tools"][0]["function"]
    return function, result.grammars


@pytest.mark.parametrize(("definition", "syntax"), [(SUM, "lark"), ("[0-9]+( [+-] [0-9]+)*", "regex")])
def test_a_pattern_is_sent_with_the_explanation(definition: str, syntax: str) -> None:
    function, grammars = offered(custom(definition, syntax))
    pattern = function["parameters"]["properties"]["input"]["pattern"]
    assert re2.compile(pattern).search("12 + 3") is not None
    assert re2.compile(pattern).search("12 +") is None
    assert function["strict"] is True
    assert definition in function["description"]
    assert grammars == {"t": Grammar(syntax, definition)}


@pytest.mark.parametrize("definition", [PATCHES, SCRIPTS, 'start: "(" start ")" | "x"', "what is this"])
def test_other_grammars_are_explained_alone(definition: str) -> None:
    function, grammars = offered(custom(definition))
    assert "pattern" not in json.dumps(function["parameters"])
    assert "strict" not in function
    assert definition in function["description"]
    assert grammars == {"t": Grammar("lark", definition)}
    assert "tool custom_grammar adapted" in outcomes(chat_request(tools=[custom(definition)]))


def test_the_operator_decides() -> None:
    described, grammars = offered(custom(SUM), Policy(custom_tool_grammar="describe"))
    assert SUM in described["description"]
    assert "strict" not in described
    assert len(grammars) == 1
    dropped, grammars = offered(custom(SUM), Policy(custom_tool_grammar="off"))
    assert SUM not in dropped["description"]
    assert grammars == {}
    strict = Policy(custom_tool_grammar="off", strict=True)
    assert refusal(tools=[custom(SUM)], policy=strict).param == "tools[0].format"


def test_a_grammar_that_is_too_long_is_left_out() -> None:
    function, grammars = offered(custom("x" * (LONGEST_DEFINITION + 1)))
    assert len(function["description"]) < 1000
    assert grammars == {}


def test_many_grammars_do_not_take_all_the_time() -> None:
    """Check that only the first of them are converted to patterns."""
    padding = "//" + "x" * 5000
    tools = [{**custom(f"{SUM}\n{padding}{number}"), "name": f"t{number}"} for number in range(10)]
    sent = chat_request(tools=tools).body["tools"]
    assert ["strict" in tool["function"] for tool in sent] == [True] * 3 + [False] * 7


def test_an_unknown_syntax_is_refused() -> None:
    assert refusal(tools=[custom("x", "antlr")]).param == "tools[0].format.syntax"


def pattern_for(definition: str, reading: Any) -> str:
    pattern = pattern_of(lark(definition), reading)
    assert pattern is not None
    return pattern


@pytest.mark.parametrize(
    ("text", "valid"), [(PATCH, True), (PATCH.replace("é", '"\\n"\t'), True), (PATCH.replace("@@", "##"), False), ("x", False)]
)
def test_patches_can_be_enforced_where_the_backend_is_known(text: str, valid: bool) -> None:
    """Match the JSON source or the decoded text, with RE2 in place of the backend."""
    written = json.dumps(text, ensure_ascii=False)[1:-1]
    assert (re2.compile(pattern_for(PATCHES, "json")).search(written) is not None) is valid
    assert (re2.compile(pattern_for(PATCHES, "text")).search(text) is not None) is valid


@pytest.mark.parametrize(
    ("definition", "json_pattern"),
    [
        (r"start: /a\n/", r"^((a(\\n)))$"),
        (r"start: /a\n+b/", r"^((a(\\n)+b))$"),
        (r'start: "\"" /[a-c"]*/ "\\"', r'^((\\")(([a-c]|\\")*)(\\\\))$'),
        (r"start: /\n|\t/", r"^(((\\n)|(\\t)))$"),
        (r"start: /[\n\t]/", r"^(((\\n|\\t)))$"),
        (r"start: /[^\n]\n/", r'^((([^\x00-\x1f"\\]|\\"|\\\\|\\t|\\r|\\f)(\\n)))$'),
        ("start: /[0-9]+/", "^(([0-9]+))$"),
        (r"start: /a\n*/", None),
        (r"start: /a\n?/", None),
        (r"start: /a\n{0,3}/", None),
        (r"start: /(a\n)*/", None),
        (r"start: /a|\n/", None),
        (r"start: /[^a]/", None),
        (SCRIPTS, None),
    ],
)
def test_a_pattern_in_json_must_need_an_escape(definition: str, json_pattern: str | None) -> None:
    assert pattern_of(lark(definition), "json") == json_pattern


@pytest.mark.parametrize("regex", ["a)", "(a", "a)(b", "[[:digit:]]", r"[a-\d]", r"a\p", "(?i:a)", "^a", "a" * 5000])
@pytest.mark.parametrize("reading", ["json", "text"])
def test_what_no_backend_would_take(regex: str, reading: Any) -> None:
    with contextlib.suppress(UnknownGrammar):
        assert pattern_of(regex_of(Grammar("regex", regex)), reading) is None


def test_what_is_enforced_is_on_record() -> None:
    for wish in ("json", "text"):
        result = chat_request(tools=[custom(PATCHES)], policy=Policy(custom_tool_grammar=wish))  # type: ignore[arg-type]
        assert "tool custom_grammar preserved" in outcomes(result)
        assert result.body["tools"][0]["function"]["strict"] is True
    assert "tool custom_grammar adapted" in outcomes(
        chat_request(tools=[custom(SCRIPTS)], policy=Policy(custom_tool_grammar="json"))
    )


def test_a_class_of_thousands_of_characters_holds_nobody_up() -> None:
    others = "".join(chr(0x4E00 + 2 * number) for number in range(8_000))
    begun = time.process_time()
    assert pattern_of(f"[^{others}]", "text") is None
    assert time.process_time() - begun < 1


@pytest.mark.parametrize("separator", [" ", "|"])
def test_a_long_rule_that_stands_there_thousands_of_times_is_not_written_as_often(separator: str) -> None:
    doubled = "".join(f"a{number + 1}: a{number} a{number}\n" for number in range(8))
    definition = f'a0: "{"x" * 100}"\n{doubled}start: ' + separator.join(["a8"] * 5_000)
    tracemalloc.start()
    try:
        with pytest.raises(UnknownGrammar, match="too long"):
            lark(definition)
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert peak < 10_000_000


@pytest.mark.parametrize("piece", ["a", "[ab]", "."])
def test_what_becomes_too_long_a_pattern_holds_nobody_up(piece: str) -> None:
    expression = regex_of(Grammar("regex", piece * (LONGEST_DEFINITION // len(piece))))
    begun = time.process_time()
    for reading in ("alike", "json", "text"):
        assert pattern_of(expression, reading) is None  # type: ignore[arg-type]
    assert time.process_time() - begun < 0.2


@pytest.mark.parametrize(
    ("expression", "left"), [("[^a-ce-g]", "dh"), ("[^c-eb-da]", "fgh"), ("[^a-h]", ""), (r"[^\d]", "abcdefgh")]
)
def test_a_class_has_what_it_does_not_exclude(expression: str, left: str) -> None:
    pattern = pattern_of(expression, "text")
    assert pattern is not None
    assert "".join(letter for letter in "abcdefgh" if re2.fullmatch(pattern, letter)) == left
