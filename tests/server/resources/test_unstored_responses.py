"""What a connection keeps of responses that are not stored: the last ones, within bounds; what each adds is counted once."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from responses_gateway.server.generation.preparation.context import PreviousResponse
from responses_gateway.server.resources.socket_responses import UnstoredResponses


def kept(unstored: UnstoredResponses, *names: str) -> list[str]:
    return [name for name in names if unstored.get(name) is not None]


def add(unstored: UnstoredResponses, name: str, lane: str | None = None, size: int = 1, parent: str | None = None) -> list[str]:
    return unstored.add(PreviousResponse(name, []), lane, size, unstored.get(parent))


def test_the_least_recently_used_goes_first() -> None:
    unstored = UnstoredResponses(most=3)
    assert [add(unstored, name) for name in "abc"] == [[], [], []]
    assert unstored.get("a") is not None
    assert add(unstored, "d") == ["b"]
    assert kept(unstored, *"abcd") == ["a", "c", "d"]


def test_a_busy_lane_leaves_others_their_last_response() -> None:
    unstored = UnstoredResponses(most=4)
    for lane in "xyz":
        add(unstored, lane, lane)
    assert [add(unstored, str(number), "x") for number in range(4)] == [[], ["x"], ["0"], ["1"]]
    assert kept(unstored, "y", "z", "2", "3") == ["y", "z", "2", "3"]


def test_a_long_history_is_counted_once() -> None:
    unstored = UnstoredResponses(most_bytes=100)
    add(unstored, "0", size=50)
    for number in range(1, 40):
        assert add(unstored, str(number), parent=str(number - 1)) == []
    assert unstored.size == 89
    assert add(unstored, "other", "lane", size=60)[:2] == ["0", "1"]  # which frees nothing: what follows has them
    assert kept(unstored, "39", "other") == ["other"]
    assert unstored.size == 60


def test_the_newest_is_kept_whatever_its_size() -> None:
    unstored = UnstoredResponses(most_bytes=100)
    add(unstored, "a")
    assert add(unstored, "b", size=1000) == ["a"]
    assert kept(unstored, "a", "b") == ["b"]


def test_what_was_evicted_meanwhile_is_counted_again_with_what_continues_it() -> None:
    unstored = UnstoredResponses()
    add(unstored, "a", size=10)
    parent = unstored.get("a")
    unstored.evict("a")
    unstored.evict("a")
    assert unstored.size == 0
    unstored.add(PreviousResponse("b", []), None, 1, parent)
    assert unstored.size == 11
    unstored.evict("b")
    assert unstored.size == 0


@given(st.lists(st.tuples(st.sampled_from("xyz"), st.integers(0, 30), st.integers(-1, 20), st.booleans()), max_size=60))
def test_it_stays_within_its_bounds(steps: list[tuple[str, int, int, bool]]) -> None:
    """The size is that of all parts that those which are kept still have."""
    unstored = UnstoredResponses(most=5, most_bytes=60)
    chains: dict[str, list[tuple[str, int]]] = {}
    alive: set[str] = set()
    for number, (lane, size, earlier, evicts) in enumerate(steps):
        name = f"r{number}"
        parent = f"r{min(earlier, number - 1)}"
        before = unstored.get(parent)
        assert (before is not None) == (parent in alive)
        chains[name] = [*(chains[parent] if before is not None else ()), (name, size)]
        gone = unstored.add(PreviousResponse(name, []), lane, size, before)
        alive = (alive | {name}) - set(gone)
        if evicts and parent in alive:
            unstored.evict(parent)
            alive.discard(parent)
        assert name in alive
        assert unstored.size == sum(size for _, size in {part for each in alive for part in chains[each]})
        assert len(alive) <= 5
        assert unstored.size <= 60 or alive == {name}
