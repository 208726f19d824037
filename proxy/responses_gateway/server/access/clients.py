"""What the client of a request may do: its rate limits, those of its team, and the quotas and models of both.

The stricter counts. A client for whom the settings have a rate limit alone has just that: its requests cost nothing more."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TypeAlias

from aiohttp import web

from responses_gateway.bounded_memory import BoundedDict
from responses_gateway.server.access.api_keys import InForce, team_of
from responses_gateway.server.access.rate_limits import MAX_ADDRESSES, ClientLimits, RateLimits
from responses_gateway.server.http.exchange import EXCHANGE
from responses_gateway.server.protocols.interface import LimitCount
from responses_gateway.server.quotas.ledger import Ledger
from responses_gateway.server.quotas.quota import Quota, Reservation, owner_of
from responses_gateway.settings import Settings
from responses_gateway.telemetry.metrics import Metrics


class MemberLimits:
    """The limits of a client together with those of its team, and the quotas of both."""

    def __init__(
        self,
        own: ClientLimits,
        team: ClientLimits | None,
        quota: Quota | None,
        ledger: Ledger | None,
        account: tuple[str, str | None],
    ) -> None:
        """`account` are the names of the client and of its team."""
        self._limits = (own,) if team is None else (own, team)
        self._quota = quota
        self._ledger = ledger
        self._account = account

    async def reserve_in_fleet(self) -> Reservation:
        """Admit one more request. Raise `ApiError` 429."""
        if self._quota is not None:
            await self._quota.check()
        held: list[ClientLimits] = []
        try:
            for limits in self._limits:
                await limits.reserve_in_fleet()
                held.append(limits)
        except BaseException:
            for limits in held:
                limits.take_back()
            raise
        owners = [owner.name for owner in self._quota.owners] if self._quota is not None else []
        return Reservation(*self._account, held, ledger=self._ledger, owners=owners)

    def counts(self) -> Iterable[LimitCount]:
        """Return what is left of the limits; of each kind the one of which less is left."""
        least: dict[str, LimitCount] = {}
        for count in (count for limits in self._limits for count in limits.counts()):
            known = least.setdefault(count.kind, count)
            if count.remaining < known.remaining:
                least[count.kind] = count
        return least.values()

    @property
    def warning(self) -> str:
        """What an answer tells of soft limits that are exceeded."""
        return self._quota.warning if self._quota is not None else ""


# What a client may use.
Limits: TypeAlias = ClientLimits | MemberLimits


class Clients:
    """All clients, as the settings in force have them."""

    def __init__(self, in_force: InForce, rate_limits: RateLimits, ledger: Ledger | None, metrics: Metrics) -> None:
        """`ledger` has what quotas were charged; None where nobody can have a quota."""
        self._in_force = in_force
        self._rate_limits = rate_limits
        self._ledger = ledger
        self._metrics = metrics
        self._settings: Settings | None = None
        self._members: BoundedDict[tuple[str, str | None], MemberLimits | None] = BoundedDict(MAX_ADDRESSES)

    def of(self, request: web.Request) -> Limits:
        """Return what the client of a request may use."""
        own = self._rate_limits.of(request)
        exchange = request[EXCHANGE]
        name = exchange.client
        settings = self._in_force()
        if name is None:
            return own
        if settings is not self._settings:
            self._settings = settings
            self._members.clear()
        account = (name, team_of(exchange, settings))
        if account not in self._members:
            self._members[account] = self._member(own, account, settings)
        return self._members[account] or own

    def _member(self, own: ClientLimits, account: tuple[str, str | None], settings: Settings) -> MemberLimits | None:
        """Return the limits of somebody with a team or a quota; None for others."""
        name, team = account
        quota = self._quota(name, team, settings)
        if team is None and quota is None:
            return None
        of_team = self._rate_limits.by_team[team] if team is not None else None
        return MemberLimits(own, of_team, quota, self._ledger, account)

    def _quota(self, name: str, team: str | None, settings: Settings) -> Quota | None:
        owners = [owner_of(f"key {name}", settings.api_keys.get(name), settings)]
        if team is not None:
            owners.append(owner_of(f"team {team}", settings.teams[team], None))
        payers = [owner for owner in owners if owner is not None]
        return Quota(payers, self._ledger, self._metrics) if payers and self._ledger is not None else None


# The clients of an application; absent where nobody has limits or a key.
CLIENTS: web.AppKey[Clients] = web.AppKey("clients", Clients)
# The limits that a request counts against, and what it has reserved there; absent without limits.
LIMITS: web.RequestKey[Limits] = web.RequestKey("limits")
RESERVATION: web.RequestKey[Reservation] = web.RequestKey("reservation")
