"""The gate of `continue_early_ends`: what it must never do to answers that are right as they are, by labelled endings.

Each is judged where it is easiest to be wrong: in the middle of an agent's work, with tools, behind the output of one."""

from __future__ import annotations

import json
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path

import pytest

from responses_gateway.stream.outcomes import EARLY, TurnEnd, TurnOutcome, is_certain, outcome_of

DATA = Path(__file__).parents[1] / "data"
GOOD = json.loads((DATA / "good_endings.json").read_text(encoding="utf-8"))
ANNOUNCED = json.loads((DATA / "announced_endings.json").read_text(encoding="utf-8"))
# Written without a look at the rule, after it was made: the rule must not be fitted to them.
UNSEEN = json.loads((DATA / "unseen_endings.json").read_text(encoding="utf-8"))
TOOLS = ("exec_command", "read_file", "apply_patch")
# Of good endings that are continued, and of announcements that are recognised.
MOST_FALSE = 0.005
FEWEST_HITS = 0.5
FEWEST_UNSEEN_HITS = 0.4


def outcome(text: str, *, thought: str = "") -> TurnOutcome | None:
    return outcome_of(TurnEnd("stop", text=text, thought=thought, tools=TOOLS, tool_ran=True))


def test_the_endings_are_many_in_six_languages() -> None:
    languages = Counter(ending["language"] for ending in GOOD)
    assert len(GOOD) >= 200
    assert len(languages) == 6
    assert min(languages.values()) >= 30
    assert len({ending["text"] for ending in GOOD}) == len(GOOD)
    assert {ending["language"] for ending in ANNOUNCED} == set(languages)


@pytest.mark.parametrize("thought", ["", "I have done all that was asked for. Let me report:"])
def test_no_good_ending_is_continued_for_certain(thought: str) -> None:
    found = {ending["text"]: outcome(ending["text"], thought=thought) for ending in GOOD}
    certain = {text: kind for text, kind in found.items() if kind is None or is_certain(kind, tool_ran=True)}
    assert certain == {}


def test_hardly_any_good_ending_is_taken_for_an_announcement() -> None:
    taken = [ending["text"] for ending in GOOD if outcome(ending["text"]) in EARLY]
    assert len(taken) <= MOST_FALSE * len(GOOD), taken


def test_a_short_answer_is_judged_quickly_wherever_its_last_sentence_ends() -> None:
    begun = time.thread_time()
    for _ in range(100):
        assert outcome("word é 模 " * 40 + "in app.py and") is not None
    assert time.thread_time() - begun < 0.05  # ten times what it takes; all streams wait meanwhile


def test_most_announcements_are_recognised(record_property: Callable[[str, object], None]) -> None:
    hits = Counter(ending["language"] for ending in ANNOUNCED if outcome(ending["text"]) == "announced")
    record_property("hits", f"{hits.total()} of {len(ANNOUNCED)}: {dict(hits)}")
    print(f"announcements recognised: {hits.total()} of {len(ANNOUNCED)}, {dict(hits)}")
    assert hits.total() >= FEWEST_HITS * len(ANNOUNCED)


@pytest.mark.parametrize("thought", ["", "I have done all that was asked for. Let me report:"])
def test_no_good_ending_that_the_rule_was_not_made_for_is_continued(thought: str) -> None:
    good = [ending["text"] for ending in UNSEEN if ending["kind"] != "announced"]
    kinds = {text: outcome(text, thought=thought) for text in good}
    assert len(good) >= 60
    assert {text: kind for text, kind in kinds.items() if kind in EARLY} == {}


def test_many_announcements_that_the_rule_was_not_made_for_are_recognised() -> None:
    announced = [ending for ending in UNSEEN if ending["kind"] == "announced"]
    hits = Counter(ending["language"] for ending in announced if outcome(ending["text"]) == "announced")
    print(f"announcements recognised: {hits.total()} of {len(announced)}, {dict(hits)}")
    assert hits.total() >= FEWEST_UNSEEN_HITS * len(announced)
    assert len(hits) == 6
