"""The last responses of a connection that are not in the store, by id: any of its lanes may continue them."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterator

from responses_gateway.server.generation.preparation.context import PreviousResponse

# Responses that are kept, because each of 33 lanes has a last one, and some have earlier ones that others fork from.
MOST = 64
# Bytes of their items, as JSON, because sixteen agents with long histories have about as many.
MOST_BYTES = 32 * 1024 * 1024


class _Part:
    """What one response has added to its history. It stays in memory while it is kept, or one that continues it."""

    __slots__ = ("before", "size", "uses")

    def __init__(self, size: int, before: _Part | None) -> None:
        self.size = size
        self.before = before
        self.uses = 0

    @property
    def all(self) -> Iterator[_Part]:
        """This part and those before it."""
        part: _Part | None = self
        while part is not None:
            yield part
            part = part.before


class Unstored:
    """One response that is kept, and the lane that made it."""

    __slots__ = ("lane", "part", "response")

    def __init__(self, response: PreviousResponse, lane: str | None, part: _Part) -> None:
        self.response = response
        self.lane = lane
        self.part = part


class UnstoredResponses:
    """Keeps so many responses, of so many bytes together; the newest one always. Those that were neither made nor continued for
    the longest time go first, and the last response of a lane goes after all that are not the last of theirs."""

    def __init__(self, most: int = MOST, most_bytes: int = MOST_BYTES) -> None:
        self.size = 0  # bytes
        self._most = most
        self._most_bytes = most_bytes
        self._kept: OrderedDict[str, Unstored] = OrderedDict()  # by id, the least recently used one first
        self._last: dict[str | None, str] = {}  # the last id of each lane

    def get(self, response_id: str | None) -> Unstored | None:
        """Return a response that is to be continued; None if it is not kept."""
        if response_id is None or response_id not in self._kept:
            return None
        self._kept.move_to_end(response_id)
        return self._kept[response_id]

    def add(self, response: PreviousResponse, lane: str | None, size: int, parent: Unstored | None) -> list[str]:
        """Keep a response whose input and output have so many bytes, behind its parent. Return the ids of those let go."""
        part = _Part(size, None if parent is None else parent.part)
        self._hold(part)
        self._kept[response.response_id] = Unstored(response, lane, part)
        self._last[lane] = response.response_id
        evicted = []
        while len(self._kept) > self._most or (self.size > self._most_bytes and len(self._kept) > 1):
            evicted.append(self._oldest())
            self.evict(evicted[-1])
        return evicted

    def evict(self, response_id: str) -> None:
        """Keep a response no longer."""
        kept = self._kept.pop(response_id, None)
        if kept is None:
            return
        if self._last.get(kept.lane) == response_id:
            del self._last[kept.lane]
        self._release(kept.part)

    def _oldest(self) -> str:
        last = set(self._last.values())
        return next((each for each in self._kept if each not in last), next(iter(self._kept)))

    def _hold(self, part: _Part) -> None:
        for each in part.all:
            each.uses += 1
            if each.uses > 1:
                return  # what is before it is held by it
            self.size += each.size

    def _release(self, part: _Part) -> None:
        for each in part.all:
            each.uses -= 1
            if each.uses:
                return
            self.size -= each.size
