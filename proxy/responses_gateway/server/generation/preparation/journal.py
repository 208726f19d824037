"""What a running response is made of, so that another gateway can continue it when this one has stopped.

The translator does no I/O: given the same calls it gives the same events. So a journal is the request, and the calls of the
translator (`stream/tape.py`). Whoever takes the response over makes them again, and compares the events with those that were
stored: only if they are the same, to the byte, is the response continued."""

from __future__ import annotations

import zlib
from collections.abc import Iterable, Mapping, Sequence
from hashlib import blake2b

import msgspec

from responses_gateway.server.generation.parser_choice.choice import AnswerStart
from responses_gateway.stream.tape import METHODS, Call

# Changes when an older gateway could not read a journal any more.
_FORMAT = 2


class Charged(msgspec.Struct, frozen=True):
    """Whom the tokens of a response are charged to: the name of the client's key, its team, the owners of its quotas."""

    key: str | None
    team: str | None
    owners: tuple[str, ...]


class ResponseStart(msgspec.Struct, frozen=True):
    """How a response began: the client's request, and what else its translation depends on. `chat` is a digest of the chat
    request, `created` the Unix time in seconds, `checkpoint` what the backends list of the model. `charged`
    is whom its tokens are charged to."""

    request: bytes
    request_id: str
    headers: Mapping[str, str]
    created: float
    start: AnswerStart
    chat: bytes
    checkpoint: str = ""
    format: int = _FORMAT
    charged: Charged | None = None


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


class UnreadableJournal(Exception):
    """A journal of another version, or a damaged one."""


class ResumedResponse:
    """A response that was taken over, as the first gateway left it: its id, how it began, and the calls of its translator."""

    def __init__(self, response_id: str, beginning: bytes, pieces: Iterable[bytes]) -> None:
        """Read a journal. Raise `UnreadableJournal`."""
        self.response_id = response_id
        try:
            self.beginning = msgspec.msgpack.decode(beginning, type=ResponseStart)
            self.calls = _calls(b"".join(pieces)) if self.beginning.format == _FORMAT else []
        except (msgspec.DecodeError, zlib.error, UnicodeDecodeError) as error:
            raise UnreadableJournal(str(error)) from None
        if self.beginning.format != _FORMAT or not all(call.method in METHODS for call in self.calls):
            raise UnreadableJournal("another format")


def digest(chat: bytes) -> bytes:
    """Return what tells a chat request from others."""
    return blake2b(chat, digest_size=16).digest()


def _calls(data: bytes) -> Sequence[Call]:
    """Return the calls of some pieces, one behind the other."""
    calls: list[Call] = []
    while data:
        piece = zlib.decompressobj()
        calls += msgspec.msgpack.decode(piece.decompress(data), type=list[Call])
        data = piece.unused_data
    return calls
