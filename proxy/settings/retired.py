"""Settings of earlier versions. A configuration of last year is told what to write today, whatever it is that changed."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import NamedTuple


class Renamed(NamedTuple):
    """A setting that has another name since a version."""

    to: str
    since: str


class Removed(NamedTuple):
    """A setting that is gone since a version, and what to do without it: a sentence."""

    since: str
    advice: str


#: Name of old -> what became of it. Entries stay for ever: `tests/released_settings.txt` has every name that was released.
RETIRED: dict[str, Renamed | Removed] = {}


def what_became_of(name: str, known: Iterable[str], retired: Mapping[str, Renamed | Removed] = RETIRED) -> str | None:
    """A sentence about a setting of an earlier version; None for a name that never was. `known` are the settings of today."""
    found = retired.get(name)
    if found is None or name in known:
        return None
    if isinstance(found, Removed):
        return f"`{name}` was removed in {found.since}: {found.advice}"
    return f"`{name}` was renamed `{found.to}` in {found.since}"
