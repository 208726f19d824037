"""The second generated part of docs/comparison.md: streams that others recorded, through this gateway and as they are."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from datetime import date
from typing import NamedTuple

from responses_gateway.conformance.checker import check_stream
from responses_gateway.conformance.levels import LEVELS, RULES, Rule, counts_at
from tests.bridges.document import VALID, code, row, rules_by_level
from tests.foreign_streams import ChatStream, chat_streams, received, responses_streams, sent
from tests.stream.stream_player import DONE, event, translate

BEGIN = "<!-- recordings: written by `make bridges` -->"
END = "<!-- /recordings -->"
_OURS = "responses-gateway, from the chat streams"


class Played(NamedTuple):
    """A chat stream that went through the gateway: who sent it, whether what was sent came out, and the broken rules."""

    sender: str
    right: bool
    broken: set[Rule]


def section(day: str) -> str:
    """Return the markdown between the two marker comments, both included, with the day on which it was measured."""
    played = [_play(stream) for stream in chat_streams()]
    senders = sorted({one.sender for one in played}, key=str.casefold)
    lines = [BEGIN, "", f"Measured on {day}.", "", "**Chat streams, through this gateway**", ""]
    lines += [row(["from", "streams", "all that was sent comes out", "rules broken"]), "|---|---|---|---|"]
    flawed = {one.sender for one in played if not one.right or one.broken}
    lines += [row([sender, *_sums([one for one in played if one.sender == sender])]) for sender in senders if sender in flawed]
    flawless = [one for one in played if one.sender not in flawed]
    counts = Counter(one.sender for one in flawless)
    lines += [row([", ".join(f"{sender} {counts[sender]}" for sender in senders if sender in counts), *_sums(flawless)])]
    lines += ["", "**Responses streams, by the levels of the rules**", ""]
    lines += [row(["from", "made in", "streams", *(VALID[level] for level in LEVELS)]), "|---|---|---|---|---|---|"]
    broken = {_OURS: [one.broken for one in played]}
    years: dict[str, set[int | None]] = {_OURS: {date.fromisoformat(day).year}}
    for stream in sorted(responses_streams(), key=lambda stream: (stream.sender != "OpenAI", stream.sender)):
        broken.setdefault(stream.sender, []).append({violation.rule for violation in stream.violations})
        years.setdefault(stream.sender, set()).add(stream.year)
    lines += [row([name, _span(years[name]), str(len(rules)), *_valid(rules)]) for name, rules in broken.items()]
    lines += ["", "**Rules broken, the most frequent first**", "", row(["from", *map(code, LEVELS)]), "|---|---|---|---|"]
    lines += [row([name, *rules_by_level(rules)]) for name, rules in broken.items()]
    return "\n".join([*lines, "", END])


def _play(stream: ChatStream) -> Played:
    body = translate([*map(event, stream.chunks), DONE], tools={})
    return Played(stream.sender, received(body) == sent(stream), {violation.rule for violation in check_stream(body)})


def _sums(played: Sequence[Played]) -> list[str]:
    rules = sorted(set[str]().union(*(one.broken for one in played)))
    return [str(len(played)), str(sum(one.right for one in played)), ", ".join(map(code, rules)) or "none"]


def _valid(streams: Sequence[Iterable[Rule]]) -> list[str]:
    """Return, for each level, how many streams break no rule that counts there."""
    return [str(sum(not any(counts_at(RULES[rule].level, level) for rule in broken) for broken in streams)) for level in LEVELS]


def _span(years: Iterable[int | None]) -> str:
    known = sorted(filter(None, years))
    return "–".join(dict.fromkeys(str(year) for year in (known[0], known[-1])))
