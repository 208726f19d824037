"""The first stage of preparing a request: what it continues, and by which policy it is translated."""

from __future__ import annotations

import msgspec

from responses_gateway.request import Policy
from responses_gateway.request.who_asks import with_session
from responses_gateway.server.generation.preparation.context import (
    Context,
    PreviousResponse,
    context_at,
    continue_previous,
    find_context,
)
from responses_gateway.server.generation.preparation.prepared_request import RequestScope
from responses_gateway.state import Store
from responses_gateway.wire.requests import ResponsesRequest


class Ground(msgspec.Struct, frozen=True):
    """What a request stands on: `request` is that of its context, as it is translated. The caller is in the session of
    the response that it continues, if it names none."""

    request: ResponsesRequest
    context: Context
    policy: Policy
    scope: RequestScope


async def find_ground(
    store: Store | None,
    request: ResponsesRequest,
    scope: RequestScope,
    previous: PreviousResponse | None,
    context: Context | None,
) -> Ground:
    """Find what the request builds on, unless `context` has it. `previous` is the last response of the same connection. Raise
    `ApiError`, `StoreUnavailable`."""
    reading = scope.reading
    policy = scope.in_force.parsers.policy(request.model) if reading is None else reading.policy
    if previous is not None and previous.response_id == request.previous_response_id:
        # Without a store, too, because what is continued is kept by its connection.
        policy = msgspec.structs.replace(policy, stores_responses=True)
        if store is None:
            request = request.model_copy(update={"store": False})
        context = continue_previous(request, previous)
    elif store is not None and scope.kept is not None:
        context = await context_at(store, scope.caller.tenant, request, scope.kept.history)
    elif context is None:
        context = Context(request) if store is None else await find_context(store, scope.caller.tenant, request)
    caller = scope.caller
    if context.session is not None and caller.asker.session is None:
        asker = with_session(caller.asker, context.session, "previous_response_id")
        scope = msgspec.structs.replace(scope, caller=msgspec.structs.replace(caller, asker=asker))
    return Ground(context.request, context, policy, scope)
