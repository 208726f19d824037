"""The first generated part of docs/comparison.md, between two marker comments, and what both parts need."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence

from responses_gateway.conformance.levels import LEVELS, RULES, Level, Rule
from tests.bridges.judging import Verdict
from tests.bridges.playing import Found
from tests.bridges.scenarios import Scenario

# What a stream is that breaks no rule which counts at a level.
VALID: dict[Level, str] = {
    "breaks": "valid for clients (`--level breaks`)",
    "spec": "valid by the specification, too (`spec`)",
    "stricter": "valid by all rules (`stricter`)",
}
BEGIN = "<!-- bridges: written by `make bridges` -->"
END = "<!-- /bridges -->"


def section(found: Mapping[str, Found], scenarios: Sequence[Scenario]) -> str:
    """Return the markdown between the two marker comments, both included."""
    heads = [f"{name} {one.version}" for name, one in found.items()]
    columns = "|---|" + "---|" * len(found)
    lines = [BEGIN, "", row(["", *heads]), columns, *_sums(found, len(scenarios)), ""]
    lines += ["**What the client gets, stream by stream**", "", row(["streams", *found]), columns]
    lines += _outcomes(found, scenarios)
    lines += ["", "**Rules broken, the most frequent first**", "", row(["bridge", *map(code, LEVELS)]), "|---|---|---|---|"]
    lines += [
        row([head, *rules_by_level(map(_rules, one.verdicts.values()))])
        for head, one in zip(heads, found.values(), strict=True)
    ]
    return "\n".join([*lines, "", END])


def _sums(found: Mapping[str, Found], total: int) -> list[str]:
    every = list(found.values())
    right = [sum(not verdict.content for verdict in one.verdicts.values()) for one in every]
    valid = {level: [sum(verdict.valid_at(level) for verdict in one.verdicts.values()) for one in every] for level in LEVELS}
    readable = [total - len(one.unreadable) for one in every]
    return [
        row(["streams with the right items and the right ending", *(f"{count} of {total}" for count in right)]),
        row(["streams that OpenAI's Python SDK reads without an exception", *(f"{count} of {total}" for count in readable)]),
        *(row([f"streams that are {VALID[level]}", *(f"{n} of {total}" for n in valid[level])]) for level in LEVELS),
        row(["`event:` lines; `sequence_number` without gaps; `[DONE]`", *(_lines(one) for one in every)]),
        row(["the backend is stopped when the client leaves", *("yes" if one.stopped else "no" for one in every)]),
        row(["first byte, where the first token takes 3 s", *(_seconds(one.first_byte) for one in every)]),
    ]


def _lines(one: Found) -> str:
    broken = {rule for verdict in one.verdicts.values() for rule in verdict.everywhere}
    parts = ({"event_name"}, {"sequence", "sequence_gap"}, {"done_marker"})
    return "; ".join("no" if broken & part else "yes" for part in parts)


def _seconds(value: float | None) -> str:
    return "–" if value is None else "at once" if value < 1 else f"{value:.0f} s"


def _outcomes(found: Mapping[str, Found], scenarios: Sequence[Scenario]) -> list[str]:
    """Return a row for all streams of which the bridges make the same."""
    titles: dict[tuple[str, ...], list[str]] = {}
    for scenario in scenarios:
        titles.setdefault(tuple(_cell(one, scenario) for one in found.values()), []).append(_title(scenario))
    return [row(["; ".join(names), *cells]) for cells, names in titles.items()]


def _title(scenario: Scenario) -> str:
    mark = r" \*" if scenario.recorded else ""
    return f"{scenario.title}{mark}"


def _cell(one: Found, scenario: Scenario) -> str:
    verdict = one.verdicts[scenario.name]
    return "; ".join(verdict.content) or "✓"


def _rules(verdict: Verdict) -> set[Rule]:
    return {*verdict.form, *verdict.everywhere}


def rules_by_level(streams: Iterable[Iterable[Rule]]) -> list[str]:
    """Return, for each level, the rules of that level that the streams break, those that most of them break first."""
    counts = Counter(rule for broken in streams for rule in set(broken))
    ordered = sorted(counts.items(), key=lambda pair: (-pair[1], pair[0]))
    return [", ".join(code(rule) for rule, _ in ordered if RULES[rule].level == level) or "none" for level in LEVELS]


def code(word: str) -> str:
    """Return a word as inline code."""
    return f"`{word}`"


def row(cells: Sequence[str]) -> str:
    """Return a row of a table."""
    return f"| {' | '.join(cells)} |"
