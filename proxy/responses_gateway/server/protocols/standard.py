"""The protocols that are served, in order. Nothing else lists them."""

from __future__ import annotations

from responses_gateway.server.protocols.interface import ClientProtocol
from responses_gateway.server.protocols.messages import MESSAGES
from responses_gateway.server.protocols.responses import RESPONSES

PROTOCOLS: dict[str, ClientProtocol] = {protocol.name: protocol for protocol in (RESPONSES, MESSAGES)}
