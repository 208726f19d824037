"""Calls of tools are checked against the schemas of their tools, counted, and repaired where that is safe."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from contextlib import AsyncExitStack
from functools import partial
from typing import Any

import msgspec

from responses_gateway.probing.tool_enforcement import ToolEnforcement
from responses_gateway.server.features.feature import Core, Feature, Opened
from responses_gateway.server.features.tool_calls.strict import STRICT_FIRST_TOKEN, StrictCalls
from responses_gateway.server.generation.preparation.prepare import PreparedRequest, with_call_rules
from responses_gateway.server.generation.request_log.facts import RequestFacts
from responses_gateway.settings import Settings
from responses_gateway.settings.tool_calls import ToolCallSettings
from responses_gateway.stream.translator import Translator
from responses_gateway.telemetry import instruments

CALLS = instruments.Counter(
    "calls_total",
    "Calls of tools as the model wrote them: valid, invalid_json, schema (not what the tool takes), unknown_name, unchecked.",
    ("model", "validity"),
)


async def _check(strict: StrictCalls, prepared: PreparedRequest, settings: Settings) -> PreparedRequest:
    """Have the calls of the answer checked, and enforced by the server."""
    tools = prepared.call.body.get("tools")
    if not tools:
        return prepared
    prepared = msgspec.structs.replace(prepared, call=strict.enforced(prepared, settings))
    return msgspec.structs.replace(
        prepared, options=with_call_rules(prepared.options, tools, prepared.caller.headers, settings)
    )


async def _open(core: Core, stack: AsyncExitStack) -> Opened:
    metrics = core.metrics
    live = core.responses.live
    enforcement = ToolEnforcement(core.responses.pool, live.current.parsers.known_models)
    stack.push_async_callback(enforcement.close)
    strict = StrictCalls(enforcement)

    def note(prepared: PreparedRequest, translator: Translator, facts: RequestFacts) -> Mapping[str, Any]:
        """Count the calls of an answer."""
        if prepared.options.calls is None:
            return {}
        checked: Counter[str] = Counter()
        for turn in translator.lifecycle.turns:
            checked.update(turn.checked)
        model = metrics.model(prepared.context.request.model) if checked else ""
        for label, calls in checked.items():
            metrics.count(CALLS, model, label.partition(":")[0], amount=calls)
        fields = strict.ended(metrics, prepared, facts, live.current.settings)
        return {**fields, "calls": dict(checked) or None}

    return Opened(tool_steps=[partial(_check, strict)], tool_notes=[note])


TOOL_CALLS = Feature("tool_calls", ToolCallSettings, _open, [CALLS, STRICT_FIRST_TOKEN])
