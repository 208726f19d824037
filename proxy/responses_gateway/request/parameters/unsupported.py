"""Parameters that must not be ignored, since a client relies on their effect: answered with an error 400."""

from __future__ import annotations

from responses_gateway.request.fields import optional_flag, optional_text
from responses_gateway.request.parameters.background_options import check_background_options
from responses_gateway.request.parameters.moderation import read_modes
from responses_gateway.request.policy import Policy
from responses_gateway.wire.errors import invalid_request
from responses_gateway.wire.requests import ResponsesRequest

# The parameters that `refuse_unsupported` looks at.
CHECKED = ("background_options", "moderation", "multi_agent", "prompt_cache_options")


def refuse_unsupported(request: ResponsesRequest, policy: Policy) -> None:
    """Raise `ApiError` 400 for a moderation that is to block without a guard model, and for several agents; and for fields of
    the wrong type in parameters that are read here."""
    if request.moderation is not None and "moderation" not in policy.forward:
        read_modes(request.moderation, may_block=policy.moderates)
    if request.multi_agent is not None and optional_flag(request.multi_agent, "enabled", "multi_agent"):
        message = "Several agents are not supported by this gateway: have the client run them."
        raise invalid_request(message, "multi_agent", "unsupported_value")
    if request.background_options is not None and "background_options" not in policy.forward:
        check_background_options(request, request.background_options)
    if request.prompt_cache_options is not None:
        optional_flag(request.prompt_cache_options, "prewarm", "prompt_cache_options")
        optional_text(request.prompt_cache_options, "comparison_response_id", "prompt_cache_options")
