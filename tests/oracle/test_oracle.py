"""vLLM's parsers as a judge of ours: the same tokens, the same items, or a reason in `differences.yaml`."""

from __future__ import annotations

import pytest

from tests.oracle.both_parsers import compare, ours, theirs
from tests.oracle.cases import PARSERS, Case, all_cases, grouped
from tests.oracle.comparison import play, reached, same
from tests.oracle.differences import Difference, explains, known
from tests.oracle.families import FAMILIES, NOT_COMPARED
from tests.oracle.scores import PAGE, table

pytestmark = pytest.mark.oracle

CASES = list(all_cases())
DIFFERENCES = list(known())
LONGEST = 600  # tokens of a case that is cut at each of them

every_case = pytest.mark.parametrize("case", CASES, ids=[case.id for case in CASES])


@every_case
def test_both_parsers_make_the_same_items_or_it_is_known_why_not(case: Case) -> None:
    result = compare(case)
    reasons = [known for known in DIFFERENCES if explains(known, case.id, only_stream=result.whole)]
    if result.agree:
        assert case.id not in [name for known in DIFFERENCES for name in known.cases], "no longer a difference"
    else:
        assert reasons, f"unknown difference (vLLM's whole answer is ours: {result.whole})\n{result.ours}\n{result.theirs}"
    assert sum(case.id in known.cases for known in DIFFERENCES) <= 1


@every_case
def test_several_tokens_at_a_time_make_the_same_items(case: Case) -> None:
    pieces = list(grouped(case.pieces, case.id))
    result = compare(case)
    assert same(play(ours(case), pieces, case.reason), result.ours)
    if not any("raises" in item for item in result.theirs):
        assert same(play(theirs(case), pieces, case.reason), result.theirs)


@every_case
def test_an_output_cut_at_any_token_has_all_that_vllm_has(case: Case) -> None:
    if not compare(case).agree or len(case.pieces) > LONGEST:
        return
    for size in range(len(case.pieces)):
        pieces = case.pieces[:size]
        block = FAMILIES[case.family].block
        if block and block in "".join(text for text, _ in pieces):
            return
        mine = play(ours(case), pieces, "length")
        other = play(theirs(case), pieces, "length")
        assert reached(other, mine), ("".join(text for text, _ in pieces), mine, other)


@pytest.mark.parametrize("difference", DIFFERENCES, ids=[difference.name for difference in DIFFERENCES])
def test_a_known_difference_is_one(difference: Difference) -> None:
    cases = {case.id: case for case in CASES}
    result = compare(cases[difference.example])
    assert same(result.ours, difference.ours)
    assert same(result.theirs, difference.theirs)
    for name in difference.cases:
        alone = Difference(**{**vars(difference), "cases": (name,)})
        assert any(not compare(case).agree and explains(alone, case.id, compare(case).whole) for case in CASES), name


def test_every_family_is_compared_or_it_is_said_why_not() -> None:
    families = {path.stem for path in (PARSERS / "vectors").glob("*.yaml")}
    assert families == FAMILIES.keys() | NOT_COMPARED.keys()


def test_the_documentation_shows_the_scores() -> None:
    assert table(CASES) in PAGE.read_text(encoding="utf-8")
