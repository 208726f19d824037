"""Settings that contradict each other: each is right by itself, and together they cannot have the effect that is meant."""

from __future__ import annotations

from collections.abc import Iterator

from responses_gateway.settings import Settings
from responses_gateway.settings.access import QUOTA_SETTINGS, has_quotas
from responses_gateway.settings.keys import Limited


def contradictions(settings: Settings) -> Iterator[str]:
    """Yield what is wrong, each naming the settings."""
    yield from _quotas_nowhere(settings)
    for name, key in settings.api_keys.items():
        if key.team is not None and key.team not in settings.teams:
            yield f"api_keys: {name}: team: there is no {key.team} in teams"
    for place, entries in (("api_keys", settings.api_keys), ("teams", settings.teams)):
        for name, entry in entries.items():
            yield from _within(f"{place}: {name}", entry)
    if 0 < settings.tokens_per_month < settings.tokens_per_day:
        yield "tokens_per_day is more than tokens_per_month"


def _quotas_nowhere(settings: Settings) -> Iterator[str]:
    if not has_quotas(settings):
        return
    if not settings.identifies_clients:
        sources = "api_keys, jwt or trusted_proxy"
        yield f"tokens_per_day, tokens_per_month and those of teams need {sources}: a quota belongs to somebody who has a name"
    if settings.store == "none" and settings.events == "store":
        yield "tokens_per_day and tokens_per_month need a store, or Redis in events: there the tokens are counted"


def _within(place: str, entry: Limited) -> Iterator[str]:
    for hard, soft in QUOTA_SETTINGS.items():
        most = getattr(entry, hard)
        if most and (getattr(entry, soft) or 0) > most:
            yield f"{place}: {soft} is more than {hard}: it would never warn"
    if entry.tokens_per_month and (entry.tokens_per_day or 0) > entry.tokens_per_month:
        yield f"{place}: tokens_per_day is more than tokens_per_month"
