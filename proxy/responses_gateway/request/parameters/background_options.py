"""`background_options`: for how long a background response may wait, and which ones continue each other."""

from __future__ import annotations

from responses_gateway.request.fields import Object, optional_text, quote
from responses_gateway.wire.errors import invalid_request
from responses_gateway.wire.requests import ResponsesRequest

# Windows that a client cannot wait for on its connection, in seconds.
LONG_WINDOWS = {"2h": 7200.0, "8h": 28_800.0}
_LONGEST_ID = 512  # in characters


def long_window(request: ResponsesRequest) -> str | None:
    """Return the window of hours that a response may wait for; None if it may not wait."""
    options = request.background_options
    window = options.get("completion_window") if options is not None and request.background else None
    return window if isinstance(window, str) and window in LONG_WINDOWS else None


def check_background_options(request: ResponsesRequest, options: Object) -> None:
    """Raise `ApiError` 400 for what is no window, and one of hours for a response that is waited for, or of another tier."""
    param = "background_options.completion_window"
    window = optional_text(options, "completion_window", "background_options")
    if window not in (None, "soonest", *LONG_WINDOWS):
        message = f"Invalid value: {quote(window)}. Supported values are: 'soonest', '2h', '8h'."
        raise invalid_request(message, param, "invalid_value")
    if window in LONG_WINDOWS and (not request.background or request.stream):
        message = f"'{param}' of {quote(window)} needs 'background' and no 'stream'."
        raise invalid_request(message, param, "invalid_value")
    if window in LONG_WINDOWS and request.service_tier not in (None, "auto", "default"):
        message = f"'{param}' of {quote(window)} needs the standard 'service_tier'."
        raise invalid_request(message, "service_tier", "invalid_value")
    continuation = optional_text(options, "continuation_id", "background_options")
    if continuation is not None and len(continuation) > _LONGEST_ID:
        message = f"'background_options.continuation_id' may have at most {_LONGEST_ID} characters."
        raise invalid_request(message, "background_options.continuation_id", "invalid_value")
