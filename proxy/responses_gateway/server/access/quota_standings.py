"""How much of their quotas the keys and teams of the settings have used, for people."""

from __future__ import annotations

from typing import Any

from responses_gateway.server.quotas.ledger import Ledger
from responses_gateway.server.quotas.quota import Owner, owner_of
from responses_gateway.settings import Settings
from responses_gateway.state.quotas import counter

# Quotas that are shown, those of which most is used.
_MOST_ROWS = 500


async def standings(settings: Settings, ledger: Ledger | None) -> list[dict[str, Any]]:
    """Return the quotas of this day and month: `kind` (`key` or `team`), `name`, `period`, `used` and, where there are such
    limits, `most` and `warning`, in tokens."""
    if ledger is None:
        return []
    now = ledger.clock()
    places = [
        (owner, bounds, counter(owner.name, bounds.period, now)) for owner in _owners(settings) for bounds in owner.bounds
    ]
    used = await ledger.used([counted for _, _, counted in places])
    rows: list[tuple[float, dict[str, Any]]] = []
    for (owner, bounds, _), tokens in zip(places, used, strict=True):
        kind, _, name = owner.name.partition(" ")
        limits = {"most": bounds.most or None, "warning": bounds.warning or None}
        row = {"kind": kind, "name": name, "period": bounds.period, "used": tokens, **limits}
        rows.append((tokens / (bounds.most or bounds.warning), row))
    return [row for _, row in sorted(rows, key=lambda found: found[0], reverse=True)[:_MOST_ROWS]]


def _owners(settings: Settings) -> list[Owner]:
    keys = [owner_of(f"key {name}", entry, settings) for name, entry in settings.api_keys.items()]
    teams = [owner_of(f"team {name}", entry, None) for name, entry in settings.teams.items()]
    return [owner for owner in (*keys, *teams) if owner is not None]
