"""From a Responses request to all that is needed to ask a backend and to read its answer, in four stages.

Each stage makes a new value from those before it: what the request builds on and what is opened for it (`ground.py`), the chat
request (`translation.py`), and how it is sent, its answer read and its response kept (`Preparation._planned`)."""

from __future__ import annotations

import os
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from hashlib import blake2b
from typing import Any

import msgspec

from responses_gateway.backend.pool import Pool
from responses_gateway.backend.prompt_tokens import PromptTokens
from responses_gateway.backend.served_models import Route
from responses_gateway.backend.tokenizer.tokenizers import ModelTokenizer
from responses_gateway.fair_queue import FairQueue
from responses_gateway.hosted.documents import DocumentReader
from responses_gateway.request import ChatRequest, Loss
from responses_gateway.request.growing import TranslatedTurns
from responses_gateway.request.parameters.background_options import long_window
from responses_gateway.server.generation.hosted_tools.turns import FurtherTurns, HostedTurns
from responses_gateway.server.generation.parser_choice.choice import AnswerStart
from responses_gateway.server.generation.preparation.codex_sessions import SESSION_HEADER
from responses_gateway.server.generation.preparation.compaction import AutomaticCompaction, Summarise, is_due
from responses_gateway.server.generation.preparation.context import Caller, Context, PreviousResponse, new_record
from responses_gateway.server.generation.preparation.encrypted_content import Encryption, Kind
from responses_gateway.server.generation.preparation.ground import (
    Ground,
    HostedToolbox,
    Openings,
    RequestScope,
    find_ground,
    open_for,
)
from responses_gateway.server.generation.preparation.kept_response import Beginning, ClientKeys, KeptResponse, digest, keep
from responses_gateway.server.generation.preparation.known_inputs import KnownInputs
from responses_gateway.server.generation.preparation.live_settings import InForce
from responses_gateway.server.generation.preparation.translation import Continuable, RequestTranslator, Translated
from responses_gateway.server.generation.upstream.chat_call import AnswerFilter, ChatCall, backend_headers, filled
from responses_gateway.server.generation.upstream.continuation import longest_stop
from responses_gateway.server.protocols.interface import Reading
from responses_gateway.settings import Settings
from responses_gateway.state import ResponseRecord, Store
from responses_gateway.state.records import NO_ITEMS, KnownItems
from responses_gateway.stream.items.hosted import HostedOptions
from responses_gateway.stream.options import Client, SealText, StreamOptions, reads_whole_calls, recognise
from responses_gateway.stream.tape import Tape
from responses_gateway.stream.validity.call_rules import CallRules
from responses_gateway.stream.writer.responses import AtEnd
from responses_gateway.wire.hosted import citable
from responses_gateway.wire.requests import ResponsesRequest
from responses_gateway.wire.search_results import shown_sources


@dataclass(frozen=True, slots=True)
class Preparation:
    """Prepares requests, with the parts that all of them share. `sealing` has the key for the keys of clients, `known`
    the last requests of threads."""

    pool: Pool
    store: Store | None
    encryption: Encryption
    tokenizer: ModelTokenizer | None
    toolboxes: Sequence[HostedToolbox] = ()
    document_reader: DocumentReader | None = None
    sealing: Encryption | None = None
    known: KnownInputs = field(default_factory=lambda: KnownInputs(0))
    client_keys: ClientKeys = field(init=False)
    translator: RequestTranslator = field(init=False)

    def __post_init__(self) -> None:
        queue = FairQueue(1, 1)  # of long requests
        tokens = PromptTokens(self.pool, self.tokenizer)
        keys = ClientKeys(self.pool.models, self.sealing)
        translator = RequestTranslator(self.pool, self.store, self.encryption, queue, tokens, keys, self.known)
        object.__setattr__(self, "client_keys", keys)
        object.__setattr__(self, "translator", translator)

    async def prepare(
        self,
        request: ResponsesRequest,
        scope: RequestScope,
        summarise: Summarise,
        previous: PreviousResponse | None = None,
        context: Context | None = None,
    ) -> PreparedRequest:
        """Prepare a request. `context` is what it builds on, where that is known, and `previous` the last response of the same
        connection. `summarise` has the backend summarise a context that is too long. Raise `ApiError`, `StoreUnavailable`."""
        ground = await find_ground(self.store, self.known, request, scope, previous, context)
        opened = await open_for(ground, self.toolboxes, self.document_reader)
        translated = await self.translator.translated(ground, opened)
        prepared = await self._planned(ground, opened, translated, summarise)
        if translated.beginning is not None:
            self._keep(translated.beginning, ground, prepared)
        return prepared

    async def translate(
        self, request: ResponsesRequest, caller: Caller, in_force: InForce, reading: Reading | None = None
    ) -> ChatRequest:
        """Return the chat request alone, of a request that is not answered. Raise `ApiError`, `StoreUnavailable`."""
        scope = RequestScope(caller, in_force, None, reading=reading)
        ground = await find_ground(self.store, self.known, request, scope, None, None)
        return await self.translator.chat_request(ground, await open_for(ground, self.toolboxes, self.document_reader))

    def _keep(self, beginning: TranslatedTurns, ground: Ground, prepared: PreparedRequest) -> None:
        """Keep what the next request of the thread can go on from."""
        scope = ground.scope
        tenant = scope.caller.tenant
        growing = scope.growing
        turns = None if scope.reading is None else scope.reading.turns
        context = ground.context
        previous = ground.request.previous_response_id
        if context.history and previous is not None:
            items = KnownItems(context.place, context.history) if context.place else NO_ITEMS  # which came over a connection
            self.known.keep_chain(tenant, prepared.options.response_id, items, beginning, previous)
        elif growing is not None and (turns is None or turns.items == beginning.items):
            self.known.keep(tenant, growing, beginning, turns)

    async def _planned(self, ground: Ground, opened: Openings, translated: Translated, summarise: Summarise) -> PreparedRequest:
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
            sealed_key = self.client_keys.sealed(caller, ground.request.model, scope.in_force.settings)
            caller = msgspec.structs.replace(caller, sealed_key=sealed_key)
        of_tools = () if opened.tools is None else opened.tools.reported_losses(strict=ground.policy.strict)
        memory = None if scope.growing is None else scope.growing.memory
        return PreparedRequest(
            caller,
            context,
            self._call(ground, opened, translated, stored=stored),
            options,
            start,
            # Nobody is told of what was carried over as it was.
            [loss for loss in (*translated.losses, *of_tools) if loss.outcome != "preserved"],
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
            or _goes_on(ground, chat)
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
        client = recognise(scope.caller.headers)
        if chat.encrypted_reasoning or client.needs_sealed_thoughts:
            more["seal"] = self._seal("reasoning", ground, tape)
        if chat.compacting and not chat.warming:
            more["compaction"] = self._seal("compaction", ground, tape)
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


class PreparedRequest(msgspec.Struct, frozen=True, eq=False):
    """A request that is ready to be sent.

    `call` asks the backend. `options` are those of the translator of its answer, which begins as `start` tells. `record` is to
    be stored; None: nothing is. `turns` are those after the first one. `compaction` comes before the answer.
    `answer_filter` decides what of the answers of backends passes."""

    caller: Caller
    context: Context
    call: ChatCall
    options: StreamOptions
    start: AnswerStart
    losses: Sequence[Loss]
    record: ResponseRecord | None
    turns: FurtherTurns | None  # of a response that may have several turns
    compaction: AutomaticCompaction | None
    continuable: Continuable
    tape: Tape | None  # of a response that is recorded, or that another gateway may take over
    answer_filter: AnswerFilter | None = None

    @property
    def hosted(self) -> HostedTurns | None:
        """What runs the tools that the gateway runs itself."""
        return self.turns.hosted if self.turns is not None else None

    @property
    def tools_ran(self) -> bool:
        """Whether a hosted tool was begun: a response that fails then must not have its client repeat the request."""
        hosted = self.hosted
        return hosted is not None and hosted.ran

    def with_end(self, at_end: AtEnd) -> PreparedRequest:
        """Return a request whose response has more to tell at its end."""
        options = msgspec.structs.replace(self.options, at_end=(*self.options.at_end, at_end))
        return msgspec.structs.replace(self, options=options)

    def kept(self, created: float, beginning: Beginning | None = None) -> KeptResponse:
        """Return what the store keeps of the response, which was created at this Unix time in seconds. Raise `ValueError` for
        half a surrogate pair."""
        return keep(self.options.response_id, created, self.caller, self.context, beginning)

    def journalled(self, created: float) -> bytes | None:
        """Return the same for another gateway that takes the response over, encoded; None if none may."""
        if self.continuable.journal is None:
            return None
        beginning = Beginning(self.start, digest(self.call.data), self.continuable.checkpoint)
        try:
            return self.kept(created, beginning).encoded()
        except ValueError:
            return None

    def begins_like(self, beginning: Beginning) -> bool:
        """Tell whether the backends are asked what they were asked before, and serve what they served."""
        checkpoint = self.continuable.checkpoint
        return digest(self.call.data) == beginning.chat and checkpoint in ("", beginning.checkpoint)


def _further_turns(ground: Ground, opened: Openings, chat: ChatRequest, response_id: str) -> FurtherTurns | None:
    """Return the turns after the first one; None for a response that has one turn."""
    tools = opened.tools
    hosted = None
    if tools is not None and not chat.compacting and not chat.warming:  # else there is no answer that could call them
        listings = tools.new_listings(ground.context.items)
        hosted = HostedTurns(tools, ground.policy, response_id, listings, chat.approved, chat.max_calls)
    in_force = ground.scope.in_force
    if hosted is None and not _goes_on(ground, chat):
        return None
    return FurtherTurns(in_force.parsers, ground.policy, in_force.settings.hosted_turns, hosted)


def _goes_on(ground: Ground, chat: ChatRequest) -> bool:
    """Tell whether a model with tools may go on by itself: it need not wait for some of them, or is asked to where it ends
    early."""
    if not chat.tools:
        return False
    asks = ground.scope.in_force.settings.continue_early_ends != "off"
    return asks or any(target.asynchronous for target in chat.tools.values())


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


def stream_options(
    in_force: InForce,
    request: ResponsesRequest,
    chat_request: ChatRequest,
    client: Client,
    response_id: str,
    start: AnswerStart,
    reading: Reading | None,
    **more: Any,
) -> StreamOptions:
    """Return the options of the translator of the answer; `more` are further ones. `start` tells how the answer is read,
    `reading` is that of a body of another protocol."""
    settings = in_force.settings
    return StreamOptions(
        response_id=response_id,
        model=request.model if reading is None else reading.model,
        echo=chat_request.echo,
        tools=chat_request.tools,
        grammars=chat_request.grammars,
        judged=settings.repair_custom_tools == "once",
        allowed=chat_request.allowed,
        allowed_later=chat_request.allowed_later,
        max_calls=chat_request.max_calls,
        parallel_calls=chat_request.parallel_calls,
        call_ids=chat_request.call_ids,
        summary=settings.reasoning_summary == "always" or (chat_request.summary and settings.reasoning_summary == "mirror"),
        logprobs=chat_request.logprobs,
        discarded=chat_request.warming,
        reasoning_event=reasoning_event(settings),
        client=client,
        form=None if reading is None else reading.form,
        hosted=_hosted_options(request, chat_request, reading) if chat_request.sources or chat_request.tools else None,
        markup=in_force.parsers.markup(chat_request.body, start),
        start=start,
        thoughts=start.thoughts,
        **more,
    )


def with_call_rules(
    options: StreamOptions, tools: Sequence[Any], headers: Mapping[str, str], settings: Settings
) -> StreamOptions:
    """Return the options of a translator that checks calls against the tools of the chat request, for a client with these
    headers. In a message nothing may be null that the schema does not let be."""
    safe = reads_whole_calls(headers) if settings.repair_calls is None else settings.repair_calls == "safe"
    rules = CallRules(tools, repairs=safe, drops_nulls=options.form is not None)
    return msgspec.structs.replace(options, calls=rules)


def _hosted_options(request: ResponsesRequest, chat_request: ChatRequest, reading: Reading | None) -> HostedOptions | None:
    """Return what the items of hosted tools depend on; None for a request without such tools, and without results of earlier
    ones that may be cited. What was searched is shown to clients of other protocols: nothing is stored for them, so that it
    has to come back with the next request."""
    if not chat_request.sources and not any(target.hosted for target in chat_request.tools.values()):
        return None
    sources = chat_request.sources if reading is None else citable(shown_sources(request.input or ())).values()
    included = frozenset(request.include or ())
    return HostedOptions(included, chat_request.container_id or "", tuple(sources), shows_results=reading is not None)


def reasoning_event(settings: Settings) -> str:
    """Return the name of the reasoning events, without `.delta` and `.done`."""
    return "response.reasoning" if settings.reasoning_events == "spec" else "response.reasoning_text"
