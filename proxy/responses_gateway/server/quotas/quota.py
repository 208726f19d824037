"""The quotas of one client: checked before a request, charged when it ends. The stricter of key and team counts. And how much
of theirs the keys and teams of the settings have used, for people."""

from __future__ import annotations

import secrets
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, Protocol

from responses_gateway.server.quotas.ledger import Ledger
from responses_gateway.settings import Settings
from responses_gateway.settings.keys import Limited
from responses_gateway.state.quotas import Charge, Counter, Period, counter
from responses_gateway.telemetry import instruments, logs
from responses_gateway.telemetry.instruments import ACCESS_REFUSALS, Gauge, key_label
from responses_gateway.telemetry.metrics import Metrics
from responses_gateway.wire.errors import ApiError

QUOTA_USED = Gauge(
    "quota_used_ratio",
    "Used part of a quota (of the soft limit, if that is all there is), as of the last request, by its owner.",
    ("owner", "period"),
    together="livemax",
)
QUOTA_WARNINGS = instruments.Counter(
    "quota_warnings_total", "Requests beyond a soft limit of a quota, by its owner.", ("owner", "period")
)
_PERIODS: tuple[Period, ...] = ("day", "month")
_MOST_ROWS = 500  # quotas that are shown, those of which most is used


@dataclass(frozen=True, slots=True)
class Bounds:
    """The tokens that somebody may use in a period, and those beyond which a warning is given; 0 for none."""

    period: Period
    most: int
    warning: int


@dataclass(frozen=True, slots=True)
class Owner:
    """Whose quotas these are: `key alice`, `team red`."""

    name: str
    bounds: tuple[Bounds, ...]


def owner_of(name: str, entry: Limited | None, settings: Settings | None) -> Owner | None:
    """Return whose quotas an entry of the settings has; None if it has none. For what it leaves out, the general settings
    apply, if they are given."""
    bounds = []
    for period in _PERIODS:
        own: int | None = getattr(entry, f"tokens_per_{period}", None)
        of_all: int = getattr(settings, f"tokens_per_{period}", 0)
        most = of_all if own is None else own
        warning: int = getattr(entry, f"soft_tokens_per_{period}", None) or 0
        if most or warning:
            bounds.append(Bounds(period, most, warning))
    return Owner(name, tuple(bounds)) if bounds else None


class Quota:
    """The quotas that the requests of one client count against."""

    def __init__(self, owners: Sequence[Owner], ledger: Ledger, metrics: Metrics) -> None:
        self.owners = tuple(owners)
        # What an answer tells of a soft limit that is exceeded.
        self.warning = ""
        self._ledger = ledger
        self._metrics = metrics
        self._warned: set[str] = set()  # counters that the log has warned about

    async def check(self) -> None:
        """Raise `ApiError` 429 if any of the quotas is used up."""
        warnings = []
        for owner, bounds, counted, tokens in await _used(self.owners, self._ledger):
            self._show(owner, bounds, tokens)
            if bounds.most and tokens >= bounds.most:
                self._metrics.count(ACCESS_REFUSALS, "quota")
                raise _exceeded(owner, bounds, tokens, counted.ends)
            if bounds.warning and tokens >= bounds.warning:
                warnings.append(f"{owner.name}: {tokens} tokens of this {bounds.period}, soft limit {bounds.warning}")
                self._warn(owner, bounds, tokens, counted)
        self.warning = "; ".join(warnings)

    def _show(self, owner: Owner, bounds: Bounds, tokens: int) -> None:
        if ":" not in owner.name:  # of an issuer's clients there may be any number
            self._metrics.set(QUOTA_USED, tokens / (bounds.most or bounds.warning), owner.name, bounds.period)

    def _warn(self, owner: Owner, bounds: Bounds, tokens: int, counted: Counter) -> None:
        self._metrics.count(QUOTA_WARNINGS, key_label(owner.name), bounds.period)
        if counted.name not in self._warned:
            self._warned = {name for name in self._warned if not name.endswith(f" {owner.name}")} | {counted.name}
            fields = logs.fields(owner=owner.name, period=bounds.period, used=tokens, soft_limit=bounds.warning)
            logs.logger().warning("soft quota exceeded", extra=fields)


async def standings(settings: Settings, ledger: Ledger | None) -> list[dict[str, Any]]:
    """Return the quotas of this day and month: `kind` (`key` or `team`), `name`, `period`, `used` and, where there are such
    limits, `most` and `warning`, in tokens."""
    if ledger is None:
        return []
    rows: list[tuple[float, dict[str, Any]]] = []
    for owner, bounds, _, tokens in await _used(_owners(settings), ledger):
        kind, _, name = owner.name.partition(" ")
        limits = {"most": bounds.most or None, "warning": bounds.warning or None}
        row = {"kind": kind, "name": name, "period": bounds.period, "used": tokens, **limits}
        rows.append((tokens / (bounds.most or bounds.warning), row))
    return [row for _, row in sorted(rows, key=lambda pair: pair[0], reverse=True)[:_MOST_ROWS]]


def _owners(settings: Settings) -> list[Owner]:
    keys = [owner_of(f"key {name}", entry, settings) for name, entry in settings.api_keys.items()]
    teams = [owner_of(f"team {name}", entry, None) for name, entry in settings.teams.items()]
    return [owner for owner in (*keys, *teams) if owner is not None]


async def _used(owners: Iterable[Owner], ledger: Ledger) -> list[tuple[Owner, Bounds, Counter, int]]:
    """Return the bounds of some owners, each with the tokens that were used in its present period."""
    now = ledger.clock()
    places = [(owner, bounds, counter(owner.name, bounds.period, now)) for owner in owners for bounds in owner.bounds]
    used = await ledger.used([counted for _, _, counted in places])
    return [(*place, tokens) for place, tokens in zip(places, used, strict=True)]


class HeldLimits(Protocol):
    """What a request holds of the limits of its client."""

    def charge(self, tokens: int) -> None:
        """Count tokens that the request has used before its end."""

    def end(self, tokens: int, /) -> None:
        """End the request, which has used so many tokens."""


class Reservation:
    """What one request of a client holds of its limits and quotas, until it ends."""

    __slots__ = ("_charged", "_id", "_ledger", "_limits", "_more", "kept", "key", "owners", "settles", "team")

    def __init__(
        self,
        key: str | None,
        team: str | None,
        limits: Sequence[HeldLimits] = (),
        *,
        ledger: Ledger | None = None,
        owners: Sequence[str] = (),
    ) -> None:
        """`key` is the name of the client's key, if it came with one, and `team` the one to which it belongs. `limits` end with
        the request, and `owners` are the names of those whose quotas it is charged to."""
        self.key = key
        self.team = team
        self.kept = False  # set by whoever ends it with the response, which may outlive its HTTP exchange
        self.owners = tuple(owners)
        self.settles = bool(owners)  # `settle` is to be called before the answer ends
        self._ledger = ledger
        self._limits = limits
        self._more = 0  # tokens beside those of the response itself
        self._charged = 0
        self._id = ""

    def charge(self, tokens: int) -> None:
        """Count tokens that the request has used before its end."""
        self._more += tokens
        for limits in self._limits:
            limits.charge(tokens)

    async def settle(self, tokens: int, response_id: str | None = None) -> None:
        """Have the tokens charged before the answer ends. A response that is taken over is charged once, by its id."""
        charge = self._due(tokens, response_id)
        if charge is not None and self._ledger is not None:
            await self._ledger.settle(charge)

    def end(self, tokens: int = 0, response_id: str | None = None) -> None:
        """End the request, which has used so many tokens. Only the first call counts."""
        held = self._limits
        self._limits = ()
        for limits in held:
            limits.end(tokens)
        charge = self._due(tokens, response_id)
        if charge is not None and self._ledger is not None:
            self._ledger.add(charge)

    def _due(self, tokens: int, response_id: str | None) -> Charge | None:
        """Return what is to be charged; None if it was."""
        total = tokens + self._more
        if self._ledger is None or not self.owners or total <= self._charged:
            return None
        self._charged = total
        now = self._ledger.clock()
        self._id = self._id or secrets.token_hex(16)
        counters = tuple(counter(owner, period, now) for owner in self.owners for period in _PERIODS)
        return Charge(response_id or self._id, total, counters)


def _exceeded(owner: Owner, bounds: Bounds, used: int, ends: float) -> ApiError:
    renewed = datetime.fromtimestamp(ends, UTC).strftime("%Y-%m-%dT%H:%MZ")
    message = (
        f"You exceeded your current quota: {owner.name} has used {used} of {bounds.most} tokens of this {bounds.period} (UTC). "
        f"It is renewed at {renewed}."
    )
    return ApiError(429, message, type="insufficient_quota", code="insufficient_quota", final=True)
