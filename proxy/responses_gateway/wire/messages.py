"""Decode and check the body of `POST /v1/messages`, without translating it; errors as this protocol words them.

As with Responses, parameters are typed here, while messages, tools and the like stay plain dicts that the translation checks
(`request/messages/`). The shapes are those of Anthropic's SDK 2.12: `MessageCreateParams`, `ErrorResponse`."""

from __future__ import annotations

import base64
import re
from collections.abc import Collection, Mapping, Sequence
from typing import Annotated, Any, Literal, TypeAlias

import msgspec
from pydantic import BaseModel, ConfigDict, Field, ValidationError

from responses_gateway.wire.context_overflow import number_in
from responses_gateway.wire.errors import ApiError, invalid_request
from responses_gateway.wire.requests import (
    MAX_FIELDS,
    ModelName,
    Open,
    Probability,
    Temperature,
    continued_fields,
    read_object,
    refusal,
    refuse_many,
)

# The most stop sequences of a request: each costs time at every token.
_MAX_STOPS = 64
_REQUIRED = ("model", "messages", "max_tokens")


class MessagesRequest(BaseModel):
    """Every parameter of the Messages API that means something here. None means absent or null. Other fields are kept in
    `model_extra`: new ones come every month, and a client must not be refused for them."""

    model_config = ConfigDict(extra="allow", strict=True)

    model: ModelName
    messages: list[Any]
    max_tokens: Annotated[int, Field(ge=0)] | None = None
    system: Any = None
    stop_sequences: Annotated[list[str], Field(max_length=_MAX_STOPS)] | None = None
    stream: bool | None = None

    tools: list[Any] | None = None
    tool_choice: Open | None = None
    thinking: Open | None = None
    output_config: Open | None = None
    output_format: Open | None = None

    temperature: Temperature | None = None
    top_p: Probability | None = None
    top_k: Annotated[int, Field(ge=0)] | None = None

    metadata: Open | None = None
    context_management: Open | None = None
    mcp_servers: list[Any] | None = None
    container: Any = None
    compaction: Any = None
    thread: Any = None


def parse_messages(body: bytes, *, counts: bool = False) -> MessagesRequest:
    """Decode and check a body; `counts`: it is only to be counted, so that `max_tokens` may be absent. Raise `ApiError` 400,
    which names the field (`param`), whatever the body contains, and 413 for too many values."""
    return _checked(read_object(body), ("model", "messages") if counts else _REQUIRED)


def parse_continued_messages(
    new: dict[str, Any], known: Mapping[str, Any], mark: str, messages: Sequence[Any]
) -> MessagesRequest | None:
    """Do as `parse_messages` with the fields of a body, of which only the `new` ones were not checked before. `mark` stands for
    the first messages, which were read before: None if the messages do not begin with it. Raise `ApiError` 400."""
    fields = continued_fields(new, known, mark, "messages", messages)
    return None if fields is None else _checked(fields, _REQUIRED)


def _checked(fields: dict[str, Any], required: Collection[str]) -> MessagesRequest:
    if len(fields) > MAX_FIELDS:
        refuse_many(fields, "")
    for name in required:
        if name not in fields or fields[name] is None:
            raise invalid_request(f"{name}: Field required", name, "missing_required_parameter")
    try:
        return MessagesRequest.model_validate(fields)
    except ValidationError as error:
        raise refusal(error) from None


# ---- what a server wants back ------------------------------------------------------------------------------------------

# The signature of a thought. Clients send it back, and some take a thought without one for broken. Details that a server wants
# back stand behind it.
SIGNATURE = "responses-gateway"
# How a thought is shown; `empty` is a block without its text, and what is `hidden` becomes the text of an answer without any.
Thinking: TypeAlias = Literal["shown", "empty", "hidden"]


def signed(signature: str, details: str) -> str:
    """Return the signature of a thought with these details, a JSON list or nothing: clients send it back as it came. A JSON
    object is the `extra_content` of calls, by their ids."""
    return f"{signature}.{base64.urlsafe_b64encode(details.encode('utf-8', 'replace')).decode()}" if details else signature


def details_in(signature: Any) -> dict[str, Any]:
    """Return what is in a signature as members of an item of reasoning; none if it is somebody else's."""
    if not isinstance(signature, str) or not signature.startswith(f"{SIGNATURE}."):
        return {}
    try:
        details = msgspec.json.decode(base64.urlsafe_b64decode(signature.removeprefix(f"{SIGNATURE}.")))
    except (ValueError, RecursionError):
        return {}
    return {"reasoning_details" if isinstance(details, list) else "extra_content": details}


# ---- errors ------------------------------------------------------------------------------------------------------------

# The status of an error -> the status and the type that a client of this protocol gets. Claude Code and the SDKs repeat a
# request after 529 as after any other failure of a server, and tell the user that the server is busy.
_TYPES = {
    400: (400, "invalid_request_error"),
    401: (401, "authentication_error"),
    402: (402, "billing_error"),
    403: (403, "permission_error"),
    404: (404, "not_found_error"),
    413: (413, "request_too_large"),
    429: (429, "rate_limit_error"),
    500: (500, "api_error"),
    503: (529, "overloaded_error"),
    504: (504, "timeout_error"),
    529: (529, "overloaded_error"),
}
# Fields of a Responses request that servers' errors are given -> those of this protocol.
FIELDS = {"max_output_tokens": "max_tokens", "reasoning.effort": "output_config.effort", "text.format": "output_config.format"}
# The code of the error for a request whose conversation the server was to keep. Anthropic's SDKs know it by these details, and
# send the whole conversation from then on.
UNTHREADED = "thread_unsupported_request"
_DETAILS = {UNTHREADED: {"error_code": UNTHREADED, "unsupported": ["thread"]}}
_NAMED = re.compile("|".join(rf"\b{re.escape(name)}\b" for name in FIELDS))
# Numbers in the words of servers about a full context: the window, the prompt, and the tokens that were asked for.
_WINDOW = re.compile(
    r"(?:context|model) (?:length|size|window)\D{0,20}?(\d+)|maximum (?:allowed length|input length|number of tokens allowed)"
    r"\D{0,10}?(\d+)|\bmust be <= (\d+)|less than (\d+) tokens|(?:\d|tokens) > (\d+)(?: max|,)",
    re.IGNORECASE,
)
_PROMPT = re.compile(
    r"(\d+) (?:input|prompt) tokens|(\d+) (?:tokens )?(?:in|from) the (?:input )?(?:messages|prompt)|too long: (\d+)"
    r"|messages resulted in (\d+)|(?:request|input|length|prompt) \((?:length )?(\d+)|(?:\bGiven:|You sent) (\d+)|: (\d+) \+",
    re.IGNORECASE,
)
_ASKED = re.compile(
    r"(\d+) (?:tokens )?(?:in|for) the (?:completion|output)|(\d+) (?:output|completion) tokens|too large: (\d+)"
    r"|\bGiven: \d+ (?:\W?inputs?\W? tokens )?and (\d+)|\d \+ (\d+) >",
    re.IGNORECASE,
)
# The last two together, where the prompt is told in parts.
_BOTH = re.compile(r"\brequested (?:about |a total of )?(\d+) tokens", re.IGNORECASE)


def for_client(error: ApiError) -> ApiError:
    """Return an error in the words of this protocol, as far as they do not depend on where the parts of the request stand. A
    key that a backend refuses is not the client's, and clients would ask for another one if it refuses who asks."""
    if not error.quoted:
        return error
    if error.type == "permission_error":
        words = f"The backend refuses such requests (HTTP 403): {error.message}"
        return ApiError(502, words, type="server_error", code="server_error", quoted=True, final=True)
    if error.status in (401, 403):
        return key_refused(error.status)
    renamed = error.copy()
    renamed.message = _NAMED.sub(lambda match: FIELDS[match[0]], error.message)
    if error.param is not None:
        renamed.param = FIELDS.get(error.param, error.param)
    return renamed


def error_of(error: ApiError) -> tuple[int, str, str]:
    """Return the status, the type and the message of an error in this protocol. A backend that cannot be reached is like one
    that is busy: clients of this protocol wait for it."""
    http_status = 503 if error.status == 502 and error.reason is not None else error.status
    http_status = 413 if error.code == "request_too_large" else http_status
    status, kind = _TYPES.get(http_status, (http_status, "invalid_request_error" if http_status < 500 else "api_error"))
    if error.code == "context_length_exceeded" or (error.quoted and error.status == 400 and _is_sum(error.message)):
        return status, kind, full_context(error.message)
    named = error.param is None or error.status != 400 or error.param in error.message
    return status, kind, error.message if named else f"{error.param}: {error.message}"


def key_refused(status: int) -> ApiError:
    """Return the error (502) for a backend that answers 401 or 403. As a 401 it would question the client's key for the
    gateway, and Claude Code would ask for another one."""
    words = f"The backend refused the key that it was given (HTTP {status}): the gateway's, or one that the gateway passes on."
    return ApiError(502, words, type="server_error", code="server_error", final=True)


def error_body(error: ApiError, request_id: str | None) -> dict[str, Any]:
    """Return the JSON body of an error, which is also the data of an `error` event."""
    _, kind, message = error_of(error)
    body: dict[str, Any] = {"type": "error", "error": {"type": kind, "message": message}}
    if error.code in _DETAILS:
        body["error"]["details"] = _DETAILS[error.code]
    return body if request_id is None else {**body, "request_id": request_id}


def full_context(message: str) -> str:
    """Return the message of a server about a full context in the words that clients of this protocol act on: at some Claude
    Code compacts the conversation, at others it asks for fewer tokens."""
    window, prompt, output = _numbers_in(message)
    if window is None or prompt is None:
        return f"prompt is too long: {message}"
    if prompt < window and output is not None:
        sum_of_both = f"{prompt} + {output} > {window}"
        advice = "decrease input length or `max_tokens` and try again"
        return f"input length and `max_tokens` exceed context limit: {sum_of_both}, {advice}"
    return f"prompt is too long: {prompt} tokens > {window} maximum"


def _is_sum(message: str) -> bool:
    """Tell whether a server says that the prompt fits, but not together with the output that was asked for. Clients of this
    protocol ask for less then, also where that alone would fill the context."""
    window, prompt, output = _numbers_in(message)
    return window is not None and prompt is not None and output is not None and prompt < window < prompt + output


def _numbers_in(message: str) -> tuple[int | None, int | None, int | None]:
    """Return the tokens of the window, those of the prompt, and those that were asked for; None for what is not told."""
    output = number_in(_ASKED, message)
    both = number_in(_BOTH, message)
    rest = None if output is None or both is None else both - output
    return number_in(_WINDOW, message), rest or number_in(_PROMPT, message), output
