"""Plain HTTP that is sent to the port of HTTPS gets an answer that says so, where TLS alone would close the connection."""

from __future__ import annotations

import json
import ssl
from typing import Any

from responses_gateway.wire.errors import ApiError

_ERROR = ApiError(400, "This port speaks HTTPS: the URL has to begin with https://.", code="https_required")


class TLSContext(ssl.SSLContext):
    """A context whose connections answer plain HTTP."""

    def wrap_bio(self, incoming: ssl.MemoryBIO, outgoing: ssl.MemoryBIO, *args: Any, **more: Any) -> ssl.SSLObject:
        """Return a connection, which learns where to write."""
        connection = super().wrap_bio(incoming, outgoing, *args, **more)
        assert isinstance(connection, _Connection)
        connection.outgoing = outgoing
        return connection


class _Connection(ssl.SSLObject):
    outgoing: ssl.MemoryBIO
    answered = False

    def do_handshake(self) -> None:
        """Shake hands. OpenSSL recognises HTTP in the first bytes of a client."""
        try:
            super().do_handshake()
        except ssl.SSLError as error:
            if error.reason != "HTTP_REQUEST" or self.answered:
                raise
            self.answered = True
            self.outgoing.write(_answer())
            raise ssl.SSLWantReadError from None  # so that what was written is sent; the client closes the connection


TLSContext.sslobject_class = _Connection


def _answer() -> bytes:
    body = json.dumps(_ERROR.body()).encode()
    head = (
        f"HTTP/1.1 {_ERROR.status} Bad Request\r\nContent-Type: application/json\r\nContent-Length: {len(body)}\r\n"
        "Connection: close\r\n\r\n"
    )
    return head.encode() + body
