"""Markup in disorder: whatever comes, no parser fails, and the outcome does not depend on how the text is cut."""

from __future__ import annotations

from itertools import pairwise

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from markup_outcome import TOOLS, characters, play, whole
from markup_rendering import FAMILIES, render

from responses_gateway.parsers import markers, parser
from tests.thoroughness import examples

pytestmark = pytest.mark.untraced  # because other tests run the same lines

_CALLS = [("call", "get_weather", {"city": "Rome"}), ("call", "search", {"query": "x", "filters": {"tags": ["a"]}, "limit": 3})]
_SCRAPS = list("\n a:=>{}[]()\"',;\\`<")
_SCRAPS += ["```\n", "</", "null", "12", "get_weather", "city", '"arguments": ', '"name": "search"']
_SCRAPS += ['{"name": "get_weather", "arguments": {"city": "Rome"}}']


def garbage(name: str) -> st.SearchStrategy[str]:
    """Markers, halves of markers, pieces of real calls and other scraps, in any order."""
    family = FAMILIES[name]
    known = sorted(markers(family.reasoning, family.tools))
    real = render(family, list(_CALLS))
    slices = st.tuples(st.integers(0, len(real)), st.integers(0, 40)).map(lambda cut: real[cut[0] : cut[0] + cut[1]])
    halves = st.sampled_from(known or [""]).flatmap(lambda marker: st.integers(0, len(marker)).map(lambda end: marker[:end]))
    return st.lists(st.one_of(st.sampled_from([*known, *_SCRAPS, real]), slices, halves), max_size=12).map("".join)


@pytest.mark.parametrize("name", sorted(FAMILIES))
@settings(max_examples=examples(30), deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(data=st.data())
def test_garbage_is_read_alike_however_it_is_cut(name: str, data: st.DataObject) -> None:
    family = FAMILIES[name]
    text = data.draw(garbage(name))
    opened = data.draw(st.sampled_from([True, False, None]))
    reason = data.draw(st.sampled_from(["stop", "length"]))
    edges = [0, *sorted(data.draw(st.lists(st.integers(0, len(text)), max_size=8))), len(text)]
    outcomes = []
    for pieces in (whole(text), characters(text), [(text[start:end], None) for start, end in pairwise(edges)]):
        subject = parser(family.reasoning, family.tools, schemas=TOOLS, thinking_open=opened)
        outcomes.append(play(subject, pieces, reason))
    assert outcomes[0] == outcomes[1] == outcomes[2]


def test_a_member_that_is_nested_too_deep_to_be_read_is_no_failure() -> None:
    deep = "[" * 100_000 + "]" * 100_000
    text = f'<tool_call>\n{{"x": {deep}, "name": "get_weather", "arguments": {{"city": "Rome"}}}}\n</tool_call>'
    (call,) = play(parser(None, "hermes", schemas=TOOLS), whole(text)).items
    assert (call["call"], call["arguments"]) == ("get_weather", '{"city": "Rome"}')


def test_a_number_that_no_text_may_have_is_no_failure() -> None:
    (call,) = play(parser(None, "pythonic", schemas=TOOLS), whole(f"[search(query=0x{'f' * 4000})]")).items
    assert call["call"] == "search"
