"""Lists of items, page by page, and the `include` of a query."""

from __future__ import annotations

from typing import Any, cast

from aiohttp import web

from responses_gateway.server.http.exchange import json_answer, read_limit
from responses_gateway.state import Cursor, HistorySpan, ItemPage, PageOrder
from responses_gateway.state.histories import HistoryTable
from responses_gateway.wire.errors import invalid_request
from responses_gateway.wire.requests import INCLUDABLE

_DEFAULT_LIMIT = 20
_MAX_LIMIT = 100


async def read_page(request: web.Request, table: HistoryTable, span: HistorySpan) -> ItemPage:
    """Return the page of a part of a history that the query asks for (`order`, `limit`, `after`, `before`, `include`). Raise
    `ApiError` 400."""
    order = request.query.get("order", "desc")
    if order not in ("asc", "desc"):
        raise invalid_request("Invalid value for 'order': 'asc' or 'desc' is expected.", "order", "invalid_value")
    limit = read_limit(request, _DEFAULT_LIMIT, _MAX_LIMIT)
    read_include(request)  # checked only: items are shown with all they have
    cursor = Cursor(request.query.get("after"), request.query.get("before"))
    page = await table.page(span, cast("PageOrder", order), limit, cursor)
    if page is None:
        name = "after" if cursor.after is not None else "before"
        raise invalid_request(f"Item with id '{str(request.query[name])[:100]}' not found.", name, "item_not_found")
    return page


def page_response(page: ItemPage) -> web.Response:
    """Return a list object of the API."""
    items = page.items
    body: dict[str, Any] = {
        "object": "list",
        "data": items,
        "first_id": items[0]["id"] if items else None,
        "last_id": items[-1]["id"] if items else None,
        "has_more": page.more,
    }
    return json_answer(body)


def read_include(request: web.Request) -> frozenset[str]:
    """Return `include` of the query, once or several times, as the SDKs write lists. Raise `ApiError` 400."""
    words = [
        word
        for name, value in request.query.items()
        if name.partition("[")[0] == "include"
        for word in value.split(",")
        if word
    ]
    for word in words:
        if word not in INCLUDABLE:
            message = f"Invalid value for 'include': '{word[:64]}' is not one of {', '.join(INCLUDABLE)}."
            raise invalid_request(message, "include", "invalid_value")
    return frozenset(words)
