"""Refuse the requests that vLLM refuses, with the same messages (recorded from vLLM 0.32)."""

from __future__ import annotations

import json
from typing import Any

from responses_gateway.simulator.dialect import Dialect
from responses_gateway.simulator.errors import ErrorAnswer, context_overflow, vllm_error


def parsed_body(data: bytes, content_type: str) -> dict[str, Any]:
    """Return the JSON object of a request body. Raises `ErrorAnswer`."""
    if content_type != "application/json":
        message = "1 validation error:\n  Unsupported Media Type: Only 'application/json' is allowed"
        raise vllm_error(message, type="Bad Request")
    try:
        body = json.loads(data)
    except json.JSONDecodeError as error:
        details = {"input": "<dict of 0 items>", "ctx": {"error": error.msg}}
        raise _invalid("json_invalid", f"body.{error.pos}", "JSON decode error", **details) from None
    except (UnicodeDecodeError, RecursionError):
        raise _invalid("json_invalid", "body.0", "JSON decode error") from None
    if not isinstance(body, dict):
        raise _invalid("model_attributes_type", "body", "Input should be a valid dictionary or object to extract fields from")
    return body


# The fields of a chat request that strict servers know.
_OPENAI_FIELDS = frozenset({
    "messages", "model", "frequency_penalty", "logit_bias", "logprobs", "top_logprobs", "max_completion_tokens", "max_tokens",
    "metadata", "n", "parallel_tool_calls", "presence_penalty", "reasoning_effort", "response_format", "seed", "service_tier",
    "stop", "store", "stream", "stream_options", "temperature", "tool_choice", "tools", "top_p", "user", "verbosity",
})  # fmt: skip


def check_chat_request(body: dict[str, Any], dialect: Dialect, max_model_len: int) -> None:
    """Raise `ErrorAnswer` for what vLLM answers with 400; it accepts unknown fields, strict servers do not."""
    messages = body.get("messages")
    if messages is None:
        raise _invalid("missing", "body.messages", "Field required", input=f"<dict of {len(body)} items>")
    if not isinstance(messages, list) or not all(isinstance(message, dict) for message in messages):
        raise _invalid("list_type", "body.messages", "Input should be a valid list")
    if dialect.refuses_unknown_fields and (unknown := set(body) - _OPENAI_FIELDS):
        raise ErrorAnswer(422, {"detail": f"Unexpected fields in the request: {unknown}"})
    _check_sampling(body, max_model_len)
    if body.get("stream_options") and not body.get("stream"):
        raise vllm_error("Stream options can only be defined when `stream=True`.", param="stream_options")
    _check_tools(body, dialect)
    for message in messages:
        _check_history_arguments(message)


def check_prompt_length(prompt_tokens: int, dialect: Dialect, max_model_len: int) -> None:
    """Raise `ErrorAnswer` if the prompt fills the context."""
    if prompt_tokens >= max_model_len:
        raise context_overflow(dialect.shape.server, prompt_tokens, max_model_len)


def _check_sampling(body: dict[str, Any], max_model_len: int) -> None:
    temperature = body.get("temperature")
    if isinstance(temperature, int | float) and temperature < 0:
        value = float(temperature)
        message = f"temperature must be non-negative, got {value}. (parameter=temperature, value={value})"
        raise vllm_error(message, param="temperature")
    top_p = body.get("top_p")
    if isinstance(top_p, int | float) and not 0 < top_p <= 1:
        value = float(top_p)
        raise vllm_error(f"top_p must be in (0, 1], got {value}. (parameter=top_p, value={value})", param="top_p")
    for name in ("max_completion_tokens", "max_tokens"):
        limit = body.get(name)
        if not isinstance(limit, int):
            continue
        if limit < 1:
            message = f"max_tokens must be at least 1, got {limit}. (parameter=max_tokens, value={limit})"
            raise vllm_error(message, param="max_tokens")
        if limit > max_model_len:
            raise vllm_error(
                f"max_tokens={limit} cannot be greater than max_model_len={max_model_len}. Please request fewer output tokens. "
                f"(parameter=max_tokens, value={limit})",
                param="max_tokens",
            )


def _check_tools(body: dict[str, Any], dialect: Dialect) -> None:
    tools = body.get("tools")
    choice = body.get("tool_choice")
    for number, tool in enumerate(tools or ()):
        if not isinstance(tool, dict) or not isinstance(tool.get("function"), dict):
            summary = f"<dict of {len(tool)} items>" if isinstance(tool, dict) else repr(tool)
            raise _invalid("missing", f"body.tools.{number}.function", "Field required", input=summary)
    if choice not in (None, "none") and not tools:
        raise vllm_error("When using `tool_choice`, `tools` must be set. (parameter=tool_choice)", param="tool_choice")
    if not tools or dialect.parses_calls or choice == "none" or dialect.shape.server != "vllm":
        return
    if choice in (None, "auto"):
        raise vllm_error('"auto" tool choice requires --enable-auto-tool-choice and --tool-call-parser to be set')
    raise vllm_error(f"tool_choice={json.dumps(choice)} requires --tool-call-parser to be set")


def _check_history_arguments(message: dict[str, Any]) -> None:
    """Refuse invalid arguments in earlier calls, which vLLM parses for the chat template."""
    for call in message.get("tool_calls") or ():
        arguments = (call.get("function") or {}).get("arguments") if isinstance(call, dict) else None
        if not isinstance(arguments, str) or not arguments:
            continue
        try:
            json.loads(arguments)
        except json.JSONDecodeError as error:
            raise vllm_error(str(error)) from None


def _invalid(kind: str, place: str, message: str, **more: Any) -> ErrorAnswer:
    details = {"type": kind, "loc": place, "msg": message, **more}
    return vllm_error(f"1 validation error:\n  {details}", type="Bad Request", param=place)
