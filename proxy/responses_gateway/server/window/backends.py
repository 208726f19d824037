"""Backends in the window: health, load, results of probing, and the advice of `doctor`."""

from __future__ import annotations

import asyncio
from typing import Any

from responses_gateway.backend.member import Member, described
from responses_gateway.backend.pool import Pool
from responses_gateway.probing.autoconfiguration import Autoconfiguration
from responses_gateway.probing.diagnosis import findings, rows, server_name
from responses_gateway.probing.prober import probe
from responses_gateway.probing.profile import Profile
from responses_gateway.probing.recommend import recommended_settings


def backends(pool: Pool, configuration: Autoconfiguration) -> list[dict[str, Any]]:
    """Return all backends as this worker sees them, including those that are being removed."""
    now = asyncio.get_running_loop().time()
    members = [*pool.members.by_name.values(), *pool.members.leaving]
    return [_backend(member, now, configuration, leaving=member in pool.members.leaving) for member in members]


def merged_backends(views: list[list[dict[str, Any]]]) -> list[dict[str, Any]]:
    """Return one list for several workers: each backend with the load of all of them, and the worst state."""
    merged: dict[str, dict[str, Any]] = {}
    for backend in (backend for view in views for backend in view):
        known = merged.get(backend["name"])
        if known is None:
            merged[backend["name"]] = dict(backend)
            continue
        known["in_flight"] += backend["in_flight"]
        known["state"] = max(known["state"], backend["state"], key=("ready", "unhealthy", "draining").index)
        known["healthy"] = known["healthy"] and backend["healthy"]
        known["problem"] = known["problem"] or backend["problem"]
        known["breaker"] = max(known["breaker"], backend["breaker"], key=("closed", "half_open", "open").index)
        known["probed"] = known["probed"] or backend["probed"]
        known["adapted"] = known["adapted"] or backend["adapted"]
    return list(merged.values())


async def examine(member: Member) -> dict[str, Any]:
    """Examine a backend as `responses-gateway doctor` does. Raise `ApiError` if it cannot be examined."""
    profile = await probe(member.spec.url, api_key=member.spec.api_key)
    settings = recommended_settings(profile)
    return {
        "server": server_name(profile),
        "seconds": profile.times.seconds,
        "rows": [row._asdict() for row in rows(profile)],
        "findings": [finding._asdict() for finding in findings(profile)],
        "settings": {name: value for name, value in settings.items() if name != "backend"},
    }


def _backend(member: Member, now: float, configuration: Autoconfiguration, *, leaving: bool) -> dict[str, Any]:
    profile = configuration.profiles.get(str(member.backend.url))
    return {
        **described(member, now),
        "leaving": leaving,
        "probed": None if profile is None else _probed(profile),
        "adapted": configuration.taken,
    }


def _probed(profile: Profile) -> dict[str, Any]:
    """Return the results of the short probe at the start, which is too short to support advice."""
    return {
        "server": server_name(profile),
        "model": profile.model,
        "max_length": profile.max_length,
        "refusal": profile.refusal,
        "reasoning_field": profile.reasoning_field,
        "calls": profile.calls,
        "usage": profile.usage,
        "token_ids": profile.token_ids,
        "max_tokens_field": profile.max_tokens_field,
        "seconds": profile.times.seconds,
    }
