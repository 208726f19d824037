"""Read the items that a parser makes of a token stream, and compare them with those of another."""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from typing import Any, Protocol

from responses_gateway.wire.deltas import Delta, FinishReason, Reasoning, Text, ToolArguments, ToolCall, ToolCallCut

# {"reasoning": text}, {"text": text}, or {"call": name, "arguments": value}; {"call": name, "begun": text} if that is no JSON.
Item = dict[str, Any]
Piece = tuple[str, list[int]]


class Parser(Protocol):
    def feed(self, text: str, token_ids: Sequence[int] | None = None) -> list[Delta]: ...

    def finish(self, reason: FinishReason) -> list[Delta]: ...


def play(parser: Parser, pieces: Iterable[Piece], reason: FinishReason) -> list[Item]:
    deltas: list[Delta] = []
    for text, ids in pieces:
        deltas += parser.feed(text, ids)
    return items_of([*deltas, *parser.finish(reason)])


def items_of(deltas: Iterable[Delta]) -> list[Item]:
    """Read items as the lifecycle makes them: white space alone opens none, texts are trimmed, arguments find their call."""
    items: list[Item] = []
    calls: dict[int, Item] = {}
    for delta in deltas:
        match delta:
            case ToolCall():
                calls[delta.index] = {"call": delta.name, "begun": ""}
                items.append(calls[delta.index])
            case ToolArguments():
                calls[delta.index]["begun"] += delta.text
            case Text() | Reasoning():
                kind = "text" if isinstance(delta, Text) else "reasoning"
                if items and kind in items[-1]:
                    items[-1][kind] += delta.text
                elif not delta.text.isspace():
                    items.append({kind: delta.text})
            case ToolCallCut():  # vLLM's parsers do not tell; the arguments are no JSON
                pass
            case _:
                raise AssertionError(f"a parser gives no {delta!r}")
    return [_finished(item) for item in items]


def _finished(item: Item) -> Item:
    if "call" not in item:
        return {kind: text.strip() for kind, text in item.items()}
    try:
        return {"call": item["call"], "arguments": json.loads(item["begun"])}
    except ValueError:
        return {"call": item["call"], "begun": item["begun"].strip()}


def same(one: Any, other: Any) -> bool:
    """Tell whether two JSON values are equal; 1 differs from true and from 1.0."""
    return json.dumps(one, sort_keys=True) == json.dumps(other, sort_keys=True)


def trimmed(text: str) -> str:
    """Remove all white space: the white space at which a text was divided is not known."""
    return "".join(text.split())


def without_order(items: Iterable[Item]) -> tuple[str, str, list[Item]]:
    """Collect reasoning, text and calls, as a body that is not streamed has them."""
    items = list(items)
    texts = ["".join(item.get(kind, "") for item in items) for kind in ("reasoning", "text")]
    return trimmed(texts[0]), trimmed(texts[1]), [item for item in items if "call" in item]


def reached(theirs: Sequence[Item], ours: Sequence[Item]) -> bool:
    """Tell of an output that is cut whether ours has all of their finished items, in the same order.

    The last item is still open: of a text, one side may hold some back; a call is not compared, since vLLM makes calls of
    names that are cut.
    """
    settled = list(theirs)
    if settled and "call" in settled[-1]:
        settled.pop()
    for place, item in enumerate(settled):
        last = place == len(settled) - 1
        if place == len(ours):
            return last  # ours holds all of it back
        if not same(item, ours[place]):
            return last and _begins_alike(item, ours[place])
    return True


def _begins_alike(one: Item, other: Item) -> bool:
    if "call" in one or one.keys() != other.keys():
        return False
    shorter, longer = sorted((trimmed(*one.values()), trimmed(*other.values())), key=len)
    return longer.startswith(shorter)
