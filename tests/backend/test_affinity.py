"""The choice of a backend: keys stay where they are, loads stay bounded, and no backend is left out."""

from __future__ import annotations

import math
from collections import Counter

from hypothesis import given
from hypothesis import strategies as st

from responses_gateway.backend.policies.affinity import SPREAD, Load, capacity, choose, least_busy, preference

NAMES = st.lists(st.text(min_size=1, max_size=12), min_size=1, max_size=8, unique=True)
KEYS = [f"key-{number}" for number in range(400)]


def first(key: str, names: list[str]) -> str:
    return preference(key, ((name, 1.0) for name in names))[0]


@given(NAMES, st.text())
def test_the_order_is_a_matter_of_the_names_alone(names: list[str], key: str) -> None:
    order = preference(key, ((name, 1.0) for name in names))
    assert sorted(order) == sorted(names)
    assert preference(key, ((name, 1.0) for name in reversed(names))) == order


@given(NAMES.filter(lambda names: len(names) > 1), st.data())
def test_who_leaves_moves_no_keys_but_its_own(names: list[str], data: st.DataObject) -> None:
    gone = data.draw(st.sampled_from(names))
    rest = [name for name in names if name != gone]
    for key in KEYS[:50]:
        before = first(key, names)
        assert first(key, rest) == before or before == gone
        order = preference(key, ((name, 1.0) for name in names))
        assert preference(key, ((name, 1.0) for name in rest)) == [name for name in order if name != gone]


def test_keys_are_spread_by_weight() -> None:
    places = Counter(preference(key, [("a", 1.0), ("b", 1.0), ("c", 2.0)])[0] for key in KEYS)
    assert 60 < places["a"] < 140
    assert 60 < places["b"] < 140
    assert 150 < places["c"] < 250


@given(NAMES, st.lists(st.sampled_from(KEYS[:5]), max_size=120), st.floats(0.1, 10))
def test_no_backend_gets_much_more_than_its_share(names: list[str], keys: list[str], weight: float) -> None:
    """Whatever the keys are, and if nothing ever ends."""
    weights = {name: weight if number else 1.0 for number, name in enumerate(names)}
    in_flight = dict.fromkeys(names, 0)
    for number, key in enumerate(keys, start=1):
        loads = [Load(name, in_flight[name], weights[name]) for name in names]
        name = choose(loads, key)
        in_flight[name] += 1
        assert in_flight[name] <= math.ceil(SPREAD * number * weights[name] / sum(weights.values()))


@given(NAMES, st.text(min_size=1))
def test_a_key_stays_where_it_is_while_there_is_room(names: list[str], key: str) -> None:
    loads = [Load(name, 0) for name in names]
    assert choose(loads, key) == choose(list(reversed(loads)), key) == first(key, names)
    assert capacity(loads[0], 1, len(names)) >= 1


def test_a_crowd_with_one_key_overflows_to_the_next_in_its_order() -> None:
    order = preference("k", [("a", 1.0), ("b", 1.0), ("c", 1.0)])
    loads = [Load(name, 4 if name == order[0] else 0) for name in order]
    assert choose(loads, "k") == order[1]


def test_without_a_key_the_least_busy_one_for_its_weight_is_taken() -> None:
    assert least_busy([Load("a", 2), Load("b", 1), Load("c", 3)]) == "b"
    assert least_busy([Load("a", 2, weight=4), Load("b", 1)]) == "a"
    assert choose([Load("a", 0, last=7), Load("b", 0, last=3), Load("c", 0, last=5)]) == "b"  # whose turn it is
