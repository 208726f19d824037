"""What the answers of a model that has tools come to, and what its clients' requests show of its calls."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import AsyncExitStack
from functools import partial
from itertools import chain
from typing import Any

from msgspec.structs import replace

from responses_gateway.request.repeated_calls import last_calls, repeats_in
from responses_gateway.server.features.feature import Core, Feature, Opened
from responses_gateway.server.generation.preparation.context import Context
from responses_gateway.server.generation.preparation.prepared_request import PreparedRequest
from responses_gateway.server.generation.request_log.facts import RequestFacts
from responses_gateway.settings import Settings
from responses_gateway.stream.lifecycle.turn import Turn
from responses_gateway.stream.outcomes.early_ends import EarlyEnds
from responses_gateway.stream.outcomes.outcome import EARLY
from responses_gateway.stream.translator import Translator
from responses_gateway.telemetry.instruments import Counter
from responses_gateway.telemetry.metrics import Metrics

OUTCOMES = Counter(
    "turn_outcomes_total", "Answers to requests with tools, by what the model's turn came to.", ("model", "outcome")
)
EARLY_ENDS = Counter(
    "early_ends_total",
    "Answers that ended before the model's work did, by kind; whether the model was asked to go on, and what came of it.",
    ("kind", "action", "outcome"),
)
REPEATED_CALLS = Counter(
    "repeated_calls_total",
    "Calls of clients' tools that repeat one shortly before, with the same output: counted, or `polled` by tools that wait.",
    ("model", "action"),
)
METRICS = (OUTCOMES, EARLY_ENDS, REPEATED_CALLS)
# Items at the end of a request among which the output of a tool is looked for.
_LAST_ITEMS = 64


async def _open(core: Core, _stack: AsyncExitStack) -> Opened:
    return Opened(steps=[_watched], notes=[partial(_count, core.metrics)])


async def _watched(prepared: PreparedRequest, _settings: Settings) -> PreparedRequest:
    """Have the answers to a request with tools judged at their ends."""
    options = prepared.options
    if not options.tools:
        return prepared
    judged = EarlyEnds(tool_ran=_follows_a_tool(prepared.context))
    return replace(prepared, options=replace(options, early_ends=judged))


def _count(metrics: Metrics, prepared: PreparedRequest, translator: Translator, _facts: RequestFacts) -> Mapping[str, Any]:
    """Count how the turns of a response have ended, and which calls it has followed on. Return the fields of its line."""
    if prepared.options.early_ends is None:
        return {}
    model = metrics.model(prepared.context.request.model) if translator.chunks else "unknown"
    for turn in translator.lifecycle.turns:
        _count_turn(metrics, model, turn)
    repeats = repeats_in(last_calls(_backwards(prepared.context)))
    if repeats.repeated:
        metrics.count(REPEATED_CALLS, model, "counted", amount=repeats.repeated)
    if repeats.polled:
        metrics.count(REPEATED_CALLS, model, "polled", amount=repeats.polled)
    return {"turn_outcome": translator.lifecycle.turn.outcome, "repeated_calls": repeats.repeated or None}


def _count_turn(metrics: Metrics, model: str, turn: Turn) -> None:
    outcome = turn.outcome
    if outcome is None:
        return
    metrics.count(OUTCOMES, model, outcome)
    if outcome in EARLY:
        metrics.count(EARLY_ENDS, outcome, "none", "none")


def _backwards(context: Context) -> Iterator[Any]:
    """Return the items of a request, the last one first."""
    given = context.request.input
    return chain(reversed(given if isinstance(given, list) else ()), reversed(context.history))


def _follows_a_tool(context: Context) -> bool:
    """Tell whether the model is in the middle of its work: nobody but its client has spoken since the output of a tool."""
    for item, _ in zip(_backwards(context), range(_LAST_ITEMS), strict=False):
        kind = item.get("type", "message") if isinstance(item, dict) else ""
        if isinstance(kind, str) and kind.endswith("_output"):
            return True
        if kind != "reasoning" and (kind != "message" or item.get("role") == "assistant"):
            return False
    return False


AGENT_TURNS = Feature("agent_turns", None, _open, METRICS)
