"""Checks whether the input of a custom tool matches the tool's grammar, within bounds: grammar and input are a stranger's.

Whatever is a regular expression, or a Lark grammar without recursion, is matched by RE2: in linear time, with a bound on its
memory, in a thread. Any other Lark grammar is left to the library `lark` in a process of its own, which is killed when it takes
too long. Both libraries are in the extra `grammars`; without them inputs are `skipped`."""

from __future__ import annotations

import asyncio
import json
import re
from functools import lru_cache
from pathlib import Path
from typing import Any, Literal, NamedTuple

from responses_gateway.child_process import run_program
from responses_gateway.request.grammar.lark_reader import UnknownGrammar
from responses_gateway.request.grammar.regex import regex_of
from responses_gateway.wire.tools import Grammar

LONGEST_INPUT = 1024 * 1024  # an input longer than this is not checked, in characters
_REGEX_MEMORY = 2 * 1024 * 1024  # memory for one compiled expression, in bytes
# What may be in an expression that is compiled, because RE2 keeps the interpreter's lock meanwhile, for a second at worst:
# classes of Unicode, and repetitions, by the largest number of each.
_MOST_CLASSES = 100
_MOST_REPETITIONS = 20_000
_CLASS = re.compile(r"\\[pP]")
_REPETITION = re.compile(r"(\d{1,9}),?\}")
# Steps that matching may take at worst (size of the program times length of the input): about half a second.
_MOST_STEPS = 200_000_000
CHECK_TIMEOUT = 5.0  # time for a process that runs Lark, its wait for a turn included, in seconds
# Threads, and processes, that check at the same time: they take CPU time from the streams.
_AT_ONCE = 2
_LARK = Path(__file__).with_name("lark_process.py")


class CheckResult(NamedTuple):
    """`reason` says what is wrong with the input, or why it was not checked."""

    outcome: Literal["valid", "invalid", "skipped"]
    reason: str = ""


VALID = CheckResult("valid")


class GrammarChecker:
    """Checks inputs, a few at a time."""

    def __init__(self) -> None:
        self._threads = asyncio.Semaphore(_AT_ONCE)
        self._processes = asyncio.Semaphore(_AT_ONCE)

    async def check(self, grammar: Grammar, text: str) -> CheckResult:
        """Check one input. Never raises, whatever the grammar or the text."""
        if len(text) > LONGEST_INPUT:
            return CheckResult("skipped", "the input is too long")
        async with self._threads:
            result = await asyncio.to_thread(_match, grammar, text)
        if result is not None:
            return result
        try:
            async with asyncio.timeout(CHECK_TIMEOUT), self._processes:
                return await _parse(grammar, text)
        except TimeoutError:
            return CheckResult("skipped", "the check takes too long")
        except OSError as error:
            return CheckResult("skipped", f"no process can be started: {error.strerror}")


def _match(grammar: Grammar, text: str) -> CheckResult | None:
    """Return the result of RE2; None if only Lark can tell."""
    try:
        regex = compiled_regex(regex_of(grammar))
    except ImportError:
        return CheckResult("skipped", "the extra `grammars` is not installed")
    except (UnknownGrammar, ValueError) as error:
        return None if grammar.syntax == "lark" else CheckResult("skipped", f"the expression cannot be used: {error}")
    data = text.encode("utf-8", "replace")
    if regex.programsize * len(data) > _MOST_STEPS:
        return CheckResult("skipped", "grammar and input are too large together")
    return VALID if regex.fullmatch(data) is not None else CheckResult("invalid", "The text does not match the grammar.")


@lru_cache(maxsize=16)
def compiled_regex(expression: str) -> Any:
    """Compile an expression. Raise `ValueError` if RE2 does not accept it, `ImportError` if there is no RE2."""
    import re2  # noqa: PLC0415  (an extra)

    repetitions = sum(int(number) for number in _REPETITION.findall(expression))
    if repetitions > _MOST_REPETITIONS or len(_CLASS.findall(expression)) > _MOST_CLASSES:
        raise ValueError("it takes too long to compile")
    options = re2.Options()
    options.max_mem = _REGEX_MEMORY
    options.log_errors = False
    options.never_capture = True
    try:
        return re2.compile(expression.encode("utf-8", "replace"), options)
    except re2.error as error:
        reason = error.args[0] if error.args else b""
        raise ValueError(reason.decode("utf-8", "replace") if isinstance(reason, bytes) else str(reason)) from None


async def _parse(grammar: Grammar, text: str) -> CheckResult:
    """Return the result of Lark."""
    question = json.dumps({"definition": grammar.definition, "text": text}).encode()
    try:
        return CheckResult(**await run_program(_LARK, question))
    except (ValueError, TypeError):  # it was killed for want of memory or time, or Lark failed
        return CheckResult("skipped", "the grammar is too large to be checked")
