"""Which of 16 servers gets a request, decided by 4 gateways that do not talk to each other: prefixes in caches, and queueing.

    python -m bench.placement
    python -m bench.placement --rate 120 --requests 20000

A simulation in virtual time of the functions that the gateway uses. Conversations ask again and again, some much more often
than others, and some are long; a server remembers the beginnings of the last ones, serves a few requests at a time as far as
its KV cache has room for them, and is faster where it knows the beginning. The gateways take requests in turn.
"""

from __future__ import annotations

import argparse
import heapq
import random
from collections import OrderedDict, deque
from collections.abc import Callable
from dataclasses import dataclass, field

from responses_gateway.backend.policies.affinity import Load, choose, least_busy, preference

GATEWAYS = 4
SERVERS = 16
SLOTS = 8  # requests that a server works on at a time
REMEMBERED = 60  # conversations whose beginning a server knows
CONVERSATIONS = 800
KNOWN, UNKNOWN = 0.5, 1.0  # seconds for an answer
REPORT = 1.0  # seconds between two reports of a server's load
LONG, SHORT = 0.3, 0.06  # the part of a cache that a request takes; every tenth conversation is long


@dataclass
class Server:
    """A server: what it works on, what waits, what it knows."""

    busy: int = 0
    taken: float = 0.0  # of its cache
    queue: deque[tuple[float, str, int]] = field(default_factory=deque)
    known: OrderedDict[str, None] = field(default_factory=OrderedDict)

    def has_room(self, key: str) -> bool:
        """Tell whether it may begin a request of a conversation now."""
        return self.busy < SLOTS and self.taken + _part(key) <= 1.000001


@dataclass
class Gateway:
    """What a gateway knows: its own requests at each server, those of others by the last report, and whose turn it is."""

    own: list[int]
    elsewhere: list[int]
    caches: list[float]
    turn: int = 0


Policy = Callable[[Gateway, str], int]


def _loads(gateway: Gateway, *, reports: bool, caches: bool = False) -> list[Load]:
    others = gateway.elsewhere if reports else [0] * SERVERS
    taken = gateway.caches if caches else [0.0] * SERVERS
    return [Load(str(each), gateway.own[each] + others[each], 1.0, each, taken[each]) for each in range(SERVERS)]


def _part(key: str) -> float:
    """Return the part of a cache that a request of a conversation takes."""
    return LONG if key.endswith("7") else SHORT


def _round_robin(gateway: Gateway, _key: str) -> int:
    gateway.turn += 1
    return gateway.turn % SERVERS


POLICIES: dict[str, Policy] = {
    "round robin": _round_robin,
    "least loaded, own requests": lambda gateway, _key: int(least_busy(_loads(gateway, reports=False))),
    "hash affinity alone": lambda _gateway, key: int(preference(key, ((str(n), 1.0) for n in range(SERVERS)))[0]),
    "bounded affinity, own requests": lambda gateway, key: int(choose(_loads(gateway, reports=False), key)),
    "bounded affinity, servers' reports": lambda gateway, key: int(choose(_loads(gateway, reports=True), key)),
    "the same, and their KV caches": lambda gateway, key: int(choose(_loads(gateway, reports=True, caches=True), key)),
}


def simulate(policy: Policy, requests: int, rate: float) -> tuple[float, float, float]:
    """Return the part of the requests whose beginning was known, and the median and p99 of the seconds in a queue."""
    chance = random.Random(1)
    weights = [1 / (place + 20) for place in range(CONVERSATIONS)]
    servers = [Server() for _ in range(SERVERS)]
    gateways = [Gateway([0] * SERVERS, [0] * SERVERS, [0.0] * SERVERS) for _ in range(GATEWAYS)]
    events: list[tuple[float, int, int, int, float]] = []  # when a request ends: its server, its gateway, its part
    waits: list[float] = []
    hits = 0
    count = 0
    reported = 0.0

    def begin(now: float, number: int, came: float, key: str, gateway: int) -> None:
        nonlocal hits, count
        server = servers[number]
        known = key in server.known
        server.known[key] = None
        server.known.move_to_end(key)
        if len(server.known) > REMEMBERED:
            server.known.popitem(last=False)
        hits += known
        waits.append(now - came)
        server.busy += 1
        server.taken += _part(key)
        count += 1
        takes = chance.expovariate(1 / (KNOWN if known else UNKNOWN))
        heapq.heappush(events, (now + takes, count, number, gateway, _part(key)))

    def end_until(now: float) -> None:
        while events and events[0][0] <= now:
            at, _, number, owner, part = heapq.heappop(events)
            servers[number].busy -= 1
            servers[number].taken -= part
            gateways[owner].own[number] -= 1
            while servers[number].queue and servers[number].has_room(servers[number].queue[0][1]):
                came, key, gateway = servers[number].queue.popleft()
                begin(at, number, came, key, gateway)

    now = 0.0
    for asked, key in enumerate(chance.choices(range(CONVERSATIONS), weights, k=requests)):
        now += chance.expovariate(rate)
        end_until(now)
        if now - reported >= REPORT:
            reported = now
            for gateway in gateways:
                gateway.elsewhere = [
                    max(0, server.busy + len(server.queue) - own) for server, own in zip(servers, gateway.own, strict=True)
                ]
                gateway.caches = [server.taken for server in servers]
        owner = asked % GATEWAYS
        chosen = policy(gateways[owner], f"key:{key}")
        gateways[owner].own[chosen] += 1
        if servers[chosen].has_room(f"{key}") and not servers[chosen].queue:
            begin(now, chosen, now, f"{key}", owner)
        else:
            servers[chosen].queue.append((now, f"{key}", owner))
    end_until(float("inf"))
    waits.sort()
    return hits / len(waits), waits[len(waits) // 2], waits[int(len(waits) * 0.99)]


def main() -> None:
    """Print a table of the policies."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--requests", type=int, default=20_000)
    parser.add_argument("--rate", type=float, default=150, help="requests in a second")
    args = parser.parse_args()
    print("| choice | beginnings known | queueing p50, p99 |\n|---|---|---|")
    for name, policy in POLICIES.items():
        known, median, worst = simulate(policy, args.requests, args.rate)
        print(f"| {name} | {100 * known:.0f} % | {median:.2f}, {worst:.2f} s |")


if __name__ == "__main__":
    main()
