"""Values that are kept while there is room: those that were set last, or those of many tenants, where whoever has most of all
loses one."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Iterator, Mapping
from heapq import heapify, heappop, heappush
from itertools import count
from typing import Generic, TypeVar

K = TypeVar("K")
V = TypeVar("V")

# Outdated entries of the heap for each tenant, and a few more, before it is built anew.
_OUTDATED = 2
_FEW = 64


class BoundedDict(OrderedDict[K, V]):
    """A dict of at most so many keys. The key that is set becomes the last one; with one too many, the first goes."""

    def __init__(self, most: int) -> None:
        super().__init__()
        self._most = most

    def __setitem__(self, key: K, value: V) -> None:
        super().__setitem__(key, value)
        self.move_to_end(key)
        if len(self) > self._most:
            self.popitem(last=False)


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


class TenantValues(Generic[V]):
    """Values of tenants by name, those used last. A tenant that has more than `most_of_tenant` loses its oldest one; if all
    together weigh more than `most`, the tenant that has most does, so that none can push out those of others. `on_loss` is
    called with each value that was lost."""

    def __init__(self, most_of_tenant: int, most: int, on_loss: Callable[[V], object] = lambda _: None) -> None:
        self._most_of_tenant = most_of_tenant
        self._most = most
        self._on_loss = on_loss
        self._values: dict[str, OrderedDict[str, tuple[V, int]]] = {}  # each with its weight, the one used last at the end
        self._shares = TenantShares()

    def __iter__(self) -> Iterator[tuple[str, str, V]]:
        """Yield the tenant, the name and the value of each, those of a tenant in the order in which they were used."""
        return iter([(tenant, name, value) for tenant in self._values for name, value in self.of(tenant).items()])

    @property
    def weight(self) -> int:
        """What all of them weigh."""
        return self._shares.total

    def of(self, tenant: str) -> Mapping[str, V]:
        """Return what a tenant has."""
        return {name: value for name, (value, _) in self._values.get(tenant, {}).items()}

    def get(self, tenant: str, name: str) -> V | None:
        """Return a value; None if there is none."""
        values = self._values.get(tenant)
        return None if values is None or name not in values else values[name][0]

    def put(self, tenant: str, name: str, value: V, weight: int = 1) -> None:
        """Keep a value as the one used last, in the place of that with the same name."""
        values = self._values.setdefault(tenant, OrderedDict())
        _, before = values.pop(name, (None, 0))
        values[name] = (value, weight)
        self._shares.add(tenant, weight - before)
        if len(values) > self._most_of_tenant:
            self._lose_oldest(tenant)
        while self._shares.total > self._most:
            self._lose_oldest(self._shares.largest())

    def pop(self, tenant: str, name: str) -> V:
        """Take out a value, which must be there."""
        values = self._values[tenant]
        value, weight = values.pop(name)
        self._shares.add(tenant, -weight)
        if not values:
            del self._values[tenant]
        return value

    def _lose_oldest(self, tenant: str) -> None:
        self._on_loss(self.pop(tenant, next(iter(self._values[tenant]))))
