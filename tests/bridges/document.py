"""The generated part of docs/comparison.md, between two marker comments."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from tests.bridges.judging import EVERYWHERE
from tests.bridges.playing import Found
from tests.bridges.scenarios import Scenario

BEGIN = "<!-- bridges: written by `make bridges` -->"
END = "<!-- /bridges -->"


def section(found: Mapping[str, Found], scenarios: Sequence[Scenario]) -> str:
    """Return the markdown between the two marker comments, both included."""
    heads = [f"{name} {one.version}" for name, one in found.items()]
    columns = "|---|" + "---|" * len(found)
    lines = [BEGIN, "", _row(["", *heads]), columns, *_sums(found, len(scenarios)), ""]
    lines += ["**What the client gets, stream by stream**", "", _row(["stream", *heads]), columns]
    lines += [_row([_title(scenario), *(_cell(one, scenario) for one in found.values())]) for scenario in scenarios]
    lines += ["", "**Rules broken, and in how many streams**", "", "| bridge | rules |", "|---|---|"]
    lines += [_row([head, _rules(one)]) for head, one in zip(heads, found.values(), strict=True)]
    return "\n".join([*lines, "", END])


def updated(document: str, found: Mapping[str, Found], scenarios: Sequence[Scenario]) -> str:
    """Return the document with the section as it should be. Raise `ValueError` where a marker is missing."""
    before, rest = document.split(BEGIN)
    _, after = rest.split(END)
    return before + section(found, scenarios) + after


def _sums(found: Mapping[str, Found], total: int) -> list[str]:
    every = list(found.values())
    right = [sum(not verdict.content for verdict in one.verdicts.values()) for one in every]
    valid = [sum(not verdict.form for verdict in one.verdicts.values()) for one in every]
    readable = [total - len(one.unreadable) for one in every]
    return [
        _row(["streams with the right items and the right ending", *(f"{count} of {total}" for count in right)]),
        _row(["streams that OpenAI's Python SDK reads without an exception", *(f"{count} of {total}" for count in readable)]),
        _row(["streams that break no rule about items, parts and responses", *(f"{count} of {total}" for count in valid)]),
        _row(["`event:` lines; `sequence_number` without gaps", *(_numbering(one) for one in every)]),
        _row(["the backend is stopped when the client leaves", *("yes" if one.stopped else "no" for one in every)]),
        _row(["first byte, where the first token takes 3 s", *(_seconds(one.first_byte) for one in every)]),
    ]


def _numbering(one: Found) -> str:
    broken = {rule for verdict in one.verdicts.values() for rule in verdict.everywhere}
    return "; ".join("no" if rule in broken else "yes" for rule in sorted(EVERYWHERE))


def _seconds(value: float | None) -> str:
    return "–" if value is None else "at once" if value < 1 else f"{value:.0f} s"


def _title(scenario: Scenario) -> str:
    return f"{scenario.title}{' (recorded)' if scenario.recorded else ''}"


def _cell(one: Found, scenario: Scenario) -> str:
    verdict = one.verdicts[scenario.name]
    return "; ".join(verdict.content) or "✓"


def _rules(one: Found) -> str:
    counts: dict[str, int] = {}
    for verdict in one.verdicts.values():
        for rule in (*verdict.form, *verdict.everywhere):
            counts[rule] = counts.get(rule, 0) + 1
    ordered = sorted(counts.items(), key=lambda pair: (-pair[1], pair[0]))
    return ", ".join(f"`{rule}` {count}" for rule, count in ordered) or "none"


def _row(cells: Sequence[str]) -> str:
    return f"| {' | '.join(cells)} |"
