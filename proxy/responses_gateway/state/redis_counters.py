"""The counters of a fleet in Redis or Valkey. Needs the extra `redis`.

For each client there is a hash with the levels of its buckets and the time of them, and one with its running requests by
process. A sorted set has the processes, by the time until which they take part. All times are the server's, so that the clocks
of the gateways do not matter. What is not used expires."""

from __future__ import annotations

from collections.abc import Awaitable, Sequence
from hashlib import blake2b
from typing import TypeVar, cast

from responses_gateway.state.fleet_counters import CountersUnavailable, LimitRequest, Refusal, Verdict
from responses_gateway.state.redis import connect, within

T = TypeVar("T")

_PREFIX = "responses-gateway:limits:"
_PROCESSES = _PREFIX + "processes"
_GATEWAYS = _PREFIX + "gateways"
# Connections of a process.
_CONNECTIONS = 16
# Seconds within which an answer has to come: requests wait for it.
TIMEOUT = 2.0
# Seconds for which the running requests of a client are kept without a report.
_RUNNING_KEPT = 120

# Returns the reason of a refusal, the levels and the number of gateways. A level is the hint where there is none, or where the
# hint is less and the level is stale.
_COUNT = """
local member = ARGV[1]
local take = ARGV[2] == '1'
local per_minute = {tonumber(ARGV[3]), tonumber(ARGV[4])}
local concurrent = tonumber(ARGV[5])
local hint = {tonumber(ARGV[6]), tonumber(ARGV[7])}
local stale = ARGV[8] == '1'
local running = tonumber(ARGV[10])
if take then running = running - 1 end
local time = redis.call('TIME')
local now = tonumber(time[1]) + tonumber(time[2]) / 1000000
local found = redis.call('HMGET', KEYS[1], 'requests', 'tokens', 'at')
local at = tonumber(found[3] or now)
local level = {0, 0}
for kind = 1, 2 do
    local limit = per_minute[kind]
    if limit > 0 then
        level[kind] = hint[kind]
        if found[kind] and found[3] then
            level[kind] = math.min(limit, tonumber(found[kind]) + math.max(0, now - at) * limit / 60)
            if stale then level[kind] = math.min(level[kind], hint[kind]) end
        end
    end
end
level[2] = level[2] - tonumber(ARGV[9])
local others = 0
if concurrent > 0 then
    local fields = redis.call('HGETALL', KEYS[2])
    for index = 1, #fields, 2 do
        if fields[index] ~= member then
            local joined_until = redis.call('ZSCORE', KEYS[3], fields[index])
            if joined_until and tonumber(joined_until) > now then
                others = others + tonumber(fields[index + 1])
            else
                redis.call('HDEL', KEYS[2], fields[index])
            end
        end
    end
end
local refused = ''
if take then
    if per_minute[1] > 0 and level[1] < 0.999999 then refused = 'requests'
    elseif per_minute[2] > 0 and level[2] < 0.999999 then refused = 'tokens'
    elseif concurrent > 0 and others + running >= concurrent then refused = 'concurrency'
    else
        level[1] = level[1] - 1
        running = running + 1
    end
end
local full_in = 0
for kind = 1, 2 do
    if per_minute[kind] > 0 then
        full_in = math.max(full_in, (per_minute[kind] - level[kind]) * 60 / per_minute[kind])
    end
end
if full_in > 0 then
    redis.call('HSET', KEYS[1], 'requests', level[1], 'tokens', level[2], 'at', string.format('%.6f', now))
    redis.call('EXPIRE', KEYS[1], math.ceil(full_in) + 1)
end
if concurrent > 0 then
    if running > 0 then
        redis.call('HSET', KEYS[2], member, running)
        redis.call('EXPIRE', KEYS[2], ARGV[11])
    else
        redis.call('HDEL', KEYS[2], member)
    end
end
return {refused, string.format('%.6f', level[1]), string.format('%.6f', level[2]), redis.call('GET', KEYS[4]) or '1'}
"""

# Returns how many gateways there are: the part of a member before the colon. A member without time leaves.
_JOIN = """
local time = redis.call('TIME')
local now = tonumber(time[1]) + tonumber(time[2]) / 1000000
redis.call('ZREMRANGEBYSCORE', KEYS[1], '-inf', now)
local seconds = tonumber(ARGV[2])
if seconds > 0 then
    redis.call('ZADD', KEYS[1], now + seconds, ARGV[1])
    redis.call('EXPIRE', KEYS[1], math.ceil(seconds) + 1)
else
    redis.call('ZREM', KEYS[1], ARGV[1])
end
local gateways = {}
local number = 0
for _, member in ipairs(redis.call('ZRANGE', KEYS[1], 0, -1)) do
    local gateway = string.match(member, '^[^:]*')
    if not gateways[gateway] then
        gateways[gateway] = true
        number = number + 1
    end
end
redis.call('SET', KEYS[2], number, 'EX', 3600)
return number
"""


class RedisCounters:
    """`FleetCounters` in Redis."""

    def __init__(self, url: str) -> None:
        """Connect to `url`, as for the log of running responses."""
        self._client = connect(url, _CONNECTIONS, TIMEOUT)
        self._count = self._client.register_script(_COUNT)
        self._join = self._client.register_script(_JOIN)

    async def join(self, member: str, seconds: float) -> int:
        return cast("int", await _within(self._join(keys=[_PROCESSES, _GATEWAYS], args=[member, seconds])))

    async def take(self, member: str, request: LimitRequest) -> Verdict:
        answer = await _within(self._count(keys=_keys(request), args=_arguments(member, request, take=True)))
        refused, requests, tokens, gateways = answer
        return Verdict(cast("Refusal", refused.decode()), float(requests), float(tokens), int(gateways))

    async def report(self, member: str, requests: Sequence[LimitRequest]) -> None:
        await _within(self._send(member, requests))

    async def leave(self, member: str) -> None:
        await self.join(member, 0)

    async def close(self) -> None:
        await self._client.aclose()

    async def _send(self, member: str, requests: Sequence[LimitRequest]) -> None:
        async with self._client.pipeline(transaction=False) as pipeline:
            pipeline.script_load(_COUNT)  # the server may have been started again
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
    return [member, int(take), *limits, *left, int(request.stale), request.tokens, request.running, _RUNNING_KEPT]


async def _within(command: Awaitable[T]) -> T:
    return await within(TIMEOUT, command, CountersUnavailable)
