"""`/admin/webhooks`: the endpoints and what they have not taken yet, for those who have the admin key.

All of it is read from the store: every gateway of a fleet answers the same."""

from __future__ import annotations

from typing import Any

from aiohttp import web
from yarl import URL

from responses_gateway.settings import Settings
from responses_gateway.settings.background import WebhookEndpoint
from responses_gateway.state.webhooks import Amounts, Left, WebhookTable
from responses_gateway.wire.errors import ApiError

_MOST = 100  # deliveries in one answer
# What stands before the id of an event in the header `webhook-id`.
_PREFIX = "wh_"


class WebhookDeliveries:
    """Serves the paths. `settings` are those at the start."""

    def __init__(self, settings: Settings, table: WebhookTable) -> None:
        self._settings = settings
        self._table = table

    async def list_all(self, _request: web.Request) -> web.Response:
        """Answer `GET` with the endpoints, and the deliveries that wait or failed, the next one first. Raise `ApiError`,
        `StoreUnavailable`."""
        amounts = await self._table.amounts()
        left = await self._table.left(_MOST + 1)
        endpoints = self._settings.webhooks.items()
        answer = {
            "object": "list",
            "data": [_endpoint(name, endpoint, amounts.get(name, Amounts())) for name, endpoint in endpoints],
            "deliveries": [_delivery(each) for each in left[:_MOST]],
            "has_more": len(left) > _MOST,
        }
        return web.json_response(answer)

    async def send_again(self, request: web.Request) -> web.Response:
        """Answer `POST`: have a delivery that waits or failed tried now. Raise `ApiError`, `StoreUnavailable`."""
        delivery_id = request.match_info["id"]
        state = await self._table.send_again(delivery_id.removeprefix(_PREFIX))
        if state == "unknown":
            message = f"There is no delivery `{delivery_id[:100]}` that waits or failed."
            raise ApiError(404, message, code="not_found")
        if state == "sending":
            raise ApiError(409, "This delivery is being sent.", code="conflict")
        return web.json_response({"id": delivery_id, "state": "waiting"}, status=202)


def _endpoint(name: str, endpoint: WebhookEndpoint, amounts: Amounts) -> dict[str, Any]:
    """Return an endpoint as operators see it: without its secret, and without the query of its URL, which may have one."""
    url = str(URL(endpoint.url).with_query(None).with_fragment(None))
    return {"name": name, "url": url, "private": endpoint.private, "waiting": amounts.waiting, "failed": amounts.failed}


def _delivery(left: Left) -> dict[str, Any]:
    return {
        "id": f"{_PREFIX}{left.id}",
        "endpoint": left.endpoint,
        "type": f"response.{left.status}",
        "response_id": left.response_id,
        "state": left.state,
        "attempts": left.attempts,
        "next_attempt_at": left.next_attempt_at,
        "last_failure": left.last_failure,
    }
