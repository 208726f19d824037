"""Verdicts on the inputs of custom tools, and the bounds that hold for hostile grammars."""

from __future__ import annotations

import asyncio
import time

import pytest

from responses_gateway.server.custom_tools.grammar_check import LONGEST_INPUT, GrammarChecker
from responses_gateway.wire.tools import Grammar
from tests.request.example_grammars import PATCHES
from tests.server.running_gateway import run

pytest.importorskip("re2", reason="the extra `grammars` is not installed")
pytest.importorskip("lark", reason="the extra `grammars` is not installed")

NESTED = 'start: "(" start ")" | "x"'
GOOD = "*** Begin Patch\n*** Add File: hello.txt\n+Hello from the simulator.\n*** End Patch"


@pytest.mark.parametrize(
    ("grammar", "text", "outcome"),
    [
        (Grammar("lark", PATCHES), GOOD, "valid"),
        (Grammar("lark", PATCHES), GOOD + "!", "invalid"),
        (Grammar("lark", PATCHES), "half a surrogate \ud83d", "invalid"),
        (Grammar("regex", "[a-z]+"), "abc", "valid"),
        (Grammar("regex", "[a-z]+"), "abc ", "invalid"),
        (Grammar("regex", "(?s)a.*z"), "a\nz", "valid"),
        (Grammar("regex", "(?s:a.)b.*"), "a\nb\n", "invalid"),
        (Grammar("lark", "start: /(?s:a.*)z/"), "a\nz", "valid"),
        (Grammar("regex", "(?=a)"), "a", "skipped"),
        (Grammar("regex", "("), "a", "skipped"),
        (Grammar("lark", NESTED), "((x))", "valid"),
        (Grammar("lark", NESTED), "((x)", "invalid"),
        (Grammar("lark", f"%import  common.DIGIT\n{NESTED} | DIGIT"), "(1)", "valid"),
        (Grammar("lark", "start: ???"), "x", "skipped"),
        (Grammar("lark", "%import .files (X)\nstart: X start | X"), "x", "skipped"),
        (Grammar("regex", "a*"), "a" * (LONGEST_INPUT + 1), "skipped"),
        (Grammar("regex", "(a|b)*a(a|b){900}"), "ab" * 400_000, "skipped"),
    ],
)
def test_verdicts(grammar: Grammar, text: str, outcome: str) -> None:
    async def test() -> None:
        assert (await GrammarChecker().check(grammar, text)).outcome == outcome

    run(test())


@pytest.mark.parametrize("loop", ["asyncio", "uvloop"])
def test_a_process_of_its_own_on_either_loop(loop: str) -> None:
    async def test() -> None:
        assert (await GrammarChecker().check(Grammar("lark", NESTED), "(x)")).outcome == "valid"

    run(test(), loop)


def test_without_processes_nobody_can_tell(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sys.executable", "/nowhere/python")

    async def test() -> None:
        assert (await GrammarChecker().check(Grammar("lark", NESTED), "(x)")).outcome == "skipped"

    run(test())


def test_a_verdict_says_what_is_wrong() -> None:
    async def test() -> None:
        assert "RPAR" in (await GrammarChecker().check(Grammar("lark", NESTED), "((x)")).reason

    run(test())


@pytest.mark.slow
def test_a_hostile_grammar_is_given_up_and_holds_nobody_up(monkeypatch: pytest.MonkeyPatch) -> None:
    """Use a terminal that takes Python's regular expressions for ever, in a recursive grammar: only a process can be ended."""
    monkeypatch.setattr("responses_gateway.server.custom_tools.grammar_check.CHECK_TIMEOUT", 2.0)
    hostile = Grammar("lark", 'start: a*\na: "(" a ")" | /(x+x+)+y/')

    async def test() -> None:
        judge = GrammarChecker()
        hostile_checks = [asyncio.create_task(judge.check(hostile, "x" * 60)) for _ in range(5)]
        assert (await judge.check(Grammar("lark", PATCHES), GOOD)).outcome == "valid"
        assert not any(check.done() for check in hostile_checks)
        assert {verdict.outcome for verdict in await asyncio.gather(*hostile_checks)} == {"skipped"}

    run(test())


@pytest.mark.parametrize("expression", [r"\PL" * 5_000, "(?:a{1,1000})" * 1_200])
def test_what_takes_a_second_to_compile_is_not_compiled(expression: str) -> None:
    """Nothing else happens in a gateway meanwhile, in whichever thread it is."""

    async def test() -> None:
        begun = time.process_time()
        assert (await GrammarChecker().check(Grammar("regex", expression), "a")).outcome == "skipped"
        assert time.process_time() - begun < 0.3

    run(test())


def test_a_long_patch_is_judged_at_once() -> None:
    async def test() -> None:
        patch = "*** Begin Patch\n*** Add File: a\n" + "+a line of text\n" * 20_000 + "*** End Patch"
        async with asyncio.timeout(10):  # it takes a few milliseconds
            assert (await GrammarChecker().check(Grammar("lark", PATCHES), patch)).outcome == "valid"

    run(test())
