"""Which models a client may use: those that the lists of its key and of its team have both. Others do not exist for it."""

from __future__ import annotations

import re
from functools import lru_cache

from aiohttp import web

from responses_gateway.server.access.api_keys import KEY_NAME, Allows, team_of
from responses_gateway.settings import Settings
from responses_gateway.wire.errors import unknown_model


def allowed_models(request: web.Request, settings: Settings) -> Allows | None:
    """Return what tells the models that the client of a request may use; None if it may use all."""
    name = request.get(KEY_NAME)
    if name is None:
        return None
    team = team_of(request, settings)
    entries = (settings.api_keys.get(name), settings.teams[team] if team is not None else None)
    lists = tuple(entry.models for entry in entries if entry is not None and entry.models is not None)
    return _matcher(lists) if lists else None


def check_model(allows: Allows | None, model: str) -> None:
    """Raise `ApiError` 404 for a model that the client may not use: the same answer as for one that nobody serves."""
    if allows is not None and not allows(model):
        raise unknown_model(model)


@lru_cache(maxsize=1024)
def _matcher(lists: tuple[tuple[str, ...], ...]) -> Allows:
    patterns = [re.compile("|".join(map(_pattern, names)), re.DOTALL) for names in lists]
    return lambda model: all(pattern.fullmatch(model) for pattern in patterns)


def _pattern(name: str) -> str:
    return ".*".join(map(re.escape, name.split("*")))
