"""The name of a rollout: behind the client's key (`KEY:ROLLOUT`), in the path, or in a header, in this order."""

from __future__ import annotations

import re
from collections.abc import Mapping

from responses_gateway.wire.errors import invalid_request

ROLLOUT_HEADER = "X-Rollout-Id"
# Asks for a rollout whose prompts are ids of tokens.
TOKEN_TRUE_HEADER = "X-Token-True"
# As NeMo Gym has them, and short enough for a line of the log.
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,127}")


def rollout_name(name: str) -> str:
    """Return a name that a rollout may have. Raise `ApiError` 400 for any other."""
    if _NAME.fullmatch(name) is None:
        message = "The id of a rollout has at most 128 letters, digits and . _ -, and begins with a letter or a digit."
        raise invalid_request(message, "rollout", "invalid_rollout_id")
    return name


def divided(key: str) -> tuple[str, str | None]:
    """Return a client's key, and the rollout that is named behind it. Raise `ApiError` 400."""
    own, colon, name = key.rpartition(":")
    return (own, rollout_name(name)) if colon and own else (key, None)


def named_rollout(headers: Mapping[str, str]) -> str | None:
    """Return the rollout that the headers of a request name; None if they name none. Raise `ApiError` 400."""
    name = headers.get(ROLLOUT_HEADER)
    return None if name is None else rollout_name(name)
