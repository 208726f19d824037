"""Which backend a request would like to go to: the one that has seen its beginning before."""

from __future__ import annotations

from collections.abc import Mapping
from hashlib import blake2b
from typing import Any

import msgspec

from proxy.backend.served_models import Route
from proxy.server.generation.context import Footing, own_items
from proxy.server.generation.gateway import Gateway
from proxy.wire.requests import ResponsesRequest


def route_of(gateway: Gateway, request: ResponsesRequest, footing: Footing, *, may_go_on: bool = False) -> Route:
    """The route of a request and what it builds on. `may_go_on`: its response can be continued though it is not stored.

    Where there is nothing to choose, nothing is looked at.
    """
    if not gateway.pool.chooses:
        return Route(request.model)
    may_go_on = may_go_on or (gateway.store is not None and request.store is not False)
    return Route(request.model, _affinity(request, footing, may_go_on))


def _affinity(request: ResponsesRequest, footing: Footing, may_go_on: bool) -> str:
    """The client's own key, or the conversation, or how the chain of responses begins; empty where nothing will follow.

    All responses of a chain share its first item, and so does the first one, which does not know yet that others will come.
    No gateway has to remember anything for that.
    """
    if request.prompt_cache_key:
        return f"key:{request.prompt_cache_key}"
    if footing.conversation is not None:
        return f"conversation:{footing.conversation}"
    chained = may_go_on or request.previous_response_id is not None
    items = (footing.history or own_items(request, footing)) if chained else ()
    return f"chain:{_digest(items[0])}" if items else ""


def _digest(item: Mapping[str, Any]) -> str:
    """Of what was said, without what is added on the way into the store (an id, a status)."""
    said = item.get("content") or item.get("output") or item.get("id")
    return blake2b(msgspec.json.encode(said), digest_size=16).hexdigest()
