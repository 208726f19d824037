"""Random turns, written in the markup of every family and cut anywhere, come back as they were."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from markup_outcome import TOOLS, Piece, agree, play
from markup_rendering import FAMILIES, Family, Item, render

from responses_gateway.parsers import markers, parser
from tests.thoroughness import examples

pytestmark = pytest.mark.untraced  # because other tests run the same lines

_EDGES = st.sampled_from("abcXYZéж好😀")
_INSIDE = st.text(
    st.one_of(st.characters(exclude_categories=["Cs", "Cc"]), st.sampled_from("\n\t <>/|[]{}()\"',:;=")), max_size=40
)
# Prose: begins and ends with a letter, so that neither quotes nor brackets stand next to markup. Nor does it end in a quoted
# line (`> …`), because markup in the same line is only shown.
PROSE = st.builds(lambda first, inside, last: first + inside + last, _EDGES, _INSIDE, _EDGES).filter(
    lambda text: not text.rpartition("\n")[2].lstrip().startswith(">")
)
STRING = st.one_of(_INSIDE, st.sampled_from(["", " ", "\n", "null", "true", "7", "a</b>", "<", "\\", "\\n", '"', "'''"]))
ARGUMENTS: dict[str, st.SearchStrategy[dict[str, Any]]] = {
    "get_weather": st.fixed_dictionaries({"city": STRING}, optional={"unit": st.sampled_from(["celsius", "fahrenheit"])}),
    "book_room": st.fixed_dictionaries(
        {"code": STRING},
        optional={
            "people": st.integers(-(10**12), 10**12),
            "hours": st.sampled_from([0.5, -2.25, 1e-7, 12345.678]),
            "projector": st.booleans(),
            "guests": st.lists(st.sampled_from(["Ann", "Bo", "a,b", "c{d}", "(e)", "it's"]), min_size=1, max_size=3),
            "catering": st.fixed_dictionaries(
                {"menu": st.sampled_from(["soup", "pie: 2"])}, optional={"vegan": st.integers(0, 9)}
            ),
            "note": st.sampled_from([None, "Memo"]),
            "repeat": st.sampled_from([None, 3]),
        },
    ),
    "list_files": st.just({}),
    "write_file": st.fixed_dictionaries({"path": STRING, "content": STRING}),
}
CALL = st.sampled_from(sorted(ARGUMENTS)).flatmap(lambda name: st.tuples(st.just("call"), st.just(name), ARGUMENTS[name]))


@st.composite
def turns(draw: st.DrawFn, family: Family) -> list[Item]:
    """Draw the items of a turn that this family can write."""
    items: list[Item] = []
    for part in range(draw(st.integers(1, 2)) if family.mixed else 1):
        if family.think is not None and (not items or items[-1][0] != "reasoning") and draw(st.booleans()):
            items.append(("reasoning", draw(PROSE)))
        calls: list[Item] = list(draw(st.lists(CALL, max_size=3)))
        marked = family.mixed or family.tools == "granite"
        if (marked or not calls) and (not items or items[-1][0] != "text") and draw(st.booleans()):
            items.append(("text", draw(PROSE)))
        items += calls if part == 0 or family.mixed else []
    return items


def contents(items: list[Item]) -> str:
    return "\0".join(
        str(part) if not isinstance(part, dict) else "\0".join(map(str, part.values())) for item in items for part in item
    )


@pytest.mark.parametrize("name", sorted(FAMILIES))
@settings(max_examples=examples(25), deadline=None, suppress_health_check=[HealthCheck.too_slow, HealthCheck.filter_too_much])
@given(data=st.data())
def test_a_turn_comes_back(name: str, data: st.DataObject) -> None:
    family = FAMILIES[name]
    known = markers(family.reasoning, family.tools)
    items = data.draw(turns(family).filter(lambda items: not any(marker in contents(items) for marker in known)))
    text = render(family, items)
    places = sorted(set(data.draw(st.lists(st.integers(0, len(text)), max_size=12))))
    edges = [0, *places, len(text)]
    pieces: list[Piece] = [(text[start:end], None) for start, end in pairwise(edges)]
    opened = family.opened and bool(items) and items[0][0] == "reasoning"
    subject = parser(family.reasoning, family.tools, schemas=TOOLS, thinking_open=opened)
    outcome = play(subject, pieces)
    expected = [{"call": item[1], "arguments": item[2]} if item[0] == "call" else {item[0]: item[1]} for item in items]
    assert agree(outcome.items, expected), (text, outcome)
