"""The error object of the Responses API, as an exception that any package may raise; chat servers' errors are converted to it.

`error_reasons.py` finds what a server says. Only that is passed to the client, not the headers or anything else."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from http import HTTPStatus
from typing import Any

from responses_gateway.wire.context_overflow import names_overflow, says_overflow
from responses_gateway.wire.error_reasons import Reason, reason_in, reason_in_body

_QUOTA = 402  # what is used up or owed
_OVERLOADED = 529  # what servers answer that have no capacity left, as Anthropic's does
# The statuses that codes and types mean, in small letters.
_STATUSES: dict[str, int] = {
    **dict.fromkeys(("insufficient_quota", "exceeded_current_quota_error", "insufficient_balance", "quota_exceeded"), _QUOTA),
    # LiteLLM, DashScope, Volcengine.
    **dict.fromkeys(("budget_exceeded", "arrearage", "allocationquota.freetieronly", "accountoverdueerror"), _QUOTA),
    **dict.fromkeys(("rate_limit_exceeded", "rate_limit_error", "rate_limit_reached_error", "too_many_requests"), 429),
    **dict.fromkeys(("overloaded_error", "engine_overloaded_error", "server_overloaded", "overloaded"), _OVERLOADED),
    **dict.fromkeys(("authentication_error", "invalid_api_key", "unauthorized"), 401),
    **dict.fromkeys(("permission_error", "permission_denied"), 403),
    # The model has written no call, no JSON or no channels that Groq can read: asked again, it may.
    **dict.fromkeys(("tool_use_failed", "json_validate_failed", "output_parse_failed"), 502),
}
# Those that numbers mean: of MiniMax in `base_resp.status_code`, of z.ai in `code`.
_NUMBERS: dict[str, dict[int, int]] = {
    "status_code": {1001: 504, 1002: 429, 1004: 401, 1008: _QUOTA, 1026: 400, 1039: 429, 1041: 429, 1042: 400, 2013: 400,
                    2045: 429, 2049: 401, 2056: _QUOTA},
    "code": {**dict.fromkeys((1113, 1304, 1308, 1309, 1310, 1311), _QUOTA), **dict.fromkeys((1302, 1303, 1305), 429)},
}  # fmt: skip
# A server, or a proxy in front of it, gave up, or has no capacity left (Groq): the request is not wrong.
_TIMES = {408: 504, 498: 503, 499: 504}
# Statuses of something else, whatever is said with them: keys, payment, places, time, and limits of time.
_OTHER_STATUSES = frozenset({401, 402, 403, 404, 405, 408, 429, 504, _OVERLOADED})

# OpenAI's words, because GitHub Copilot's CLI compacts at these, and does not read the code.
_OVERFLOW = "Your input exceeds the context window of this model."
# A request that cannot succeed, where a server answers 500 (llama-cpp-python, llama.cpp): clients would repeat it.
_INVALID_REQUEST = re.compile(r"\d+ validation errors?:|(?:image|audio) input is not supported\b|Failed to parse messages:")
# A refusal of one of the headers that the gateway sends on its own: FastAPI's place of it, or its name.
_OWN_HEADER = r"\b(?:x-request-id|traceparent|tracestate)\b"
_REFUSED_HEADER = re.compile(
    rf"""["']loc["']: ?[\[(]["']header["']|\bheaders?\b.{{0,80}}{_OWN_HEADER}|{_OWN_HEADER}.{{0,80}}\bheaders?\b""",
    re.IGNORECASE,
)
# What servers, and gateways before them, answer that have no such path.
_NO_ENDPOINT = re.compile(
    r"not ?found|(?:404 )?(?:page|file|path|route|resource|url|endpoint) not ?found\W*$|cannot post "
    r"|(?:no|no such|unknown|invalid|unexpected|unsupported|unrecognized) (?:request )?(?:url|path|route|endpoint)\b"
    r"|the requested (?:url|path|route|endpoint|resource)\b",
    re.IGNORECASE,
)

# What a 403 is about if not the key: words of the request, what is used up, the model; who asks, or from where.
_NO_KEY = r"(?is)\A(?!.*\b(?:keys?|tokens?|credentials?|authenticat|authorization|log ?in|secret|password))"
_USED_UP = r"(?is)\A(?!.*\b(?:min|minutes?|seconds?)\b).*\b(?:credits?|balance|budget|(?:usage|spending|key) limit)\b"
_SUBJECTS = {
    400: r"(?i)\b(?:input|prompt|content|request)\b.{0,40}\b(?:flagged|violates|blocked)\b|\bcontent policy\b|\bsafety\b",
    _QUOTA: rf"{_USED_UP}|\bquota\b",
    404: rf"{_NO_KEY}.*\bmodel\b",
}
_PLACES = r"country|region|location|network|firewall|account|project|plan|subscription|disabled|available for|not allowed"

_SEARCHED = 16 * 1024  # bytes of a refusal that are searched
# What is told of the time to wait, where no header tells it: "Please retry in 33.1s." (Google), "try again after 5 seconds".
_WAIT = re.compile(r"\b(?:retry|try again) (?:in|after) (\d{1,4}(?:\.\d{1,9})?) ?s(?:ec|econds?)?\b", re.IGNORECASE)

# What vLLM writes when its engine has died, the last one since 0.33, where nothing else is told so; mlx_lm.server, with a 404.
_DEAD_ENGINE = re.compile(
    r"Engine(?:Core encountered an issue|Dead)|The server had an error while processing your request\.$|generation thread died$"
)

# Fields of a chat request that the gateway fills from parameters of another name. Clients cannot send these themselves.
_CLIENT_NAMES = {
    **dict.fromkeys(("max_tokens", "max_completion_tokens", "max_new_tokens"), "max_output_tokens"),
    "response_format": "text.format",
    "reasoning_effort": "reasoning.effort",
    "verbosity": "text.verbosity",
    "messages": "input",
    "logprobs": "include",
}
# What the API of the client does not nest: the declaration of a function, and a schema.
_NESTING = re.compile(r"\b(tools(?:\[\d+\]|\.\d+))\.function(?=\.)|\b(response_format)\.json_schema(?=\.)")
# Those that are no words of English, so that they mean the field wherever they stand.
_FIELD_NAMES = re.compile(r"\b(?:max_(?:completion_|new_)?tokens|response_format|reasoning_effort)\b")


class ApiError(Exception):
    """An error as the client will see it: HTTP status and the four fields of OpenAI's error object. `code` is a string or None,
    never a number (the SDKs' models require it). `retry_after` is in seconds. `quoted`: message and `param` come from a backend
    and may repeat parts of the request. `final`: the same request would fail again; SDKs, which repeat some, are told not to.

    Raise an error where it is made, not from a variable that holds it: the frame would keep the error, and the error the frame
    with the request in it, until the collector of cycles comes."""

    def __init__(
        self,
        status: int,
        message: str,
        *,
        type: str = "invalid_request_error",
        code: str | None = None,
        param: str | None = None,
        retry_after: float | None = None,
        quoted: bool = False,
        final: bool = False,
    ) -> None:
        super().__init__(message)
        self.status = status
        self.message = message
        self.type = type
        self.code = code
        self.param = param
        self.retry_after = retry_after
        self.quoted = quoted
        self.final = final
        self.reason: str | None = None  # for logs and metrics: why a backend could not be reached

    @property
    def retry_header(self) -> str | None:
        """The value of `Retry-After`, in whole seconds, if it is known when to try again."""
        return None if self.retry_after is None else str(math.ceil(self.retry_after))

    def of_gateway_key(self) -> ApiError:
        """Return the error for a request that had the gateway's own key, or none: `gateway_key_refused` if that is why."""
        return gateway_key_refused(self.status) if self.type == "authentication_error" else self

    def copy(self) -> ApiError:
        """Return the same error without its traceback, whose frames would keep the whole request in memory."""
        copied = ApiError(self.status, self.message)
        copied.__dict__.update(self.__dict__)
        return copied

    def body(self) -> dict[str, Any]:
        """Return the JSON body: `{"error": {"message", "type", "param", "code"}}`."""
        return {"error": {"message": self.message, "type": self.type, "param": self.param, "code": self.code}}


def forget_frames(error: BaseException) -> None:
    """Let go of the frames that an error, and those that led to it, have passed. Where a variable of such a frame keeps the
    error, they would keep each other, and the request, until the collector of cycles comes."""
    passed: BaseException | None = error
    while passed is not None:
        passed.__traceback__ = None
        passed = passed.__context__


def invalid_request(message: str, param: str | None = None, code: str | None = None) -> ApiError:
    """Return a 400: the request itself is wrong; `param` names the field (e.g. `input[3].output`)."""
    return ApiError(400, message, param=param, code=code)


def unknown_model(name: str) -> ApiError:
    """Return a 404 for a model that does not exist, or not for this client."""
    return ApiError(404, f"The model `{name[:200]}` does not exist.", param="model", code="model_not_found")


def server_error(message: str, status: int = 502) -> ApiError:
    """Return the error for a failure of the backend or of the gateway: 502 by default; clients may retry."""
    return ApiError(status, message, type="server_error", code="server_error")


def read_error(status: int, body: bytes, retry_after: float | None = None) -> ApiError:
    """Return the error for a refused chat request, given its status and body (possibly empty or HTML)."""
    return _classify(status, reason_in_body(body), retry_after)


def chat_refused(status: int, body: bytes, retry_after: float | None = None) -> ApiError:
    """Return the error for the refusal of a request that was sent with POST, given its status and body: like `read_error`, but
    a server that has something else at this path is a wrong URL."""
    return _no_endpoint(status) if status == HTTPStatus.METHOD_NOT_ALLOWED else read_error(status, body, retry_after)


def searched_text(refusal: bytes) -> str:
    """Return what is searched of the body of a refused request: one that quotes the whole request would hold up all streams."""
    return refusal[:_SEARCHED].decode("utf-8", "replace")


def gateway_key_refused(status: int) -> ApiError:
    """Return the error (502) for a backend that answered 401 or 403 to the gateway's own key, or to none, be it in
    the place of an answer. A 401 would question the key of the client, which was not sent."""
    operator = "The operator of the gateway has to set backend_api_key."
    return server_error(f"The backend does not accept the gateway's own key (HTTP {status}). {operator}")


def in_client_terms(error: ApiError) -> ApiError:
    """Return a backend's error with the names of the client's parameters in place of the chat request's fields.

    Positions below `messages` are left out: items of the input become messages one by one only in simple cases."""
    if not error.quoted:
        return error
    translated = error.copy()
    translated.message = _FIELD_NAMES.sub(lambda match: _CLIENT_NAMES[match[0]], _NESTING.sub(r"\1\2", error.message))
    if error.code == "context_length_exceeded" and _OVERFLOW not in error.message:
        translated.message = f"{_OVERFLOW} {translated.message}"
    if error.param is not None:
        translated.param = _client_param(error.param)
    return translated


def _client_param(param: str) -> str | None:
    """Return the path of the client's parameter for a path in the chat request; None for a position in the body's text."""
    param = _NESTING.sub(r"\1\2", param.removeprefix("body."))
    if param == "body" or param.isdigit():
        return None
    name = re.split(r"[.\[]", param, maxsplit=1)[0]
    client_name = _CLIENT_NAMES.get(name, name)
    return client_name + param[len(name) :] if client_name in (name, "text.format") else client_name


def is_dead_engine(error: Any) -> bool:
    """Tell whether an error object in a stream means that vLLM's engine has died, whatever the request was."""
    return _DEAD_ENGINE.match(reason_in({"error": error}).words) is not None


def read_error_chunk(error: Any) -> ApiError:
    """Return the error for an error object in a stream; its code is used as the status if possible."""
    reason = reason_in({"error": error})
    codes = [_number(reason.kinds.get(name)) for name in ("code", "status_code")]
    return _classify(next((code for code in codes if 400 <= code < 600), 500), reason, None)


def status_in_place(error: ApiError) -> int:
    """Return the status of a refusal that came as an error in a stream: 500 if nothing tells whose fault it is."""
    return 500 if error.status == 502 else error.status


def unreadable_answer(body: bytes) -> ApiError:
    """Return the error for a whole answer that is no chat completion, with what it says instead."""
    reason = reason_in_body(body).text
    detail = "." if reason is None else f": {reason}"
    return server_error(f"The backend sent something that is not a chat completion chunk{detail}")


def _classify(status: int, reason: Reason, retry_after: float | None) -> ApiError:
    texts = {name: value for name, value in reason.kinds.items() if isinstance(value, str)}
    code, kind, param = map(texts.get, ("code", "type", "param"))
    message, has_message = _message_of(status, reason)
    if _is_overflow(status, code, kind, param, reason):
        return ApiError(400, message, code="context_length_exceeded", param="input", quoted=has_message)
    meant = _subject_of(_meant_status(status, reason.kinds), code, param, message)
    if meant in {_QUOTA, 429}:
        match = _WAIT.search(message) if retry_after is None else None
        wait = float(match[1]) if match else retry_after
        used_up = meant == _QUOTA or (wait is None and re.search(_USED_UP, message) is not None)
        name = "insufficient_quota" if used_up else "rate_limit_exceeded"
        too_much = status == HTTPStatus.REQUEST_ENTITY_TOO_LARGE  # more than a minute's limit in one request (Groq)
        final = wait is None and (used_up or too_much)
        return ApiError(429, message, type="rate_limit_error", code=name, retry_after=wait, quoted=has_message, final=final)
    if meant in {401, 403}:
        name = "invalid_api_key" if meant == 401 else "permission_denied"
        of_place = meant == 403 and re.search(rf"{_NO_KEY}.*\b(?:{_PLACES})\b", message)
        return ApiError(meant, message, type="permission_error" if of_place else "authentication_error", code=name, quoted=True)
    if (400 <= meant < 500 and not _DEAD_ENGINE.match(reason.words)) or (
        status == 500 and _INVALID_REQUEST.match(reason.words)
    ):
        return _refused(meant, message, param, reason)
    # 500 would make Codex hide the message; 502 tells that the backend failed.
    known = 503 if meant == _OVERLOADED else meant if meant in {502, 503, 504} else 502
    return ApiError(known, message, type="server_error", code="server_error", retry_after=retry_after, quoted=has_message)


def _meant_status(status: int, kinds: Mapping[str, Any]) -> int:
    """Return the status that says what an error is about. A limit, or what the model has written, counts whatever the status,
    which is 400, 403 or 413 at some servers; anything else only where that blames nobody, as of an error in a stream."""
    names = [name.lower() for name in (kinds.get("code"), kinds.get("type")) if isinstance(name, str)]
    meant = [_STATUSES[name] for name in names if name in _STATUSES]
    meant += [table.get(_number(kinds.get(kind)), status) for kind, table in _NUMBERS.items()]
    for blameless in (_QUOTA, 429, 502):
        if blameless in meant:
            return blameless
    return next((other for other in meant if other != status), status) if status >= 500 else _TIMES.get(status, status)


def _subject_of(status: int, code: str | None, param: str | None, message: str) -> int:
    """Return the status that says what a 401 or a 403 is about; its own if that is the key, or who asks, and any other one."""
    if status in {401, 403} and (param == "model" or code == "model_not_found"):  # LiteLLM, OpenAI
        return 404
    return next((meant for meant, words in _SUBJECTS.items() if status == 403 and re.search(words, message)), status)


def _number(value: Any) -> int:
    """Return the number that a code is, which may be a text; 0 for anything else."""
    return value if type(value) is int else int(value) if type(value) is str and re.fullmatch("[0-9]{1,5}", value) else 0


def _refused(status: int, message: str, param: str | None, reason: Reason) -> ApiError:
    """Return the error for a request that the backend does not take as it is."""
    text = reason.text or ""
    if status == 404 and (param == "model" or "model" in text.lower()):
        return ApiError(404, message, code="model_not_found", param="model", quoted=bool(text))
    if status == 404 and (not text or reason.plain or _NO_ENDPOINT.match(text)):
        return _no_endpoint(status)
    if status == 400 and not text:  # a server that reads the request says what is wrong with it
        message = "The backend refused the request without giving a reason (HTTP 400). Its log may have one."
        return ApiError(400, message, code="refused_without_reason", param=param)
    # What helps is less of it, but not fewer tokens: no overflow, at which clients would compact.
    if status == HTTPStatus.REQUEST_ENTITY_TOO_LARGE:
        plain = "The request body is larger than the backend, or a proxy in front of it, accepts (HTTP 413)."
        message = message if text and not reason.plain else plain
        return ApiError(400, message, code="request_too_large", param=param, quoted=bool(text))
    if status == 400 and _REFUSED_HEADER.search(message):
        return ApiError(502, message, type="server_error", code="server_error", quoted=True)
    # `invalid_prompt` makes Codex show the message and not retry.
    return ApiError(400, message, code="invalid_prompt", param=param, quoted=True)


def _no_endpoint(status: int) -> ApiError:
    # Not the client's fault, but that of the URL: operators are alerted to a failure, and no SDK asks again for nothing.
    message = f"The backend has no /chat/completions endpoint (HTTP {status}). The operator has to check the --backend URL."
    return ApiError(502, message, type="server_error", code="server_error", final=True)


def _message_of(status: int, reason: Reason) -> tuple[str, bool]:
    """Return what the client is told, and whether it has words of the backend."""
    unsaid = f"The backend answered with HTTP {status}"
    if reason.text is None:
        return f"{unsaid}.", False
    return (f"{unsaid}: {reason.text}" if reason.plain else reason.text), True


def _is_overflow(status: int, code: str | None, kind: str | None, param: str | None, reason: Reason) -> bool:
    named = any(names_overflow(name) for name in (code, kind) if name is not None)
    return named or (status not in _OTHER_STATUSES and (param == "input_tokens" or says_overflow(reason.words)))
