"""What each turn of a session found in the cache of its server, counted and explained when it has ended."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import Any

import msgspec

from responses_gateway.backend.block_sizes import BlockSizes
from responses_gateway.request.prompt_cache.context import Answer, CachedContext
from responses_gateway.request.prompt_cache.contexts import Asking, Contexts
from responses_gateway.request.prompt_cache.explanation import Report
from responses_gateway.request.prompt_cache.prompt_print import Prompt, text_checksum
from responses_gateway.request.who_asks.asker import Kind
from responses_gateway.server.features.cache_diagnostics.chain_starts import chain_start, server_of
from responses_gateway.server.features.cache_diagnostics.stored_contexts import StoredContexts
from responses_gateway.server.features.feature import Core
from responses_gateway.server.generation.preparation.encrypted_content import is_compaction
from responses_gateway.server.generation.preparation.prepare import PreparedRequest
from responses_gateway.server.generation.request_log.facts import RequestFacts
from responses_gateway.server.generation.upstream.chat_call import ChatCall
from responses_gateway.settings import Settings
from responses_gateway.stream.translator import Translator
from responses_gateway.telemetry.instruments import Counter
from responses_gateway.wire.deltas import Usage

LOST = Counter(
    "cache_lost_tokens_total",
    "Tokens of a session's context that a backend had read and did not take from its cache, by cause.",
    ("model", "cause"),
)
# Kinds of requests that no later one goes on from: each has a row of its own in its thread.
_APART: frozenset[Kind | None] = frozenset({"title", "auxiliary"})
# Instead of the number of calls: half a call, which no later request has as the model wrote it.
_CHANGED = -1
_NOTHING: Mapping[str, Any] = MappingProxyType({})
_LONGEST_ANSWER = 1024 * 1024  # bytes of an answer that is compared with what the next request repeats of it


class CacheTurns:
    """Explains the turns of sessions that have ended; with `stored` ones, also those whose earlier turns others had."""

    def __init__(self, core: Core, sizes: BlockSizes, contexts: Contexts, stored: StoredContexts | None) -> None:
        self._metrics = core.metrics
        self._responses = core.responses
        self._sizes = sizes
        self._contexts = contexts
        self._stored = stored
        self._knows_all = core.workers_folder is None or stored is not None

    async def begun(self, prepared: PreparedRequest, _settings: Settings) -> PreparedRequest:
        """Have earlier turns of a thread read, while the backend answers."""
        if self._stored is not None:
            self._stored.read(_asking(prepared))
        return prepared

    def explained(self, prepared: PreparedRequest, translator: Translator, facts: RequestFacts) -> Mapping[str, Any]:
        """Return the fields of the log for a turn; none without a session, or where the server has counted nothing."""
        asker = prepared.caller.asker
        turns = translator.lifecycle.turns
        used = turns[0].used
        if asker.session is None or used is None or used.input is None or facts.backend is None:
            return _NOTHING
        asking = _asking(prepared)
        report = Report(server_of(facts), used.input, used.cached)
        # What asks the model to go on is in no later request, so that nothing behind it is where it was.
        last = next((turn for turn in turns if turn.continued), turns[-1]).used or used
        answer = _answer(prepared, translator, used, last)
        prompt = _asked(prepared).prompt(checksum=hash if self._stored is None else self._stored.checksum)
        known = self._contexts.of(asking)
        if prepared.context.first is not None and not known:
            start = chain_start(self._responses, prepared, prompt)
            if start is not None:
                self._contexts.begin(asking, [start])
        is_unknown = not self._knows_all and _goes_on_elsewhere(known, prompt)
        block = self._sizes.of(facts.backend)
        explanation = self._contexts.turn(asking, prompt, report, answer, block, named=_goes_on(prepared))
        if asker.final:
            self._contexts.forget(asking.tenant, asking.session)
        elif self._stored is not None:
            self._stored.write(asking)
        if is_unknown:
            return _NOTHING
        if explanation.cause == "evicted":
            self._sizes.ask(facts.backend)  # because it may have been started again, in another way
        if explanation.cause is not None:
            self._metrics.count(LOST, self._metrics.model(facts.model), explanation.cause, amount=explanation.lost or 0)
        return {
            "cache_cause": explanation.cause,
            "cache_lost": explanation.lost,
            "cache_context": explanation.context,
            "cache_possible": explanation.possible,
            "cache_item": explanation.item or None,
        }


def _goes_on_elsewhere(known: Sequence[CachedContext], prompt: Prompt) -> bool:
    """Tell whether the model has answered since the turns that are known, so that another worker had the last one."""
    return (prompt.last_answer or -1) > max((context.checksums.count for context in known), default=-1)


def _asked(prepared: PreparedRequest) -> ChatCall:
    """Return what the first turn was asked, behind a summary if one was made for it."""
    body = None if prepared.compaction is None else prepared.compaction.body
    return prepared.call if body is None else prepared.call.with_body(body)


def _goes_on(prepared: PreparedRequest) -> bool:
    """Tell whether a request says what it continues: a response, or what a summary takes the place of."""
    request = prepared.context.request
    if request.previous_response_id is not None or prepared.compaction is not None:
        return True
    return isinstance(request.input, list) and any(map(is_compaction, request.input))


def _asking(prepared: PreparedRequest) -> Asking:
    """Return who asks, whose session is named."""
    asker = prepared.caller.asker
    session = asker.session or ""
    row = f"{asker.thread}\n{asker.kind}" if asker.kind in _APART else asker.thread or session
    shared = asker.source.get("session") == "prompt_cache_key"
    return Asking(prepared.caller.tenant, session, row, shared, asker.kind == "compaction")


def _answer(prepared: PreparedRequest, translator: Translator, first: Usage, last: Usage) -> Answer:
    """Return what was said in a response, behind the prompt of its `first` turn; nothing where no request will repeat it."""
    if translator.status == "failed" or prepared.options.discarded:
        return Answer()
    tokens = (last.input or 0) + (last.output or 0) - (first.input or 0)
    thought = first.reasoning or translator.tokens.by_kind().get("reasoning", 0)
    if any(turn.broken_calls for turn in translator.lifecycle.turns):
        return Answer(tokens, thought, text=0, calls=_CHANGED)
    output = translator.response.output
    if last is not first or sum(map(len, output)) > _LONGEST_ANSWER:
        return Answer(tokens, thought)
    items = [msgspec.json.decode(item) for item in output]
    spoken = [item for item in items if item["type"] != "reasoning"]
    texts = [part.get("text", "") for item in spoken if item["type"] == "message" for part in item["content"]]
    return Answer(tokens, thought, text_checksum("".join(texts)), sum(item["type"] != "message" for item in spoken))
