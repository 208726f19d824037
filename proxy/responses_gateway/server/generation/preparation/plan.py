"""The last stage of preparing a request: how the backend is asked, how its answer is read, and what becomes of the response."""

from __future__ import annotations

import os
import time
from collections.abc import Mapping
from functools import partial
from hashlib import blake2b
from typing import Any

import msgspec

from responses_gateway.backend.pool import Pool
from responses_gateway.backend.served_models import Route
from responses_gateway.backend.tokenizer.tokenizers import ModelTokenizer
from responses_gateway.request import ChatRequest
from responses_gateway.request.parameters.background_options import long_window
from responses_gateway.server.generation.hosted_tools.turns import FurtherTurns, HostedTurns
from responses_gateway.server.generation.parser_choice.choice import AnswerStart
from responses_gateway.server.generation.preparation.answer_options import stream_options
from responses_gateway.server.generation.preparation.client_keys import ClientKeys
from responses_gateway.server.generation.preparation.codex_sessions import SESSION_HEADER
from responses_gateway.server.generation.preparation.compaction import AutomaticCompaction, Summarise, is_due
from responses_gateway.server.generation.preparation.context import Context, new_record
from responses_gateway.server.generation.preparation.encrypted_content import Encryption, Kind
from responses_gateway.server.generation.preparation.ground import Ground
from responses_gateway.server.generation.preparation.opened import Openings
from responses_gateway.server.generation.preparation.prepared_request import PreparedRequest
from responses_gateway.server.generation.preparation.translation import Translated
from responses_gateway.server.generation.upstream.chat_call import ChatCall, backend_headers, filled
from responses_gateway.server.generation.upstream.continuation_request import longest_stop
from responses_gateway.state import Store
from responses_gateway.stream.options import SealText, StreamOptions, recognise
from responses_gateway.stream.tape import Tape
from responses_gateway.wire.requests import ResponsesRequest


class Planner(msgspec.Struct, frozen=True, eq=False):
    """Plans requests, with the parts that all of them share."""

    pool: Pool
    store: Store | None
    encryption: Encryption
    tokenizer: ModelTokenizer | None
    keys: ClientKeys

    async def planned(self, ground: Ground, opened: Openings, translated: Translated, summarise: Summarise) -> PreparedRequest:
        """Return the request as it is sent. `summarise` has the backend summarise a context that is too long. Raise `ApiError`,
        `StoreUnavailable`."""
        scope = ground.scope
        context = ground.context
        chat = translated.chat
        beginning = scope.beginning
        start = beginning.start if beginning is not None else await scope.in_force.parsers.start(chat.body)
        continuable = translated.continuable
        tape = None
        if scope.recording is not None or continuable.journal is not None or beginning is not None:
            tape = Tape(time.time)  # of a response that is recorded, or that another gateway may take over or has begun
        options = self._options(ground, translated, start, tape)
        compaction = None
        if chat.compact_threshold is not None:
            compaction = await self._compaction(ground, translated, chat.compact_threshold, summarise)
        if compaction is not None:
            continuable = continuable._replace(journal=None)  # because who takes it over would write another summary
        stored = self.store is not None and ground.request.store is not False
        caller = scope.caller
        waits = ground.request.background_options is not None and long_window(ground.request) is not None
        if continuable.journal is not None or waits:
            sealed_key = self.keys.sealed(caller, ground.request.model, scope.in_force.settings)
            caller = msgspec.structs.replace(caller, sealed_key=sealed_key)
        losses = [*translated.losses, *opened.losses(strict=ground.policy.strict)]
        memory = None if scope.growing is None else scope.growing.memory
        return PreparedRequest(
            caller,
            context,
            self._call(ground, opened, translated, stored=stored),
            options,
            start,
            # Nobody is told of what was carried over as it was.
            [loss for loss in losses if loss.outcome != "preserved"],
            new_record(options.response_id, context, caller, memory) if stored else None,
            _further_turns(ground, opened, chat, options.response_id),
            compaction,
            continuable,
            tape,
        )

    def _call(self, ground: Ground, opened: Openings, translated: Translated, *, stored: bool) -> ChatCall:
        chat = translated.chat
        # The next turn of a response has the same beginning, and so has the answer after a summary.
        followed = (
            stored
            or ground.scope.caller.over_websocket
            or chat.compacting
            or opened.tools is not None
            or (bool(chat.tools) and (_has_async_tools(chat) or _goes_on(ground)))
        )
        route = self._route(ground, followed=followed)
        reading = ground.scope.reading
        words = list if reading is None else reading.words
        return ChatCall(
            chat.body, translated.data, _headers(ground), route, chat.added, words=words, written=translated.written
        )

    def _route(self, ground: Ground, *, followed: bool) -> Route:
        request = ground.request
        reading = ground.scope.reading
        if not self.pool.chooses:  # then nothing needs to be looked at
            return Route(request.model)
        if reading is None:
            return Route(request.model, affinity_key(request, ground.context, continuable=followed))
        # Its client sends the whole conversation each time.
        return Route(request.model, reading.affinity or affinity_key(request, ground.context, continuable=True))

    def _options(self, ground: Ground, translated: Translated, start: AnswerStart, tape: Tape | None) -> StreamOptions:
        """Return the options of the translator of the answer; its tape has the texts that it seals."""
        scope = ground.scope
        chat = translated.chat
        request = ground.request
        continuable = translated.continuable
        more: dict[str, Any] = {}
        if self.tokenizer is not None:
            more["encode"] = self.tokenizer.encode
            more["decode"] = self.tokenizer.decode
        if continuable.attempts:
            more["continuable"] = continuable.now
            more["holds_text"] = longest_stop(chat.body) > 0
        if scope.caller.over_websocket:
            more["stream_id"] = request.stream_id
        if chat.encrypted_reasoning:
            more["seal"] = self._seal("reasoning", ground, tape)
        if chat.compacting and not chat.warming:
            more["compaction"] = self._seal("compaction", ground, tape)
        client = recognise(scope.caller.headers)
        # It begins with the time, as those of `state.records.new_id` do, for the same reason.
        new_id = f"resp_{int(time.time()):08x}{os.urandom(12).hex()}"
        response_id = scope.kept.response_id if scope.kept is not None else new_id
        return stream_options(scope.in_force, request, chat, client, response_id, start, scope.reading, **more)

    def _seal(self, kind: Kind, ground: Ground, tape: Tape | None) -> SealText:
        """Return what encrypts a text of the answer."""
        seal = partial(self.encryption.encrypt, kind, ground.scope.caller.tenant, ground.request.model)
        return seal if tape is None else tape.sealing(seal)

    async def _compaction(
        self, ground: Ground, translated: Translated, threshold: int, summarise: Summarise
    ) -> AutomaticCompaction | None:
        """Return the compaction that is due before the answer, if one is."""
        context = ground.context
        if not await is_due(threshold, context, translated.chat.body, self.encryption, self.tokenizer):
            return None
        return AutomaticCompaction(context, ground.scope.caller, self.encryption, summarise, translated.translation.translate)


def _further_turns(ground: Ground, opened: Openings, chat: ChatRequest, response_id: str) -> FurtherTurns | None:
    """Return the turns after the first one; None for a response that has one turn."""
    tools = opened.tools
    hosted = None
    if tools is not None and not chat.compacting and not chat.warming:  # else there is no answer that could call them
        listings = tools.new_listings(ground.context.items)
        hosted = HostedTurns(tools, ground.policy, response_id, listings, chat.approved, chat.max_calls)
    in_force = ground.scope.in_force
    if hosted is None and not (chat.tools and (_has_async_tools(chat) or _goes_on(ground))):
        return None
    return FurtherTurns(in_force.parsers, ground.policy, in_force.settings.hosted_turns, hosted)


def _goes_on(ground: Ground) -> bool:
    """Tell whether a model with tools may be asked to go on where it ends early."""
    return ground.scope.in_force.settings.continue_early_ends != "off"


def _has_async_tools(chat: ChatRequest) -> bool:
    return any(target.asynchronous for target in chat.tools.values())


def _headers(ground: Ground) -> dict[str, str]:
    """Return the headers for the backend, and those of the settings whose placeholders have values."""
    settings = ground.scope.in_force.settings
    caller = ground.scope.caller
    headers = backend_headers(settings, caller.headers, caller.request_id)
    if settings.backend_headers:
        request = ground.request
        beginning = affinity_key(request, ground.context, continuable=True)
        session = caller.headers.get(SESSION_HEADER) or beginning.partition(":")[2]
        reservation = caller.reservation
        values = {
            "conversation": ground.context.conversation or session,
            "key": reservation.key if reservation is not None else None,
            "team": reservation.team if reservation is not None else None,
            "model": request.model,
            "service_tier": request.service_tier,
        }
        headers.update(filled(settings.backend_headers, {name: value for name, value in values.items() if value}))
    return headers


def affinity_key(request: ResponsesRequest, context: Context, *, continuable: bool) -> str:
    """Return what requests with the same beginning share: the client's own key, or the conversation, or how the chain of
    responses begins. Empty where no other request will build on this one (not `continuable`).

    All responses of a chain share its first item, and so does the first one, which does not know yet that others will come."""
    if request.prompt_cache_key:
        return f"key:{request.prompt_cache_key}"
    if context.conversation is not None:
        return f"conversation:{context.conversation}"
    if not continuable and request.previous_response_id is None:
        return ""
    items = context.history or context.input
    return f"chain:{_digest(items[0])}" if items else ""


def _digest(item: Mapping[str, Any]) -> str:
    """Hash what was said, without what is added on the way into the store (an id, a status)."""
    content = item.get("content") or item.get("output") or item.get("id")
    return blake2b(msgspec.json.encode(content), digest_size=16).hexdigest()
