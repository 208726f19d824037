"""The third stage of preparing a request: the chat request, complete, and whether another backend may continue its answer."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from itertools import chain
from typing import Any, NamedTuple

import msgspec

from responses_gateway.backend.pool import Pool
from responses_gateway.backend.prompt_tokens import PromptTokens, certainly_fits, estimated_tokens
from responses_gateway.fair_queue import FairQueue
from responses_gateway.request import ChatRequest, Loss, Policy, translate
from responses_gateway.request.growing import ChatJson, Grown, TranslatedTurns, encoded, translate_growing
from responses_gateway.request.input.items import text_item
from responses_gateway.request.tools.hosted_tools import NO_HOSTED_TOOLS, HostedTools
from responses_gateway.server.generation.preparation.context import Context, Item
from responses_gateway.server.generation.preparation.encrypted_content import Encryption, is_compaction, removed_reasoning
from responses_gateway.server.generation.preparation.ground import Ground, Openings, ReadDocuments, RequestScope, with_texts
from responses_gateway.server.generation.preparation.kept_response import ClientKeys, Journal
from responses_gateway.server.generation.preparation.known_inputs import KnownInputs
from responses_gateway.server.generation.preparation.live_settings import InForce
from responses_gateway.server.generation.upstream.chat_call import backend_headers
from responses_gateway.server.generation.upstream.continuation import Obstacle, why_not_continuable
from responses_gateway.server.recording.recording import Recording
from responses_gateway.state import Store
from responses_gateway.wire.errors import ApiError
from responses_gateway.wire.hosted import KeptResult, decode_result
from responses_gateway.wire.requests import ResponsesRequest

# Items and parts of a request above which it is translated in a thread, because two thousand take several milliseconds. A tool
# counts as so many.
_LONG = 2_000
_TOOL = 10
_CLAMPED = Loss("parameter", "max_output_tokens", "adapted", "reduced to what the context has room for")


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

    def translate(self, request: ResponsesRequest, context: Context, recording: Recording | None = None) -> ChatRequest:
        """Return the chat request for a request and what it builds on, our own encryption undone. Raise `ApiError` 400."""
        request_input = request.input
        replaced: frozenset[int] = frozenset()
        history: Sequence[Item] = ()
        if context.history:
            history = self.encryption.since_compaction([*context.history], context.compactions_in_inputs)
            history = self._readable(history, request.model, "history")
        if type(request_input) is list:
            items = self._readable(request_input, request.model, "input")
            if items is not request_input:
                request = request.model_copy(update={"input": items})
            if request.context_management:  # because clients need not leave out what was compacted
                replaced = self.encryption.replaced([*map(context.meant, request_input)])
        references = context.references
        if references:
            referred = self._readable([*references.values()], request.model, "input")
            references = dict(zip(references, referred, strict=True))
        if recording is not None:
            recording.found(
                request,
                self.policy,
                self.served_as,
                original=request_input,
                history=history,
                references=references,
                replaced=replaced,
                hosted=self.hosted,
                results=context.results,
            )
        results: dict[str, KeptResult] = {}
        if context.results:
            results = {item_id: decode_result(result) for item_id, result in context.results.items()}
        chat_request = translate(request, self.policy, references.get, history, replaced, self.hosted, results)
        return self._whole(chat_request, context, request_input, request.model)

    def grow(
        self,
        request: ResponsesRequest,
        context: Context,
        known: TranslatedTurns | None,
        kept: int | None,
        others: Iterable[TranslatedTurns],
    ) -> Grown | None:
        """Do as `translate`, from where the translation of the request that this one continues had got to. So many of its items
        may be `kept`, and tools be those of `others`, as in `translate_growing`. Return None where that cannot be done. Raise
        `ApiError` 400."""
        model = request.model
        before = 0 if known is None else known.items
        items = [text_item(request.input)] if isinstance(request.input, str) else request.input or []
        history = None
        if context.history:
            new = [*context.history[before:]]
            inputs = context.compactions_in_inputs
            if any(index not in inputs for index, item in enumerate(new, before) if is_compaction(item)):
                return None  # because it replaces what is before it
            history = self.encryption.decrypt_items(new, self.tenant, model, "history", before)
            before = 0
        rest = items[before:] if before else items
        readable = self.encryption.decrypt_items(rest, self.tenant, model, "input", before)
        grown = translate_growing(request, self.policy, readable, known, kept, others, history)
        if grown is None:
            return None
        return msgspec.structs.replace(grown, chat=self._whole(grown.chat, context, request.input, model))

    def _readable(self, items: list[Any], model: str, path: str) -> list[Any]:
        """Return items as the model is to read them. Raise `ApiError` 400."""
        items = self.encryption.decrypt_items(items, self.tenant, model, path)
        return with_texts(items, self.documents.texts, self.hosted.files) if self.documents.texts else items

    def _whole(self, chat_request: ChatRequest, context: Context, request_input: Any, model: str) -> ChatRequest:
        """Return a chat request with what its translation alone does not know."""
        changes: dict[str, Any] = {}
        if self.documents.losses:
            changes["losses"] = [*chat_request.losses, *self.documents.losses]
        for loss in chat_request.losses:
            if loss.name != "reasoning" or loss.outcome != "ignored":
                continue
            original = chain(context.history, request_input if isinstance(request_input, list) else ())
            removed = removed_reasoning(original, self.encryption, self.tenant, model)
            if removed:
                changes["echo"] = {**chat_request.echo, "input_transformations": removed}
            break
        if self.token_ids:
            changes["body"] = {**chat_request.body, "return_token_ids": True}
        return msgspec.structs.replace(chat_request, **changes) if changes else chat_request


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


class Translated(msgspec.Struct, frozen=True, eq=False):
    """The chat request, whose body is complete, and encoded as `data`, with the parts of that where they are known (`written`);
    the losses in the words of the client; whether another backend may continue the answer. `translation` is how it was made,
    for the request that follows a summary, and `beginning` what the next request can go on from."""

    chat: ChatRequest
    data: bytes
    losses: Sequence[Loss]
    continuable: Continuable
    translation: Translation
    written: ChatJson | None
    beginning: TranslatedTurns | None


class RequestTranslator(msgspec.Struct, frozen=True, eq=False):
    """Translates requests, with the parts that all of them share. `queue` has the long ones, `keys` those of clients."""

    pool: Pool
    store: Store | None
    encryption: Encryption
    queue: FairQueue
    tokens: PromptTokens
    keys: ClientKeys
    known: KnownInputs

    async def translated(self, ground: Ground, opened: Openings) -> Translated:
        """Return the complete chat request. Raise `ApiError`."""
        translation = self._translation(ground, opened)
        grown = await self._grown(translation, ground, opened) if ground.may_grow else None
        chat = await self._in_turn(translation, ground) if grown is None else grown.chat
        continuable = self._continuable(ground, chat)
        losses: Sequence[Loss] = chat.losses
        body = chat.body
        if continuable.now and not translation.token_ids:
            body = {**body, "return_token_ids": True}
            translation = msgspec.structs.replace(translation, token_ids=True)  # because the request after a summary needs them
        written, beginning = (None, None) if grown is None else encoded(grown, body)
        data = msgspec.json.encode(body) if written is None else written.data
        reading = ground.scope.reading
        if reading is not None:
            room = None
            if reading.context_window is not None:
                room = await _room_for_answer(body, data, written, reading.context_window, ground.scope, self.tokens)
            if room is not None:
                body = {**body, ground.scope.in_force.settings.max_tokens_field: room}
                written = None if written is None else written.with_fields(body)
                data = msgspec.json.encode(body) if written is None else written.data
                losses = [*losses, _CLAMPED]
            losses = [*reading.losses, *reading.words(losses)]
        if body is not chat.body:
            chat = msgspec.structs.replace(chat, body=body)
        return Translated(chat, data, losses, continuable, translation, written, beginning)

    def asks_for_token_ids(self, model: str, in_force: InForce) -> bool:
        """Tell whether the backend is to send the ids of its tokens: always, or where they help and it can send them."""
        setting = in_force.settings.token_ids
        if setting == "auto":
            parsers = in_force.parsers
            return parsers.any_raw and parsers.raw(model) and self.pool.models.all_vllm(model)
        return setting == "on"

    def _translation(self, ground: Ground, opened: Openings) -> Translation:
        model = ground.request.model
        return Translation(
            ground.policy,
            self.encryption,
            ground.scope.caller.tenant,
            self.pool.own_name(model),
            NO_HOSTED_TOOLS if opened.tools is None else opened.tools.tools,
            self.asks_for_token_ids(model, ground.scope.in_force),
            opened.documents,
        )

    async def chat_request(self, ground: Ground, opened: Openings) -> ChatRequest:
        """Return the chat request of a request that is not answered. Raise `ApiError` 400."""
        return await self._in_turn(self._translation(ground, opened), ground)

    async def _in_turn(self, translation: Translation, ground: Ground) -> ChatRequest:
        """Translate a request: a long one in a thread, so that no other stream waits for it, and one at a time, because several
        would keep the event loop from the interpreter's lock; tenants are served in turn. Raise `ApiError` 400."""
        request = ground.request
        context = ground.context
        recording = ground.scope.recording
        items = request.input if type(request.input) is list else ()
        if not _takes_long(items, request.tools) and not (context.history and _takes_long(context.history)):
            return translation.translate(request, context, recording)
        return await self.queue.in_thread(translation.tenant, translation.translate, request, context, recording)

    async def _grown(self, translation: Translation, ground: Ground, opened: Openings) -> Grown | None:
        """Translate a request that may be one of a growing thread; None where it has to be done whole. Raise `ApiError` 400."""
        request = ground.request
        context = ground.context
        reading = ground.scope.reading
        kept = None
        if reading is not None:
            if reading.turns is None:
                return None
            kept = reading.turns.items
        if context.references or opened.tools is not None or opened.documents.texts or request.context_management:
            return None
        known = ground.known
        others = () if known is not None else tuple(self.known.beginnings(translation.tenant))
        rest = ground.new_items
        if not _takes_long(rest, request.tools if known is None else None):
            return translation.grow(request, context, known, kept, others)
        return await self.queue.in_thread(translation.tenant, translation.grow, request, context, known, kept, others)

    def _continuable(self, ground: Ground, chat: ChatRequest) -> Continuable:
        """Find out whether the answer may be continued; then the ids of its tokens are needed."""
        scope = ground.scope
        outlives = self._outlives_its_gateway(ground, chat)
        partners = self.pool.partners(ground.request.model, alone=outlives, begun=scope.beginning is not None)
        if not partners.attempts:
            return NOT_CONTINUABLE
        if scope.in_force.settings.token_ids == "off":
            return Continuable(partners.attempts, "no_ids")
        obstacle = why_not_continuable(chat.body)
        journal = Journal() if outlives and obstacle is None else None
        return Continuable(partners.attempts, obstacle, journal, partners.checkpoint)

    def _outlives_its_gateway(self, ground: Ground, chat: ChatRequest) -> bool:
        """Tell whether another gateway could read what this one stores of the response while it runs."""
        request = ground.request
        caller = ground.scope.caller
        settings = ground.scope.in_force.settings
        if not request.background and not (request.stream and settings.on_disconnect == "continue"):
            return False  # because it ends with its client
        if self.store is None or settings.store == "memory" or request.store is False or caller.over_websocket:
            return False  # because no other gateway could find it, or nobody could follow it there
        if not self.keys.kept(caller, request.model, settings):
            return False
        if chat.compacting:
            return False  # because a compaction is asked for again: it has no stream to be resumed
        # Calls that go on, because what runs them (a hosted tool, a later request) is not in the journal.
        return not any(target.continues for target in chat.tools.values())


async def _room_for_answer(
    body: Mapping[str, Any], data: bytes, written: ChatJson | None, window: int, scope: RequestScope, tokens: PromptTokens
) -> int | None:
    """Return the tokens that a window has left after the prompt; None if a chat request, encoded as `data`, asks for no more.
    `written` has its parts, where they are known. Counting is left out where the room is certain."""
    settings = scope.in_force.settings
    limit = body.get(settings.max_tokens_field)
    if type(limit) is not int:
        return None
    room = (window - limit) / 2  # because the prompt may have twice the estimate
    if certainly_fits(data, len(body["messages"]), room):
        return None
    estimate = estimated_tokens(body)
    if estimate <= room:
        return None
    caller = scope.caller
    headers = backend_headers(settings, caller.headers, caller.request_id)
    try:
        messages = None if written is None else written.messages
        counted = await tokens.count(body, headers, settings.connect_timeout, messages)
    except ApiError:  # the answer to the request itself will tell
        counted = None
    left = window - (estimate if counted is None else counted)
    return None if left < 1 or limit <= left else left


def _takes_long(items: Sequence[Any], tools: Sequence[Any] | None = None) -> bool:
    """Tell whether items, which may be anything, and tools have so many parts that their translation takes a while."""
    length = len(items) + (_TOOL * len(tools) if tools else 0)
    if length > _LONG:
        return True
    for item in items:
        if type(item) is dict:
            parts = item.get("content") or item.get("output")
            if type(parts) is list:
                length += len(parts)
    return length > _LONG
