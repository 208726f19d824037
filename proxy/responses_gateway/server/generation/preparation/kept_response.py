"""A response that is still to be made, as the store keeps it: what any process needs to make it, or to go on with it.

One that waits is a background response that has not begun. One that runs has a journal, too: the calls of its translator
(`stream/tape.py`), which does no I/O: given the same calls it gives the same events. Whoever takes the response over makes the
calls again, and compares the events with those that were stored: only if they are the same, to the byte, is it continued.

A client's own key for the backend is sealed, kept with the response, and deleted with what is kept. Nobody can read it with the
store alone, because the key it is sealed with is not in there (`server/setup/seal_key.py`). Where there is no such key, no
client's key is kept."""

from __future__ import annotations

import zlib
from collections.abc import Iterable, Mapping, Sequence
from hashlib import blake2b

import msgspec

from responses_gateway.backend.places import ServedModels
from responses_gateway.request.rollout_names import ROLLOUT_HEADER, TOKEN_TRUE_HEADER
from responses_gateway.request.who_asks import NOBODY, Asker
from responses_gateway.server.generation.parser_choice.choice import AnswerStart
from responses_gateway.server.generation.preparation.context import Caller, Context, History
from responses_gateway.server.generation.preparation.encrypted_content import Encryption
from responses_gateway.settings import Settings
from responses_gateway.stream.options import CLIENT_HEADERS
from responses_gateway.stream.tape import METHODS, Call
from responses_gateway.wire.errors import ApiError
from responses_gateway.wire.json_text import sendable

# Changes when gateways with the former one could not read it any more, because a rolling restart has both.
_FORMAT = 1
# Headers of the client's request that matter later; its keys are not among them.
_KEPT = ("traceparent", "tracestate", "User-Agent", *CLIENT_HEADERS, ROLLOUT_HEADER, TOKEN_TRUE_HEADER)
_HEADER = "Authorization"


class UnreadableResponse(Exception):
    """A kept response or a journal of another version, or a damaged one."""


class Charged(msgspec.Struct, frozen=True):
    """Whom the tokens of a response are charged to: the name of the client's key, its team, the owners of its quotas."""

    key: str
    team: str | None
    owners: tuple[str, ...]


class Beginning(msgspec.Struct, frozen=True):
    """How a response began. `start` tells how the answer is read, `chat` is the digest of the chat request, `checkpoint` what
    the backends list of the model."""

    start: AnswerStart
    chat: bytes
    checkpoint: str = ""


class KeptResponse(msgspec.Struct, frozen=True):
    """The response's id, when it was created (Unix time in seconds), the client's request, who asked and who is charged, and
    what the request continues. `asker`: the agent for which it asks. `beginning`: it has begun. `client_key`: the client's key
    for the backend, sealed, if that is needed."""

    response_id: str
    created: float
    request: bytes
    tenant: str
    request_id: str
    headers: Mapping[str, str]
    charged: Charged | None
    history: History
    beginning: Beginning | None = None
    client_key: str = ""
    asker: Asker = NOBODY
    format: int = _FORMAT

    def encoded(self) -> bytes:
        """Return it as it is stored. It is not compressed here, because that takes 10 ms for a megabyte, in the event loop."""
        return msgspec.msgpack.encode(self)


class Journal:
    """Collects the calls of a translator since it was last taken."""

    def __init__(self) -> None:
        self._calls: list[Call] = []

    def note(self, call: Call, _events: bytes) -> None:
        """Take a call of the translator."""
        self._calls.append(call)

    def take(self) -> bytes:
        """Return what is new."""
        calls = self._calls
        self._calls = []
        return zlib.compress(msgspec.msgpack.encode(calls), 1) if calls else b""


def keep(
    response_id: str, created: float, caller: Caller, context: Context, beginning: Beginning | None = None
) -> KeptResponse:
    """Return what is kept of a response. Raise `ValueError` for half a surrogate pair."""
    held = caller.reservation
    return KeptResponse(
        response_id,
        created,
        context.request.model_dump_json(exclude_unset=True).encode(),
        caller.tenant,
        caller.request_id,
        {name: sendable(caller.headers[name]) for name in _KEPT if name in caller.headers},
        Charged(held.key, held.team, held.owners) if held is not None and held.key is not None else None,
        History(context.place, context.conversation, context.history_tokens),
        beginning,
        caller.sealed_key or "",
        caller.asker,
    )


def read_kept(data: bytes) -> KeptResponse:
    """Read what was stored. Raise `UnreadableResponse`."""
    try:
        kept = msgspec.msgpack.decode(data, type=KeptResponse)
    except msgspec.DecodeError as error:
        raise UnreadableResponse(str(error)) from None
    if kept.format != _FORMAT:
        raise UnreadableResponse("another format")
    return kept


def read_journal(pieces: Iterable[bytes]) -> Sequence[Call]:
    """Return the calls of all pieces of a journal. Raise `UnreadableResponse`."""
    calls: list[Call] = []
    data = b"".join(pieces)
    try:
        while data:
            piece = zlib.decompressobj()
            calls += msgspec.msgpack.decode(piece.decompress(data), type=list[Call])
            data = piece.unused_data
    except (msgspec.DecodeError, zlib.error, UnicodeDecodeError) as error:
        raise UnreadableResponse(str(error)) from None
    if not all(call.method in METHODS for call in calls):
        raise UnreadableResponse("a call that this version does not know")
    return calls


def digest(chat: bytes) -> bytes:
    """Return what tells a chat request from others."""
    return blake2b(chat, digest_size=16).digest()


class ClientKeys(msgspec.Struct, frozen=True, eq=False):
    """Seals and opens the keys. `encryption`: None where none is kept."""

    models: ServedModels
    encryption: Encryption | None

    def kept(self, caller: Caller, model: str, settings: Settings) -> bool:
        """Tell whether what a backend needs of the client's key is there after the request, too."""
        return self.encryption is not None or not self._needed(caller, model, settings)

    def sealed(self, caller: Caller, model: str, settings: Settings) -> str | None:
        """Return the client's key, sealed; empty where no backend of the model gets it, None where it is not kept."""
        if not self._needed(caller, model, settings):
            return ""
        if self.encryption is None:
            return None
        # As the bytes that were sent, because a header may have any.
        key = caller.headers[_HEADER].encode("utf-8", "surrogateescape").decode("latin-1")
        return self.encryption.encrypt("client_key", caller.tenant, model, key)

    def headers(self, kept: KeptResponse) -> dict[str, str]:
        """Return the headers of the client's request, its key among them. Raise `UnreadableResponse`."""
        if not kept.client_key:
            return dict(kept.headers)
        opened = self._opened(kept)
        if opened is None:
            raise UnreadableResponse("the client's key was sealed with another seal_key")
        return {**kept.headers, _HEADER: opened.encode("latin-1").decode("utf-8", "surrogateescape")}

    def _opened(self, kept: KeptResponse) -> str | None:
        if self.encryption is None:
            return None
        try:
            decryption = self.encryption.decrypt("client_key", kept.tenant, kept.client_key, "")
        except ApiError:
            return None
        return None if decryption is None else decryption[1]

    def _needed(self, caller: Caller, model: str, settings: Settings) -> bool:
        """Tell whether a backend gets the client's key: one that has a key of its own does not."""
        return settings.forwards_client_key and _HEADER in caller.headers and self.models.take_client_key(model)
