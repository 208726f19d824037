"""The answer to a request without `stream`: one `chat.completion` object."""

from __future__ import annotations

from typing import Any

from proxy.simulator.chunks import Rendered
from proxy.simulator.frames import Stream, usage


def completion(rendered: Rendered, stream: Stream) -> dict[str, Any]:
    """Build the body; for vLLM with all the keys that it sends as null."""
    message = _message(rendered, stream)
    choice: dict[str, Any] = {"index": 0, "message": message, "logprobs": None, "finish_reason": rendered.finish_reason}
    body: dict[str, Any] = {
        "id": stream.id,
        "object": "chat.completion",
        "created": stream.created,
        "model": stream.model,
        "choices": [choice],
    }
    if stream.personality.shape.make != "vllm":
        return body | {"usage": usage(rendered, stream)}
    choice |= {"stop_reason": None, "token_ids": None, "routed_experts": None}
    return body | {
        "service_tier": None,
        "system_fingerprint": "vllm-0.32.0-simulator",
        "usage": usage(rendered, stream),
        "prompt_logprobs": None,
        "prompt_token_ids": None,
        "prompt_text": None,
        "kv_transfer_params": None,
        "ec_transfer_params": None,
        "metrics": None,
    }


def _message(rendered: Rendered, stream: Stream) -> dict[str, Any]:
    personality = stream.personality
    message: dict[str, Any] = {"role": "assistant", "content": _text(rendered, "content") or None}
    if personality.shape.make == "vllm":
        message |= {"refusal": None, "annotations": None, "audio": None, "function_call": None}
    if personality.markup:
        return message | {"content": "".join(token.raw for token in rendered.tokens)}
    if refusal := _text(rendered, "refusal"):
        message["refusal"] = refusal
    if personality.reasoning != "none" and (reasoning := _text(rendered, "reasoning")):
        message[personality.reasoning] = reasoning
    elif personality.shape.make == "vllm":
        message["reasoning"] = None
    calls = [_call(rendered, number, stream) for number in range(rendered.calls)]
    if calls and personality.function_call:
        message["function_call"] = calls[0]["function"]
    elif calls:
        message["tool_calls"] = calls
    return message


def _text(rendered: Rendered, field: str) -> str:
    return "".join(token.text for token in rendered.tokens if token.field == field)


def _call(rendered: Rendered, number: int, stream: Stream) -> dict[str, Any]:
    own = [token for token in rendered.tokens if token.call == number]
    function = {
        "name": "".join(token.text for token in own if token.field == "name"),
        "arguments": "".join(token.text for token in own if token.field == "arguments"),
    }
    return {"id": stream.call_ids[number], "type": "function", "function": function}
