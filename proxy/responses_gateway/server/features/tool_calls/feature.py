"""Calls of tools are checked against the schemas of their tools, counted, and repaired where that is safe."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from contextlib import AsyncExitStack
from typing import Any

import msgspec

from responses_gateway.server.features.feature import Core, Feature, Opened
from responses_gateway.server.generation.preparation.answer_options import with_call_rules
from responses_gateway.server.generation.preparation.prepared_request import PreparedRequest
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


async def _check(prepared: PreparedRequest, settings: Settings) -> PreparedRequest:
    """Have the calls of the answer checked."""
    tools = prepared.call.body.get("tools")
    if not tools:
        return prepared
    return msgspec.structs.replace(
        prepared, options=with_call_rules(prepared.options, tools, prepared.caller.headers, settings)
    )


async def _open(core: Core, _stack: AsyncExitStack) -> Opened:
    metrics = core.metrics

    def note(prepared: PreparedRequest, translator: Translator, _facts: RequestFacts) -> Mapping[str, Any]:
        """Count the calls of an answer."""
        if prepared.options.calls is None:
            return {}
        checked: Counter[str] = Counter()
        for turn in translator.lifecycle.turns:
            checked.update(turn.checked)
        model = metrics.model(prepared.context.request.model) if checked else ""
        for label, calls in checked.items():
            metrics.counted[CALLS, (model, label.partition(":")[0])] += calls
        return {"calls": dict(checked)} if checked else {}

    return Opened(steps=[_check], notes=[note])


TOOL_CALLS = Feature("tool_calls", ToolCallSettings, _open, [CALLS])
