"""What a running response is made of, so that another gateway can take it over when this one dies.

The translator does no I/O: given the same calls it gives the same events. So a journal is the request, and the calls of the
translator with the bytes of each read. Whoever takes the response over repeats them, and compares the events with those that
were stored: only if they are the same, to the byte, is the response continued."""

from __future__ import annotations

import time
import zlib
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from hashlib import blake2b
from typing import NamedTuple

import msgspec

from proxy.server.generation.parser_choice import AnswerStart
from proxy.stream.options import SealText
from proxy.stream.translator import Translator
from proxy.wire.errors import ApiError

# Changes when an older gateway could not read a journal any more.
_FORMAT = 1
# Bytes of reads that are repeated at once, which takes a few milliseconds.
_SLICE = 64 * 1024
# A text that was encrypted: no two encryptions are alike.
_SEALED = "sealed"
# Reads of one backend, and what the end of its answer needs. Any other call ends the journal.
_CALLS: dict[str, Callable[[Translator, bytes | None], bytes]] = {
    "queue": lambda translator, _: translator.queue(),
    "start": lambda translator, _: translator.start(),
    "feed": lambda translator, data: translator.feed(data or b""),
    "finish": lambda translator, _: translator.finish(),
}


class Entry(NamedTuple):
    """A call of the translator and its argument, or a text that was encrypted."""

    name: str
    data: bytes | None


class ResponseStart(msgspec.Struct, frozen=True):
    """How a response began: the client's request, and what else its translation depends on. `chat` is a digest of the chat
    request, `created` the Unix time in seconds."""

    request: bytes
    request_id: str
    headers: Mapping[str, str]
    created: float
    start: AnswerStart
    chat: bytes
    format: int = _FORMAT


class Journal:
    """Collects what has happened since it was last taken. `complete`: all that has happened can be repeated."""

    def __init__(self) -> None:
        self.complete = True
        self._entries: list[Entry] = []

    def note(self, method: str, argument: bytes | ApiError | None, _events: bytes) -> None:
        """Take a call of the translator."""
        if method in _CALLS and not isinstance(argument, ApiError):
            self._entries.append(Entry(method, argument))
        else:
            self.complete = False

    def sealing(self, seal: SealText) -> SealText:
        """Return what encrypts like `seal`, and notes the result."""

        def noted(text: str) -> str:
            sealed = seal(text)
            self._entries.append(Entry(_SEALED, sealed.encode()))
            return sealed

        return noted

    def take(self) -> bytes:
        """Return what is new; empty once the journal is not complete any more."""
        entries = self._entries
        self._entries = []
        return zlib.compress(msgspec.msgpack.encode(entries), 1) if entries and self.complete else b""


class UnreadableJournal(Exception):
    """A journal of another version, or a damaged one."""


class ResumedResponse:
    """Gives the translator of a response that was taken over what the first one got: its id, the time, the encrypted texts."""

    def __init__(self, response_id: str, beginning: bytes, pieces: Iterable[bytes]) -> None:
        """Read a journal. Raise `UnreadableJournal`."""
        self.response_id = response_id
        try:
            self.beginning = msgspec.msgpack.decode(beginning, type=ResponseStart)
            self._entries = _entries(b"".join(pieces))
        except (msgspec.DecodeError, zlib.error, UnicodeDecodeError) as error:
            raise UnreadableJournal(str(error)) from None
        if self.beginning.format != _FORMAT or not all(entry.name in (*_CALLS, _SEALED) for entry in self._entries):
            raise UnreadableJournal("another format")
        self._sealed = deque(entry.data or b"" for entry in self._entries if entry.name == _SEALED)
        self._repeated = False

    def clock(self) -> float:
        """Return the Unix time in seconds at which the response began; once it was repeated, the present."""
        return time.time() if self._repeated else self.beginning.created

    def sealing(self, seal: SealText) -> SealText:
        """Return what gives the texts that were encrypted already, and encrypts further ones like `seal`."""
        return lambda text: self._sealed.popleft().decode() if self._sealed else seal(text)

    def repeat(self, translator: Translator) -> Iterator[bytes]:
        """Repeat the calls, a slice at a time; yield the events of each slice. Between two slices others get their turn."""
        events: list[bytes] = []
        size = 0
        for entry in self._entries:
            if entry.name not in _CALLS:
                continue
            if size >= _SLICE:
                yield b"".join(events)
                events = []
                size = 0
            events.append(_CALLS[entry.name](translator, entry.data))
            size += len(entry.data or b"")
        self._repeated = True
        yield b"".join(events)


def digest(chat: bytes) -> bytes:
    """Return what tells a chat request from others."""
    return blake2b(chat, digest_size=16).digest()


def _entries(data: bytes) -> Sequence[Entry]:
    """Return the entries of some pieces, one after the other."""
    entries: list[Entry] = []
    while data:
        piece = zlib.decompressobj()
        entries += msgspec.msgpack.decode(piece.decompress(data), type=list[Entry])
        data = piece.unused_data
    return entries
