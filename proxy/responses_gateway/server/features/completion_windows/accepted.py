"""A request whose response waits, as it is kept in the store: what is needed to make the response later, in any process."""

from __future__ import annotations

import zlib
from collections.abc import Mapping
from typing import NamedTuple

import msgspec

from responses_gateway.server.generation.preparation.journal import Charged
from responses_gateway.server.generation.preparation.prepared_request import PreparedRequest

# Changes when an older gateway could not read it any more.
_FORMAT = 1
# Headers of a client's request that matter later; its keys are never stored.
_KEPT_HEADERS = ("originator", "User-Agent")


class UnreadableRequest(Exception):
    """A request of another version, or a damaged one."""


class History(NamedTuple):
    """What a request continues: the place in the store, the conversation, and the length in tokens, if that is known."""

    place: int
    conversation: str | None
    tokens: int | None


class AcceptedRequest(msgspec.Struct, frozen=True):
    """The client's request, who asked and who is charged, when the response was created (Unix time in seconds), and what it
    continues."""

    request: bytes
    tenant: str
    request_id: str
    headers: Mapping[str, str]
    created: float
    history: History
    charged: Charged | None
    format: int = _FORMAT

    def encoded(self) -> bytes:
        """Return it as it is stored."""
        return zlib.compress(msgspec.msgpack.encode(self), 1)


def accepted_request(prepared: PreparedRequest, created: float) -> AcceptedRequest:
    """Return what is kept of a request that is ready to be sent, whose response was created at this Unix time in seconds. Raise
    `ValueError` for half a surrogate pair."""
    context = prepared.context
    caller = prepared.caller
    held = caller.reservation
    return AcceptedRequest(
        request=context.request.model_dump_json(exclude_unset=True).encode(),
        tenant=caller.tenant,
        request_id=caller.request_id,
        headers={name: caller.headers[name] for name in _KEPT_HEADERS if name in caller.headers},
        created=created,
        history=History(context.place, context.conversation, context.history_tokens),
        charged=Charged(held.key, held.team, held.owners) if held is not None and held.key is not None else None,
    )


def read_accepted(data: bytes) -> AcceptedRequest:
    """Read what was stored. Raise `UnreadableRequest`."""
    try:
        accepted = msgspec.msgpack.decode(zlib.decompress(data), type=AcceptedRequest)
    except (msgspec.DecodeError, zlib.error) as error:
        raise UnreadableRequest(str(error)) from None
    if accepted.format != _FORMAT:
        raise UnreadableRequest("another format")
    return accepted
