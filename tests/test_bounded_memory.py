"""What is kept while there is room, and who has most of it."""

from __future__ import annotations

from collections import Counter

from hypothesis import given, settings
from hypothesis import strategies as st

from responses_gateway.bounded_memory import BoundedDict, TenantShares
from tests.thoroughness import examples

changes = st.lists(st.tuples(st.sampled_from("abcde"), st.integers(-3, 5)), max_size=60)


@settings(deadline=None, max_examples=examples(200), derandomize=True)
@given(changes)
def test_the_largest_is_known_after_any_changes(made: list[tuple[str, int]]) -> None:
    shares = TenantShares()
    held: Counter[str] = Counter()
    used: dict[str, int] = {}
    for at, (tenant, wanted) in enumerate(made):
        amount = max(wanted, -held[tenant])
        shares.add(tenant, amount)
        held[tenant] += amount
        used[tenant] = at
        assert (shares.total, shares.of(tenant)) == (sum(held.values()), held[tenant])
        assert len(shares) == len(+held)
        if +held:
            assert shares.largest() == min(+held, key=lambda name: (-held[name], used[name]))


def test_what_is_kept_is_bounded_by_the_tenants_and_not_by_the_changes() -> None:
    shares = TenantShares()
    for _ in range(1000):
        for tenant in "abc":
            shares.add(tenant, 1)
            shares.add(tenant, -1)
    assert len(shares) == 0
    seen = vars(shares)
    assert sum(len(value) for value in seen.values() if isinstance(value, list | dict)) < 100


def test_a_bounded_dict_has_what_was_set_last() -> None:
    kept: BoundedDict[str, int] = BoundedDict(2)
    kept.update({"a": 1, "b": 2})
    kept["a"] = 3
    assert kept.setdefault("c", 4) == 4
    assert dict(kept) == {"a": 3, "c": 4}
    assert kept.get("b") is None
