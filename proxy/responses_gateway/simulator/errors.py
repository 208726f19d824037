"""Error answers, in the wording of several servers."""

from __future__ import annotations

from typing import Any

from responses_gateway.simulator.dialect import Server

# The servers whose wording is known.
WORDINGS: tuple[Server, ...] = ("vllm", "sglang", "llamacpp", "ollama", "openai")

_TYPES = {
    400: "BadRequestError",
    401: "AuthenticationError",
    403: "PermissionDeniedError",
    404: "NotFoundError",
    429: "RateLimitError",
}
_MESSAGES = {
    400: "The request is invalid.",
    401: "Unauthorized",
    403: "Forbidden",
    404: "Not found.",
    429: "Too many requests. Please slow down.",
    500: "Internal server error",
    502: "Bad gateway",
    503: "The server is overloaded. Please try again later.",
}


class ErrorAnswer(Exception):
    """An error answer to a request: HTTP status and JSON body."""

    def __init__(self, status: int, body: dict[str, Any], retry_after: str | None = None) -> None:
        super().__init__(str(body))
        self.status = status
        self.body = body
        self.retry_after = retry_after


def vllm_error(message: str, *, type: str = "BadRequestError", param: str | None = None, status: int = 400) -> ErrorAnswer:
    """Make an error answer like vLLM's, whose `code` is the status as a number."""
    return ErrorAnswer(status, {"error": {"message": message, "type": type, "param": param, "code": status}})


def status_error(server: Server, status: int, retry_after: str | None = None) -> ErrorAnswer:
    """Make the answer of a server of this kind that refuses a request with `status`."""
    message = _MESSAGES.get(status, "Internal server error")
    type_ = _TYPES.get(status, "InternalServerError")
    body: dict[str, Any] = {"error": {"message": message, "type": type_, "param": None, "code": status}}
    if server == "sglang":
        body = {"object": "error", "message": message, "type": type_, "param": None, "code": status}
    elif server == "llamacpp":
        kind = "unavailable_error" if status == 503 else "server_error"
        body = {"error": {"code": status, "message": message, "type": kind}}
    elif server == "ollama":
        body = {"error": {"message": message, "type": "api_error", "param": None, "code": None}}
    elif server == "openai":
        code = {401: "invalid_api_key", 404: "model_not_found", 429: "rate_limit_exceeded"}.get(status)
        type_ = "invalid_request_error" if status < 429 else "requests" if status == 429 else "server_error"
        body = {"error": {"message": message, "type": type_, "param": None, "code": code}}
    return ErrorAnswer(status, body, retry_after)


def context_overflow(server: Server, prompt_tokens: int, limit: int) -> ErrorAnswer:
    """Make the answer to a prompt that exceeds the context, as each server words it."""
    if server == "vllm":
        return vllm_error(
            f"This model's maximum context length is {limit} tokens. However, your prompt contains at least {limit + 1} input "
            "tokens, which exceeds this limit even without any output tokens. Please reduce the length of the input prompt. "
            f"(parameter=input_tokens, value={limit + 1})",
            param="input_tokens",
        )
    if server == "sglang":
        text = f"The input ({prompt_tokens} tokens) is longer than the model's context length ({limit} tokens)."
        return ErrorAnswer(400, {"object": "error", "message": text, "type": "BadRequestError", "param": None, "code": 400})
    if server == "llamacpp":
        text = f"request ({prompt_tokens} tokens) exceeds the available context size ({limit} tokens), try increasing it"
        sizes = {"n_prompt_tokens": prompt_tokens, "n_ctx": limit}
        error: dict[str, Any] = {"code": 400, "message": text, "type": "exceed_context_size_error", **sizes}
        return ErrorAnswer(400, {"error": error})
    if server == "ollama":
        text = "the input length exceeds the context length"
        return ErrorAnswer(400, {"error": {"message": text, "type": "api_error", "param": None, "code": None}})
    text = (
        f"This model's maximum context length is {limit} tokens. However, your messages resulted in {prompt_tokens} tokens. "
        "Please reduce the length of the messages."
    )
    error = {"message": text, "type": "invalid_request_error", "param": "messages", "code": "context_length_exceeded"}
    return ErrorAnswer(400, {"error": error})


def dead_engine() -> dict[str, Any]:
    """Return the error chunk that vLLM sends when its engine dies in the middle of a stream."""
    message = "EngineCore encountered an issue. See stack trace (above) for the root cause."
    return {"error": {"message": message, "type": "InternalServerError", "param": None, "code": 500}}
