"""The counters of a fleet in Redis or Valkey. Needs the extra `redis`.

For each client there is a hash with the levels of its buckets and the time of them, and one with its running requests by
process. A sorted set has the processes, by the time until which they take part. All times are the server's, so that the clocks
of the gateways do not matter. What is not used expires."""

from __future__ import annotations

from collections.abc import Sequence
from hashlib import blake2b
from typing import cast

from responses_gateway.state.fleet_counters import CountersUnavailable, LimitRequest, Refusal, Verdict
from responses_gateway.state.redis import connect, script, within

_PREFIX = "responses-gateway:limits:"
_PROCESSES = _PREFIX + "processes"
_GATEWAYS = _PREFIX + "gateways"
_CONNECTIONS = 16  # connections of a process
TIMEOUT = 2.0  # seconds within which an answer has to come: requests wait for it
_RUNNING_KEPT = 120  # seconds for which the running requests of a client are kept without a report


class RedisCounters:
    """`FleetCounters` in Redis."""

    def __init__(self, url: str) -> None:
        """Connect to `url`, as for the log of running responses."""
        self._client = connect(url, _CONNECTIONS, TIMEOUT)
        self._count = self._client.register_script(script("count"))
        self._join = self._client.register_script(script("join"))

    async def join(self, member: str, seconds: float) -> int:
        joining = self._join(keys=[_PROCESSES, _GATEWAYS], args=[member, seconds])
        return cast("int", await within(TIMEOUT, joining, CountersUnavailable))

    async def take(self, member: str, request: LimitRequest) -> Verdict:
        counting = self._count(keys=_keys(request), args=_arguments(member, request, take=True))
        refused, requests, tokens, gateways = await within(TIMEOUT, counting, CountersUnavailable)
        return Verdict(cast("Refusal", refused.decode()), float(requests), float(tokens), int(gateways))

    async def report(self, member: str, requests: Sequence[LimitRequest]) -> None:
        await within(TIMEOUT, self._send(member, requests), CountersUnavailable)

    async def leave(self, member: str) -> None:
        await self.join(member, 0)

    async def close(self) -> None:
        await self._client.aclose()

    async def _send(self, member: str, requests: Sequence[LimitRequest]) -> None:
        async with self._client.pipeline(transaction=False) as pipeline:
            pipeline.script_load(script("count"))  # the server may have been started again
            for request in requests:
                pipeline.evalsha(self._count.sha, 4, *_keys(request), *map(str, _arguments(member, request, take=False)))
            await pipeline.execute()


def _keys(request: LimitRequest) -> list[str]:
    # Names of keys and addresses of clients are nobody else's business.
    client = blake2b(request.client.encode(), digest_size=16).hexdigest()
    return [f"{_PREFIX}left:{client}", f"{_PREFIX}running:{client}", _PROCESSES, _GATEWAYS]


def _arguments(member: str, request: LimitRequest, *, take: bool) -> list[str | int | float]:
    limits = (request.requests, request.tokens_per_minute, request.concurrent)
    left = (request.requests_left, request.tokens_left)
    used = (request.tokens, request.running)
    return [member, int(take), *limits, *left, int(request.stale), *used, _RUNNING_KEPT, request.returned]
