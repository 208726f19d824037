"""Parameters that must not be ignored, since a client relies on their effect: answered with an error 400."""

from __future__ import annotations

from responses_gateway.request.fields import Object, optional_flag, optional_object, optional_text, quote
from responses_gateway.request.policy import Policy
from responses_gateway.wire.errors import invalid_request
from responses_gateway.wire.requests import ResponsesRequest

# The parameters that `refuse_unsupported` looks at.
CHECKED = ("background_options", "moderation", "multi_agent", "prompt_cache_options")
# Windows that a client cannot wait for on its connection.
_LONG_WINDOWS = ("2h", "8h")
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
    if request.background_options is not None and "background_options" not in policy.forward:
        _check_window(request, request.background_options)
    if request.prompt_cache_options is not None:
        optional_flag(request.prompt_cache_options, "prewarm", "prompt_cache_options")
        optional_text(request.prompt_cache_options, "comparison_response_id", "prompt_cache_options")


def moderation_result() -> Object:
    """Return `moderation` of the response, for a request that asks for it."""
    return {"input": _NO_MODERATION, "output": _NO_MODERATION}


def _check_window(request: ResponsesRequest, options: Object) -> None:
    """Refuse a window that is none, and one of hours for a response that somebody waits for."""
    param = "background_options.completion_window"
    window = optional_text(options, "completion_window", "background_options")
    if window not in (None, "soonest", *_LONG_WINDOWS):
        message = f"Invalid value: {quote(window)}. Supported values are: 'soonest', '2h', '8h'."
        raise invalid_request(message, param, "invalid_value")
    if window in _LONG_WINDOWS and (not request.background or request.stream):
        message = f"'{param}' of {quote(window)} needs 'background' and no 'stream'."
        raise invalid_request(message, param, "invalid_value")


def _refuse_blocking(moderation: Object) -> None:
    policy = optional_object(moderation, "policy", "moderation") or {}
    for side in ("input", "output"):
        rule = optional_object(policy, side, "moderation.policy") or {}
        if rule.get("mode") not in (None, "score"):
            param = f"moderation.policy.{side}.mode"
            message = f"'{param}' cannot be honoured: this gateway does not moderate. Only 'score' is accepted."
            raise invalid_request(message, param, "unsupported_value")
