"""Parameters that need stored responses, conversations or prompts. Ignoring them would answer another question."""

from __future__ import annotations

from proxy.wire.errors import invalid_request
from proxy.wire.requests import ResponsesRequest

_MESSAGE = "'{}' is not supported by this gateway configuration."


def refuse_unavailable(request: ResponsesRequest) -> None:
    """Raises `ApiError` 400 for a request that cannot be answered without a store."""
    if request.previous_response_id is not None:
        message = f"{_MESSAGE.format('previous_response_id')} Send the whole conversation as 'input'."
        raise invalid_request(message, "previous_response_id", "previous_response_not_found")
    for name in ("conversation", "prompt"):
        if getattr(request, name) is not None:
            raise invalid_request(_MESSAGE.format(name), name, "unsupported_parameter")
    if request.background:
        raise invalid_request(_MESSAGE.format("background"), "background", "unsupported_parameter")
