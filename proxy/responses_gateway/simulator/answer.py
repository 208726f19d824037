"""Plan the answer to a request: scenario, dialect, faults, pace, ids, tokens."""

from __future__ import annotations

import json
import secrets
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from aiohttp import web

from responses_gateway.simulator import tokenizer
from responses_gateway.simulator.chat_request import ChatRequest
from responses_gateway.simulator.chunks import Rendered, Style, render, written_tokens
from responses_gateway.simulator.dialect import DIALECTS, Dialect
from responses_gateway.simulator.directives import Directives, read_directives
from responses_gateway.simulator.errors import ErrorAnswer, context_overflow, status_error, vllm_error
from responses_gateway.simulator.faults import Faults
from responses_gateway.simulator.frames import Stream
from responses_gateway.simulator.generation import Token
from responses_gateway.simulator.prefix_cache import PrefixCache
from responses_gateway.simulator.scenarios import SCENARIOS, long
from responses_gateway.simulator.script import CallTool, Script, Think
from responses_gateway.simulator.state import CACHE, FAULT_COUNTS, OPTIONS, SimulatorOptions
from responses_gateway.simulator.strict_tools import constrained, read_by_model
from responses_gateway.simulator.token_prompts import TokenPrompt, chat_prompt_ids, read_prompt
from responses_gateway.simulator.validation import check_chat_request, check_prompt_length
from responses_gateway.simulator.weak import Work, weakened, work_of


@dataclass(frozen=True)
class AnswerPlan:
    """Everything that an answer needs. Durations are in seconds. `error` is sent instead, after any slow headers."""

    rendered: Rendered
    stream: Stream
    faults: Faults
    streams: bool
    tokens_per_second: float
    first_token_seconds: float
    error: ErrorAnswer | None


def plan_answer(body: dict[str, Any], headers: Mapping[str, str], app: web.Application) -> AnswerPlan:
    """Plan the answer to a chat request. Raises `ErrorAnswer` for what real servers refuse, and invalid directives."""
    options = app[OPTIONS]
    model = _model(body, options)
    check_chat_request(body, options.dialect, options.max_model_len)
    ignored = options.dialect.ignores_named_tool and isinstance(body.get("tool_choice"), dict)
    request = ChatRequest({**body, "tool_choice": "auto"} if ignored else body)
    work = _work(request, app)
    try:
        directives = read_directives(work.request, model, headers)
    except ValueError as error:
        raise vllm_error(str(error)) from None
    dialect = options.dialect if directives.dialect is None else DIALECTS[directives.dialect]
    check_chat_request(body, dialect, options.max_model_len)
    dialect = _at_work(dialect, body)
    reading = read_by_model(request, options.strict_tools)
    prompt = reading.prompt_text(opens_thought=dialect.opens_thought, history=dialect.history)
    ids = chat_prompt_ids(body) if dialect.shape.server == "vllm" else None
    prompt_tokens = tokenizer.count(prompt) if ids is None else len(ids)
    check_prompt_length(prompt_tokens, dialect, options.max_model_len)
    faults = _faults_now(directives.faults, request, app) if ids is None else Faults()
    script = _constrained(_script(work.request, directives, dialect), work, request, options)
    style = _style(request, dialect, faults)
    if ids is not None:
        continued = read_prompt(ids, opens_thought=dialect.opens_thought)
        style = replace(style, generated=len(continued.generated))
        _check_beginning(written_tokens(script, style), continued.generated)
    rendered = render(script, style)
    stream = replace(_stream(body, model, dialect, prompt, prompt_tokens, rendered.calls), prompt_ids=ids or ())
    pace = directives.tokens_per_second
    return AnswerPlan(
        rendered=rendered,
        stream=_with_cache(stream, app.get(CACHE), request, rendered),
        faults=faults,
        streams=bool(body.get("stream")),
        tokens_per_second=options.tokens_per_second if pace is None else pace,
        first_token_seconds=options.first_token_seconds + faults.delay,
        error=_error(faults, dialect, prompt_tokens, options),
    )


def _with_cache(stream: Stream, cache: PrefixCache | None, request: ChatRequest, rendered: Rendered) -> Stream:
    """Return the stream with what the cache of the server, if it has one, tells of its prompt."""
    if cache is None:
        return stream
    prompt = stream.prompt_ids or tuple(cache.prompt_ids(request, stream.dialect.notation))
    cached = cache.read(prompt, [token.number for token in rendered.tokens])
    return replace(stream, prompt_ids=prompt, prompt_tokens=len(prompt), cached_tokens=cached)


def _work(request: ChatRequest, app: web.Application) -> Work:
    """Return how far the task has come, which only a weak model looks at; a request that came before is another attempt."""
    if app[OPTIONS].weak is None:
        return Work(request, 0)
    work = work_of(request)
    earlier = app[FAULT_COUNTS].earlier(json.dumps(request.messages))
    return work._replace(attempts=work.attempts + earlier)


def completion_plan(body: dict[str, Any], ids: Sequence[int], app: web.Application) -> tuple[TokenPrompt, list[Token]]:
    """Plan how the server continues a prompt in ids: raw text, whatever its parsers are. Raises `ErrorAnswer`."""
    options = app[OPTIONS]
    model = _model(body, options)
    dialect = options.dialect
    prompt = read_prompt(ids, opens_thought=dialect.opens_thought)
    request = ChatRequest(prompt.chat)
    try:
        directives = read_directives(request, model, {})
    except ValueError as error:
        raise vllm_error(str(error)) from None
    if directives.dialect is not None:
        dialect = DIALECTS[directives.dialect]
        prompt = read_prompt(ids, opens_thought=dialect.opens_thought)
    raw = replace(dialect, markup=dialect.markup or dialect.notation, unparsed=frozenset(), swallows_calls=False)
    script = constrained(_script(request, directives, raw), request, options.strict_tools)
    tokens = written_tokens(script, Style(raw, opened=dialect.opens_thought))
    _check_beginning(tokens, prompt.generated)
    return prompt, tokens[len(prompt.generated) :]


def _check_beginning(tokens: Sequence[Token], generated: Sequence[int]) -> None:
    """Raise `ErrorAnswer` unless the answer begins with these tokens: a model would continue any others, too, but nobody can
    want that of a simulated one."""
    ids = [token.number for token in tokens[: len(generated)]]
    if ids != list(generated):
        raise vllm_error("the simulator does not write an answer that begins with these tokens", param="prompt")


def _model(body: dict[str, Any], options: SimulatorOptions) -> str:
    model = body.get("model") or options.models[0]
    if not isinstance(model, str):
        raise vllm_error("model must be a string", param="model")
    if options.strict_models and model not in options.models:
        message = f"The model `{model}` does not exist. Valid aliases: {', '.join(options.models)}."
        raise vllm_error(message, type="NotFoundError", param="model", status=404)
    return model


def _at_work(dialect: Dialect, body: dict[str, Any]) -> Dialect:
    """Return how a server whose tool parser does not fit treats this request: a forced call needs no parser, and without one at
    work, or in an answer that is not streamed, what it does not understand stays in the content."""
    choice = body.get("tool_choice")
    if not dialect.swallows_calls:
        return dialect
    if choice not in (None, "auto", "none"):
        return replace(dialect, swallows_calls=False, notation="hermes")
    if choice == "none" or not body.get("stream"):
        return replace(dialect, swallows_calls=False, unparsed=frozenset({"calls"}))
    return dialect


def _faults_now(faults: Faults, request: ChatRequest, app: web.Application) -> Faults:
    """Return the faults if they should happen to this request, else none."""
    if not faults:
        return faults
    step = len(request.tool_results)
    if faults.step is not None and faults.step != step:
        return Faults()
    question = request.question.partition("\n")[0]  # clients that ask for the rest of an answer add lines to their message
    return faults if app[FAULT_COUNTS].count(f"{question}\0{step}", faults.times) else Faults()


def _script(request: ChatRequest, directives: Directives, dialect: Dialect) -> Script:
    if directives.scenario == "long" and directives.tokens:
        script = long(request, directives.tokens)
    else:
        try:
            script = SCENARIOS[directives.scenario](request)
        except ValueError as error:  # an invalid schema
            raise vllm_error(str(error)) from None
    if request.body.get("tool_choice") == "none" and dialect.parses_calls:
        return replace(script, steps=tuple(step for step in script.steps if not isinstance(step, CallTool)))
    if dialect.markup is not None and request.schema is not None:  # the grammar is in force from the first token on
        return replace(script, steps=tuple(step for step in script.steps if not isinstance(step, Think)))
    if dialect.function_call:  # the old field holds one call
        calls = [step for step in script.steps if isinstance(step, CallTool)]
        return replace(script, steps=tuple(step for step in script.steps if step not in calls[1:]))
    return script


def _constrained(script: Script, work: Work, request: ChatRequest, options: SimulatorOptions) -> Script:
    """Return a script with the mistakes of a weak model, as far as the server lets them pass."""
    script = script if options.weak is None else weakened(script, work, options.weak)
    return constrained(script, request, options.strict_tools)


def _style(request: ChatRequest, dialect: Dialect, faults: Faults) -> Style:
    body = request.body
    limits = (body.get("max_completion_tokens"), body.get("max_tokens"), faults.length)
    return Style(
        dialect=dialect,
        token_ids=bool(body.get("return_token_ids")) and dialect.shape.server == "vllm",
        logprobs=int(body.get("top_logprobs") or 0) if body.get("logprobs") and dialect.shape.has_logprobs else None,
        opened=dialect.opens_thought and request.schema is None,
        max_tokens=min((limit for limit in limits if isinstance(limit, int)), default=None),
    )


def _stream(body: dict[str, Any], model: str, dialect: Dialect, prompt: str, prompt_tokens: int, calls: int) -> Stream:
    options = body.get("stream_options") or {}
    mode = dialect.usage
    has_history = any(message.get("role") == "assistant" for message in body["messages"])
    shape = dialect.shape
    return Stream(
        id=shape.id_prefix + secrets.token_hex(8),
        created=int(time.time()),
        model=model,
        dialect=dialect,
        prompt=prompt,
        prompt_tokens=prompt_tokens,
        cached_tokens=prompt_tokens * 3 // 4 // 16 * 16 if has_history else 0,
        call_ids=[shape.call_id_prefix + secrets.token_hex(8) for _ in range(calls)],
        include_usage=mode in ("last", "every") or (mode == "request" and bool(options.get("include_usage"))),
        usage_in_every_chunk=mode == "every" or (mode == "request" and bool(options.get("continuous_usage_stats"))),
        token_ids=bool(body.get("return_token_ids")) and shape.server == "vllm",
    )


def _error(faults: Faults, dialect: Dialect, prompt_tokens: int, options: SimulatorOptions) -> ErrorAnswer | None:
    server = dialect.shape.server
    if faults.overflow is not None:
        return context_overflow(faults.overflow, max(prompt_tokens, options.max_model_len + 1), options.max_model_len)
    if faults.status is not None:
        return status_error(server, faults.status, faults.retry_after)
    return None
