"""What the answers of a model that has tools come to, and what its clients' requests show of its calls."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import AsyncExitStack
from functools import partial
from itertools import chain, zip_longest
from typing import Any

from msgspec.structs import replace

from responses_gateway.bounded_memory import TenantValues
from responses_gateway.request.repeated_calls import calls_to_tell, last_calls, new_calls, repeats_in, with_notices
from responses_gateway.request.who_asks.asker import BESIDE_THE_WORK
from responses_gateway.server.features.feature import Core, Feature, Opened
from responses_gateway.server.generation.preparation.context import Context
from responses_gateway.server.generation.preparation.prepare import PreparedRequest
from responses_gateway.server.generation.request_log.facts import RequestFacts
from responses_gateway.settings import Settings
from responses_gateway.settings.agent_turns import AgentTurnSettings
from responses_gateway.stream.lifecycle.turn import Turn
from responses_gateway.stream.options import CODEX
from responses_gateway.stream.outcomes import EARLY, MOST_IN_A_TURN, EarlyEnds
from responses_gateway.stream.translator import Translator
from responses_gateway.telemetry.instruments import Counter
from responses_gateway.telemetry.metrics import Metrics

OUTCOMES = Counter(
    "turn_outcomes_total", "Answers to requests with tools, by how the model's turn ended.", ("model", "outcome")
)
EARLY_ENDS = Counter(
    "early_ends_total",
    "Answers that ended before the model's work did, by kind, by whether the model was asked to go on, and with what result.",
    ("kind", "action", "outcome"),
)
REPEATED_CALLS = Counter(
    "repeated_calls_total",
    "Calls of clients' tools that repeat one shortly before, with the same output: counted, noticed (the model was notified), "
    "or polled, by tools that wait.",
    ("model", "action"),
)
METRICS = (OUTCOMES, EARLY_ENDS, REPEATED_CALLS)
_LAST_ITEMS = 64  # items at the end of a request among which the output of a tool is looked for
_MOST_TURNS = 10_000  # turns of users that are counted at once; of more, those that were counted last


async def _open(core: Core, _stack: AsyncExitStack) -> Opened:
    counts: TenantValues[int] = TenantValues(_MOST_TURNS, _MOST_TURNS)
    watched = partial(_watched, counts)
    return Opened(tool_steps=[watched], session_steps=[_with_a_summary], tool_notes=[partial(_count, core)])


async def _with_a_summary(prepared: PreparedRequest, _settings: Settings) -> PreparedRequest:
    """Have the answer fail that Codex would put in the place of its session though nothing is in it: it asks again then."""
    options = prepared.options
    if prepared.caller.asker.kind != "compaction" or options.client is not CODEX or options.hides_answer:
        return prepared
    return replace(prepared, options=replace(options, client=CODEX._replace(needs_message=True)))


async def _watched(counts: TenantValues[int], prepared: PreparedRequest, settings: Settings) -> PreparedRequest:
    """Have the answers to a request with tools judged at their ends, and the model go on from those that the settings name."""
    options = prepared.options
    if options.hides_answer:
        return prepared
    if settings.repetition_notice:
        prepared = _with_notices(prepared)
    asker = prepared.caller.asker
    continued = "off" if asker.kind in BESIDE_THE_WORK else settings.continue_early_ends
    judged = EarlyEnds(continued, tool_ran=_follows_a_tool(prepared.context))
    turn = asker.turn
    if prepared.turns is not None and turn is not None:
        prepared.turns.may_go_on = partial(_may_go_on, counts, prepared.caller.tenant, turn)
    return replace(prepared, options=replace(options, early_ends=judged))


def _may_go_on(counts: TenantValues[int], tenant: str, turn: str) -> bool:
    """Count one more time that the model is asked to go on in a turn of a user, if it may be. Clients name the turn."""
    count = counts.get(tenant, turn) or 0
    counts.put(tenant, turn, min(count + 1, MOST_IN_A_TURN))
    return count < MOST_IN_A_TURN


def _with_notices(prepared: PreparedRequest) -> PreparedRequest:
    """Have the model told where it repeats itself."""
    calls = calls_to_tell(last_calls(_backwards(prepared.context)))
    if not calls:
        return prepared
    body = prepared.call.body
    call = prepared.call.with_body({**body, "messages": with_notices(body["messages"], calls)})
    return replace(prepared, call=call)


def _count(core: Core, prepared: PreparedRequest, translator: Translator, _facts: RequestFacts) -> Mapping[str, Any]:
    """Count how the turns of a response have ended, and which calls it has followed on. Return the fields of its line."""
    if prepared.options.early_ends is None:
        return {}
    metrics = core.metrics
    model = metrics.model(prepared.context.request.model) if translator.chunks else "unknown"
    turns = translator.lifecycle.turns
    for turn, following in zip_longest(turns, turns[1:]):
        _count_turn(metrics, model, turn, following)
    calls = last_calls(_backwards(prepared.context))
    repeats = repeats_in(calls)
    noticed = 0
    if calls and core.responses.live.current.settings.repetition_notice:
        noticed = len(set(map(id, calls_to_tell(calls))) & set(map(id, new_calls(calls))))
    amounts = {"counted": repeats.repeated - noticed, "noticed": noticed, "polled": repeats.polled}
    for action, amount in amounts.items():
        if amount:
            metrics.count(REPEATED_CALLS, model, action, amount=amount)
    continued = sum(turn.continued for turn in turns)
    return {
        "turn_outcome": translator.lifecycle.turn.outcome,
        "continued_ends": continued or None,
        "repeated_calls": repeats.repeated or None,
    }


def _count_turn(metrics: Metrics, model: str, turn: Turn, following: Turn | None) -> None:
    """Count how a turn has ended, and what came of the turn that follows on it."""
    outcome = turn.outcome
    if outcome is None:
        return
    metrics.count(OUTCOMES, model, outcome)
    if outcome in EARLY:
        continued = turn.continued and following is not None
        metrics.count(EARLY_ENDS, outcome, *(("continue", _success_of(following)) if continued else ("none", "none")))


def _success_of(turn: Turn | None) -> str:
    """Return what came of asking the model to go on."""
    if turn is None or turn.outcome is None:
        return "gave_up"
    if turn.outcome == "call":
        return "call"
    if turn.same:
        return "same"
    return "text" if turn.outcome in ("final", "announced") else "gave_up"


def _backwards(context: Context) -> Iterator[Any]:
    """Return the items of a request, the last one first."""
    content = context.request.input
    return chain(reversed(content if isinstance(content, list) else ()), reversed(context.history))


def _follows_a_tool(context: Context) -> bool:
    """Tell whether the model is in the middle of its work: nobody but its client has spoken since the output of a tool."""
    for item, _ in zip(_backwards(context), range(_LAST_ITEMS), strict=False):
        kind = (item.get("type") or "message") if isinstance(item, dict) else ""
        if isinstance(kind, str) and kind.endswith("_output"):
            return True
        if kind != "reasoning" and (kind != "message" or item.get("role") == "assistant"):
            return False
    return False


AGENT_TURNS = Feature("agent_turns", AgentTurnSettings, _open, METRICS)
