"""A router in front of a pool of vLLM servers, such as llm-d's: many servers behind one URL.

What one request meets there says little about the next one, which may get another server. The router refuses with a reason in a
header, and may tell with a token which server it chose; a client that sends it back gets the same one. No I/O, no clock."""

from __future__ import annotations

import base64
import binascii
from collections.abc import Mapping

from responses_gateway.backend.policies.retry import UNCONNECTED, Reason
from responses_gateway.bounded_memory import BoundedDict
from responses_gateway.wire.errors import ApiError, server_error

REASON_HEADER = "x-llm-d-request-dropped-reason"
TOKEN_HEADER = "x-session-token"
# Headers that no server of a model has: llm-d's, those that the endpoint pickers of Gateway API's inference extension (with
# llm-d's) and of AIBrix leave in every answer.
TELLING_HEADERS = (REASON_HEADER, TOKEN_HEADER, "x-went-into-resp-headers", "x-went-into-req-headers")
# What other routers can be asked, below the root; a server of a model answers 404.
QUESTIONS = ("readiness", "engines")
# By these a router sends a request to the server that had the last one.
_SESSION_HEADERS = frozenset(
    {
        TOKEN_HEADER,
        "x-dynamo-session-id",
        "x-smg-routing-key",
        "x-session-id",
        "session-id",
        "session_id",
        "x-session-affinity",
        "x-claude-code-session-id",
    }
)
# Failures of the URL itself; all others are those of one server behind it.
OF_THE_URL: frozenset[Reason] = UNCONNECTED
# Failures after which the same URL may be asked again: another server will answer. Envoy says 503 where a connection breaks.
OF_ONE_SERVER: frozenset[Reason] = frozenset({"dropped", "broke", "status_502", "status_503"})
# How often an answer is continued through the same URL, and the seconds before each try, because until the router
# has noticed that a server is gone, it would choose that one again, which knows the beginning.
PAUSES = (0.2, 1.0, 3.0)
_RETRY_AFTER = 1.0  # seconds after which a refused client may ask again where the router does not say
# Characters of a session token that is kept, and the conversations that have one, those that were last answered.
_LONGEST_TOKEN = 512
_CONVERSATIONS = 10_000


def refusal(status: int, reason: str, retry_after: float | None) -> ApiError:
    """Return the error for a request that a router has refused, with its reason."""
    wait = _RETRY_AFTER if retry_after is None else retry_after
    message = f"The router in front of the models refused the request: {reason[:100]}."
    if status == 429:
        return ApiError(429, message, type="rate_limit_error", code="rate_limit_exceeded", retry_after=wait)
    error = server_error(message, 503 if status == 503 else 502)
    error.retry_after = wait
    return error


def identified_by(question: str, answer: object) -> bool:
    """Tell whether the answer to one of `QUESTIONS` is a router's: that of vllm-router and sglang-router to `readiness`, or
    production-stack's to `engines`."""
    if question == "readiness":
        return isinstance(answer, dict) and {"healthy_workers", "total_workers"} <= answer.keys()
    engines = answer if isinstance(answer, list) else []
    return any(isinstance(one, dict) and {"engine_id", "serving_models"} <= one.keys() for one in engines)


def pod_of(token: str) -> str:
    """Return the server that a token names; the token itself where it is none that can be read."""
    try:
        pod = base64.b64decode(token, validate=True).decode("ascii")
    except (binascii.Error, ValueError):
        return token
    return pod if pod.isprintable() else token


def without_session(headers: Mapping[str, str]) -> dict[str, str]:
    """Return the headers without those by which a request would go to the server that had the last one."""
    return {name: value for name, value in headers.items() if name.lower() not in _SESSION_HEADERS}


class SessionTokens:
    """The tokens of the conversations that used this process last."""

    def __init__(self) -> None:
        self._tokens: BoundedDict[tuple[str, str], str] = BoundedDict(_CONVERSATIONS)

    def headers(self, backend: str, conversation: str, headers: Mapping[str, str]) -> Mapping[str, str]:
        """Return the headers with the token of a conversation, if it has one."""
        token = self._tokens.get((backend, conversation)) if conversation else None
        return headers if token is None else {**headers, TOKEN_HEADER: token}

    def note(self, backend: str, conversation: str, token: str) -> None:
        """Keep the token of an answer for the next request of its conversation."""
        if not conversation or not token.isprintable() or len(token) > _LONGEST_TOKEN:
            return
        self._tokens[(backend, conversation)] = token
