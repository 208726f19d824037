"""What a request builds on: the previous response or the conversation, and the stored items that it refers to."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import KW_ONLY, dataclass, field
from typing import Any

import msgspec

from proxy.state import Store, Stored
from proxy.wire.errors import ApiError, invalid_request
from proxy.wire.requests import ResponsesRequest

Item = dict[str, Any]

# Items that ask for something and are no part of the history.
_INSTRUCTIONS_TO_THE_SERVER = frozenset({"compaction_trigger"})


@dataclass(slots=True)
class Context:
    """The history of one request, and its own input as items.

    `history` are the items before the input and `place` is where they end in the store; `references` are stored items by id.
    `history_tokens` is the length of the history according to the usage of the previous response, if it was asked for.
    """

    request: ResponsesRequest
    history: Sequence[Item] = ()
    _: KW_ONLY
    place: int = 0
    conversation: str | None = None
    references: Mapping[str, Item] = field(default_factory=dict)
    history_tokens: int | None = None
    _input: list[Item] | None = None

    @property
    def input(self) -> list[Item]:
        """The input as items to be stored, with references replaced by what they refer to. Computed once."""
        if self._input is None:
            self._input = _input_items(self.request, self.references)
        return self._input


class _Usage(msgspec.Struct):
    total_tokens: int | None = None


class _ResponseWithUsage(msgspec.Struct):
    usage: _Usage | None = None


async def find_context(store: Store | None, tenant: str, request: ResponsesRequest) -> Context:
    """Look up what the request names. Raise `ApiError` for what does not exist, or belongs to another tenant."""
    if store is None:
        return Context(request)
    place = 0
    conversation = None
    tokens = None
    if request.previous_response_id is not None:
        if request.conversation is not None:
            message = "Mutually exclusive parameters: 'previous_response_id' and 'conversation'."
            raise invalid_request(message, "previous_response_id", "mutually_exclusive_parameters")
        previous = await _previous_response(store, tenant, request.previous_response_id)
        place = previous.end
        if request.context_management:
            tokens = _total_tokens(previous)
    elif request.conversation is not None:
        conversation = conversation_id(request)
        found = await store.conversation(tenant, conversation)
        if found is None:
            message = f"Conversation with id '{conversation[:100]}' not found."
            raise ApiError(404, message, param="conversation", code="conversation_not_found")
        place = found.end
    items = request.input if isinstance(request.input, list) else []
    wanted = [item["id"] for item in items if _is_reference(item)]
    history = await store.history(place) if place else ()
    references = await store.items(tenant, wanted) if wanted else {}
    return Context(request, history, place=place, conversation=conversation, references=references, history_tokens=tokens)


def conversation_id(request: ResponsesRequest) -> str:
    """Return the id in `conversation`, which is a string or an object. Raise `ApiError` 400."""
    given = request.conversation
    found = given.get("id") if isinstance(given, dict) else given
    if not isinstance(found, str) or not found:
        raise invalid_request("Invalid type for 'conversation.id': a string is expected.", "conversation.id", "invalid_type")
    return found


async def _previous_response(store: Store, tenant: str, response_id: str) -> Stored:
    found = await store.response(tenant, response_id)
    if found is None:
        message = f"Previous response with id '{response_id[:100]}' not found."
        raise invalid_request(message, "previous_response_id", "previous_response_not_found")
    if found.active:
        message = f"Previous response with id '{response_id[:100]}' has not ended yet."
        raise invalid_request(message, "previous_response_id", "previous_response_not_ready")
    return found


def _total_tokens(previous: Stored) -> int | None:
    usage = msgspec.json.decode(previous.json, type=_ResponseWithUsage).usage
    return usage.total_tokens if usage is not None else None


def _input_items(request: ResponsesRequest, references: Mapping[str, Item]) -> list[Item]:
    given = request.input
    if given is None:
        return []
    if isinstance(given, str):
        return [{"type": "message", "role": "user", "content": [{"type": "input_text", "text": given}]}]
    present = {item.get("id") for item in given if not _is_reference(item)}
    items: list[Item] = []
    for entry in given:
        item = entry
        if _is_reference(entry):
            if entry["id"] in present:
                continue
            item = references.get(entry["id"])
        if item is not None and item.get("type") not in _INSTRUCTIONS_TO_THE_SERVER:
            items.append(item)
    return items


def _is_reference(item: object) -> bool:
    """Tell a reference as the translation does: it may come without a type."""
    if not isinstance(item, dict) or not isinstance(item.get("id"), str):
        return False
    kind = item.get("type")
    return kind == "item_reference" or (kind is None and "role" not in item and "content" not in item)
