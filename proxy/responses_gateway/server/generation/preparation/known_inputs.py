"""The last requests of threads that grow: as they came, as they were read, and what their translation can go on from.

An agent sends its history again byte for byte, with more behind it, so that one comparison of bytes tells what is new. The rest
of the body is read with a mark in the place of the items that are known. Where the mark is not what the input begins with, the
body is read as a whole: nobody can tell from an answer whether its history was known."""

from __future__ import annotations

import re
import secrets
from collections import defaultdict, deque
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import msgspec

from responses_gateway.request.growing import TranslatedTurns
from responses_gateway.tenant_shares import TenantShares
from responses_gateway.wire.errors import ApiError
from responses_gateway.wire.requests import ResponsesRequest, parse_continued

# Smaller bodies, in bytes, are read as fast as they are compared.
SMALLEST = 32 * 1024
# Larger ones are rare, and what is done here with a body is done in the event loop.
_LARGEST = 4 * 1024 * 1024
# What is kept of a body takes about so many times its size: its bytes, the items, and the messages as JSON.
_SIZE = 4
# What may be new, in bytes: more is read in a thread, because other streams wait meanwhile.
_MOST_NEW = 128 * 1024
# The most threads of a tenant, since each is looked at for a request that continues none of them.
_THREADS = 128
# Where two bodies are compared first: other threads of a client differ in their histories, and not in their instructions.
_PROBE = 64
# Fields that are large and seldom change.
_LARGE = ("instructions", "tools")
_NAME = re.compile(rb'[\s,{]*"(?:[^"\\]|\\.)*"\s*:\s*')
_FIELDS = msgspec.json.Decoder(dict[str, msgspec.Raw])


class Layout(NamedTuple):
    """Where the items of the input begin in a body, and where they end, in bytes; the JSON of its other fields."""

    start: int
    end: int
    fields: Mapping[str, bytes]


class KnownInput(msgspec.Struct, eq=False):
    """A request of a growing thread. `body` is how it came; where its `layout` is known, up to the end of its items."""

    body: bytes
    items: Sequence[Any]
    beginning: TranslatedTurns
    size: int
    layout: Layout | None

    def may_begin(self, body: bytes) -> bool:
        """Tell whether a body may continue this one."""
        middle = self.size // 2
        return self.body[middle : middle + _PROBE] == body[middle : middle + _PROBE]

    def read(self, body: bytes, mark: str) -> KnownRequest | None:
        """Return the request in a body that continues this one; None if it does not. `mark` is a text that no body has."""
        if self.layout is None:
            self.layout = _layout(self.body)
            if self.layout is None:
                self.body = b""  # which begins like none: it is not looked at again
                return None
            self.body = self.body[: self.layout.end]
        start, end, fields = self.layout
        if not body.startswith(self.body) or len(body) - end > _MOST_NEW:
            return None
        short = b'%b"%b"%b' % (body[:start], mark.encode(), body[end:])
        try:
            now = _layout(short)
            if now is None:
                return None
            same = [name for name in _LARGE if name in fields and now.fields.get(name) == fields[name]]
            known = {name: getattr(self.beginning.request, name) for name in same}
            new = {name: msgspec.json.decode(text) for name, text in now.fields.items() if name not in known}
            new["input"] = msgspec.json.decode(short[now.start - 1 : now.end + 1])
            request = parse_continued(new, known, mark, self.items)
        except (ApiError, ValueError, RecursionError):  # which the body as a whole has in other words
            return None
        if request is None:
            return None
        return KnownRequest(request, Growing(body, self, now._replace(end=now.end + len(body) - len(short))))


class Growing(NamedTuple):
    """The body of a request that may be one of a growing thread; its `layout`, where it continues one that is known."""

    body: bytes
    continued: KnownInput | None = None
    layout: Layout | None = None


class KnownRequest(NamedTuple):
    """A request, and how it was known."""

    request: ResponsesRequest
    growing: Growing


class KnownInputs:
    """The last requests of growing threads, each with what it takes in memory."""

    def __init__(self, most: int) -> None:
        """`most` is for all of them together, in bytes; 0: none are kept."""
        self._most = most
        self._threads: defaultdict[str, deque[KnownInput]] = defaultdict(deque)
        self._sizes = TenantShares()
        self._mark = secrets.token_hex()

    @property
    def size(self) -> int:
        """The memory that all of them take, in bytes."""
        return self._sizes.total

    def keeps(self, body: bytes) -> bool:
        """Tell whether a request with this body is worth being kept, and may be."""
        return SMALLEST <= len(body) <= min(_LARGEST, self._most // _SIZE)

    def read(self, tenant: str, body: bytes) -> KnownRequest | None:
        """Return the request in a body; None if it continues none that is known."""
        for known in reversed(self._threads.get(tenant, ())):
            if known.may_begin(body):
                continued = known.read(body, self._mark)
                if continued is not None:
                    return continued
        return None

    def keep(self, tenant: str, growing: Growing, items: Sequence[Any], beginning: TranslatedTurns) -> None:
        """Keep a request, in the place of the one that it continues."""
        threads = self._threads[tenant]
        body, continued, layout = growing
        if continued is not None and continued in threads:
            threads.remove(continued)
            self._count(tenant, -continued.size)
        threads.append(KnownInput(body if layout is None else body[: layout.end], items, beginning, len(body), layout))
        self._count(tenant, len(body))
        if len(threads) > _THREADS:
            self._forget(tenant)
        while self._sizes.total > self._most:  # of whoever takes most of it, so that nobody shuts out the others
            self._forget(self._sizes.largest())

    def clear(self) -> None:
        """Forget all requests."""
        self._threads.clear()
        self._sizes = TenantShares()

    def _forget(self, tenant: str) -> None:
        threads = self._threads[tenant]
        self._count(tenant, -threads.popleft().size)
        if not threads:
            del self._threads[tenant]

    def _count(self, tenant: str, size: int) -> None:
        self._sizes.add(tenant, size * _SIZE)


def _layout(body: bytes) -> Layout | None:
    """Return how a body is laid out; None if its fields do not stand there in this order, because one occurs twice, or if it
    has no list as input. Raise `ValueError` for what is no JSON object."""
    place = 0
    start = end = 0
    fields: dict[str, bytes] = {}
    for name, value in _FIELDS.decode(body).items():
        text = bytes(value)
        field = _NAME.match(body, place)
        if field is None or not body.startswith(text, field.end()):
            return None
        place = field.end() + len(text)
        if name == "input":
            start = field.end() + 1
            end = place - 1
        else:
            fields[name] = text
    return Layout(start, end, fields) if start else None
