"""Rate limits of a fleet: all gateways count together in Redis, or each applies its share while Redis is unreachable.

A request waits for at most one round trip (`take`). Ended requests are reported ten times a second, for all clients together.
Each answer has what the fleet has left of a client's limits. During an outage a gateway continues from the last answer: its
share is what was left, divided by the number of gateways, and it refills at that share of the rate. So an outage of Redis
neither lifts the limits nor stops the requests."""

from __future__ import annotations

import asyncio
import secrets
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager, suppress
from typing import Protocol

from responses_gateway.ended_tasks import end_tasks, keep_going, wait_at_most
from responses_gateway.state.fleet_counters import CountersUnavailable, FleetCounters, LimitRequest, Verdict
from responses_gateway.telemetry import logs
from responses_gateway.telemetry.instruments import STORE_UP, Gauge
from responses_gateway.telemetry.metrics import Metrics

LIMITS_GATEWAYS = Gauge(
    "limits_gateways",
    "Gateways that count limits together in Redis; 0 without it, or while it cannot be reached.",
    together="livemin",
)
# Seconds after which a process that has not joined again counts as dead, and its running requests count no longer.
LEASE = 15.0
# Seconds between two reports, and between two reports of all running requests.
_PAUSE = 0.1
RENEWAL = 5.0
_RETRY = 0.5  # seconds between two attempts to reach Redis again
_BATCH = 500  # clients in one report


class FleetClient(Protocol):
    """The limits of one client, as the fleet needs them."""

    running: int
    last_synced: int  # how many outages there had been when the fleet last took over what this client had used

    def limit_request(self, *, stale: bool) -> LimitRequest:
        """Return what the fleet has to know; its tokens count as reported. With `stale` its levels replace higher ones."""


class Fleet:
    """The member of the fleet that this process is."""

    def __init__(self, counters: FleetCounters, gateway: str, metrics: Metrics) -> None:
        """`gateway` is the same for all workers of one gateway, and different for others."""
        self.gateways = 1
        # Whether the counters can be reached. If not, a client has this gateway's share of its limits.
        self.shared = False
        self._counters = counters
        self._metrics = metrics
        self._member = f"{gateway}:{secrets.token_hex(8)}"
        self._outages = 0
        self._logged: bool | None = None  # `shared` in the last log line
        self._changed: dict[FleetClient, None] = {}
        self._running: set[FleetClient] = set()
        self._wake = asyncio.Event()

    @asynccontextmanager
    async def taking_part(self) -> AsyncIterator[None]:
        """Join the fleet, and leave it in the end."""
        await self._join()
        reporting = asyncio.create_task(keep_going(self._keep_reporting, self._metrics.report))
        try:
            yield
        finally:
            await end_tasks(reporting)
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
            verdict = await self._counters.take(self._member, client.limit_request(stale=client.last_synced != outages))
        except CountersUnavailable as error:
            self._lose(error)
            return None
        client.last_synced = outages
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

    async def _keep_reporting(self) -> None:
        clock = asyncio.get_running_loop().time
        renewed = clock()
        while True:
            await wait_at_most(self._wake, RENEWAL if self.shared else _RETRY)
            self._wake.clear()
            if not self.shared or clock() - renewed >= RENEWAL:
                renewed = clock()
                await self._join()
            if self.shared:
                with suppress(CountersUnavailable):
                    await self._report()
            await asyncio.sleep(_PAUSE if self.shared else _RETRY)

    async def _join(self) -> None:
        """Renew the membership. All running requests are reported again, since the server may have lost them."""
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
            requests = [client.limit_request(stale=client.last_synced != outages) for client in clients]
            try:
                await self._counters.report(self._member, requests)
            except CountersUnavailable as error:
                self._lose(error)
                raise
            for client in clients:
                client.last_synced = outages

    def _lose(self, error: CountersUnavailable) -> None:
        self._outages += 1
        self._changed.clear()
        self._wake.set()
        self._set_shared(False, str(error))

    def _set_gateways(self, gateways: int) -> None:
        self.gateways = gateways
        self._metrics.set(LIMITS_GATEWAYS, gateways)

    def _set_shared(self, shared: bool, problem: str | None = None) -> None:
        self.shared = shared
        self._metrics.set(STORE_UP, int(shared), "redis")
        if not shared:
            self._metrics.set(LIMITS_GATEWAYS, 0)
        if shared != self._logged:
            log = logs.logger()
            if not shared:
                log.warning("limits not shared", extra=logs.fields(problem=problem, gateways=self.gateways))
            elif self._logged is not None:
                log.info("limits are shared again", extra=logs.fields(gateways=self.gateways))
            self._logged = shared
