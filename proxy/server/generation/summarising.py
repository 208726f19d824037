"""A history in, one sealed item that stands for it out."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping

from proxy.server.access.rate_limits import Claim
from proxy.server.generation.context import Footing
from proxy.server.generation.gateway import Gateway
from proxy.server.generation.generation import Generation
from proxy.server.generation.prepare import backend_headers, prepare
from proxy.server.generation.request_log import Books
from proxy.server.generation.routes import route_of
from proxy.stream.translator import Translator
from proxy.telemetry.tracing import Trace
from proxy.wire.errors import ApiError
from proxy.wire.requests import ResponsesRequest


async def summarise(
    gateway: Gateway,
    tenant: str,
    request: ResponsesRequest,
    footing: Footing,
    headers: Mapping[str, str],
    request_id: str,
    claim: Claim | None = None,
    trace: Trace | None = None,
) -> Translator:
    """Have the backend answer a request whose input ends with a `compaction_trigger`; returns the translation of the answer,
    which has one `compaction` item. `headers` are the client's; `claim` and `trace` end with it. Raises `ApiError`."""
    clock = asyncio.get_running_loop().time
    books = Books(gateway.metrics, gateway.settings, request_id, clock(), claim=claim, trace=trace, sampled=False)
    books.request(request.model, streamed=False)
    recording = gateway.recording(headers)
    if recording is not None:
        recording.asked(request.model_dump_json(exclude_none=True).encode())
        recording.parsed()
    try:
        policy = gateway.parsers.policy(request.model)
        plan, body, translator = await prepare(gateway, tenant, request, footing, policy, headers, recording)
    except BaseException as error:
        if isinstance(error, ApiError):
            books.refused(error)
            if recording is not None:
                recording.failed(error)
        outcome = books.close(None, clock())
        if recording is not None:
            recording.end(outcome)
        raise
    sent = backend_headers(gateway.settings, headers, request_id)
    route = route_of(gateway, request, footing, may_go_on=True)
    with Generation(gateway, translator, body, sent, route, books, _unread, recording) as generation:
        generation.count_input(plan.body)
        try:
            await generation.open()
        except ApiError as error:
            generation.refused(error)
            raise
        await generation.run()
    if translator.error is not None:
        raise translator.error
    return translator


def _unread(_events: bytes) -> None:
    """Nobody watches a summary being written."""
