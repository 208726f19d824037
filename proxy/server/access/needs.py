"""What handlers declare that a request needs: a key, a reservation of its client's limits."""

from __future__ import annotations

from collections.abc import Callable
from enum import Flag, auto
from typing import TypeVar

_H = TypeVar("_H", bound=Callable[..., object])
_ATTRIBUTE = "access_needs"


class Needs(Flag):
    """What a request needs before its handler runs. Handlers that declare nothing need a key."""

    NOTHING = 0
    KEY = auto()
    KEY_IF_METRICS_DO = auto()  # unless the settings leave metrics open
    RESERVATION = auto()  # it makes the backend work


def needs(what: Needs) -> Callable[[_H], _H]:
    """Declare what requests for a handler need."""

    def declare(handler: _H) -> _H:
        setattr(handler, _ATTRIBUTE, what)
        return handler

    return declare


def needs_of(handler: object) -> Needs:
    """Return what a handler has declared."""
    found: Needs = getattr(handler, _ATTRIBUTE, Needs.KEY)
    return found
