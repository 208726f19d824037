"""From a Responses request to all that is needed to ask a backend and to read its answer: `Preparation.prepare`."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from hashlib import blake2b
from typing import Any, NamedTuple

import msgspec

from responses_gateway.backend.pool import Pool
from responses_gateway.backend.served_models import Route
from responses_gateway.backend.tokenizer.tokenizers import ModelTokenizer
from responses_gateway.fair_queue import FairQueue
from responses_gateway.hosted.pdf import PdfReader
from responses_gateway.request import ChatRequest, Loss, Policy, translate
from responses_gateway.request.tools.hosted_tools import NO_HOSTED_TOOLS, HostedTools
from responses_gateway.server.generation.hosted_tools.toolbox import Toolbox
from responses_gateway.server.generation.hosted_tools.turns import FurtherTurns, HostedTurns, OpenedTools
from responses_gateway.server.generation.parser_choice.choice import AnswerStart
from responses_gateway.server.generation.preparation.codex_sessions import SESSION_HEADER
from responses_gateway.server.generation.preparation.compaction import AutomaticCompaction, Summarise, is_due
from responses_gateway.server.generation.preparation.context import (
    Caller,
    Context,
    PreviousResponse,
    continue_previous,
    find_context,
    new_record,
)
from responses_gateway.server.generation.preparation.dialect import Dialect
from responses_gateway.server.generation.preparation.documents import ReadDocuments, read_documents, with_texts
from responses_gateway.server.generation.preparation.encrypted_content import Encryption, removed_reasoning
from responses_gateway.server.generation.preparation.journal import Charged, Journal, ResponseStart, ResumedResponse, digest
from responses_gateway.server.generation.preparation.live_settings import InForce
from responses_gateway.server.generation.preparation.prompt_cache import diagnostics
from responses_gateway.server.generation.upstream.chat_call import ChatCall, filled
from responses_gateway.server.generation.upstream.continuation_request import Obstacle, longest_stop, why_not_continuable
from responses_gateway.server.generation.upstream.upstream import Upstream
from responses_gateway.server.recording.recording import NO_RECORDING, Recording
from responses_gateway.settings import Settings
from responses_gateway.state import ResponseRecord, Store
from responses_gateway.state.prompt_hashes import PromptHashes
from responses_gateway.stream.items.hosted import HostedOptions
from responses_gateway.stream.options import Client, SealText, StreamOptions, recognise
from responses_gateway.stream.tape import Tape
from responses_gateway.telemetry.tracing import trace_headers
from responses_gateway.wire.hosted import decode_result
from responses_gateway.wire.requests import ResponsesRequest

# Items and parts of a request above which it is translated in a thread: two thousand take some twenty milliseconds.
_LONG = 2_000
# Headers of a client's request that a gateway needs which takes the response over.
_KEPT_HEADERS = ("originator", "User-Agent")


class AcceptedResponse(NamedTuple):
    """A response that was accepted earlier: its id, and the Unix time in seconds at which it was created."""

    response_id: str
    created: float


class RequestScope(msgspec.Struct, frozen=True):
    """What holds for one request: who asks, the settings in force, and its recording. `resumed`: the response has begun in
    another gateway. `dialect`: the request was made in another protocol. `accepted`: the response has waited."""

    caller: Caller
    in_force: InForce
    recording: Recording
    resumed: ResumedResponse | None = None
    dialect: Dialect | None = None
    accepted: AcceptedResponse | None = None


class Continuable(NamedTuple):
    """Whether another backend may continue the answer: `attempts` times, unless there is an `obstacle`. `journal`: another
    gateway may take it over, too. `checkpoint`: what the backends list of the model, where that is why they may."""

    attempts: int = 0
    obstacle: Obstacle | None = None
    journal: Journal | None = None
    checkpoint: str = ""

    @property
    def now(self) -> bool:
        """Nothing is in the way."""
        return self.attempts > 0 and self.obstacle is None


NOT_CONTINUABLE = Continuable()


class PreparedRequest(msgspec.Struct, frozen=True, eq=False):
    """A request that is ready to be sent.

    `call` asks the backend. `options` are those of the translator of its answer, which begins as `start` tells. `record` is to
    be stored; None: nothing is. `turns` are those behind the first one. `compaction` comes before the answer. `ask` makes
    what asks the backends."""

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
    ask: Callable[..., Upstream] = Upstream

    @property
    def hosted(self) -> HostedTurns | None:
        """What runs the tools that the gateway runs itself."""
        return self.turns.hosted if self.turns is not None else None

    @property
    def tools_ran(self) -> bool:
        """Whether a hosted tool was begun: a response that fails then must not have its client repeat the request."""
        hosted = self.hosted
        return hosted is not None and hosted.ran

    def beginning(self, created: float) -> bytes | None:
        """Return what another gateway needs to begin the response again; None if none may take it over. `created` is the Unix
        time of the response in seconds."""
        if self.continuable.journal is None:
            return None
        caller = self.caller
        headers = {name: caller.headers[name] for name in _KEPT_HEADERS if name in caller.headers}
        try:
            request = self.context.request.model_dump_json(exclude_unset=True).encode()
        except ValueError:  # half a surrogate pair
            return None
        chat = digest(self.call.data)
        checkpoint = self.continuable.checkpoint
        held = caller.reservation
        charged = Charged(held.key, held.team, held.owners) if held is not None and held.key is not None else None
        start = ResponseStart(request, caller.request_id, headers, created, self.start, chat, checkpoint, charged=charged)
        return msgspec.msgpack.encode(start)

    def begins_like(self, beginning: ResponseStart) -> bool:
        """Tell whether the backends are asked what they were asked before, and serve what they served."""
        checkpoint = self.continuable.checkpoint
        return digest(self.call.data) == beginning.chat and checkpoint in ("", beginning.checkpoint)


class Translation(msgspec.Struct, frozen=True, eq=False):
    """How a request becomes a chat request. `served_as` is the backend's name of the model, `hosted` are the tools that the
    gateway runs itself, and `token_ids` asks the backend for the ids of its tokens."""

    policy: Policy
    encryption: Encryption
    tenant: str
    served_as: str
    hosted: HostedTools
    token_ids: bool
    documents: ReadDocuments

    def translate(self, request: ResponsesRequest, context: Context, recording: Recording = NO_RECORDING) -> ChatRequest:
        """Return the chat request for a request and what it builds on, with our own encrypted content decrypted. Raise
        `ApiError` 400."""
        encryption = self.encryption
        given = request.input
        replaced: frozenset[int] = frozenset()
        history = list(context.history)
        if history:
            history = encryption.decrypt_items(encryption.since_compaction(history), self.tenant, request.model, "history")
            if self.documents.texts:
                history = with_texts(history, self.documents.texts, self.hosted.files)
        if isinstance(given, list):
            items = encryption.decrypt_items(given, self.tenant, request.model, "input")
            if self.documents.texts:
                items = with_texts(items, self.documents.texts, self.hosted.files)
            if items is not given:
                request = request.model_copy(update={"input": items})
            if request.context_management:  # clients need not leave out what was compacted
                replaced = encryption.replaced(given)
        references = context.references
        if self.documents.texts and references:
            texts = self.documents.texts
            files = self.hosted.files
            references = {item_id: with_texts([item], texts, files)[0] for item_id, item in references.items()}
        recording.found(
            request,
            self.policy,
            self.served_as,
            given=given,
            history=history,
            references=references,
            replaced=replaced,
            hosted=self.hosted,
            results=context.results,
        )
        results = {item_id: decode_result(result) for item_id, result in context.results.items()}
        chat_request = translate(request, self.policy, references.get, history, replaced, self.hosted, results)
        chat_request.losses.extend(self.documents.losses)
        if "reasoning" in {loss.name for loss in chat_request.losses if loss.outcome == "ignored"}:
            items = [*context.history, *(given if isinstance(given, list) else ())]
            if removed := removed_reasoning(items, encryption, self.tenant, request.model):
                chat_request.echo["input_transformations"] = removed
        if self.token_ids:
            chat_request.body["return_token_ids"] = True
        return chat_request


@dataclass(frozen=True, slots=True)
class Preparation:
    """Prepares requests, with the parts that all of them share."""

    pool: Pool
    store: Store | None
    encryption: Encryption
    tokenizer: ModelTokenizer | None
    toolbox: Toolbox | None = None
    prompt_hashes: PromptHashes | None = None
    pdf_reader: PdfReader | None = None
    queue: FairQueue = field(default_factory=partial(FairQueue, 1, 1))  # of long requests

    async def prepare(
        self,
        request: ResponsesRequest,
        scope: RequestScope,
        summarise: Summarise,
        previous: PreviousResponse | None = None,
        context: Context | None = None,
    ) -> PreparedRequest:
        """Find what the request builds on, unless `context` has it, and translate it. `previous` is the last response of the
        same connection. `summarise` has the backend summarise a context that is too long. Raise `ApiError`,
        `StoreUnavailable`."""
        caller = scope.caller
        resumed = scope.resumed
        dialect = scope.dialect
        settings = scope.in_force.settings
        parsers = scope.in_force.parsers
        policy = parsers.policy(request.model) if dialect is None else dialect.policy
        if previous is not None and previous.response_id == request.previous_response_id:
            policy = msgspec.structs.replace(policy, stores_responses=True)  # what is continued is here
            if self.store is None:
                request = request.model_copy(update={"store": False})
            context = continue_previous(request, previous, settings.hosted_history_bytes)
        elif context is None:
            context = await find_context(self.store, caller.tenant, request, settings.hosted_history_bytes)
        opened = await self._open_tools(request, context, caller.tenant, policy)
        translation = await self._translation(request.model, policy, scope.in_force, caller.tenant, opened, context, dialect)
        chat_request = await self._translate(translation, request, context, scope.recording)
        continuable = self._continuable(request, chat_request, scope)
        if continuable.now:
            chat_request.body["return_token_ids"] = True
        start = resumed.beginning.start if resumed is not None else await parsers.start(chat_request.body)
        stored = self.store is not None and request.store is not False
        # The next turn of a response has the same beginning, and so has the answer behind a summary.
        has_async_tools = any(target.asynchronous for target in chat_request.tools.values())
        followed = stored or caller.over_websocket or chat_request.compacting or opened is not None or has_async_tools
        route = self._route(request, context, dialect, followed=followed)
        losses: Sequence[Loss] = chat_request.losses
        if dialect is not None:
            losses = [*dialect.losses, *dialect.words(losses), *await dialect.fit(chat_request.body)]
        headers = _headers(settings, request, context, caller)
        call = ChatCall(chat_request.body, msgspec.json.encode(chat_request.body), headers, route)
        tape = _new_tape(scope, continuable)
        options = self._options(context, chat_request, scope, start, continuable, tape)
        if dialect is not None:
            options = dialect.options(options)
        if opened is not None:
            losses = [*losses, *opened.reported_losses(strict=policy.strict)]
        hosted = None
        if opened is not None and not chat_request.compacting and not chat_request.warming:
            hosted = _hosted_turns(opened, policy, context, chat_request, options.response_id)
        turns = FurtherTurns(parsers, policy, settings.hosted_turns, hosted) if hosted is not None or has_async_tools else None
        record = new_record(options.response_id, context, caller.tenant) if stored else None
        compaction = None
        if chat_request.compact_threshold is not None and await is_due(
            chat_request.compact_threshold, context, chat_request.body, self.encryption, self.tokenizer
        ):
            translation = msgspec.structs.replace(translation, token_ids=translation.token_ids or continuable.now)
            compaction = AutomaticCompaction(context, caller, self.encryption, summarise, translation.translate)
            continuable = continuable._replace(journal=None)
        if request.prompt_cache_options is not None:
            options = await self._with_diagnostics(options, request, caller.tenant, None if compaction else chat_request.body)
        return PreparedRequest(caller, context, call, options, start, losses, record, turns, compaction, continuable, tape)

    async def translate(
        self, request: ResponsesRequest, tenant: str, in_force: InForce, dialect: Dialect | None = None
    ) -> ChatRequest:
        """Return the chat request alone, of a request that is not answered. Raise `ApiError`, `StoreUnavailable`."""
        context = await find_context(self.store, tenant, request, in_force.settings.hosted_history_bytes)
        policy = in_force.parsers.policy(request.model) if dialect is None else dialect.policy
        opened = await self._open_tools(request, context, tenant, policy)
        translation = await self._translation(request.model, policy, in_force, tenant, opened, context, dialect)
        return await self._translate(translation, request, context)

    async def _translate(
        self, translation: Translation, request: ResponsesRequest, context: Context, recording: Recording = NO_RECORDING
    ) -> ChatRequest:
        """Translate a request: a long one in a thread, so that no other stream waits for it, and one at a time, since several
        would keep the event loop from the interpreter's lock; tenants are served in turn. Raise `ApiError` 400."""
        if not _is_long(request.input) and not _is_long(context.history):
            return translation.translate(request, context, recording)
        return await self.queue.in_thread(translation.tenant, translation.translate, request, context, recording)

    async def _open_tools(self, request: ResponsesRequest, context: Context, tenant: str, policy: Policy) -> OpenedTools | None:
        """Return the hosted tools of a request; None if it declares none that are turned on. Raise `ApiError` 400."""
        if not request.tools or self.toolbox is None:
            return None
        separate = policy.separate_web_tools
        return await self.toolbox.open(request, context.items, context.results, tenant, separate_web_tools=separate)

    def asks_for_token_ids(self, model: str, in_force: InForce) -> bool:
        """Tell whether the backend is to send the ids of its tokens: always, or where they help and it can send them."""
        wanted = in_force.settings.token_ids
        if wanted == "auto":
            return in_force.parsers.raw(model) and self.pool.members.all_vllm(model)
        return wanted == "on"

    async def _translation(
        self,
        model: str,
        policy: Policy,
        in_force: InForce,
        tenant: str,
        opened: OpenedTools | None,
        context: Context,
        dialect: Dialect | None,
    ) -> Translation:
        hosted = NO_HOSTED_TOOLS if opened is None else opened.tools
        served_as = self.pool.members.own_name(model)
        token_ids = self.asks_for_token_ids(model, in_force)
        given = context.request.input
        items = [*(given if isinstance(given, list) else ()), *context.history, *context.references.values()]
        documents = await read_documents(self.pdf_reader, items, tenant, explains=dialect is not None, strict=policy.strict)
        return Translation(policy, self.encryption, tenant, served_as, hosted, token_ids, documents)

    def _continuable(self, request: ResponsesRequest, chat_request: ChatRequest, scope: RequestScope) -> Continuable:
        """Find out whether the answer may be continued; then the ids of its tokens are needed."""
        outlives = self._outlives_its_gateway(request, chat_request, scope)
        partners = self.pool.partners(request.model, alone=outlives, begun=scope.resumed is not None)
        attempts = partners.attempts
        if not attempts:
            return NOT_CONTINUABLE
        if scope.in_force.settings.token_ids == "off":
            return Continuable(attempts, "no_ids")
        obstacle = why_not_continuable(chat_request.body)
        return Continuable(attempts, obstacle, Journal() if outlives and obstacle is None else None, partners.checkpoint)

    def _outlives_its_gateway(self, request: ResponsesRequest, chat_request: ChatRequest, scope: RequestScope) -> bool:
        """Tell whether another gateway could read what this one stores of the response while it runs. A client's own key for
        the backend is not stored."""
        caller = scope.caller
        settings = scope.in_force.settings
        if not request.background and not (request.stream and settings.on_disconnect == "continue"):
            return False
        if self.store is None or settings.store == "memory" or request.store is False or caller.over_websocket:
            return False
        if forwards_client_key(settings) and "Authorization" in caller.headers:
            return False
        return not chat_request.compacting and not any(target.continues for target in chat_request.tools.values())

    def _options(
        self,
        context: Context,
        chat_request: ChatRequest,
        scope: RequestScope,
        start: AnswerStart,
        continuable: Continuable,
        tape: Tape | None,
    ) -> StreamOptions:
        """Return the options of the translator of the answer; its tape has the texts that it seals."""
        caller = scope.caller
        in_force = scope.in_force
        request = context.request
        encrypt = self.encryption.encrypt
        sealing: Callable[[SealText], SealText] = (lambda seal: seal) if tape is None else tape.sealing
        more: dict[str, Any] = {}
        if self.tokenizer is not None:
            more["encode"] = self.tokenizer.encode
            more["decode"] = self.tokenizer.decode
        if continuable.attempts:
            more["continuable"] = continuable.now
            more["holds_text"] = longest_stop(chat_request.body) > 0
        if caller.over_websocket:
            more["stream_id"] = request.stream_id
        client = recognise(caller.headers)
        known = scope.resumed or scope.accepted
        response_id = known.response_id if known is not None else _new_response_id()
        options = stream_options(in_force, request, chat_request, client, response_id, start, **more)
        if chat_request.encrypted_reasoning:
            seal = sealing(partial(encrypt, "reasoning", caller.tenant, request.model))
            options = msgspec.structs.replace(options, seal=seal)
        if chat_request.compacting and not chat_request.warming:
            compaction = sealing(partial(encrypt, "compaction", caller.tenant, request.model))
            options = msgspec.structs.replace(options, compaction=compaction)
        return options

    async def _with_diagnostics(
        self, options: StreamOptions, request: ResponsesRequest, tenant: str, chat: Mapping[str, Any] | None
    ) -> StreamOptions:
        """Return the options of a response that tells how its prompt compares with an earlier one. `chat` is the body of the
        chat request; None if a summary has to be made first."""
        if self.prompt_hashes is None:
            return options
        routed = self.pool.chooses
        at_end = await diagnostics(self.prompt_hashes, request, tenant, options.response_id, chat, routed=routed)
        return msgspec.structs.replace(options, at_end=at_end)

    def _route(self, request: ResponsesRequest, context: Context, dialect: Dialect | None, *, followed: bool) -> Route:
        if not self.pool.chooses:  # then nothing needs to be looked at
            return Route(request.model)
        if dialect is not None:  # its client sends the whole conversation each time
            return Route(request.model, dialect.affinity or affinity_key(request, context, continuable=True))
        return Route(request.model, affinity_key(request, context, continuable=followed))


def _is_long(items: object) -> bool:
    """Tell whether items, which may be anything, have so many parts that their translation takes a while."""
    if not isinstance(items, Sequence) or isinstance(items, str):
        return False
    parts = (item.get("content") or item.get("output") for item in items if isinstance(item, dict))
    return len(items) + sum(len(part) for part in parts if isinstance(part, list)) > _LONG


def _new_tape(scope: RequestScope, continuable: Continuable) -> Tape | None:
    """Return the tape of a response that is recorded, or that another gateway may take over or has begun."""
    resumed = scope.resumed
    if scope.recording.note is None and continuable.journal is None and resumed is None:
        return None
    return Tape(time.time, resumed.beginning.created if resumed is not None else None)


def _hosted_turns(
    opened: OpenedTools, policy: Policy, context: Context, chat_request: ChatRequest, response_id: str
) -> HostedTurns:
    listings = opened.new_listings(context.items)
    return HostedTurns(opened, policy, response_id, listings, chat_request.approved, chat_request.max_calls)


def _new_response_id() -> str:
    """Return an id that begins with the time, as those of `state.records.new_id` do, for the same reason."""
    return f"resp_{int(time.time()):08x}{os.urandom(12).hex()}"


def stream_options(
    in_force: InForce,
    request: ResponsesRequest,
    chat_request: ChatRequest,
    client: Client,
    response_id: str,
    start: AnswerStart,
    **more: Any,
) -> StreamOptions:
    """Return the options of the translator of the answer; `more` are further ones. `start` tells how the answer is
    read."""
    settings = in_force.settings
    return StreamOptions(
        response_id=response_id,
        model=request.model,
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
        hosted=hosted_options(request, chat_request),
        markup=in_force.parsers.markup(chat_request.body, start),
        thoughts=start.thoughts,
        **more,
    )


def hosted_options(request: ResponsesRequest, chat_request: ChatRequest) -> HostedOptions | None:
    """Return what the items of hosted tools depend on; None for a request without such tools, and without results of earlier
    ones that may be cited."""
    if not chat_request.sources and not any(target.hosted for target in chat_request.tools.values()):
        return None
    sources = tuple(chat_request.sources)
    return HostedOptions(frozenset(request.include or ()), chat_request.container_id or "", sources)


def reasoning_event(settings: Settings) -> str:
    """Return the name of the reasoning events, without `.delta` and `.done`."""
    return "response.reasoning" if settings.reasoning_events == "spec" else "response.reasoning_text"


def forwards_client_key(settings: Settings) -> bool:
    """Tell whether a client's own `Authorization` is sent to the backend: never if it is a key for the gateway."""
    return settings.forward_authorization and not settings.identifies_clients


def backend_headers(settings: Settings, headers: Mapping[str, str], request_id: str) -> dict[str, str]:
    """Return the headers for the backend: the id of the request (sent as a UUID), and of the client's its key and its trace."""
    sent = {"X-Request-Id": request_id}
    if "traceparent" in headers:
        sent.update(trace_headers(headers))
    authorization = headers.get("Authorization")
    if authorization is not None and forwards_client_key(settings):
        sent["Authorization"] = authorization
    return sent


def _headers(settings: Settings, request: ResponsesRequest, context: Context, caller: Caller) -> dict[str, str]:
    """Return the headers for the backend, and those of the settings whose placeholders have values."""
    headers = backend_headers(settings, caller.headers, caller.request_id)
    if settings.backend_headers:
        beginning = affinity_key(request, context, continuable=True)
        session = caller.headers.get(SESSION_HEADER) or beginning.partition(":")[2]
        reservation = caller.reservation
        values = {
            "conversation": context.conversation or session,
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
    said = item.get("content") or item.get("output") or item.get("id")
    return blake2b(msgspec.json.encode(said), digest_size=16).hexdigest()
