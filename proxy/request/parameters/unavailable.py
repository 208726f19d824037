"""Parameters that need stored responses, conversations or prompts. Ignoring them would answer another question."""

from __future__ import annotations

from proxy.request.policy import Policy
from proxy.wire.errors import invalid_request
from proxy.wire.requests import ResponsesRequest

_MESSAGE = "'{}' is not supported by this gateway configuration."


def refuse_unavailable(request: ResponsesRequest, policy: Policy) -> None:
    """Raises `ApiError` 400 for a request that cannot be answered without a store, or not by this gateway at all."""
    if request.prompt is not None:
        raise invalid_request(_MESSAGE.format("prompt"), "prompt", "unsupported_parameter")
    if policy.stores_responses:
        return
    if request.previous_response_id is not None:
        message = f"{_MESSAGE.format('previous_response_id')} Send the whole conversation as 'input'."
        raise invalid_request(message, "previous_response_id", "previous_response_not_found")
    if request.conversation is not None:
        raise invalid_request(_MESSAGE.format("conversation"), "conversation", "unsupported_parameter")
    if request.background:
        raise invalid_request(_MESSAGE.format("background"), "background", "unsupported_parameter")
