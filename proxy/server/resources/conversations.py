"""`/v1/conversations`: histories with a name, to which responses add."""

from __future__ import annotations

from typing import Any

import msgspec
from aiohttp import web

from proxy.request import check_kept_items
from proxy.server.access.tenants import tenant_of
from proxy.server.generation.gateway import GATEWAY
from proxy.server.resources.pagination import page_response, read_include, read_page
from proxy.server.resources.stored_responses import store_of
from proxy.state import Conversation, Cursor, Page, Span
from proxy.wire.errors import ApiError, invalid_request
from proxy.wire.requests import read_object

#: Items that one request may bring (OpenAI's limit).
_MAX_ITEMS = 20
_MAX_METADATA = 16
#: What there is, by path.
METHODS = {
    "/v1/conversations": ("POST",),
    "/v1/conversations/{id}": ("GET", "POST", "DELETE"),
    "/v1/conversations/{id}/items": ("GET", "POST"),
    "/v1/conversations/{id}/items/{item}": ("GET", "DELETE"),
}


async def create(request: web.Request) -> web.StreamResponse:
    """`POST /v1/conversations`, with `items` and `metadata` if wanted."""
    body = read_object(await request.read(), optional=True)
    items = _items(request, body) if body.get("items") is not None else []
    conversation = await store_of(request).create_conversation(tenant_of(request), _metadata(body), items)
    return web.json_response(_shown(conversation))


async def read(request: web.Request) -> web.StreamResponse:
    """`GET /v1/conversations/{id}`."""
    return web.json_response(_shown(await _find(request)))


async def update(request: web.Request) -> web.StreamResponse:
    """`POST /v1/conversations/{id}`: other metadata."""
    body = read_object(await request.read())
    if "metadata" not in body:
        raise invalid_request("Missing required parameter: 'metadata'.", "metadata", "missing_required_parameter")
    metadata = _metadata(body)
    found = await store_of(request).update_conversation(tenant_of(request), request.match_info["id"], metadata)
    if found is None:
        raise _not_found(request)
    return web.json_response(_shown(found))


async def delete(request: web.Request) -> web.StreamResponse:
    """`DELETE /v1/conversations/{id}`: the responses in it stay."""
    conversation_id = request.match_info["id"]
    if not await store_of(request).delete_conversation(tenant_of(request), conversation_id):
        raise _not_found(request)
    return web.json_response({"id": conversation_id, "object": "conversation.deleted", "deleted": True})


async def items(request: web.Request) -> web.StreamResponse:
    """`GET …/items`: page by page, the latest first unless asked otherwise."""
    return page_response(await read_page(request, store_of(request), Span(0, (await _find(request)).end)))


async def add(request: web.Request) -> web.StreamResponse:
    """`POST …/items`: at the end. Answers with the items as they are kept."""
    read_include(request)
    store, new = store_of(request), _items(request, read_object(await request.read()))
    end = await store.add_items(tenant_of(request), request.match_info["id"], new)
    if end is None:
        raise _not_found(request)
    page = await store.page(Span(0, end), "desc", len(new), Cursor()) if new else None
    return page_response(Page(page.items[::-1] if page else [], False))


async def item(request: web.Request) -> web.StreamResponse:
    """`GET …/items/{item}`."""
    read_include(request)
    conversation = await _find(request)
    found = await store_of(request).item(conversation.end, request.match_info["item"])
    if found is None:
        raise _item_not_found(request)
    return web.Response(body=msgspec.json.encode(found), content_type="application/json")


async def remove(request: web.Request) -> web.StreamResponse:
    """`DELETE …/items/{item}`."""
    await _find(request)
    tenant, match = tenant_of(request), request.match_info
    conversation = await store_of(request).remove_item(tenant, match["id"], match["item"])
    if conversation is None:
        raise _item_not_found(request)
    return web.json_response(_shown(conversation))


async def refuse_method(request: web.Request) -> web.StreamResponse:
    """Any other method."""
    resource = request.match_info.route.resource
    assert resource is not None
    raise web.HTTPMethodNotAllowed(request.method, METHODS[resource.canonical])


def _shown(conversation: Conversation) -> dict[str, Any]:
    return {
        "id": conversation.id,
        "object": "conversation",
        "created_at": int(conversation.created_at),
        "metadata": conversation.metadata,
    }


async def _find(request: web.Request) -> Conversation:
    found = await store_of(request).conversation(tenant_of(request), request.match_info["id"])
    if found is None:
        raise _not_found(request)
    return found


def _not_found(request: web.Request) -> ApiError:
    name = request.match_info["id"][:100]
    return ApiError(404, f"Conversation with id '{name}' not found.", code="conversation_not_found")


def _item_not_found(request: web.Request) -> ApiError:
    return ApiError(404, f"Item with id '{request.match_info['item'][:100]}' not found.", code="item_not_found")


def _items(request: web.Request, body: dict[str, Any]) -> list[dict[str, Any]]:
    """The items of a body, all of which a response can build on."""
    given = body.get("items")
    if not isinstance(given, list):
        raise invalid_request("Invalid type for 'items': a list is expected.", "items", "invalid_type")
    if len(given) > _MAX_ITEMS:
        raise invalid_request(f"Invalid 'items': at most {_MAX_ITEMS} at a time.", "items", "array_above_max_length")
    gateway = request.app[GATEWAY]
    check_kept_items(given, "items", gateway.parsers.policy(""))
    gateway.seal.open_items(given, tenant_of(request), "", "items")  # nobody may have changed what was sealed
    return given


def _metadata(body: dict[str, Any]) -> dict[str, Any]:
    given = body.get("metadata")
    if given is None:
        return {}
    if not isinstance(given, dict) or len(given) > _MAX_METADATA:
        message = f"Invalid 'metadata': an object with at most {_MAX_METADATA} members is expected."
        raise invalid_request(message, "metadata", "invalid_type")
    for key, value in given.items():
        if len(key) > 64 or not isinstance(value, str) or len(value) > 512:
            message = "Invalid 'metadata': keys of at most 64 characters, texts of at most 512."
            raise invalid_request(message, "metadata", "invalid_value")
    return given
