"""Requests that come back to this gateway, because the URL of a backend leads to it, by another name or through other gateways.

Relayed requests name the gateways on their way in `Via` (RFC 9110, 7.6.3). That finds every loop: a response is made with chat
requests, which the next gateway relays. So responses themselves need no header."""

from __future__ import annotations

import secrets

from aiohttp import web

from responses_gateway.wire.errors import ApiError

_MESSAGE = (
    "This request has come back to the gateway that sent it: the URL of a backend leads to the gateway itself, by another name "
    "or through another gateway. The operator has to set `backend` to the URL of a Chat Completions server."
)


class LoopDetection:
    """Names this gateway in what it passes on, and recognises its own name."""

    def __init__(self) -> None:
        self._name = f"responses-gateway-{secrets.token_hex(8)}"

    def via(self, request: web.Request) -> str:
        """Return the `Via` of a request that is passed on. Raise `ApiError` 508 if it has been here before."""
        passed = request.headers.getall("Via", [])
        if any(self._name in each for each in passed):
            raise ApiError(508, _MESSAGE, type="server_error", code="loop_detected")
        return ", ".join([*passed, f"1.1 {self._name}"])
