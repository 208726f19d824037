"""`prompt_cache_diagnostics`: why a backend could not use what it had cached for an earlier response.

Two prompts are compared as they were sent, by their checksums: the model, what stands before the messages in a chat template
(tools, how much to reason), and the messages, one by one. What only constrains the answer, such as an output format, changes no
prompt."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import AsyncExitStack
from functools import partial
from typing import Any, Literal

import msgspec

from responses_gateway.request.prompt_cache.prompt_print import PromptPrint, read_prompt
from responses_gateway.server.features.cache_diagnostics.turns import LOST, CacheTurns
from responses_gateway.server.features.feature import Core, Feature, Opened
from responses_gateway.server.generation.preparation.encrypted_content import is_compaction
from responses_gateway.server.generation.preparation.prepared_request import PreparedRequest
from responses_gateway.settings import Settings
from responses_gateway.state import StoreUnavailable
from responses_gateway.state.prompt_hashes import PromptHashes, PromptHashMemory, PromptHashTable
from responses_gateway.stream.writer.response import AtEnd
from responses_gateway.wire.deltas import Usage
from responses_gateway.wire.requests import ResponsesRequest

Reason = Literal[
    "model_changed",
    "prompt_cache_key_changed",
    "tools_changed",
    "reasoning_effort_changed",
    "verbosity_changed",
    "context_compacted",
    "input_changed",
]


class Divergence(msgspec.Struct, frozen=True):
    """Where two prompts differ: why, and the share of the later one that comes after that."""

    reason: Reason
    missed: float


def divergence(earlier: PromptPrint, later: PromptPrint, *, has_summary: bool) -> Divergence | None:
    """Return the first difference between two prompts; None if the later one continues the earlier one, or is its beginning.
    `has_summary`: the later one contains a summary of what came before."""
    changed = later.changed(earlier)
    if changed[:1] == ["model_changed"]:
        return Divergence("model_changed", 1.0)
    if later.key != earlier.key:
        return Divergence("prompt_cache_key_changed", 1.0)
    if changed:
        return Divergence(changed[0], 1.0)
    place = later.in_common(earlier)
    if place == min(later.count, earlier.count):
        return None
    total = later.bytes_of(0)
    reason: Reason = "context_compacted" if has_summary else "input_changed"
    return Divergence(reason, later.bytes_of(place) / total if total else 1.0)


async def diagnostics(
    hashes: PromptHashes,
    request: ResponsesRequest,
    tenant: str,
    response_id: str,
    data: bytes | None,
    *,
    routed: bool,
) -> AtEnd | None:
    """Keep the hashes of a prompt, and compare it with that of the response that the request names. Return what the end of the
    response tells; None if the request names none. `data` is the chat request, None where a summary has to be made first.
    `routed`: requests go to backends by their keys. Never raises: what cannot be compared is `unavailable`."""
    options = request.prompt_cache_options or {}
    other_id = options.get("comparison_response_id")
    later = None if data is None else read_prompt(data, request.prompt_cache_key if routed else None).checksums
    encoded = b"" if later is None else msgspec.msgpack.encode(later)
    try:
        earlier_print = await hashes.exchange(tenant, response_id, encoded, other_id)
    except StoreUnavailable:
        return _fixed("unavailable") if other_id is not None else None
    if other_id is None:
        return None
    if earlier_print is None:
        return _fixed("comparison_response_not_found")
    try:
        earlier = msgspec.msgpack.decode(earlier_print, type=PromptPrint)
    except msgspec.DecodeError:  # of another version of the gateway, or before a summary
        return _fixed("unavailable")
    if later is None:
        return partial(_result, Divergence("context_compacted", 1.0))
    has_summary = isinstance(request.input, list) and any(is_compaction(item) for item in request.input)
    return partial(_result, divergence(earlier, later, has_summary=has_summary))


def _fixed(kind: str) -> AtEnd:
    result = {"prompt_cache_diagnostics": {"type": kind}}
    return lambda _usage: result


def _result(difference: Divergence | None, usage: Usage | None) -> Mapping[str, Any]:
    if difference is None:
        # The prompts are alike; a backend that says it has reused nothing has dropped its cache, or is another one.
        kind = "unavailable" if usage is not None and usage.cached == 0 else "cache_hit"
        return {"prompt_cache_diagnostics": {"type": kind}}
    tokens = usage.input if usage is not None and usage.input is not None else None
    if tokens is None:
        return {"prompt_cache_diagnostics": {"type": "unavailable"}}
    missed = {"type": "cache_miss", "reason": difference.reason, "cache_missed_tokens": round(tokens * difference.missed)}
    return {"prompt_cache_diagnostics": missed}


async def _open(core: Core, _stack: AsyncExitStack) -> Opened:
    store = core.responses.store
    hashes = PromptHashMemory() if store is None else PromptHashTable(store.database)
    pool = core.responses.pool

    async def with_diagnostics(prepared: PreparedRequest, _settings: Settings) -> PreparedRequest:
        """Have the response tell how its prompt compares with an earlier one, if the request asks for that."""
        request = prepared.context.request
        if request.prompt_cache_options is None:
            return prepared
        chat = prepared.call.data if prepared.compaction is None else None
        response_id = prepared.options.response_id
        tenant = prepared.caller.tenant
        at_end = await diagnostics(hashes, request, tenant, response_id, chat, routed=pool.chooses)
        return prepared if at_end is None else prepared.with_end(at_end)

    return Opened(steps=[with_diagnostics], session_notes=[CacheTurns(core.metrics).explained])


CACHE_DIAGNOSTICS = Feature("cache_diagnostics", None, _open, [LOST])
