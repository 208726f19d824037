"""`POST /v1/completions`: a prompt in ids is continued in raw text; any other prompt is repeated."""

from __future__ import annotations

import json
import secrets
import time
from typing import Any

from aiohttp import web

from responses_gateway.simulator import tokenizer
from responses_gateway.simulator.answer import completion_plan
from responses_gateway.simulator.chunks import dumps
from responses_gateway.simulator.errors import vllm_error
from responses_gateway.simulator.frames import DONE, Frames
from responses_gateway.simulator.generation import Token
from responses_gateway.simulator.playback import stream_frames
from responses_gateway.simulator.prefix_cache import BLOCK
from responses_gateway.simulator.state import CACHE, COUNTERS, OPTIONS, RECEIVED
from responses_gateway.simulator.token_prompts import TokenPrompt, token_ids
from responses_gateway.simulator.validation import parsed_body

_DEFAULT_TOKENS = 16  # what vLLM generates where a request does not say how much
# Special tokens without text, unless asked for. Those of thoughts and calls are no special ones, as with Qwen3.
_HIDDEN = frozenset((tokenizer.SPECIAL["<|im_start|>"], tokenizer.SPECIAL["<|im_end|>"]))


async def completions(request: web.Request) -> web.StreamResponse:
    """Handle `POST /v1/completions`."""
    body = parsed_body(await request.read(), request.content_type)
    ids = token_ids(body.get("prompt"), "prompt")
    if ids is None:
        return await _repeat(request, body)
    if not body.get("stream"):
        raise vllm_error("the simulator streams what it generates from ids", param="stream")
    request.app[RECEIVED].append({"body": body, "headers": dict(request.headers)})
    options = request.app[OPTIONS]
    left = options.max_model_len - len(ids)
    if left < 1:
        raise vllm_error(f"This model's maximum context length is {options.max_model_len} tokens.", param="input_tokens")
    prompt, tokens = completion_plan(body, ids, request.app)
    limit = min(_max_tokens(body), left)
    generated = tokens[:limit]
    cache = request.app.get(CACHE)
    cached = (len(ids) - 1) // BLOCK * BLOCK if cache is None else cache.read(ids, [token.number for token in generated])
    frames = completion_frames(body, prompt, generated, cut=len(tokens) >= limit, cached=cached)
    counters = request.app[COUNTERS]
    counters.requests += 1
    counters.prompt_tokens += len(ids)
    counters.running += 1
    try:
        return await stream_frames(request, frames, options.first_token_seconds, options.tokens_per_second)
    finally:
        counters.running -= 1


def _max_tokens(body: dict[str, Any]) -> int:
    limit = body.get("max_tokens")
    return limit if isinstance(limit, int) else _DEFAULT_TOKENS


def completion_frames(
    body: dict[str, Any], prompt: TokenPrompt, tokens: list[Token], *, cut: bool, cached: int | None
) -> Frames:
    """Build the frames of a continuation, with all of its ids where they are wanted. `cached`: what the usage tells."""
    hidden = frozenset() if body.get("skip_special_tokens") is False else _HIDDEN
    primed = tokenizer.decode(prompt.ids)
    waits = primed.endswith("\ufffd")  # then the first text is the whole prompt, as a real server has it
    choices: list[dict[str, Any]] = []
    for token in tokens:
        text = token.raw
        if waits and text:
            text = tokenizer.decode([*(number for number in prompt.ids if number not in hidden), token.id])
            waits = False
        choices.append(_choice(body, text, token.raw, token.number))
    if cut and choices:
        choices[-1]["finish_reason"] = "length"
    else:
        choices.append(_choice(body, "", tokenizer.END, tokenizer.SPECIAL[tokenizer.END], "stop"))
    if body.get("return_token_ids"):
        choices[0]["prompt_token_ids"] = list(prompt.ids)
    head = {
        "id": f"cmpl-{secrets.token_hex(8)}",
        "object": "text_completion",
        "created": int(time.time()),
        "model": body.get("model"),
    }
    frames = [f'"choices":[{dumps(choice)}]}}\n\n'.encode("utf-8", "replace") for choice in choices]
    counts = list(range(1, len(frames) + 1))
    if (body.get("stream_options") or {}).get("include_usage"):
        usage = {
            "prompt_tokens": len(prompt.ids),
            "total_tokens": len(prompt.ids) + len(choices),
            "completion_tokens": len(choices),
            "prompt_tokens_details": None if cached is None else {"cached_tokens": cached},
        }
        frames.append(f'"choices":[],"usage":{dumps(usage)}}}\n\n'.encode())
        counts.append(counts[-1])
    return Frames(f"data: {dumps(head)[:-1]},".encode(), [*frames, DONE], [*counts, counts[-1]])


def _choice(body: dict[str, Any], text: str, token: str, number: int, finish_reason: str | None = None) -> dict[str, Any]:
    logprobs = {"tokens": [token], "token_logprobs": [-0.001], "top_logprobs": None}
    return {
        "index": 0,
        "text": text,
        "logprobs": logprobs if isinstance(body.get("logprobs"), int) else None,
        "finish_reason": finish_reason,
        "stop_reason": None,
        "prompt_token_ids": None,
        "token_ids": [number] if body.get("return_token_ids") else None,
    }


async def _repeat(request: web.Request, body: dict[str, Any]) -> web.StreamResponse:
    """Repeat the prompt, in one chunk if streamed."""
    prompt = body.get("prompt")
    text = f" … {prompt if isinstance(prompt, str) else 'and so on'}"
    count = tokenizer.count(str(prompt))
    answer = {
        "id": f"cmpl-{secrets.token_hex(8)}",
        "object": "text_completion",
        "created": int(time.time()),
        "model": body.get("model") or request.app[OPTIONS].models[0],
        "choices": [{"index": 0, "text": text, "logprobs": None, "finish_reason": "stop", "stop_reason": None}],
        "usage": {"prompt_tokens": count, "completion_tokens": count + 1, "total_tokens": 2 * count + 1},
    }
    if not body.get("stream"):
        return web.json_response(answer)
    response = web.StreamResponse(headers={"content-type": "text/event-stream; charset=utf-8"})
    await response.prepare(request)
    await response.write(b"data: " + json.dumps(answer).encode() + b"\n\ndata: [DONE]\n\n")
    await response.write_eof()
    return response
