"""Limits that hold for all gateways of a fleet together, as long as Redis can be reached; without it, a share of them.

A request waits for one round trip at most (`take`). What ended is reported ten times a second, for all clients together. Every
answer tells what the fleet has left of a client's limits. Where there is none, the gateway goes on with that: its share is what
was left, divided by the gateways that took part, and it refills at that share of the rate. So an outage of Redis leaves neither
clients without limits, nor requests without an answer."""

from __future__ import annotations

import asyncio
import secrets
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager, suppress
from typing import Protocol

from proxy.state import Claim, CountersUnavailable, FleetCounters, Verdict
from proxy.telemetry import logs
from proxy.telemetry.metrics import Metrics

# Seconds for which what a process reported counts: one that dies is forgotten then.
LEASE = 15.0
# Seconds between two reports, and after which all that runs is reported again.
_PAUSE = 0.1
RENEWAL = 5.0
# Seconds between two attempts to reach Redis again.
_RETRY = 0.5
# Clients in one report.
_BATCH = 500


class FleetClient(Protocol):
    """The limits of one client, as the fleet needs them."""

    running: int
    # The number of the outage after which the counters were last agreed upon.
    agreed: int

    def claim(self, *, doubted: bool) -> Claim:
        """Return what to tell the fleet. What it says to be used counts as told."""


class Fleet:
    """This process's part in the fleet."""

    def __init__(self, counters: FleetCounters, gateway: str, metrics: Metrics) -> None:
        """`gateway` is the same for all workers of one gateway, and different for others."""
        self.gateways = 1
        # Whether the counters can be reached: if not, a client has its share of its limits.
        self.shared = False
        self._counters = counters
        self._metrics = metrics
        self._member = f"{gateway}:{secrets.token_hex(8)}"
        self._outages = 0
        self._told: bool | None = None  # what the log said last
        self._changed: dict[FleetClient, None] = {}
        self._running: set[FleetClient] = set()
        self._wake = asyncio.Event()

    @asynccontextmanager
    async def taking_part(self) -> AsyncIterator[None]:
        """Join the fleet, and leave it in the end."""
        await self._join()
        reporting = asyncio.create_task(self._report_for_ever())
        try:
            yield
        finally:
            reporting.cancel()
            with suppress(asyncio.CancelledError):
                await reporting
            if self.shared:
                with suppress(CountersUnavailable):
                    await self._report()
                    await self._counters.leave(self._member)

    async def take(self, client: FleetClient) -> Verdict | None:
        """Ask for one more request of a client, or return None if the counters cannot be reached."""
        if not self.shared:
            return None
        outages = self._outages
        try:
            verdict = await self._counters.take(self._member, client.claim(doubted=client.agreed != outages))
        except CountersUnavailable as error:
            self._lose(error)
            return None
        client.agreed = outages
        if verdict.gateways != self.gateways:
            self._set_gateways(verdict.gateways)
        return verdict

    def changed(self, client: FleetClient) -> None:
        """Note that a client's requests began or ended, or used tokens: soon to be reported."""
        if client.running:
            self._running.add(client)
        else:
            self._running.discard(client)
        if self.shared:
            self._changed[client] = None
            self._wake.set()

    async def _report_for_ever(self) -> None:
        clock = asyncio.get_running_loop().time
        renewed = clock()
        while True:
            with suppress(TimeoutError):
                async with asyncio.timeout(RENEWAL if self.shared else _RETRY):
                    await self._wake.wait()
            self._wake.clear()
            if not self.shared or clock() - renewed >= RENEWAL:
                renewed = clock()
                await self._join()
            if self.shared:
                with suppress(CountersUnavailable):
                    await self._report()
            await asyncio.sleep(_PAUSE if self.shared else _RETRY)

    async def _join(self) -> None:
        """Take part for another while; what runs is reported again, since the server may have lost it."""
        try:
            gateways = await self._counters.join(self._member, LEASE)
        except CountersUnavailable as error:
            self._lose(error)
            return
        self._changed.update(dict.fromkeys(self._running))
        self._set_shared(True)
        self._set_gateways(gateways)

    async def _report(self) -> None:
        while self._changed:
            clients: Sequence[FleetClient] = list(self._changed)[:_BATCH]
            for client in clients:
                del self._changed[client]
            outages = self._outages
            claims = [client.claim(doubted=client.agreed != outages) for client in clients]
            try:
                await self._counters.report(self._member, claims)
            except CountersUnavailable as error:
                self._lose(error)
                raise
            for client in clients:
                client.agreed = outages

    def _lose(self, error: CountersUnavailable) -> None:
        self._outages += 1
        self._changed.clear()
        self._wake.set()
        self._set_shared(False, str(error))

    def _set_gateways(self, gateways: int) -> None:
        self.gateways = gateways
        self._metrics.limits_gateways.set(gateways)

    def _set_shared(self, shared: bool, problem: str | None = None) -> None:
        self.shared = shared
        self._metrics.child(self._metrics.store_up, "redis").set(int(shared))
        if not shared:
            self._metrics.limits_gateways.set(0)
        if shared != self._told:
            log = logs.logger()
            if not shared:
                log.warning("limits not shared", extra=logs.fields(problem=problem, gateways=self.gateways))
            elif self._told is not None:
                log.info("limits are shared again", extra=logs.fields(gateways=self.gateways))
            self._told = shared
