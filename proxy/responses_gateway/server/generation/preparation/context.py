"""A request and the store: who asks, what the request builds on (a previous response, a conversation, items), and the record of
its response."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Container, Iterable, Mapping, Sequence
from dataclasses import KW_ONLY, dataclass, field, replace
from functools import cached_property
from itertools import chain
from typing import Any, NamedTuple

import msgspec

from responses_gateway.request.input.call_matching import without_repeated
from responses_gateway.request.who_asks import NAMES, NOBODY, Asker, asker_of, asks_for_summary, with_session
from responses_gateway.server.generation.preparation.encrypted_content import is_compaction
from responses_gateway.server.generation.request_log.facts import RequestFacts
from responses_gateway.server.protocols.interface import Allows, ClientProtocol, Reading
from responses_gateway.server.protocols.responses import RESPONSES
from responses_gateway.server.quotas.quota import Reservation
from responses_gateway.state import ResponseRecord, Store, Stored, StoreUnavailable
from responses_gateway.state.hosted_calls import recent
from responses_gateway.state.records import NO_ITEMS, HistoryMemory, KnownItems
from responses_gateway.state.responses import ResponseTable
from responses_gateway.stream.translator import Translator
from responses_gateway.stream.writer.responses import ResponseStream
from responses_gateway.telemetry import logs
from responses_gateway.telemetry.logs import LoggedExchange
from responses_gateway.wire.errors import ApiError, invalid_request
from responses_gateway.wire.hosted_kinds import HOSTED_CALLS
from responses_gateway.wire.requests import ResponsesRequest, user_message

Item = dict[str, Any]

# The type of an item that asks for something and is no part of the history.
_COMPACTION_TRIGGER = "compaction_trigger"
# Results of earlier hosted calls that the model is shown again, because more would fill half of a usual context.
SHOWN_AGAIN_BYTES = 256 * 1024


class Caller(msgspec.Struct, frozen=True):
    """Who asks for a response, without HTTP.

    `headers` are those of the client's request. `operation` names the trace of the request; without one there is none.
    `reservation` is what the request holds of its client's limits. `over_websocket`: the request is a message.
    `protocol` is that of the client. `allows` tells the models that the client may use; None if it may use all. `exchange` is
    the HTTP request that the response answers. `sealed_key` is the client's key for the backend, of a response that may outlive
    this process; empty where none is needed, None where it is not kept. `asker`: the agent for which the client asks, in the
    session that it continues."""

    tenant: str
    request_id: str
    headers: Mapping[str, str]
    operation: str | None = None
    reservation: Reservation | None = None
    over_websocket: bool = False
    protocol: ClientProtocol = RESPONSES
    allows: Allows | None = None
    exchange: LoggedExchange | None = None
    sealed_key: str | None = ""
    asker: Asker = NOBODY


def asking(request: ResponsesRequest, caller: Caller, reading: Reading | None) -> Asker:
    """Return the agent for which a request asks. Most say nothing of one, and are to cost nothing."""
    headers = caller.headers
    if reading is not None:
        fields = reading.told
        return NOBODY if not fields["metadata"] and NAMES.isdisjoint(map(str.lower, headers)) else asker_of(headers, fields)
    extra = request.model_extra
    nvext = None if not extra else extra.get("nvext")
    says_so = request.client_metadata or request.prompt_cache_key or request.only_warms or nvext
    says_so = says_so or asks_for_summary(request.input)
    if not says_so and NAMES.isdisjoint(map(str.lower, headers)):
        return NOBODY
    body = {
        "client_metadata": request.client_metadata,
        "prompt_cache_key": request.prompt_cache_key,
        "prompt_cache_options": request.prompt_cache_options,
        "generate": request.generate,
        "nvext": nvext,
        "input": request.input,
        "tools": request.tools,
    }
    return asker_of(headers, body, handshake=caller.over_websocket)


def caller_in(session: str, caller: Caller) -> Caller:
    """Return a caller in the session that the request continues, unless the client names another one."""
    if caller.asker.session is not None:
        return caller
    return msgspec.structs.replace(caller, asker=with_session(caller.asker, session, "previous_response_id"))


def caller_within(caller: Caller) -> Caller:
    """Return the caller of a request that the gateway makes for the sake of another one's answer. The reservation of that one
    is charged for it: this one only says whose request it is. It has no trace of its own."""
    held = caller.reservation
    named = None if held is None else Reservation(held.key, held.team)
    return Caller(caller.tenant, caller.request_id, caller.headers, reservation=named)


@dataclass(frozen=True, slots=True)
class PreviousResponse:
    """A response that was not stored, and that the next one on the same connection may continue: its id, the items up to it
    but for those that it has replaced by a summary, what the model got as results of the hosted calls among them, and what is
    known of its request; of the first one of a chain also what it repeats of that (`echo`)."""

    response_id: str
    items: Sequence[Item]
    results: Mapping[str, bytes] = field(default_factory=dict)
    facts: RequestFacts | None = None
    echo: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class Context:
    """The history of one request, and its own input as items.

    `history` are the items before the input and `place` is where they end in the store; `references` are stored items by id.
    `history_tokens` is the length of the history according to the usage of the previous response, if it was asked for.
    `results` are the results of hosted calls in all of this as the model got them, by the ids of their items, as far as they
    were kept. `session`: that of the response which the request continues, or the id of the first one in its chain.
    `first`: that one, if the request continues it: what is stored, or kept of it. `compactions_in_inputs`: the positions of
    compactions in the history that came in an input, so that they stand only for what their client had left out.
    """

    request: ResponsesRequest
    history: Sequence[Item] = ()
    _: KW_ONLY
    place: int = 0
    conversation: str | None = None
    references: Mapping[str, Item] = field(default_factory=dict)
    history_tokens: int | None = None
    results: Mapping[str, bytes] = field(default_factory=dict)
    session: str | None = None
    first: Stored | PreviousResponse | None = None
    compactions_in_inputs: Container[int] = ()

    @cached_property
    def input(self) -> list[Item]:
        """The input as items to be stored, with references replaced by what they refer to. Computed once."""
        return _input_items(self.request, self.references, self.history)

    @property
    def items(self) -> list[Item]:
        """The history and the input."""
        return [*self.history, *self.input]

    def meant(self, entry: Any) -> Any:
        """Return the item to which an entry of the input refers, or the entry itself."""
        return self.references.get(entry["id"], entry) if _is_reference(entry) else entry


class History(NamedTuple):
    """What a request continues: the place in the store, the conversation, the length in tokens, the session, if known, and the
    first response of a chain."""

    place: int = 0
    conversation: str | None = None
    tokens: int | None = None
    session: str | None = None
    first: Stored | None = None


async def find_context(store: Store, tenant: str, request: ResponsesRequest, known: KnownItems) -> Context:
    """Look up what the request names, and the results of earlier hosted calls. `known` is the beginning of its history. Raise
    `ApiError` for what does not exist, or belongs to another tenant."""
    for _ in range(10):  # because an item may be removed meanwhile, or the response
        continued = await _continued(store, tenant, request)
        context = await context_at(store, tenant, request, continued, known)
        if context.history or not continued.place:
            return context
    raise StoreUnavailable("items are removed from a history faster than it is read, or it is damaged")


async def _continued(store: Store, tenant: str, request: ResponsesRequest) -> History:
    """Return the history that a request continues. Raise `ApiError` as above."""
    if request.previous_response_id is not None:
        if request.conversation is not None:
            message = "Mutually exclusive parameters: 'previous_response_id' and 'conversation'."
            raise invalid_request(message, "previous_response_id", "mutually_exclusive_parameters")
        previous = await _previous_response(store.responses, tenant, request.previous_response_id)
        tokens = _length_after(previous) if request.context_management else None
        first = previous if previous.session is None else None
        return History(previous.end, None, tokens, previous.session or previous.id, first)
    if request.conversation is None:
        return History()
    conversation = conversation_id(request)
    record = await store.conversations.continued(tenant, conversation, _input_items(request, {}, ()))
    if record is None:
        message = f"Conversation with id '{conversation[:100]}' not found."
        raise ApiError(404, message, param="conversation", code="conversation_not_found")
    return History(record.end, conversation)


async def context_at(
    store: Store, tenant: str, request: ResponsesRequest, continued: History, known: KnownItems = NO_ITEMS
) -> Context:
    """Look up the history that a request continues, of which the beginning may be `known`, and what its items refer to."""
    place, conversation, tokens, session, first = continued
    items = request.input if isinstance(request.input, list) else []
    named = _with_ids(items)
    thoughts = {item["id"] for item in named if _lacks_its_text(item)}
    ids = [item["id"] for item in named if item["id"] in thoughts or _is_reference(item)]
    history = await store.histories.items(place, known) if place else ()
    references = await store.histories.find(tenant, ids) if ids else {}
    if thoughts and references:
        items = [references.get(item["id"], item) if _lacks_its_text(item) else item for item in items]
        request = request.model_copy(update={"input": items})
    compactions = [index for index, item in enumerate(history) if "encrypted_content" in item and is_compaction(item)]
    inputs = await store.histories.inputs(place, compactions) if compactions else frozenset[int]()
    context = Context(
        without_repeated(request, history),
        history,
        place=place,
        conversation=conversation,
        references=references,
        history_tokens=tokens,
        session=session,
        first=first,
        compactions_in_inputs=inputs,
    )
    own = context.input if ids else named
    with_results = [item["id"] for item in _with_ids(chain(history, own)) if _may_have_result(item)]
    if not with_results:
        return context
    return replace(context, results=await store.hosted_calls.results(tenant, with_results, SHOWN_AGAIN_BYTES))


def continue_previous(request: ResponsesRequest, previous: PreviousResponse) -> Context:
    """Return what a request builds on that continues the last response of its connection."""
    results = previous.results
    kept = recent({item_id: len(result) for item_id, result in results.items()}, SHOWN_AGAIN_BYTES)
    session = None if previous.facts is None else previous.facts.asker.session
    return Context(
        without_repeated(request, previous.items),
        previous.items,
        results={item_id: results[item_id] for item_id in kept},
        session=session or previous.response_id,
        first=previous if session is None else None,
        compactions_in_inputs=range(len(previous.items)),  # because what the others have replaced is left out
    )


def _may_have_result(item: Item) -> bool:
    """Tell whether an item is that of a hosted call, which may have a result that is kept beside it."""
    kind = item.get("type")
    return isinstance(kind, str) and kind in HOSTED_CALLS


def _length_after(response: Stored) -> int | None:
    """Return how many tokens the context of a response has according to its usage. None if that is the sum of several calls of
    the model, between which tools were called here."""
    fields = msgspec.json.decode(response.json)
    if any(item["type"] in HOSTED_CALLS for item in fields["output"]):
        return None
    tokens: int | None = (fields.get("usage") or {}).get("total_tokens")
    return tokens


def conversation_id(request: ResponsesRequest) -> str:
    """Return the id in `conversation`, which is a string or an object. Raise `ApiError` 400."""
    conversation = request.conversation
    value = conversation.get("id") if isinstance(conversation, dict) else conversation
    if not isinstance(value, str) or not value:
        raise invalid_request("Invalid type for 'conversation.id': a string is expected.", "conversation.id", "invalid_type")
    return value


async def _previous_response(table: ResponseTable, tenant: str, response_id: str) -> Stored:
    response = await table.get(tenant, response_id)
    if response is None:
        message = f"Previous response with id '{response_id[:100]}' not found."
        raise invalid_request(message, "previous_response_id", "previous_response_not_found")
    if response.active:
        message = f"Previous response with id '{response_id[:100]}' has not ended yet."
        raise invalid_request(message, "previous_response_id", "previous_response_not_ready")
    return response


def _input_items(request: ResponsesRequest, references: Mapping[str, Item], history: Sequence[Item]) -> list[Item]:
    request_input = request.input
    if request_input is None:
        return []
    if isinstance(request_input, str):
        return [user_message(request_input)]
    objects = [item for item in request_input if isinstance(item, dict)]  # others are refused by the translation
    named = _with_ids(objects)
    if not any(map(_is_reference, named)):
        return [item for item in objects if item.get("type") != _COMPACTION_TRIGGER]
    present = [item["id"] for item in chain(_with_ids(history), named) if not _is_reference(item)]
    meant = {**references, **dict.fromkeys(present)}  # None for what is there already
    items = [meant.get(entry["id"]) if _is_reference(entry) else entry for entry in objects]
    return [item for item in items if item is not None and item.get("type") != _COMPACTION_TRIGGER]


def _with_ids(items: Iterable[Item]) -> list[Item]:
    """Return the items that have ids. Most have none, and are looked at but once."""
    return [item for item in items if isinstance(item, dict) and isinstance(item.get("id"), str)]


def _is_reference(item: object) -> bool:
    """Tell a reference as the translation does: it may come without a type."""
    if not isinstance(item, dict) or not isinstance(item.get("id"), str):
        return False
    kind = item.get("type")
    return kind == "item_reference" or (kind is None and "role" not in item and "content" not in item)


def _lacks_its_text(item: Any) -> bool:
    """Tell whether all that a client kept of a thought is its id, as LangChain (`outputVersion: "v1"`) and LiteLLM do, because
    OpenAI's items have no more without a summary."""
    if not isinstance(item, dict) or item.get("type") != "reasoning" or not isinstance(item.get("id"), str):
        return False
    empty = item.get("summary") in (None, [], [{"type": "summary_text", "text": ""}])
    return empty and not item.get("content") and not item.get("encrypted_content")


def new_record(response_id: str, context: Context, caller: Caller, memory: HistoryMemory | None) -> ResponseRecord:
    """Return what is known before the response begins; `started_record` and `final_record` add the rest."""
    # A history that is not in the store came over this connection.
    came_along = context.history and not context.place
    background = bool(context.request.background)
    return ResponseRecord(
        id=response_id,
        tenant=caller.tenant,
        created_at=time.time(),
        status="queued",
        head="",
        tail="",
        context=context.place,
        history=context.history,
        input=context.items if came_along else context.input,
        conversation=context.conversation,
        background=background,
        detached=background,
        session=caller.asker.session,
        memory=memory,
    )


def stored_stream(translator: Translator) -> ResponseStream:
    """Return the stream of a response that is stored: one of the Responses API, the other protocols store nothing."""
    assert isinstance(translator.response, ResponseStream)
    return translator.response


def started_record(record: ResponseRecord, translator: Translator) -> ResponseRecord:
    """Return the record of a response that has only begun, from its first snapshot."""
    response = stored_stream(translator)
    head, tail = response.first_text_around_output()
    return replace(record, status=translator.status, head=head, tail=tail, repeated=response.long_texts)


def final_record(
    record: ResponseRecord, translator: Translator, results: Mapping[str, bytes], *, cancelled: bool = False
) -> ResponseRecord:
    """Return the record of the response as it was streamed: the very text of its items, and what stands around them; `results`
    are kept with the items. No event has the status `cancelled`, so a cancelled response is stored with a status that differs
    from its stream's."""
    status = "cancelled" if cancelled else translator.status
    response = stored_stream(translator)
    head, tail = response.text_around_output(status=status)
    return replace(
        record,
        status=status,
        head=head,
        tail=tail,
        repeated=response.long_texts,
        output=response.output,
        results=results,
        tools_ran=not HOSTED_CALLS.keys().isdisjoint(translator.writer.items),
    )


async def save(
    table: ResponseTable, record: ResponseRecord, translator: Translator, results: Mapping[str, bytes], limit: asyncio.Timeout
) -> bool:
    """Store the response that was streamed, before the client learns that it is stored. Return False if that failed: the log
    says why, and the client gets its terminal event all the same; or if it was deleted, or ended by others, meanwhile."""
    try:
        async with limit:
            return await table.save(final_record(record, translator, results))
    except Exception as error:  # nothing may keep the terminal event from the client
        defect = None if isinstance(error, StoreUnavailable | TimeoutError) else error
        why = str(error) or "the store did not answer"
        logs.logger().error("not stored", exc_info=defect, extra=logs.fields(response_id=record.id, error=why))
        return False
