"""`/v1/conversations`: histories with a name, to which responses add."""

from __future__ import annotations

from typing import Any

from aiohttp import web

from responses_gateway.request import check_kept_items
from responses_gateway.server.access.api_keys import tenant_of
from responses_gateway.server.generation.preparation.encrypted_content import Encryption
from responses_gateway.server.generation.preparation.live_settings import LiveSettings
from responses_gateway.server.http.exchange import json_answer, read_json_body
from responses_gateway.server.resources.pagination import page_response, read_include, read_page
from responses_gateway.state import Conversation, Cursor, HistorySpan, ItemPage, Store
from responses_gateway.wire.errors import ApiError, invalid_request
from responses_gateway.wire.requests import read_object

# Items that one request may bring (OpenAI's limit).
_MAX_ITEMS = 20
_MAX_METADATA = 16


class Conversations:
    """Serves the paths of conversations."""

    def __init__(self, store: Store, encryption: Encryption, live: LiveSettings) -> None:
        self._table = store.conversations
        self._histories = store.histories
        self._encryption = encryption
        self._live = live

    async def create(self, request: web.Request) -> web.StreamResponse:
        """Answer `POST /v1/conversations`, with `items` and `metadata` if given."""
        body = read_object(await read_json_body(request), optional=True)
        items = self._new_items(request, body) if body.get("items") is not None else []
        conversation = await self._table.create(tenant_of(request), _metadata(body), items)
        return web.json_response(_shown(conversation))

    async def read(self, request: web.Request) -> web.StreamResponse:
        """Answer `GET /v1/conversations/{id}`."""
        return web.json_response(_shown(await self._find(request)))

    async def update(self, request: web.Request) -> web.StreamResponse:
        """Answer `POST /v1/conversations/{id}`: replace the metadata."""
        body = read_object(await read_json_body(request))
        if "metadata" not in body:
            raise invalid_request("Missing required parameter: 'metadata'.", "metadata", "missing_required_parameter")
        metadata = _metadata(body)
        conversation = await self._table.update(tenant_of(request), request.match_info["id"], metadata)
        if conversation is None:
            raise _not_found(request)
        return web.json_response(_shown(conversation))

    async def delete(self, request: web.Request) -> web.StreamResponse:
        """Answer `DELETE /v1/conversations/{id}`: the responses in it stay."""
        conversation_id = request.match_info["id"]
        if not await self._table.delete(tenant_of(request), conversation_id):
            raise _not_found(request)
        return web.json_response({"id": conversation_id, "object": "conversation.deleted", "deleted": True})

    async def items(self, request: web.Request) -> web.StreamResponse:
        """Answer `GET …/items`, page by page, the latest first by default."""
        conversation = await self._find(request)
        page = await read_page(request, self._histories, HistorySpan(0, conversation.end))
        if not page.items and (await self._find(request)).end != conversation.end:  # an item was removed meanwhile
            return await self.items(request)
        return page_response(page)

    async def add(self, request: web.Request) -> web.StreamResponse:
        """Answer `POST …/items`: append items, and return them as they are kept."""
        read_include(request)
        new = self._new_items(request, read_object(await read_json_body(request)))
        end = await self._table.add_items(tenant_of(request), request.match_info["id"], new)
        if end is None:
            raise _not_found(request)
        page = await self._histories.page(HistorySpan(0, end), "desc", len(new), Cursor()) if new else None
        return page_response(ItemPage(page.items[::-1] if page else [], False))

    async def item(self, request: web.Request) -> web.StreamResponse:
        """Answer `GET …/items/{item}`."""
        read_include(request)
        entry = await self._histories.item((await self._find(request)).end, request.match_info["item"])
        if entry is None:
            raise _item_not_found(request)
        return json_answer(entry)

    async def remove(self, request: web.Request) -> web.StreamResponse:
        """Answer `DELETE …/items/{item}`."""
        conversation = await self._find(request)
        if await self._table.remove_item(tenant_of(request), conversation.id, request.match_info["item"]) is None:
            raise _item_not_found(request)
        return web.json_response(_shown(conversation))

    async def _find(self, request: web.Request) -> Conversation:
        conversation = await self._table.get(tenant_of(request), request.match_info["id"])
        if conversation is None:
            raise _not_found(request)
        return conversation

    def _new_items(self, request: web.Request, body: dict[str, Any]) -> list[dict[str, Any]]:
        """Return the items of a body, after checking that a response can build on all of them."""
        items = body.get("items")
        if not isinstance(items, list):
            raise invalid_request("Invalid type for 'items': a list is expected.", "items", "invalid_type")
        if len(items) > _MAX_ITEMS:
            raise invalid_request(f"Invalid 'items': at most {_MAX_ITEMS} at a time.", "items", "array_above_max_length")
        check_kept_items(items, "items", self._live.current.parsers.policy(""))
        self._encryption.decrypt_items(items, tenant_of(request), "", "items")  # refused if it was changed
        return items


def _shown(conversation: Conversation) -> dict[str, Any]:
    return {
        "id": conversation.id,
        "object": "conversation",
        "created_at": int(conversation.created_at),
        "metadata": conversation.metadata,
    }


def _not_found(request: web.Request) -> ApiError:
    name = request.match_info["id"][:100]
    return ApiError(404, f"Conversation with id '{name}' not found.", code="conversation_not_found")


def _item_not_found(request: web.Request) -> ApiError:
    return ApiError(404, f"Item with id '{request.match_info['item'][:100]}' not found.", code="item_not_found")


def _metadata(body: dict[str, Any]) -> dict[str, Any]:
    metadata = body.get("metadata")
    if metadata is None:
        return {}
    if not isinstance(metadata, dict) or len(metadata) > _MAX_METADATA:
        message = f"Invalid 'metadata': an object with at most {_MAX_METADATA} members is expected."
        raise invalid_request(message, "metadata", "invalid_type")
    for key, value in metadata.items():
        if len(key) > 64 or not isinstance(value, str) or len(value) > 512:
            message = "Invalid 'metadata': keys of at most 64 characters, texts of at most 512."
            raise invalid_request(message, "metadata", "invalid_value")
    return metadata
