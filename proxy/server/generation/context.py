"""What a request builds on: the response or the conversation that it continues, and the stored items that it refers to."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import msgspec

from proxy.state import Store, Stored
from proxy.wire.errors import ApiError, invalid_request
from proxy.wire.requests import ResponsesRequest

Item = dict[str, Any]


@dataclass(frozen=True, slots=True)
class Footing:
    """`history` are the items before the input, `place` where they stand in the store, `references` items by id.
    `tokens`: what the usage of the previous response says about the length of the history, if that was asked for."""

    history: Sequence[Item] = ()
    place: int = 0
    conversation: str | None = None
    references: Mapping[str, Item] = field(default_factory=dict)
    tokens: int | None = None


NOTHING = Footing()


class _Usage(msgspec.Struct):
    total_tokens: int | None = None


class _Counted(msgspec.Struct):
    usage: _Usage | None = None


async def find_footing(store: Store, tenant: str, request: ResponsesRequest) -> Footing:
    """Look up what the request names. Raises `ApiError` for what is not there, or not for this tenant."""
    place, conversation, tokens = 0, None, None
    if request.previous_response_id is not None:
        if request.conversation is not None:
            message = "Mutually exclusive parameters: 'previous_response_id' and 'conversation'."
            raise invalid_request(message, "previous_response_id", "mutually_exclusive_parameters")
        previous = await _previous(store, tenant, request.previous_response_id)
        place = previous.end
        tokens = _tokens(previous) if request.context_management else None
    elif request.conversation is not None:
        conversation = conversation_id(request)
        found = await store.conversation(tenant, conversation)
        if found is None:
            message = f"Conversation with id '{conversation[:100]}' not found."
            raise ApiError(404, message, param="conversation", code="conversation_not_found")
        place = found.end
    wanted = _references(request.input)
    if not place and not wanted:
        return NOTHING if conversation is None else Footing(conversation=conversation)
    history = await store.history(place) if place else []
    return Footing(history, place, conversation, await store.items(tenant, wanted) if wanted else {}, tokens)


def own_items(request: ResponsesRequest, footing: Footing) -> list[Item]:
    """The input of a translated request as items to be stored: references stand for what they refer to."""
    if request.input is None or isinstance(request.input, str):
        text = request.input
        return [] if text is None else [{"type": "message", "role": "user", "content": [{"type": "input_text", "text": text}]}]
    present = {item.get("id") for item in request.input if not _is_reference(item)}
    kept = (footing.references.get(item["id"]) if _is_reference(item) else item for item in request.input)
    return [
        item
        for given, item in zip(request.input, kept, strict=True)
        if item is not None and not (_is_reference(given) and given["id"] in present) and item.get("type") not in _ORDERS
    ]


def conversation_id(request: ResponsesRequest) -> str:
    """The id in `conversation`, which is a string or an object. Raises `ApiError` 400."""
    given = request.conversation
    found = given.get("id") if isinstance(given, dict) else given
    if not isinstance(found, str) or not found:
        raise invalid_request("Invalid type for 'conversation.id': a string is expected.", "conversation.id", "invalid_type")
    return found


#: Items that ask for something and are no part of the history.
_ORDERS = frozenset({"compaction_trigger"})


async def _previous(store: Store, tenant: str, response_id: str) -> Stored:
    found = await store.response(tenant, response_id)
    if found is None:
        message = f"Previous response with id '{response_id[:100]}' not found."
        raise invalid_request(message, "previous_response_id", "previous_response_not_found")
    if found.active:
        message = f"Previous response with id '{response_id[:100]}' has not ended yet."
        raise invalid_request(message, "previous_response_id", "previous_response_not_ready")
    return found


def _tokens(previous: Stored) -> int | None:
    usage = msgspec.json.decode(previous.json, type=_Counted).usage
    return usage.total_tokens if usage is not None else None


def _references(source: str | list[Any] | None) -> list[str]:
    items = source if isinstance(source, list) else []
    return [item["id"] for item in items if _is_reference(item)]


def _is_reference(item: object) -> bool:
    """As the translation sees it: references may come without a type."""
    if not isinstance(item, dict) or not isinstance(item.get("id"), str):
        return False
    kind = item.get("type")
    return kind == "item_reference" or (kind is None and "role" not in item and "content" not in item)
