"""How much of something bounded each of many tenants has, and who has most of it."""

from __future__ import annotations

from heapq import heapify, heappop, heappush
from itertools import count

# Outdated entries of the heap for each tenant, and a few more, before it is built anew.
_OUTDATED = 2
_FEW = 64


class TenantShares:
    """Counts what tenants have. Each operation takes a time that does not depend on their number, or its logarithm, because
    there may be tens of thousands, and the event loop waits: the heap keeps outdated entries until they come to its top."""

    def __init__(self) -> None:
        self.total = 0
        self._entries: dict[str, tuple[int, int, str]] = {}  # the valid entry of each tenant in the heap
        self._heap: list[tuple[int, int, str]] = []
        self._clock = count()

    def __len__(self) -> int:
        """Return how many tenants have any."""
        return len(self._entries)

    def of(self, tenant: str) -> int:
        """Return what a tenant has."""
        entry = self._entries.get(tenant)
        return 0 if entry is None else -entry[0]

    def add(self, tenant: str, amount: int) -> None:
        """Give a tenant more, or take from it where `amount` is negative. One of 0 notes that it is in use."""
        has = self.of(tenant) + amount
        self.total += amount
        if has <= 0:
            self._entries.pop(tenant, None)
        else:
            entry = (-has, next(self._clock), tenant)
            self._entries[tenant] = entry
            heappush(self._heap, entry)
        if len(self._heap) > (1 + _OUTDATED) * len(self._entries) + _FEW:
            self._heap = list(self._entries.values())
            heapify(self._heap)

    def largest(self) -> str:
        """Return the tenant that has most; of equal ones, that which was not in use for longest. At least one must have any."""
        while True:
            entry = self._heap[0]
            if self._entries.get(entry[2]) == entry:
                return entry[2]
            heappop(self._heap)
