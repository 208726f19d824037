"""How often both parsers agree, family by family, as the table of `tests/oracle/README.md`."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from tests.oracle.both_parsers import compare
from tests.oracle.cases import ROOT, Case

PAGE = ROOT / "tests" / "oracle" / "README.md"
_HEAD = """\
| family | same items / as vLLM's whole answer only / documented difference |
|---|---|
"""


def table(cases: Sequence[Case]) -> str:
    """Markdown; a row for each family and one for all."""
    families: dict[str, Counter[str]] = {}
    for case in cases:
        result = compare(case)
        score = "same" if result.agree else "whole" if result.whole else "different"
        families.setdefault(case.family, Counter())[score] += 1
    total: Counter[str] = sum(families.values(), Counter())
    rows = [_row(f"`{name}`", families[name]) for name in sorted(families)]
    return _HEAD + "".join([*rows, _row("**all**", total)])


def _row(name: str, scores: Counter[str]) -> str:
    return f"| {name} | {scores['same']}/{scores['whole']}/{scores['different']} |\n"
