"""Who asks for a response."""

from __future__ import annotations

from collections.abc import Mapping

import msgspec

from proxy.server.generation.request_log import Reservation


class Caller(msgspec.Struct, frozen=True):
    """Who asks for a response, without HTTP.

    `headers` are those of the client's request. `operation` names the trace of the request; without one there is none.
    `reservation` is what the request holds of its client's limits. `over_websocket`: the request is a message."""

    tenant: str
    request_id: str
    headers: Mapping[str, str]
    operation: str | None = None
    reservation: Reservation | None = None
    over_websocket: bool = False
