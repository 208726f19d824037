"""The ids of items that the gateway makes: unique, and the same in one part for all items of one turn of the model.

A response with hosted tools takes several turns of the model. Later each of them has to be one message again, as it was when it
was made: for the model, which may have called several tools at once, and for the prefix cache of its server. A client without
stored responses sends nothing back but the items, so their ids have to name the turn."""

from __future__ import annotations

import re
from typing import TypeAlias

# A response, and a turn of the model in it; nothing else is to be read out of it.
TurnKey: TypeAlias = str

# The end of the ids of items that the gateway puts before the first turn of the model.
BEFORE_THE_MODEL = "00"

# A type of item, the token of the response, the place of the item in its output, the mark of the turn.
_ITEM_ID = re.compile(r"[a-z]{2,5}_([0-9a-f]{32})[0-9a-f]{4}([0-9a-f]{2})?")


def turn_mark(turn: int) -> str:
    """Return how the ids of the items of a turn end; `""` for the first one of the model."""
    return "" if turn == 1 else f"{turn & 0xFF:02x}"


def turn_of(item_id: object) -> TurnKey | None:
    """Return the turn of the response that an item belongs to; None if its id names none."""
    if item_id is None or not isinstance(item_id, str):
        return None
    match = _ITEM_ID.fullmatch(item_id)
    return None if match is None else f"{match[1]}{match[2] or ''}"
