"""`/v1/models` in the words of the Messages API."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from typing import Any

from aiohttp import web
from aiohttp.typedefs import Handler

from responses_gateway.server.access.api_keys import Needs, needs
from responses_gateway.server.access.middleware import protocol_of
from responses_gateway.server.http.exchange import read_limit
from responses_gateway.server.protocols.messages import MESSAGES
from responses_gateway.server.resources.models import Models, Refused
from responses_gateway.wire.errors import ApiError, invalid_request, read_error
from responses_gateway.wire.messages import key_refused

_MOST = 1000
_DEFAULT = 20


def by_version(others: Handler, messages: Handler) -> Handler:
    """Return the handler for a path that both APIs have."""

    async def handle(request: web.Request) -> web.StreamResponse:
        return await (messages if protocol_of(request) is MESSAGES else others)(request)

    return handle


@needs(Needs.NOTHING)
async def hello(_request: web.Request) -> web.Response:
    """Answer `HEAD`, which Claude Code asks at its start: there is a server."""
    return web.Response()


class MessagesModels:
    """Serves the models of the backends, with their aliases."""

    def __init__(self, models: Models) -> None:
        self._models = models

    async def list_models(self, request: web.Request) -> web.Response:
        """Answer `GET /v1/models` with a page of the list."""
        found = [_shown(model) for model in await self._listed(request)]
        page, more = _page(found, request)
        ends = {"first_id": page[0]["id"], "last_id": page[-1]["id"]} if page else {"first_id": None, "last_id": None}
        return web.json_response({"data": page, "has_more": more, **ends})

    async def retrieve_model(self, request: web.Request) -> web.Response:
        """Answer `GET /v1/models/{id}`. The id may have slashes."""
        name = request.match_info["id"]
        for model in await self._listed(request):
            if model["id"] == name:
                return web.json_response(_shown(model))
        raise ApiError(404, f"model: {name[:100]}", param="model", code="model_not_found")

    async def _listed(self, request: web.Request) -> Sequence[Mapping[str, Any]]:
        try:
            listed: Sequence[Mapping[str, Any]] = (await self._models.listed(request))["data"]
        except Refused as refused:
            if refused.status in (401, 403):
                raise key_refused(refused.status) from None
            raise read_error(refused.status, refused.body) from None
        return listed


def _shown(model: Mapping[str, Any]) -> dict[str, Any]:
    created = model.get("created")
    moment = datetime.fromtimestamp(created if type(created) is int and 0 <= created < 2**32 else 0, UTC)
    shown = {"type": "model", "id": model["id"], "display_name": model["id"], "created_at": f"{moment:%Y-%m-%dT%H:%M:%SZ}"}
    window = model.get("max_model_len")
    return {**shown, "max_input_tokens": window, "max_tokens": window} if type(window) is int else shown


def _page(found: list[dict[str, Any]], request: web.Request) -> tuple[list[dict[str, Any]], bool]:
    """Return the models that are asked for, and whether there are more. Raise `ApiError` 400."""
    limit = read_limit(request, _DEFAULT, _MOST)
    ids = [model["id"] for model in found]
    if (before := request.query.get("before_id")) is not None:
        end = _position(ids, before, "before_id")
        return found[max(0, end - limit) : end], end > limit
    begin = 0
    if (after := request.query.get("after_id")) is not None:
        begin = _position(ids, after, "after_id") + 1
    return found[begin : begin + limit], len(found) > begin + limit


def _position(ids: list[str], wanted: str, param: str) -> int:
    if wanted not in ids:
        raise invalid_request(f"{param}: there is no model of this id.", param, "invalid_value")
    return ids.index(wanted)
