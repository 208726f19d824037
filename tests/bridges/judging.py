"""Judges one answer of a bridge: the rules of the stream, and whether the client got what the model said."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from responses_gateway.conformance.checker import check_stream, frames
from responses_gateway.conformance.levels import RULES, Level, Rule, counts_at
from tests.bridges.scenarios import Truth

_TERMINALS = {"response.completed": "completed", "response.incomplete": "incomplete", "response.failed": "failed"}
# Broken in all streams of some bridges: reported once, not with every stream.
EVERYWHERE = {"event_name", "sequence", "sequence_gap", "done_marker"}


@dataclass(frozen=True)
class Answer:
    """What a client got. `status` 0: no answer, or not in time. `first_byte`: seconds, None if no byte came."""

    status: int
    body: bytes
    first_byte: float | None = None
    problem: str = ""


@dataclass
class Verdict:
    """What is wrong with the answer: in its content and ending, in the form of its stream, and in that of every stream."""

    content: list[str] = field(default_factory=list)
    form: list[Rule] = field(default_factory=list)
    everywhere: list[Rule] = field(default_factory=list)

    @property
    def right(self) -> bool:
        """Nothing is wrong that concerns this stream alone."""
        return not self.content and not self.form

    def valid_at(self, level: Level) -> bool:
        """Tell whether the form of this stream breaks no rule that counts at a level."""
        return not any(counts_at(RULES[rule].level, level) for rule in self.form)


def judge(answer: Answer, truth: Truth, *, refused: bool) -> Verdict:
    """Return the verdict. `refused`: the backend refused the request, so an HTTP error is a right answer, too."""
    verdict = Verdict()
    if answer.status != 200:
        if not refused or not 400 <= answer.status < 600:
            verdict.content.append(f"HTTP {answer.status}" if answer.status else answer.problem or "no answer")
        return verdict
    for violation in check_stream(answer.body):
        found = verdict.everywhere if violation.rule in EVERYWHERE else verdict.form
        if violation.rule not in found:
            found.append(violation.rule)
    verdict.content += _content(_events(answer.body), truth)
    if answer.problem:
        verdict.content.append(answer.problem)
    return verdict


def _events(body: bytes) -> list[dict[str, Any]]:
    events = []
    for frame in frames(body):
        try:
            event = json.loads(frame.data)
        except ValueError:
            continue
        if isinstance(event, dict):
            events.append(event)
    return events


def _content(events: Sequence[dict[str, Any]], truth: Truth) -> list[str]:
    ends = [event for event in events if event.get("type") in _TERMINALS]
    if len(ends) != 1:
        return ["no terminal event" if not ends else f"{len(ends)} terminal events"]
    status = _TERMINALS[ends[0]["type"]]
    if status not in truth.endings:
        return [f"`{status}`"]
    if truth.items is None:
        return []
    output = (ends[0].get("response") or {}).get("output") or []
    said = [item for item in map(_short, output) if item != ("text", "")]  # an empty message says nothing
    if status == "failed" and not said:  # a failed response may leave out what was streamed
        return []
    return _differences(said, truth)


def _differences(said: Sequence[tuple[Any, ...]], truth: Truth) -> list[str]:
    assert truth.items is not None
    wanted = [_normal(item) for item in truth.items]
    got = [_normal(item) for item in said]
    if got == wanted or (truth.cut and _is_beginning(got, wanted)):
        return []
    kinds = [item[0] for item in got]
    if kinds != [item[0] for item in wanted]:
        return [f"items: {', '.join(kinds) or 'none'}"]
    wrong = next(kind for kind, one, other in zip(kinds, got, wanted, strict=True) if one != other)
    return [f"wrong {wrong}"]


def _is_beginning(got: Sequence[tuple[Any, ...]], wanted: Sequence[tuple[Any, ...]]) -> bool:
    if len(got) > len(wanted) or list(got[:-1]) != list(wanted[: len(got) - 1]):
        return False
    return not got or (got[-1][0] == wanted[len(got) - 1][0] and str(wanted[len(got) - 1][-1]).startswith(str(got[-1][-1])))


def _normal(item: tuple[Any, ...]) -> tuple[Any, ...]:
    """Compare without the white space around a text, and without replacement characters where one was cut."""
    kind, *rest = item
    if kind in {"text", "reasoning", "refusal"}:
        return kind, str(rest[0]).strip().rstrip("\ufffd")
    return item


def _short(item: dict[str, Any]) -> tuple[Any, ...]:
    match item.get("type"):
        case "message":
            parts = item.get("content") or []
            kind = "refusal" if any(part.get("type") == "refusal" for part in parts) else "text"
            return kind, "".join(str(part.get("text") or part.get("refusal") or "") for part in parts)
        case "reasoning":
            parts = item.get("content") or item.get("summary") or []
            return "reasoning", "".join(str(part.get("text") or "") for part in parts)
        case "function_call":
            name = ".".join(filter(None, [item.get("namespace"), item.get("name")]))
            return "call", name, _arguments(item.get("arguments"))
        case "custom_tool_call":
            return "custom", item.get("name"), item.get("input")
    return str(item.get("type")), json.dumps(item)


def _arguments(text: object) -> object:
    try:
        return json.loads(str(text))
    except ValueError:
        return text
