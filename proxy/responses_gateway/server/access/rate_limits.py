"""Rate limits of clients: requests and tokens per minute, and concurrent requests.

A client is an API key or, if the settings have no keys, an address. Only requests that make the backend work are counted:
stored resources and lists of models are free. The workers of one gateway count together (`counter_table.py`); a single process
counts in plain numbers. With Redis all gateways count together (`fleet.py`): the counts here follow those of the fleet, and
replace them while Redis is unreachable."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from ipaddress import IPv6Address, ip_address

from aiohttp import web

from responses_gateway.bounded_memory import BoundedDict
from responses_gateway.server.access.api_keys import InForce
from responses_gateway.server.access.counter_table import SharedRow, Table
from responses_gateway.server.access.fleet import Fleet
from responses_gateway.server.http.exchange import EXCHANGE
from responses_gateway.server.protocols.interface import LimitCount
from responses_gateway.server.quotas.quota import Reservation
from responses_gateway.settings import Settings
from responses_gateway.settings.keys import Limited
from responses_gateway.state.fleet_counters import LimitRequest, Refusal, Verdict
from responses_gateway.telemetry import logs
from responses_gateway.telemetry.instruments import ACCESS_REFUSALS, Counter, key_label
from responses_gateway.telemetry.metrics import Metrics
from responses_gateway.wire.errors import ApiError

KEY_REQUESTS = Counter("key_requests_total", "Accepted requests, by API key.", ("key",))
# Most addresses with counts of their own: the least recently used ones are forgotten first.
MAX_ADDRESSES = 10_000
# `Retry-After` in seconds where too many requests are running: when one of them will end is not known.
_TRY_AGAIN = 1.0
MINUTE = 60.0  # in seconds: limits are per minute
# Without it, a client that waited as long as `Retry-After` says might miss a unit by a rounding error.
_ROUNDING = 1e-6
Clock = Callable[[], float]


class Bucket:
    """A token bucket: holds the limit of a minute when it is full, and fills at that rate. The time is passed in.

    More may be taken than there is (the tokens of a response are known at its end): then the level is below zero, and nothing
    is left until it has risen again. Times are in seconds of a monotonic clock."""

    __slots__ = ("_at", "_level", "limit")

    def __init__(self, limit: int, now: float) -> None:
        """Begin full. `limit` is the maximum per minute, at least 1."""
        self.limit = limit
        self._level = float(limit)
        self._at = now

    @property
    def state(self) -> tuple[float, float]:
        """The level and its time, which several processes share."""
        return self._level, self._at

    @state.setter
    def state(self, state: tuple[float, float]) -> None:
        level, at = state
        self._level = min(level, float(self.limit))
        self._at = at

    def take(self, amount: float, now: float) -> None:
        """Take an amount out, even if there is less."""
        self._fill(now)
        self._level -= amount

    def level(self, now: float) -> float:
        """Return the level, which is below 0 if too much was taken."""
        self._fill(now)
        return self._level

    def remaining(self, now: float) -> int:
        """Return the whole units that are left, at least 0."""
        self._fill(now)
        return max(0, int(self._level + _ROUNDING))

    def seconds_until(self, amount: float, now: float) -> float:
        """Return the seconds until an amount is there, 0 if it is; `amount` is at most the limit."""
        self._fill(now)
        return max(0.0, (amount - self._level) * MINUTE / self.limit)

    def _fill(self, now: float) -> None:
        if now > self._at:
            self._level = min(float(self.limit), self._level + (now - self._at) * self.limit / MINUTE)
            self._at = now


def _bucket(limit: int, before: Bucket | None, now: float) -> Bucket | None:
    """Return a bucket for a limit, with what is left in the one before it; None without a limit."""
    if not limit:
        return None
    bucket = Bucket(limit, now)
    if before is not None:
        bucket.state = before.state
    return bucket


@dataclass(frozen=True, slots=True)
class Allowance:
    """The limits of a client; 0 for none."""

    requests: int
    tokens: int
    concurrent: int


NO_LIMITS = Allowance(0, 0, 0)


class ClientLimits:
    """The counts of one client: requests and tokens of the last minute, and running requests."""

    # Nobody is warned of the limits of a minute.
    warning = ""

    def __init__(
        self,
        key: str | None,
        name: str,
        allowance: Allowance,
        clock: Clock,
        metrics: Metrics,
        shared: SharedRow | None,
        fleet: Fleet | None,
    ) -> None:
        """`key` is the name of the client's key, if it has one; `name` is used in errors; `clock` returns seconds, the same in
        all processes; `shared` is the row in which all workers count; `fleet` counts for all gateways."""
        now = clock()
        self.key = key
        self.running = 0
        self.last_synced = 0  # see `FleetClient`
        self._name = name
        self._allowance = allowance
        self._clock = clock
        self._metrics = metrics
        self._shared = shared
        self._counted_by = fleet
        self._fleet = fleet if allowance != NO_LIMITS else None
        self._unreported = 0  # tokens that the fleet does not count yet
        self._returned = 0  # requests that it does not know to be refused yet
        self._requests = _bucket(allowance.requests, None, now)
        self._tokens = _bucket(allowance.tokens, None, now)

    def change(self, allowance: Allowance) -> None:
        """Have other limits from now on, and keep what was counted."""
        if allowance == self._allowance:
            return
        now = self._clock()
        self._allowance = allowance
        self._fleet = self._counted_by if allowance != NO_LIMITS else None
        self._requests = _bucket(allowance.requests, self._requests, now)
        self._tokens = _bucket(allowance.tokens, self._tokens, now)

    def reserve(self, verdict: Verdict | None = None) -> Reservation:
        """Admit one more request: as the fleet's verdict says or, without one, by the counts here. Raise `ApiError` 429;
        requests that are refused are not counted."""
        if self._shared is None:
            self._admit(verdict, self.running)
        else:
            with self._shared as row:
                self._read(row)
                try:
                    self._admit(verdict, row.running)
                    row.add(1)
                finally:
                    self._write(row)  # after a refusal, too: it reports what is left
        self.running += 1
        if self._fleet is not None:
            self._fleet.changed(self)
        return Reservation(self.key, None, (self,))

    async def reserve_in_fleet(self) -> Reservation:
        """Do the same with a verdict of the fleet, if its counters can be reached."""
        fleet = self._fleet
        if fleet is None or not fleet.shared:
            return self.reserve()
        self.running += 1  # counts for the requests that arrive during the round trip
        try:
            verdict = await fleet.take(self)
        finally:
            self.running -= 1
            fleet.changed(self)  # it may have admitted what is given up here, or heard of requests that have ended since
        return self.reserve(verdict)

    def charge(self, tokens: int) -> None:
        """Count so many more tokens."""
        self._take(tokens, ended=0)

    def end(self, tokens: int) -> None:
        """Count the end of a request, which used so many tokens."""
        if self.key is not None:
            self._metrics.count(KEY_REQUESTS, key_label(self.key))
        self._take(tokens, ended=1)

    def take_back(self) -> None:
        """Undo a reservation, because the request is refused after all: it does not count."""
        self._take(0, ended=1, returned=1)

    def limit_request(self, *, stale: bool) -> LimitRequest:
        """Return what the fleet has to know, with what was not reported yet: it counts as reported then."""
        now = self._clock()
        if self._shared is not None:
            with self._shared as row:
                self._read(row)
        # What was used during an outage is in the levels, which replace those of the fleet.
        tokens, returned = (0, 0) if stale else (self._unreported, self._returned)
        self._unreported = 0
        self._returned = 0
        return LimitRequest(
            client=self._name,
            requests=self._allowance.requests,
            tokens_per_minute=self._allowance.tokens,
            concurrent=self._allowance.concurrent,
            requests_left=self._requests.level(now) - returned if self._requests is not None else 0.0,
            tokens_left=self._tokens.level(now) + tokens if self._tokens is not None else 0.0,
            stale=stale,
            tokens=tokens,
            running=self.running,
            returned=returned,
        )

    @property
    def _gateways(self) -> int:
        """The factor of all that is counted: the number of gateways while they cannot count together, else 1."""
        return 1 if self._fleet is None or self._fleet.shared else self._fleet.gateways

    def _admit(self, verdict: Verdict | None, running: int) -> None:
        """Apply the fleet's verdict or, without one, the counts here. Raise `ApiError` 429."""
        now = self._clock()
        if verdict is None:
            refused = self._refusal(running, now)
            if not refused:
                self._use(1, 0)
        else:
            refused = verdict.refused
            for bucket, left in ((self._requests, verdict.requests_left), (self._tokens, verdict.tokens_left)):
                if bucket is not None:  # verdicts may come in another order than they were given
                    bucket.state = (min(left, bucket.level(now)), now)
        if refused:
            self._count(refused)
            raise self._limited(refused, now)

    def _refusal(self, running: int, now: float) -> Refusal:
        most = self._allowance.concurrent
        if self._requests is not None and not self._requests.remaining(now):
            return "requests"
        if self._tokens is not None and not self._tokens.remaining(now):
            return "tokens"
        return "concurrency" if most and running >= max(1, most // self._gateways) else ""

    def _limited(self, refused: Refusal, now: float) -> ApiError:
        if refused == "concurrency":
            what = f"on requests at the same time: Limit {self._allowance.concurrent}"
            return _limited(what, self._name, "requests", _TRY_AGAIN)
        unit, bucket = ("RPM", self._requests) if refused == "requests" else ("TPM", self._tokens)
        assert bucket is not None
        what = f"on {refused} per min ({unit}): Limit {bucket.limit}"
        return _limited(what, self._name, refused, bucket.seconds_until(1, now))

    def _take(self, tokens: int, ended: int, returned: int = 0) -> None:
        self.running -= ended
        if self._shared is None:
            self._use(-returned, tokens)
        else:
            with self._shared as row:
                self._read(row)
                self._use(-returned, tokens)
                row.add(-ended)
                self._write(row)
        if self._fleet is not None:
            self._unreported += tokens
            self._returned += returned
            self._fleet.changed(self)

    def _use(self, requests: int, tokens: int) -> None:
        for bucket, amount in ((self._requests, requests), (self._tokens, tokens)):
            if bucket is not None:
                bucket.take(amount * self._gateways, self._clock())

    def _read(self, row: SharedRow) -> None:
        """Read the counts of all workers."""
        levels = row.levels
        now = self._clock()
        for bucket, state in ((self._requests, levels[:2]), (self._tokens, levels[2:])):
            if bucket is not None:
                bucket.state = state if state[1] else (bucket.limit, now)

    def _write(self, row: SharedRow) -> None:
        requests, tokens = ((0.0, 0.0) if bucket is None else bucket.state for bucket in (self._requests, self._tokens))
        row.levels = (*requests, *tokens)

    def counts(self) -> Iterator[LimitCount]:
        """Yield what is left of each limit."""
        if self._allowance == NO_LIMITS:
            return
        if self._shared is not None:
            with self._shared as row:
                self._read(row)
        now = self._clock()
        for kind, bucket in (("requests", self._requests), ("tokens", self._tokens)):
            if bucket is not None:
                remaining = -(-bucket.remaining(now) // self._gateways)
                yield LimitCount(kind, bucket.limit, remaining, bucket.seconds_until(bucket.limit, now))

    def _count(self, reason: str) -> None:
        self._metrics.count(ACCESS_REFUSALS, reason)
        logs.logger().debug("not admitted", extra=logs.fields(reason=reason, client=self._name))


class RateLimits:
    """The limits of all clients, as the settings in force have them."""

    def __init__(
        self, in_force: InForce, clock: Clock, metrics: Metrics, table: Table | None = None, fleet: Fleet | None = None
    ) -> None:
        """`table` has the counts of several workers, `fleet` those of several gateways."""
        self._in_force = in_force
        self._table = table
        self._fleet = fleet
        self._clock = clock
        self._metrics = metrics
        self._settings: Settings | None = None
        self._default = NO_LIMITS
        self.by_key: dict[str, ClientLimits] = {}
        self.by_team: dict[str, ClientLimits] = {}
        self.by_address: BoundedDict[str, ClientLimits] = BoundedDict(MAX_ADDRESSES)
        self._follow(in_force())

    def _follow(self, settings: Settings) -> None:
        """Take other settings. Whoever had limits before keeps its counts."""
        self._settings = settings
        self._default = Allowance(settings.requests_per_minute, settings.tokens_per_minute, settings.concurrent_requests)
        for limits in self.by_address.values():
            limits.change(self._default)
        before = self.by_key
        self.by_key = {}
        for name, key in settings.api_keys.items():
            allowance = _allowance(key, self._default)
            limits = before.get(name) or self._new(name, f"key '{name}'", allowance, f"key {name}")
            limits.change(allowance)
            self.by_key[name] = limits
        teams = self.by_team
        self.by_team = {}
        for name, team in settings.teams.items():
            allowance = _allowance(team, NO_LIMITS)
            limits = teams.get(name) or self._new(None, f"team '{name}'", allowance, f"team {name}")
            limits.change(allowance)
            self.by_team[name] = limits

    def _new(self, key: str | None, name: str, allowance: Allowance, row: str) -> ClientLimits:
        return ClientLimits(key, name, allowance, self._clock, self._metrics, self._shared(row), self._fleet)

    def of(self, request: web.Request) -> ClientLimits:
        """Return the limits of the client of a request."""
        settings = self._in_force()
        if settings is not self._settings:
            self._follow(settings)
        exchange = request[EXCHANGE]
        name = exchange.client
        if name is None:
            return self._of_address(f"address {_network(exchange.address or request.remote)}", None)
        return self.by_key.get(name) or self._of_address(f"key {name}", name)

    def _of_address(self, name: str, key: str | None) -> ClientLimits:
        """Return the limits of a client that the settings do not name."""
        limits = self.by_address.get(name) or self._new(key, name, self._default, name)
        self.by_address[name] = limits  # as the one that was used last
        return limits

    def _shared(self, name: str) -> SharedRow | None:
        return None if self._table is None else SharedRow(self._table, name)


def _allowance(entry: Limited, default: Allowance) -> Allowance:
    return Allowance(
        _first(entry.requests_per_minute, default.requests),
        _first(entry.tokens_per_minute, default.tokens),
        _first(entry.concurrent_requests, default.concurrent),
    )


def _first(own: int | None, default: int) -> int:
    return default if own is None else own


def _network(address: str | None) -> str:
    """Return the address or, for IPv6, the network: each client has 2**64 addresses in it."""
    try:
        ip = ip_address(address or "")
    except ValueError:
        return address or "unknown"
    if not isinstance(ip, IPv6Address):
        return str(ip)
    if ip.ipv4_mapped is not None:
        return str(ip.ipv4_mapped)
    return f"{IPv6Address(int(ip) >> 64 << 64)}/64"


def _limited(what: str, name: str, kind: str, wait: float) -> ApiError:
    # Clients read the time out of the message too: Codex looks for `try again in 1.5s`.
    message = f"Rate limit reached for {name} {what}. Please try again in {max(wait, 0.001):.3f}s."
    return ApiError(429, message, type=kind, code="rate_limit_exceeded", retry_after=wait)
