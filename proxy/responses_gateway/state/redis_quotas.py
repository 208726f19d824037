"""The counters of quotas in Redis or Valkey. Needs the extra `redis`.

A server without persistence forgets them when it restarts. So each process passes what it has seen, and a counter is set to
that if it is less: what any living process knows is not lost."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from hashlib import blake2b

from responses_gateway.state.quotas import KEPT, Charge, Counter, QuotasUnavailable
from responses_gateway.state.redis import connect, script, within

_PREFIX = "responses-gateway:quotas:"
# Connections of a process, and seconds within which an answer has to come: requests wait for it.
_CONNECTIONS = 16
TIMEOUT = 2.0


class RedisQuotas:
    """`QuotaCounters` in Redis."""

    def __init__(self, url: str) -> None:
        """Connect to `url`, as for the log of running responses."""
        self._client = connect(url, _CONNECTIONS, TIMEOUT)
        self._script = self._client.register_script(script("charge"))

    async def read(self, counters: Sequence[Counter], known: Mapping[str, int]) -> dict[str, int]:
        keys, arguments = _call("", 0, counters, known)
        return _tokens(counters, await within(TIMEOUT, self._script(keys=keys, args=arguments), QuotasUnavailable))

    async def charge(self, charges: Sequence[Charge], known: Mapping[str, int], _now: float) -> dict[str, int]:
        return await within(TIMEOUT, self._send(charges, known), QuotasUnavailable)

    async def close(self) -> None:
        await self._client.aclose()

    async def _send(self, charges: Sequence[Charge], known: Mapping[str, int]) -> dict[str, int]:
        async with self._client.pipeline(transaction=False) as pipeline:
            for charge in charges:
                keys, arguments = _call(charge.id, charge.tokens, charge.counters, known)
                pipeline.eval(script("charge"), len(keys), *keys, *map(str, arguments))
            answers = await pipeline.execute()
        tokens: dict[str, int] = {}
        for charge, answer in zip(charges, answers, strict=True):
            tokens |= _tokens(charge.counters, answer)
        return tokens


def _tokens(counters: Sequence[Counter], answer: Sequence[bytes]) -> dict[str, int]:
    return {counter.name: int(tokens) for counter, tokens in zip(counters, answer, strict=True)}


def _call(charge: str, tokens: int, counters: Sequence[Counter], known: Mapping[str, int]) -> tuple[list[str], list[str | int]]:
    """Return the keys and the arguments of the script."""
    keys = [f"{_PREFIX}charge:{charge}" if charge else ""]
    arguments: list[str | int] = [tokens, KEPT]
    for counter in counters:
        # Names of keys and teams are nobody else's business.
        keys.append(f"{_PREFIX}used:{blake2b(counter.name.encode('utf-8', 'replace'), digest_size=16).hexdigest()}")
        arguments += [known.get(counter.name, 0), int(counter.ends) + KEPT]
    return keys, arguments
