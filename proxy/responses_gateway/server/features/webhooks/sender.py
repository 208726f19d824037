"""Sends what is due to each endpoint. One that hangs keeps only its own events waiting, and an event that hangs keeps only one
of the places of its endpoint."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Mapping
from contextlib import suppress

import aiohttp

from responses_gateway.ended_tasks import end_tasks, keep_going
from responses_gateway.hosted.public_connections import PublicResolver
from responses_gateway.server.features.webhooks.signature import event_of, signed_headers, signing_key
from responses_gateway.settings.background import WebhookEndpoint
from responses_gateway.state import Store, StoreUnavailable
from responses_gateway.state.webhooks import Amounts, Notice, WebhookTable
from responses_gateway.telemetry import logs
from responses_gateway.telemetry.instruments import Counter, Gauge
from responses_gateway.telemetry.metrics import Metrics
from responses_gateway.wire.hosts.allowed_hosts import AllowedHosts
from responses_gateway.wire.hosts.public_urls import not_public

DELIVERIES = Counter(
    "webhook_deliveries_total",
    "Attempts to tell a webhook endpoint of an event: delivered, failed (to be tried again), or given_up.",
    ("endpoint", "outcome"),
)
DELIVERIES_WAITING = Gauge(
    "webhook_deliveries_waiting",
    "Events that wait for a webhook endpoint to take them, in the store that all gateways share.",
    ("endpoint",),
    together="livemax",
)
WEBHOOK_METRICS = (DELIVERIES, DELIVERIES_WAITING)
# Seconds between two looks for what is due, and for which a taken event is left alone by others, because an attempt may take
# `_TIMEOUT`.
INTERVAL = 1.0
LEASE = 60.0
COUNT_INTERVAL = 15.0  # seconds between two counts of what waits
_TIMEOUT = 15.0  # how long an endpoint may take to answer, in seconds
_AT_ONCE = 4  # events that are sent to one endpoint at a time
# Seconds before the next attempt, by how many there were; the last one again and again.
DELAYS = (5.0, 30.0, 120.0, 600.0, 1800.0, 3600.0)
MOST_ATTEMPTS = 72  # after so many attempts an event is given up: about three days


class Webhooks:
    """The endpoints of the settings, and a task for each, and one that counts. Create it inside the running event loop."""

    def __init__(self, endpoints: Mapping[str, WebhookEndpoint], store: Store, metrics: Metrics) -> None:
        self._endpoints = endpoints
        self._table = WebhookTable(store.database, store.running.clock)
        self._metrics = metrics
        self._sending: set[str] = set()  # the ids of what is being sent
        self._tasks = [asyncio.create_task(self._serve(name, endpoint)) for name, endpoint in endpoints.items()]
        self._tasks.append(asyncio.create_task(keep_going(self._count_waiting, metrics.report)))

    async def announce(self, response_id: str) -> None:
        """Note that the endpoints are to be notified of the end of a response. Raise `StoreUnavailable`."""
        await self._table.announce(response_id, list(self._endpoints))

    async def close(self) -> None:
        """Stop; what was not delivered is sent by the next process."""
        await end_tasks(*self._tasks)

    async def _serve(self, name: str, endpoint: WebhookEndpoint) -> None:
        # No redirection is followed: a private host is that of the settings.
        resolver = None if endpoint.private else PublicResolver(AllowedHosts.read([]))
        async with aiohttp.ClientSession(
            connector=aiohttp.TCPConnector(resolver=resolver, limit=_AT_ONCE),
            timeout=aiohttp.ClientTimeout(total=_TIMEOUT),
            cookie_jar=aiohttp.DummyCookieJar(),
        ) as session:
            sending: set[asyncio.Task[None]] = set()
            try:
                while True:
                    free = _AT_ONCE - len(sending)
                    notices = await self._due(name, free)
                    sending |= {asyncio.create_task(self._send(session, name, endpoint, notice)) for notice in notices}
                    if len(notices) == free:  # more may be due
                        _, sending = await asyncio.wait(sending, return_when=asyncio.FIRST_COMPLETED)
                    else:
                        await asyncio.sleep(INTERVAL)
                        sending = {task for task in sending if not task.done()}
            finally:
                await end_tasks(*sending)

    async def _due(self, name: str, most: int) -> list[Notice]:
        """Take what is due, as far as the store can be reached, but nothing that is being sent here: its lease may be over."""
        try:
            notices = await self._table.take(name, most, LEASE)
        except StoreUnavailable:  # `Background` logs outages
            return []
        except Exception as defect:  # else nothing would be sent any more, and nobody would know
            self._metrics.report(defect, endpoint=name)
            return []
        return [notice for notice in notices if notice.id not in self._sending]

    async def _send(self, session: aiohttp.ClientSession, name: str, endpoint: WebhookEndpoint, notice: Notice) -> None:
        self._sending.add(notice.id)
        try:
            await self._deliver(session, name, endpoint, notice)
        except StoreUnavailable:  # what could not be noted is sent again when its lease has ended
            pass
        except Exception as defect:
            self._metrics.report(defect, endpoint=name)
        finally:
            self._sending.discard(notice.id)

    async def _count_waiting(self) -> None:
        while True:
            with suppress(StoreUnavailable):  # the last count stays; `Background` logs outages
                amounts = await self._table.amounts()
                for name in self._endpoints:
                    self._metrics.set(DELIVERIES_WAITING, amounts.get(name, Amounts()).waiting, name)
                    self._metrics.count(DELIVERIES, name, "given_up", amount=0)  # an alert sees no first one of a new series
            await asyncio.sleep(COUNT_INTERVAL)

    async def _deliver(self, session: aiohttp.ClientSession, name: str, endpoint: WebhookEndpoint, notice: Notice) -> None:
        failure = await self._attempt(session, endpoint, notice)
        known = {"endpoint": name, "response_id": notice.response_id, "event": f"response.{notice.status}"}
        attempts = notice.attempts + 1
        if failure is None:
            logs.logger().info("webhook delivered", extra=logs.fields(**known, attempts=attempts))
            self._metrics.count(DELIVERIES, name, "delivered")
            await self._table.delivered(notice)
        elif attempts >= MOST_ATTEMPTS:
            logs.logger().error("webhook given up", extra=logs.fields(**known, attempts=attempts, reason=failure))
            self._metrics.count(DELIVERIES, name, "given_up")
            await self._table.give_up(notice, failure)
        else:
            logs.logger().warning("webhook failed", extra=logs.fields(**known, attempts=attempts, reason=failure))
            self._metrics.count(DELIVERIES, name, "failed")
            await self._table.retry(notice, DELAYS[min(notice.attempts, len(DELAYS) - 1)], failure)

    async def _attempt(self, session: aiohttp.ClientSession, endpoint: WebhookEndpoint, notice: Notice) -> str | None:
        """Send a notice once. Return None if the endpoint has taken it, else why not."""
        body = event_of(notice)
        key = signing_key(endpoint.secret.get_secret_value())
        headers = signed_headers(notice, body, key, int(time.time()))
        try:
            if not endpoint.private and (reason := not_public(endpoint.url)):
                return reason
            # A redirection is no answer: it may lead anywhere.
            async with session.post(endpoint.url, data=body, headers=headers, allow_redirects=False) as answer:
                return None if 200 <= answer.status < 300 else f"status {answer.status}"
        except TimeoutError:
            return "no answer in time"
        except (aiohttp.ClientError, OSError) as error:
            return f"{type(error).__name__}: {error}"[:200]
