"""What a request wants to have moderated."""

from __future__ import annotations

from typing import Literal, NamedTuple

from responses_gateway.request.fields import Object, optional_object
from responses_gateway.wire.errors import invalid_request

Mode = Literal["score", "block"]

_UNAVAILABLE: Object = {"type": "error", "code": "moderation_unavailable", "message": "This gateway does not moderate."}
# `moderation` of a response where nothing moderates.
NO_MODERATION: Object = {"input": _UNAVAILABLE, "output": _UNAVAILABLE}


class Modes(NamedTuple):
    """What becomes of what is flagged: reported (`score`), or held back as well (`block`)."""

    input: Mode
    output: Mode


def read_modes(moderation: Object, *, may_block: bool) -> Modes:
    """Return the modes of a request's `moderation`. Raise `ApiError` 400 for those that are unknown or cannot be honoured."""
    policy = optional_object(moderation, "policy", "moderation") or {}
    return Modes(_mode(policy, "input", may_block=may_block), _mode(policy, "output", may_block=may_block))


def _mode(policy: Object, side: str, *, may_block: bool) -> Mode:
    rule = optional_object(policy, side, "moderation.policy") or {}
    mode = rule.get("mode")
    if mode in (None, "score"):
        return "score"
    param = f"moderation.policy.{side}.mode"
    if mode != "block":
        raise invalid_request(f"Invalid value for '{param}'. Supported values are: 'score', 'block'.", param, "invalid_value")
    if not may_block:
        message = f"'{param}' cannot be honoured: this gateway does not moderate. Only 'score' is accepted."
        raise invalid_request(message, param, "unsupported_value")
    return "block"
