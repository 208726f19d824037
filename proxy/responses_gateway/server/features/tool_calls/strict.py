"""Servers are asked to enforce the schemas of tools (`strict_calls`): each for those that it can, and has not refused."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from functools import partial
from hashlib import blake2b
from typing import Any, NamedTuple

import msgspec

from responses_gateway.bounded_memory import BoundedDict
from responses_gateway.probing.tool_enforcement import ToolEnforcement
from responses_gateway.request.tools.strict_tools import digest_of, strict_tools
from responses_gateway.server.generation.preparation.prepare import PreparedRequest
from responses_gateway.server.generation.request_log.facts import RequestFacts
from responses_gateway.server.generation.upstream.chat_call import ChatCall, StrictForm
from responses_gateway.settings import Settings
from responses_gateway.telemetry import logs
from responses_gateway.telemetry.instruments import LATENCY_BUCKETS, Histogram
from responses_gateway.telemetry.metrics import Metrics

STRICT_FIRST_TOKEN = Histogram(
    "strict_first_token_seconds",
    "From the arrival of a request whose tools the server is to enforce (strict_calls) to the first token: with tools that are "
    "new to the server, which has to compile them, and with known ones.",
    LATENCY_BUCKETS,
    ("model", "tools"),
)
# Most tools that are known to be refused by one server for one tenant, and the most such pairs, because tools come from
# clients.
_MOST_REFUSED = 256
_MOST_LISTS = 1024
_MOST_SETS = 4096  # most sets of tools of which it is known that a server has compiled them
# Most sets of tools whose strict form is kept, and the most bytes of one that is: an agent sends the same with each request.
_MOST_FORMS = 32
_LARGEST_FORM = 128 * 1024
# Seconds that a server takes longer with new tools, from which on it is worth a line in the log.
_LONG = 1.0
_DIGEST = 16


class RefusedTools:
    """The tools that servers have refused to enforce, by tenant and server: one tenant's change nothing for others."""

    def __init__(self) -> None:
        self._lists: BoundedDict[tuple[str, str], BoundedDict[bytes, None]] = BoundedDict(_MOST_LISTS)
        self.changes = 0

    def of(self, tenant: str, backend: str) -> Collection[bytes]:
        """Return the digests of the tools that a server has refused."""
        return self._lists.get((tenant, backend), ())

    def note(self, tenant: str, backend: str, tools: Sequence[Any], refusal: bytes) -> None:
        """Remember the tools that a server has refused: those that it names, or all of them."""
        named = [tool for tool in tools if f"{tool['function']['name']}".encode() in refusal]
        self.changes += 1
        refused = self._lists.setdefault((tenant, backend), BoundedDict(_MOST_REFUSED))
        for tool in named or tools:
            refused[digest_of(tool)] = None


class WrittenTools(NamedTuple):
    """Strict tools as JSON, the same as they are declared, a digest, and the places of those that are not as they were sent."""

    tools: bytes
    declared: bytes
    digest: bytes
    changed: Sequence[int]


class StrictForms:
    """Writes the strict form of sets of tools, and keeps what was asked for last: it takes as long as the rest of a request."""

    def __init__(self) -> None:
        self._forms: BoundedDict[tuple[str, str, int, bytes], WrittenTools | None] = BoundedDict(_MOST_FORMS)

    def form(self, tools: Sequence[Any], refused: RefusedTools, tenant: str, backend: str) -> WrittenTools | None:
        """Return the strict form of tools for a server; None if they stay as they are."""
        declared = msgspec.json.encode(tools)
        key = (tenant, backend, refused.changes, declared)
        if key in self._forms:
            self._forms.move_to_end(key)
            return self._forms[key]
        form = _written(tools, declared, strict_tools(tools, refused.of(tenant, backend)))
        if len(declared) <= _LARGEST_FORM:
            self._forms[key] = form
        return form


def _written(tools: Sequence[Any], declared: bytes, strict: Sequence[Any] | None) -> WrittenTools | None:
    if strict is None:
        return None
    written = msgspec.json.encode(strict)
    changed = [place for place, (tool, one) in enumerate(zip(tools, strict, strict=True)) if one is not tool]
    return WrittenTools(written, declared, blake2b(written, digest_size=_DIGEST).digest(), changed)


class StrictCalls:
    """Has servers enforce tools, as the settings and what is known of the servers permit."""

    def __init__(self, enforcement: ToolEnforcement) -> None:
        self.enforcement = enforcement
        self.refused = RefusedTools()
        self.forms = StrictForms()
        # The sets of tools that servers had to compile, each with the seconds to the first token of the first answer.
        self._compiled: BoundedDict[tuple[str, bytes], float | None] = BoundedDict(_MOST_SETS)

    def enforced(self, prepared: PreparedRequest, settings: Settings) -> ChatCall:
        """Return the call of a request, with tools that are enforced where that is wanted."""
        call = prepared.call
        if call.body.get("tool_choice") == "none":  # no call is wanted, or the gateway reads calls out of the text
            return call
        wanted = settings.strict_calls == "on" or (
            settings.strict_calls == "auto"
            and self.enforcement.anywhere(call.route.model)
            and not any("strict" in tool.get("function", ()) for tool in call.body["tools"])
        )
        if not wanted:
            return call
        strict = StrictRequest(self, prepared.caller.tenant, always=settings.strict_calls == "on")
        return msgspec.structs.replace(call, strict=strict)

    def ended(self, metrics: Metrics, prepared: PreparedRequest, facts: RequestFacts, settings: Settings) -> Mapping[str, Any]:
        """Measure an answer, and find out about a server that is not known. Return fields of the answer's line in the log."""
        model = prepared.call.route.model
        strict = prepared.call.strict
        if isinstance(strict, StrictRequest) and strict.sent is not None:
            facts.times.count_gaps()
            if facts.times.first is not None:
                new = self._observe(metrics, strict.sent, facts.times.first - facts.began, model)
                return {"new_strict_tools": new or None}
        elif settings.strict_calls == "auto" and facts.backend is not None:
            self.enforcement.find_out(facts.backend, model, settings.max_tokens_field)
        return {}

    def _observe(self, metrics: Metrics, sent: tuple[str, bytes], seconds: float, model: str) -> bool:
        """Note how long an answer took to begin; return whether its tools were new to the server."""
        new = sent not in self._compiled
        metrics.observe(STRICT_FIRST_TOKEN, seconds, metrics.model(model), "new" if new else "known")
        first = seconds if new else self._compiled[sent]
        if not new and first is not None and first - seconds > _LONG:
            fields = logs.fields(backend=sent[0], model=model, seconds=round(first - seconds, 3))
            logs.logger().info("the first answer with these strict tools began later than the next one", extra=fields)
        self._compiled[sent] = first if new else None
        return new


class StrictRequest:
    """The tools of one request, for each server that it is sent to. `sent`: who got strict tools last, and their digest."""

    __slots__ = ("_always", "_calls", "_tenant", "sent")

    def __init__(self, calls: StrictCalls, tenant: str, *, always: bool) -> None:
        self._calls = calls
        self._tenant = tenant
        self._always = always
        self.sent: tuple[str, bytes] | None = None

    def form(self, tools: Sequence[Any], backend: str, model: str) -> StrictForm | None:
        """Return the tools for a server, None if it gets them as they are."""
        self.sent = None
        if not (self._always or self._calls.enforcement.at(backend, model)):
            return None
        form = self._calls.forms.form(tools, self._calls.refused, self._tenant, backend)
        if form is None:
            return None
        self.sent = (backend, form.digest)
        return StrictForm(form.tools, form.declared, partial(self._refused, backend, tools, form.changed))

    def _refused(self, backend: str, tools: Sequence[Any], changed: Sequence[int], refusal: bytes) -> None:
        self.sent = None
        self._calls.refused.note(self._tenant, backend, [tools[place] for place in changed], refusal)
