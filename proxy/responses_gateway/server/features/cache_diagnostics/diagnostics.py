"""`prompt_cache_diagnostics`: why a backend could not use what it had cached for an earlier response.

Two prompts are compared as they were sent, by their checksums: the model, what stands before the messages in a chat template
(tools, how much to reason), and the messages, one by one. What only constrains the answer, such as an output format, changes no
prompt."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import AsyncExitStack
from dataclasses import dataclass
from functools import partial
from typing import Any, Literal

import msgspec

from responses_gateway.backend.block_sizes import BlockSizes
from responses_gateway.request.prompt_cache.contexts import Contexts
from responses_gateway.request.prompt_cache.prompt_print import PromptPrint, print_of_items
from responses_gateway.server.features.cache_diagnostics.stored_contexts import StoredContexts
from responses_gateway.server.features.cache_diagnostics.turns import LOST, CacheTurns
from responses_gateway.server.features.feature import Core, Feature, Opened
from responses_gateway.server.generation.preparation.encrypted_content import is_compaction
from responses_gateway.server.generation.preparation.prepare import PreparedRequest
from responses_gateway.settings import Settings
from responses_gateway.state import Store, StoreUnavailable
from responses_gateway.state.prompt_hashes import PromptHashes, PromptHashMemory, PromptHashTable
from responses_gateway.stream.writer.responses import AtEnd
from responses_gateway.wire.deltas import Usage

Reason = Literal[
    "model_changed", "prompt_cache_key_changed", "tools_changed", "reasoning_effort_changed", "verbosity_changed",
    "context_compacted", "input_changed",
]  # fmt: skip


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


@dataclass(eq=False)
class Comparisons:
    """Compares the prompt of a request with that of an earlier response: with its hashes, if its request had these options too,
    else with what is stored of it. `routed` tells whether requests go to backends by their keys."""

    hashes: PromptHashes
    store: Store | None
    routed: Callable[[], bool]

    async def at_end(self, prepared: PreparedRequest) -> AtEnd | None:
        """Keep the hashes of a prompt, and return what the end of the response tells of the comparison; None if the request
        asks for none. Never raises: what cannot be compared is `unavailable`."""
        request = prepared.context.request
        other_id = (request.prompt_cache_options or {}).get("comparison_response_id")
        key = request.prompt_cache_key if self.routed() else None
        # It is not known yet where a summary has to be made first.
        later = None if prepared.compaction is not None else prepared.call.prompt(key).checksums
        encoded = b"" if later is None else msgspec.msgpack.encode(later)
        tenant = prepared.caller.tenant
        try:
            kept = await self.hashes.exchange(tenant, prepared.options.response_id, encoded, other_id)
            if other_id is None:
                return None
            stored = await self._stored(tenant, other_id) if kept is None else None
        except StoreUnavailable:
            return _fixed("unavailable") if other_id is not None else None
        if kept is None and stored is None:
            return _fixed("comparison_response_not_found")
        if stored is not None:
            later = None if later is None else print_of_items(request.model, prepared.options.echo, prepared.context.items)
        earlier = stored if kept is None else _decoded(kept)
        if earlier is None:
            return _fixed("unavailable")
        if later is None:
            return partial(_result, Divergence("context_compacted", 1.0))
        has_summary = isinstance(request.input, list) and any(is_compaction(item) for item in request.input)
        return partial(_result, divergence(earlier, later, has_summary=has_summary))

    async def _stored(self, tenant: str, response_id: str) -> PromptPrint | None:
        """Return the checksums of what a stored response was asked; None if there is none. Raise `StoreUnavailable`."""
        response = None if self.store is None else await self.store.responses.get(tenant, response_id)
        if self.store is None or response is None:
            return None
        echo = msgspec.json.decode(response.json)
        items = await self.store.histories.items(response.input_end)
        return print_of_items(echo["model"], echo, items)


def _decoded(kept: bytes) -> PromptPrint | None:
    try:
        return msgspec.msgpack.decode(kept, type=PromptPrint)
    except msgspec.DecodeError:  # of another version of the gateway, or before a summary
        return None


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


async def _open(core: Core, stack: AsyncExitStack) -> Opened:
    store = core.responses.store
    table = None if store is None else PromptHashTable(store.database)
    pool = core.responses.pool
    comparisons = Comparisons(table or PromptHashMemory(), store, lambda: pool.chooses)

    async def with_diagnostics(prepared: PreparedRequest, _settings: Settings) -> PreparedRequest:
        """Have the response tell how its prompt compares with an earlier one, if the request asks for that."""
        asks = prepared.context.request.prompt_cache_options is not None
        at_end = await comparisons.at_end(prepared) if asks else None
        return prepared if at_end is None else prepared.with_end(at_end)

    sizes = BlockSizes(pool)
    stack.push_async_callback(sizes.close)
    contexts = Contexts()
    stored = None if table is None else StoredContexts(table, contexts, shared=core.settings.store != "memory")
    if stored is not None:
        stack.push_async_callback(stored.close)
    turns = CacheTurns(core, sizes, contexts, stored)
    return Opened(steps=[with_diagnostics], session_steps=[turns.begun], session_notes=[turns.explained])


CACHE_DIAGNOSTICS = Feature("cache_diagnostics", None, _open, [LOST])
