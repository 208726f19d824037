"""One chat request on its way to a backend."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

import msgspec

from responses_gateway.backend.served_models import Route


class ChatCall(NamedTuple):
    """The body of a chat request, as data and as the JSON that is sent (`data`); the headers that go with it, and its route.

    Nothing changes a body in place: `with_body` returns the call of another one."""

    body: Mapping[str, Any]
    data: bytes
    headers: Mapping[str, str]
    route: Route

    def with_body(self, body: Mapping[str, Any]) -> ChatCall:
        """Return the call with another body, which is encoded here and nowhere else."""
        return self._replace(body=body, data=msgspec.json.encode(body))
