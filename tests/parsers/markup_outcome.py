"""Feed markup to a parser and read its deltas as the items that a client would see."""

from __future__ import annotations

import json
import random
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from responses_gateway.parsers import REPAIRS, MarkupParser
from responses_gateway.wire.deltas import Delta, FinishReason, Reasoning, Text, ToolArguments, ToolCall, ToolCallCut

HERE = Path(__file__).parent


def load_yaml(path: Path) -> Any:
    """Read YAML, by the C library where there is one: every process that runs tests reads a lot of it."""
    return yaml.load(path.read_text(encoding="utf-8"), getattr(yaml, "CSafeLoader", yaml.SafeLoader))


TOOLS: dict[str, dict[str, Any]] = load_yaml(HERE / "tools.yaml")
# By name: the formats, and what markup in them stands for.
FAMILIES: dict[str, dict[str, Any]] = {path.stem: load_yaml(path) for path in sorted((HERE / "vectors").glob("*.yaml"))}

Piece = tuple[str, list[int] | None]


@dataclass
class Outcome:
    """Items in order: {"reasoning": text}, {"text": text} or {"call": name, "arguments": JSON text, "id": call id}, with "cut"
    where the parser tells that the call stops in the middle."""

    items: list[dict[str, str]]
    repairs: Mapping[str, int]

    @property
    def prose(self) -> str:
        """All reasoning and text, without white space."""
        return "".join("".join((item.get("reasoning") or item.get("text") or "").split()) for item in self.items)


def play(parser: MarkupParser, pieces: Iterable[Piece], reason: FinishReason = "stop") -> Outcome:
    """Feed the pieces, finish, and collect the items. Every call's index must count the calls."""
    deltas: list[Delta] = []
    for text, ids in pieces:
        deltas += parser.feed(text, ids)
    deltas += parser.finish(reason)
    assert parser.finish(reason) == []
    assert set(parser.repairs) <= set(REPAIRS)
    return Outcome(read_items(deltas), dict(parser.repairs))


def read_items(deltas: Iterable[Delta]) -> list[dict[str, str]]:
    """Read items as the lifecycle makes them: text of white space alone opens none, and is trimmed at the edges."""
    items: list[dict[str, str]] = []
    calls = 0
    for delta in deltas:
        match delta:
            case ToolCall():
                assert delta.index == calls
                calls += 1
                items.append({"call": delta.name, "arguments": "", "id": delta.id})
            case ToolArguments():
                assert delta.text
                assert delta.index == calls - 1
                assert "call" in items[-1], "arguments after the call was left"
                items[-1]["arguments"] += delta.text
            case ToolCallCut():
                assert delta.index == calls - 1
                items[-1]["cut"] = "yes"
            case Text() | Reasoning():
                assert delta.text
                kind = "text" if isinstance(delta, Text) else "reasoning"
                if items and kind in items[-1]:
                    items[-1][kind] += delta.text
                else:
                    items.append({kind: delta.text})
            case _:
                raise AssertionError(f"a parser gives no {delta!r}")
    trimmed = [item if "call" in item else {kind: text.strip() for kind, text in item.items()} for item in items]
    return [item for item in trimmed if "call" in item or any(item.values())]


def agree(got: list[dict[str, str]], expected: list[dict[str, Any]]) -> bool:
    """Tell whether the items agree with those of a vector.

    Texts are compared trimmed, arguments as values, `begun` as the text of arguments that are not JSON. `cut` tells whether a
    call is known to stop in the middle; one with all of its arguments is not.
    """
    return len(got) == len(expected) and all(_agrees(one, other) for one, other in zip(got, expected, strict=True))


def _agrees(got: dict[str, str], expected: dict[str, Any]) -> bool:
    if "call" not in expected:
        return got == {kind: text.strip() for kind, text in expected.items()}
    if got.get("call") != expected["call"] or got["id"] != expected.get("id", got["id"]):
        return False
    if "begun" in expected:
        return got["arguments"] == expected["begun"] and expected.get("cut", "cut" in got) == ("cut" in got)
    if "cut" in got:
        return False
    try:
        arguments = json.loads(got["arguments"])
    except ValueError:
        return False
    return same(arguments, expected["arguments"])


def same(one: Any, other: Any) -> bool:
    """Tell whether two JSON values are equal; 1 differs from true and from 1.0."""
    return json.dumps(one, sort_keys=True) == json.dumps(other, sort_keys=True)


def whole(text: str) -> list[Piece]:
    return [(text, None)]


def characters(text: str) -> list[Piece]:
    return [(character, None) for character in text]


def halves(text: str, step: int = 1) -> Iterator[list[Piece]]:
    """Cut the text in two, at every place, or one of `step`."""
    for place in range(1, len(text), step):
        yield [(text[:place], None), (text[place:], None)]


def at_random(text: str, seed: int, longest: int = 12) -> list[Piece]:
    chance = random.Random(seed)
    pieces: list[Piece] = []
    at = 0
    while at < len(text):
        size = chance.randint(1, longest)
        pieces.append((text[at : at + size], None))
        at += size
    return pieces
