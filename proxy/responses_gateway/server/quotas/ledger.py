"""What the quotas of all gateways were charged, and what waits to be charged.

Charges that come together are written together. While the counters cannot be reached, charges wait, and what was read last
counts, with what this process has charged since: an outage neither lifts a quota nor stops the requests."""

from __future__ import annotations

import asyncio
from collections import Counter as Sums
from collections.abc import Callable, Sequence
from itertools import islice

from responses_gateway.bounded_memory import BoundedDict
from responses_gateway.ended_tasks import end_tasks
from responses_gateway.state import StoreUnavailable
from responses_gateway.state.quotas import Charge, Counter, QuotaCounters, QuotasUnavailable
from responses_gateway.telemetry import logs

WAIT_LIMIT = 2.0  # seconds for which a request waits for the counters, and an answer until it is charged
_RETRY = 0.5  # seconds between two attempts to reach the counters again
# Charges in one write, and counters that are remembered.
_BATCH = 200
_REMEMBERED = 10_000
_UNAVAILABLE = (QuotasUnavailable, StoreUnavailable, TimeoutError)


class Ledger:
    """The quotas, as this process knows them."""

    def __init__(self, counters: QuotaCounters, clock: Callable[[], float]) -> None:
        """`clock` returns the Unix time."""
        self.clock = clock
        self._counters = counters
        self._known: BoundedDict[str, int] = BoundedDict(_REMEMBERED)  # the highest number that was read, by counter
        self._waiting: dict[str, Charge] = {}  # by id
        self._written: dict[str, asyncio.Future[None]] = {}  # of what waits or is being written, by id
        self._unwritten: Sums[str] = Sums()  # the same in tokens, by counter
        self._task: asyncio.Task[None] | None = None
        self.reachable = True  # as far as is known

    async def used(self, counters: Sequence[Counter]) -> list[int]:
        """Return the tokens of some counters, with what this process has charged to them so far."""
        names = [counter.name for counter in counters]
        if self.reachable and any(self._unwritten[name] for name in names):
            await asyncio.wait(list(self._written.values()), timeout=WAIT_LIMIT)
        if self.reachable:
            try:
                async with asyncio.timeout(WAIT_LIMIT):
                    self._remember(await self._counters.read(counters, self._known))
            except _UNAVAILABLE as error:
                self._lose(error)
        return [self._known.get(name, 0) + self._unwritten[name] for name in names]

    def add(self, charge: Charge) -> asyncio.Future[None]:
        """Have a charge written soon; return what is done when it is."""
        waiting = self._waiting.get(charge.id)
        if waiting is not None:
            self._forget(waiting)
        self._waiting[charge.id] = charge
        for counter in charge.counters:
            self._unwritten[counter.name] += charge.tokens
        written = self._written.get(charge.id)
        if written is None:
            written = self._written[charge.id] = asyncio.get_running_loop().create_future()
        self._work()
        return written

    async def settle(self, charge: Charge) -> None:
        """Have a charge written before this returns, unless the counters cannot be reached: then it waits for them alone."""
        written = self.add(charge)
        if self.reachable:
            await asyncio.wait({written}, timeout=WAIT_LIMIT)

    async def close(self) -> None:
        """Write what is left, if the counters can be reached, and disconnect."""
        if self._written:
            await asyncio.wait(list(self._written.values()), timeout=WAIT_LIMIT)
        await end_tasks(self._task)
        if self._waiting:
            logs.logger().error("quotas not charged", extra=logs.fields(responses=len(self._waiting)))
        await self._counters.close()

    def _work(self) -> None:
        if self._task is None:
            self._task = asyncio.create_task(self._write_waiting())

    async def _write_waiting(self) -> None:
        try:
            while self._waiting or not self.reachable:
                if not await self._write():
                    await asyncio.sleep(_RETRY)
        finally:
            self._task = None

    async def _write(self) -> bool:
        """Write some of what waits; without any, ask whether the counters can be reached. Return False if they cannot."""
        charges = list(islice(self._waiting.values(), _BATCH))
        try:
            if charges:
                totals = await self._counters.charge(charges, self._known, self.clock())
            else:
                totals = await self._counters.read([], {})
        except _UNAVAILABLE as error:
            self._lose(error)
            return False
        self._remember(totals)
        for charge in charges:
            if self._waiting.get(charge.id) is charge:  # else more of it was added meanwhile
                del self._waiting[charge.id]
                self._forget(charge)
                self._written.pop(charge.id).set_result(None)
        if not self.reachable:
            self.reachable = True
            logs.logger().info("quotas are shared again")
        return True

    def _forget(self, charge: Charge) -> None:
        """Count a charge as unwritten no longer."""
        for counter in charge.counters:
            self._unwritten[counter.name] -= charge.tokens
            if not self._unwritten[counter.name]:
                del self._unwritten[counter.name]

    def _remember(self, totals: dict[str, int]) -> None:
        for name, tokens in totals.items():
            self._known[name] = max(tokens, self._known.get(name, 0))

    def _lose(self, error: BaseException) -> None:
        if self.reachable:
            self.reachable = False
            logs.logger().warning("quotas not shared", extra=logs.fields(problem=str(error) or type(error).__name__))
        self._work()
