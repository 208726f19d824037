"""What optional features add to the making of responses."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, TypeAlias

from responses_gateway.backend.served_models import Route
from responses_gateway.request import Loss
from responses_gateway.server.generation.preparation.ground import HostedToolbox
from responses_gateway.server.generation.preparation.prepare import PreparedRequest
from responses_gateway.server.generation.request_log.facts import RequestFacts
from responses_gateway.server.generation.request_log.request_log import RequestLog
from responses_gateway.settings import Settings
from responses_gateway.stream.translator import Translator
from responses_gateway.telemetry.tracing import Trace

# A request that is ready to be sent becomes another one. Raises `ApiError`.
Step: TypeAlias = Callable[[PreparedRequest, Settings], Awaitable[PreparedRequest]]
# The route of a request of a session that is relayed becomes another one, given what is known of the request, and whether it is
# a chat request.
RelayedRoute: TypeAlias = Callable[[Route, RequestFacts, bool], Route]
# Called with the id of a background response before it is stored. Raises `StoreUnavailable`.
Announce: TypeAlias = Callable[[str], Awaitable[None]]
# Lets a background response wait that is ready to begin: returns it as it stands. A `Loss`: it may not wait, which is on
# record; None: it is to begin at once. Raises `ApiError`, `StoreUnavailable`.
Postpone: TypeAlias = Callable[[PreparedRequest, Translator, RequestLog, Settings], Awaitable[str | Loss | None]]
# Counts an answer that has ended, and returns further fields of its line in the log. The facts are those of its request.
Note: TypeAlias = Callable[[PreparedRequest, Translator, RequestFacts], Mapping[str, Any]]
# Awaited when an answer has ended whose client waits for it, before its last event is made. `RequestLog` is that of the answer.
Conclude: TypeAlias = Callable[[PreparedRequest, Translator, RequestLog], Awaitable[None]]
# Called with a request that is about to be sent and its trace, where there are traces, to tell more in it.
Traced: TypeAlias = Callable[[PreparedRequest, Trace], None]


@dataclass(frozen=True, slots=True)
class Additions:
    """Lists that are filled while the gateway opens, in the order of the features, and empty where no feature adds anything.

    `steps` change a request that is ready to be sent. `toolboxes` have tools that the gateway runs itself. `announcements` are
    told of background responses before they begin, and `postponements` may let these wait. The last event of an answer waits
    for `conclusions`. `tool_steps`, which come first, are for requests with tools alone, and `tool_notes` are taken of their
    answers that have ended; `session_steps` and `session_notes` are for those that belong to a session; of these,
    `relayed_routes` change where those that are relayed go. `traced` tell more in traces."""

    steps: list[Step] = field(default_factory=list)
    toolboxes: list[HostedToolbox] = field(default_factory=list)
    announcements: list[Announce] = field(default_factory=list)
    postponements: list[Postpone] = field(default_factory=list)
    tool_steps: list[Step] = field(default_factory=list)
    tool_notes: list[Note] = field(default_factory=list)
    session_steps: list[Step] = field(default_factory=list)
    session_notes: list[Note] = field(default_factory=list)
    relayed_routes: list[RelayedRoute] = field(default_factory=list)
    conclusions: list[Conclude] = field(default_factory=list)
    traced: list[Traced] = field(default_factory=list)
