"""Calls of tools are checked against the schemas of their tools, counted, and repaired where that is safe."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from contextlib import AsyncExitStack
from functools import partial
from typing import Any

import msgspec

from responses_gateway.request.tools.strict_tools import digest_of, strict_tools
from responses_gateway.server.features.feature import Core, Feature, Opened
from responses_gateway.server.generation.preparation.answer_options import with_call_rules
from responses_gateway.server.generation.preparation.prepared_request import PreparedRequest
from responses_gateway.server.generation.request_log.facts import RequestFacts
from responses_gateway.server.generation.upstream.chat_call import ChatCall, PlainTools
from responses_gateway.settings import Settings
from responses_gateway.settings.tool_calls import ToolCallSettings
from responses_gateway.stream.translator import Translator
from responses_gateway.telemetry import instruments

CALLS = instruments.Counter(
    "calls_total",
    "Calls of tools as the model wrote them: valid, invalid_json, schema (not what the tool takes), unknown_name, unchecked.",
    ("model", "validity"),
)


# Most tools that are known to be refused, because they come from clients; the one refused first is forgotten first.
_MOST_REFUSED = 1024


class StrictTools:
    """Asks servers to enforce the schemas of tools, but for those that one has refused."""

    def __init__(self) -> None:
        self._refused: dict[bytes, None] = {}

    def strict(self, call: ChatCall) -> ChatCall:
        """Return a call with strict tools, as far as they can be enforced."""
        tools = call.body["tools"]
        strict = strict_tools(tools, self._refused)
        if strict is None:
            return call
        plain = PlainTools(
            tools, partial(self._note, [tool for tool, one in zip(tools, strict, strict=True) if one is not tool])
        )
        return call.with_body({**call.body, "tools": strict})._replace(plain=plain)

    def _note(self, tools: Sequence[Any], refusal: bytes) -> None:
        """Remember the tools that a server has refused: those that it names, or all of them."""
        named = [tool for tool in tools if f"{tool['function']['name']}".encode() in refusal]
        for tool in named or tools:
            self._refused[digest_of(tool)] = None
        while len(self._refused) > _MOST_REFUSED:
            del self._refused[next(iter(self._refused))]


async def _check(strict: StrictTools, prepared: PreparedRequest, settings: Settings) -> PreparedRequest:
    """Have the calls of the answer checked, and enforced by the server."""
    tools = prepared.call.body.get("tools")
    if not tools:
        return prepared
    if settings.strict_calls == "on":
        prepared = msgspec.structs.replace(prepared, call=strict.strict(prepared.call))
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
            metrics.count(CALLS, model, label.partition(":")[0], amount=calls)
        return {"calls": dict(checked)} if checked else {}

    return Opened(steps=[partial(_check, StrictTools())], notes=[note])


TOOL_CALLS = Feature("tool_calls", ToolCallSettings, _open, [CALLS])
