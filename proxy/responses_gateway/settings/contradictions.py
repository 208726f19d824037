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
    yield from _unknown_clients(settings)
    if 0 < settings.tokens_per_month < settings.tokens_per_day:
        yield "tokens_per_day is more than tokens_per_month"


def _quotas_nowhere(settings: Settings) -> Iterator[str]:
    if not has_quotas(settings):
        return
    if not settings.identifies_clients:
        sources = "api_keys, jwt_issuer or proxy_name_header"
        yield f"tokens_per_day, tokens_per_month and those of teams need {sources}: a quota belongs to somebody who has a name"
    if settings.store == "none" and settings.events == "store":
        yield "tokens_per_day and tokens_per_month need a store, or Redis in events: there the tokens are counted"


def _unknown_clients(settings: Settings) -> Iterator[str]:
    if settings.jwt_issuer is not None and not settings.jwt_audience:
        yield "jwt_issuer needs jwt_audience: without it, a token for any other service of the issuer would be accepted"
    if settings.jwt_issuer is None and settings.jwt_audience:
        yield "jwt_audience needs jwt_issuer"
    trusts = bool(settings.proxy_addresses) or settings.proxy_secret is not None
    if settings.proxy_name_header is not None and not trusts:
        yield "proxy_name_header needs proxy_addresses or proxy_secret: any client could send the header"
    if settings.proxy_name_header is None and (trusts or settings.proxy_groups_header is not None):
        yield "proxy_addresses, proxy_secret and proxy_groups_header need proxy_name_header"


def _within(place: str, entry: Limited) -> Iterator[str]:
    for hard, soft in QUOTA_SETTINGS.items():
        most = getattr(entry, hard)
        if most and (getattr(entry, soft) or 0) > most:
            yield f"{place}: {soft} is more than {hard}: it would never warn"
    if entry.tokens_per_month and (entry.tokens_per_day or 0) > entry.tokens_per_month:
        yield f"{place}: tokens_per_day is more than tokens_per_month"
