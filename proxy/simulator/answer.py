"""From a request to everything that its answer needs: scenario, personality, faults, pace, ids, tokens."""

from __future__ import annotations

import secrets
import time
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from aiohttp import web

from proxy.simulator import tokenizer
from proxy.simulator.chunks import Rendered, Style, render
from proxy.simulator.conversation import Conversation
from proxy.simulator.directives import Directives, read_directives
from proxy.simulator.errors import WORDINGS, Refused, context_overflow, refusal, vllm_error
from proxy.simulator.faults import Faults
from proxy.simulator.frames import Stream
from proxy.simulator.options import SimulatorOptions
from proxy.simulator.personality import PERSONALITIES, Personality
from proxy.simulator.scenarios import SCENARIOS, long
from proxy.simulator.script import Call, Script
from proxy.simulator.state import OPTIONS, STRIKES
from proxy.simulator.validation import check_chat_request, check_prompt_length


@dataclass(frozen=True)
class Answer:
    """Durations in seconds. `refused`: the error answer that a fault wants instead, after any slow headers."""

    rendered: Rendered
    stream: Stream
    faults: Faults
    streams: bool
    tokens_per_second: float
    first_token_seconds: float
    refused: Refused | None


def prepare_answer(body: dict[str, Any], headers: Mapping[str, str], app: web.Application) -> Answer:
    """Raises `Refused` for a request that a real server refuses too, and for directives that make no sense."""
    options = app[OPTIONS]
    model = _model(body, options)
    check_chat_request(body, options.personality, options.max_model_len)
    conversation = Conversation(body)
    directives = _directives(conversation, model, headers)
    personality = options.personality
    if directives.personality is not None:
        personality = PERSONALITIES[directives.personality]
        check_chat_request(body, personality, options.max_model_len)
    prompt = conversation.prompt_text()
    prompt_tokens = tokenizer.count(prompt)
    check_prompt_length(prompt_tokens, personality, options.max_model_len)
    faults = _striking(directives.faults, conversation, app)
    rendered = render(_script(conversation, directives, personality), _style(body, personality, faults))
    return Answer(
        rendered=rendered,
        stream=_stream(body, model, personality, prompt, prompt_tokens, rendered.calls),
        faults=faults,
        streams=bool(body.get("stream")),
        tokens_per_second=_pace(directives, options),
        first_token_seconds=options.first_token_seconds + faults.delay,
        refused=_refused(faults, personality, prompt_tokens, options),
    )


def _model(body: dict[str, Any], options: SimulatorOptions) -> str:
    model = body.get("model") or options.models[0]
    if not isinstance(model, str):
        raise vllm_error("model must be a string", param="model")
    if options.strict_models and model not in options.models:
        message = f"The model `{model}` does not exist. Valid aliases: {', '.join(options.models)}."
        raise vllm_error(message, type="NotFoundError", param="model", status=404)
    return model


def _directives(conversation: Conversation, model: str, headers: Mapping[str, str]) -> Directives:
    try:
        return read_directives(conversation, model, headers)
    except ValueError as error:
        raise vllm_error(str(error)) from None


def _striking(faults: Faults, conversation: Conversation, app: web.Application) -> Faults:
    """The faults if they are to strike this very request, else none."""
    if not faults:
        return faults
    step = len(conversation.tool_results)
    if faults.step is not None and faults.step != step:
        return Faults()
    message = f"{conversation.question}\0{step}"
    return faults if app[STRIKES].strike(message, faults.times) else Faults()


def _script(conversation: Conversation, directives: Directives, personality: Personality) -> Script:
    if directives.scenario == "long" and directives.tokens:
        script = long(conversation, directives.tokens)
    else:
        try:
            script = SCENARIOS[directives.scenario](conversation)
        except ValueError as error:  # a schema that is none
            raise vllm_error(str(error)) from None
    if conversation.request.get("tool_choice") == "none" and personality.markup is None:
        return replace(script, steps=tuple(step for step in script.steps if not isinstance(step, Call)))
    if personality.function_call:  # the old field has room for one call
        calls = [step for step in script.steps if isinstance(step, Call)]
        return replace(script, steps=tuple(step for step in script.steps if step not in calls[1:]))
    return script


def _style(body: dict[str, Any], personality: Personality, faults: Faults) -> Style:
    limits = (body.get("max_completion_tokens"), body.get("max_tokens"), faults.length)
    return Style(
        personality=personality,
        token_ids=bool(body.get("return_token_ids")) and personality.shape.make == "vllm",
        logprobs=int(body.get("top_logprobs") or 0) if body.get("logprobs") and personality.shape.has_logprobs else None,
        max_tokens=min((limit for limit in limits if isinstance(limit, int)), default=None),
    )


def _stream(body: dict[str, Any], model: str, personality: Personality, prompt: str, prompt_tokens: int, calls: int) -> Stream:
    asked = body.get("stream_options") or {}
    mode = personality.usage
    has_history = any(message.get("role") == "assistant" for message in body["messages"])
    shape = personality.shape
    return Stream(
        id=shape.id_prefix + secrets.token_hex(8),
        created=int(time.time()),
        model=model,
        personality=personality,
        prompt=prompt,
        prompt_tokens=prompt_tokens,
        cached_tokens=prompt_tokens * 3 // 4 // 16 * 16 if has_history else 0,
        call_ids=[shape.call_id_prefix + secrets.token_hex(8) for _ in range(calls)],
        include_usage=mode in ("last", "every") or (mode == "request" and bool(asked.get("include_usage"))),
        usage_in_every_chunk=mode == "every" or (mode == "request" and bool(asked.get("continuous_usage_stats"))),
        token_ids=bool(body.get("return_token_ids")) and shape.make == "vllm",
    )


def _pace(directives: Directives, options: SimulatorOptions) -> float:
    return options.tokens_per_second if directives.tokens_per_second is None else directives.tokens_per_second


def _refused(faults: Faults, personality: Personality, prompt_tokens: int, options: SimulatorOptions) -> Refused | None:
    make = personality.shape.make
    if faults.overflow is not None:
        wording = next(known for known in WORDINGS if known == faults.overflow)
        return context_overflow(wording, max(prompt_tokens, options.max_model_len + 1), options.max_model_len)
    if faults.status is not None:
        return refusal(make, faults.status, faults.retry_after)
    return None
