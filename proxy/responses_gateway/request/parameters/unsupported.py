"""Parameters that must not be ignored, since a client relies on their effect: answered with an error 400."""

from __future__ import annotations

from responses_gateway.request.fields import Object, optional_flag, optional_object, optional_text
from responses_gateway.request.policy import Policy
from responses_gateway.wire.errors import invalid_request
from responses_gateway.wire.requests import ResponsesRequest

# What `moderation` is answered with where nothing moderates.
_NO_MODERATION: Object = {"type": "error", "code": "moderation_unavailable", "message": "This gateway does not moderate."}


def refuse_unsupported(request: ResponsesRequest, policy: Policy) -> None:
    """Raise `ApiError` 400 for a moderation that is to block, and for several agents; and for fields of the wrong type in
    parameters that are read here."""
    if request.moderation is not None and "moderation" not in policy.forward:
        _refuse_blocking(request.moderation)
    if request.multi_agent is not None and optional_flag(request.multi_agent, "enabled", "multi_agent"):
        message = "Several agents are not supported by this gateway: have the client run them."
        raise invalid_request(message, "multi_agent", "unsupported_value")
    if request.prompt_cache_options is not None:
        optional_flag(request.prompt_cache_options, "prewarm", "prompt_cache_options")
        optional_text(request.prompt_cache_options, "comparison_response_id", "prompt_cache_options")


def moderation_result() -> Object:
    """Return `moderation` of the response, for a request that asks for it."""
    return {"input": _NO_MODERATION, "output": _NO_MODERATION}


def _refuse_blocking(moderation: Object) -> None:
    policy = optional_object(moderation, "policy", "moderation") or {}
    for side in ("input", "output"):
        rule = optional_object(policy, side, "moderation.policy") or {}
        if rule.get("mode") not in (None, "score"):
            param = f"moderation.policy.{side}.mode"
            message = f"'{param}' cannot be honoured: this gateway does not moderate. Only 'score' is accepted."
            raise invalid_request(message, param, "unsupported_value")
