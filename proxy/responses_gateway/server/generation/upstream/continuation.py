"""Another backend continues an answer that broke off.

What was generated is known by its ids. The text of all of them has to be what the client has, or a beginning of it, so it
is cut back to where that is certain; where it is not, the response fails as it would have without this.

What decides whether another backend can continue is the chat request. An engine begins the grammar of an answer anew where it
continues one, so that a forced answer would get a second object; pictures are not in the ids of a prompt."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, Literal, NamedTuple, TypeAlias

import msgspec

from responses_gateway.backend.member import ContinuationEndpoint
from responses_gateway.backend.policies.retry import Reason
from responses_gateway.backend.pool import HeadersFor, OnFailure, Pool
from responses_gateway.backend.prompt_tokens import text_of
from responses_gateway.backend.served_models import Route
from responses_gateway.backend.transport.client import ChatStream
from responses_gateway.request.parameters.parameters import has_grammar
from responses_gateway.server.generation.parser_choice.choice import ParserChoice
from responses_gateway.server.generation.upstream.chat_call import ChatCall
from responses_gateway.stream.continuation.join import Diverged, Join, JoinPoint, join_at
from responses_gateway.stream.continuation.ledger import PartialAnswer
from responses_gateway.stream.lifecycle.needs import BrokenOff
from responses_gateway.stream.reading.leading_thought import MarkupOf
from responses_gateway.stream.reading.markup import Markup
from responses_gateway.stream.translator import Translator
from responses_gateway.wire.chat import has_media
from responses_gateway.wire.errors import ApiError

# Why an answer broke off; `restart`: its gateway has stopped.
Cause: TypeAlias = BrokenOff | Literal["broke", "silent", "restart"]
_TRIES = 64  # how many ids are tried, one after the other, in search of the last one whose text came
# Ids before those that are looked at, because some tokenizers write the first token of a text in another way.
_CONTEXT = 8
_BROKEN = "\ufffd"

Decode: TypeAlias = Callable[[Sequence[int]], Awaitable[str]]
# Why another backend cannot continue an answer.
Obstacle: TypeAlias = Literal["grammar", "forced_tool", "strict_tool", "media", "logprobs", "parameter", "no_ids"]
# Fields that mean the same to `/v1/completions`.
_COPIED = (
    "temperature", "top_p", "presence_penalty", "frequency_penalty", "user", "seed", "stop", "stop_token_ids",
    "include_stop_str_in_output", "top_k", "min_p", "repetition_penalty", "logit_bias", "bad_words", "ignore_eos", "priority",
    "cache_salt", "vllm_xargs", "return_weight_versions",
)  # fmt: skip
# Fields that have done their work with the prompt, or that are set anew.
_DONE = (
    "model", "messages", "tools", "tool_choice", "parallel_tool_calls", "response_format", "stream", "stream_options",
    "return_token_ids", "max_tokens", "max_completion_tokens", "min_tokens", "reasoning_effort", "chat_template_kwargs",
    "skip_special_tokens", "spaces_between_special_tokens", "verbosity", "metadata", "store", "service_tier",
    "prompt_cache_key", "safety_identifier",
)  # fmt: skip
_KNOWN = frozenset((*_COPIED, *_DONE))


class CutPoint(NamedTuple):
    """How many of the ids are kept, and the text that the client has of those that come again."""

    kept: int
    overlap: str = ""


class Continued(NamedTuple):
    """The stream that continues an answer, the route to its backend, how many of its tokens that has, and the first events."""

    chat: ChatStream
    route: Route
    kept: int
    events: bytes


@dataclass(eq=False, slots=True)
class Continuation:
    """How an answer is continued elsewhere, at most `attempts` times.

    `obstacle` tells why it cannot. `checkpoint`: what the backends list of the model, where that is why
    they may. `parsers` choose what reads it there. `on_failure` is called for each request that fails. `within`: the seconds in
    which a backend has to tell the text of ids."""

    pool: Pool
    attempts: int
    obstacle: Obstacle | None
    parsers: ParserChoice
    on_failure: OnFailure
    within: float
    checkpoint: str

    async def open(self, translator: Translator, call: ChatCall, failed: str, cause: Cause, headers: HeadersFor) -> Continued:
        """Have another backend continue the answer of one that failed. Raise `CannotContinue`."""
        if self.obstacle is not None:
            raise CannotContinue(self.obstacle)
        if not translator.continuable:
            raise CannotContinue("no_ids")
        while self.attempts:
            self.attempts -= 1
            other = self.pool.continuation_route(call.route, failed, _reason(cause), self.checkpoint)
            if isinstance(other, str):
                raise CannotContinue(other)
            call = msgspec.structs.replace(call, route=other)
            if other.again:
                await asyncio.sleep(self.pool.pause_before(other))
            try:
                return await self._ask(translator, call, headers)
            except _Unanswered as error:
                failed = error.backend
                cause = "broke"
        raise CannotContinue("attempts")

    async def _ask(self, translator: Translator, call: ChatCall, headers: HeadersFor) -> Continued:
        body = call.body
        route = call.route
        beginning = translator.answer.partial()
        continues = translator.answer.join is not None  # with text completions, whose text is raw
        reads_on = beginning.raw and (continues or self.parsers.reads_all(body, beginning.start))
        if translator.answer.said_nothing and not (reads_on and beginning.brought_text):
            return await self._ask_again(translator, call, headers, beginning.start)
        markup, join = await self._joined(translator, beginning, call, reads_on=reads_on)
        generated = beginning.ids[: join.generated]
        last_backend = ""

        def body_for(model: str, context: int | None, endpoint: ContinuationEndpoint | None) -> bytes:
            if endpoint == "completions":
                return completion_request(body, beginning.prompt, generated, context, raw=reads_on, model=model)
            if endpoint is None or not reads_on:
                raise CannotContinue("not_honoured")
            return chat_request(body, beginning.prompt, generated, model=model)

        def noted_headers(backend: str, url: Any) -> Mapping[str, str]:
            nonlocal last_backend
            last_backend = backend
            return headers(backend, url)

        try:
            chat = await self.pool.open_continuation(body_for, noted_headers, route, self.on_failure, call.added)
        except ApiError:
            raise _Unanswered(last_backend) from None
        self._require_stream(chat)
        return Continued(chat, route, len(generated), translator.resume(join, markup))

    async def _joined(
        self, translator: Translator, beginning: PartialAnswer, call: ChatCall, *, reads_on: bool
    ) -> tuple[Markup | None, Join]:
        """Return what reads the continuation, None if the same reads on, and where it is joined. Raise `CannotContinue`."""
        body = call.body
        stop = longest_stop(body)

        async def decode(ids: Sequence[int]) -> str:
            return await self._text_of(ids, call)

        if reads_on:
            cut = await cut_of_raw(beginning, decode, holds_text=bool(stop))
            return None, Join(beginning.prompt, beginning.ids[: cut.kept], overlap=cut.overlap)
        count, text = await cut_of_parsed(beginning, decode, stop)
        ways = self.parsers.second_readings(body, beginning)
        readings = [[JoinPoint(count, text=text, start=start) for start in starts] for starts in ways]
        return read_again(translator, beginning, readings, partial(self.parsers.markup, body))

    async def _ask_again(self, translator: Translator, call: ChatCall, headers: HeadersFor, start: object) -> Continued:
        """Ask the same from the beginning, and read it as before: the client has seen nothing of the answer."""
        try:
            chat = await self.pool.open_chat(call.data, headers, call.route, self.on_failure, call.added)
        except ApiError:
            raise CannotContinue("no_answer") from None
        self._require_stream(chat)
        return Continued(chat, call.route, 0, translator.restart(self.parsers.markup_of(call.body)(start), start))

    async def _text_of(self, ids: Sequence[int], call: ChatCall) -> str:
        """Return the text of some ids, special tokens included. Raise `CannotContinue`."""
        text = await text_of(self.pool, ids, call.route, call.headers, self.within, self.on_failure)
        if text is None:
            raise CannotContinue("no_text")
        return text

    def _require_stream(self, chat: ChatStream) -> None:
        """Raise unless the backend streams its answer."""
        if chat.status == 200 and chat.is_event_stream:
            return
        if chat.status == 200:
            self.on_failure(chat.backend, "no_stream")
        chat.close()
        if chat.status >= 500:
            raise _Unanswered(chat.backend)
        raise CannotContinue("refused")


class _Unanswered(Exception):
    """A backend did not answer; another one may."""

    def __init__(self, backend: str) -> None:
        super().__init__(backend)
        self.backend = backend


def read_again(
    translator: Translator, beginning: PartialAnswer, readings: Sequence[Sequence[JoinPoint]], markup_of: MarkupOf
) -> tuple[Markup, Join]:
    """Return the parser that says what has been said, having read the text of the first ids. `readings` are the ways in which
    they may be read: the next ones count if none of these fits. Raise `CannotContinue`."""
    for points in readings:
        reading = _first_that_fits(translator, beginning, points, markup_of)
        if reading is not None:
            return reading
    raise CannotContinue("text_differs")


def _first_that_fits(
    translator: Translator, beginning: PartialAnswer, points: Sequence[JoinPoint], markup_of: MarkupOf
) -> tuple[Markup, Join] | None:
    """Return the first reading that has said all that was said, or else one that may still do so."""
    slower: tuple[Markup, Join] | None = None
    for point in points:
        markup = markup_of(point.start)
        assert isinstance(markup, Markup)
        try:
            join = join_at(point, beginning, translator.lifecycle, markup)
        except Diverged:
            continue
        if join.caught_up:
            return markup, join
        slower = slower or (markup, join)
    return slower


async def cut_of_raw(beginning: PartialAnswer, decode: Decode, *, holds_text: bool) -> CutPoint:
    """Find the last id whose text came whole. Text that came after it comes again."""
    ids = beginning.ids
    whole = beginning.whole
    tail = beginning.tail
    if not tail and not holds_text:
        return CutPoint(whole)  # after it there may be a part of a character
    start = max(0, whole - _CONTEXT)
    before = await decode(ids[start:whole]) if whole else ""
    for count in range(len(ids), max(whole, len(ids) - _TRIES) - 1, -1):
        text = await decode(ids[start:count])
        if not text.startswith(before):
            break
        text = text.removeprefix(before)
        if tail.startswith(text) and not text.endswith(_BROKEN):
            return CutPoint(count, tail[len(text) :])
    if holds_text:
        raise CannotContinue("text_differs")
    return CutPoint(whole, tail)


async def cut_of_parsed(beginning: PartialAnswer, decode: Decode, stop: int) -> tuple[int, str]:
    """Return how many ids have a whole text that the server's parser has seen, and that text. `stop`: the length of the longest
    stop string."""
    ids = beginning.ids
    text = await decode(ids)
    longest = len(text.rstrip(_BROKEN)) - max(0, stop - 1)
    for count in range(len(ids), max(0, len(ids) - _TRIES), -1):
        if count < len(ids):
            text = await decode(ids[:count])
        if len(text) <= longest and not text.endswith(_BROKEN):
            return count, text
    raise CannotContinue("text_differs")


def _reason(cause: Cause) -> Reason:
    return "silent" if cause == "silent" else "broke"


def why_not_continuable(body: Mapping[str, Any]) -> Obstacle | None:
    """Return why no other backend could continue the answer to a chat request; None if one could."""
    if has_grammar(body):
        return "grammar"
    if body.get("tool_choice") not in (None, "auto", "none"):
        return "forced_tool"
    if any(tool.get("function", {}).get("strict") for tool in body.get("tools") or ()):
        return "strict_tool"
    if body.get("logprobs"):
        return "logprobs"
    if has_media(body["messages"]):
        return "media"
    if any(name not in _KNOWN and value is not None for name, value in body.items()):
        return "parameter"
    return None


def longest_stop(body: Mapping[str, Any]) -> int:
    """Return the length of the longest stop string; 0 without any."""
    stop = body.get("stop")
    texts = [stop] if isinstance(stop, str) else stop if isinstance(stop, list) else []
    return max((len(text) for text in texts if isinstance(text, str)), default=0)


class CannotContinue(Exception):
    """The answer cannot be continued; the text is the reason."""


def completion_request(
    body: Mapping[str, Any], prompt: Sequence[int], generated: Sequence[int], context: int | None, *, raw: bool, model: str
) -> bytes:
    """Return the request that has a backend continue `generated`. `context`: how many tokens its context has, if it tells.
    `raw`: the first backend sent raw text. Raise `CannotContinue`."""
    request: dict[str, Any] = {name: body[name] for name in _COPIED if body.get(name) is not None}
    request["model"] = model
    request["prompt"] = [*prompt, *generated]
    request["max_tokens"] = _tokens_left(body, len(prompt), len(generated), context)
    request |= _rest(body, len(generated))
    if body.get("logprobs"):  # which nobody sees but who keeps them: a client's own would have been an obstacle
        request["logprobs"] = body.get("top_logprobs") or 0
    for name in ("skip_special_tokens", "spaces_between_special_tokens"):
        request[name] = bool(body.get(name, True)) if raw else False
    return msgspec.json.encode(request)


def chat_request(body: Mapping[str, Any], prompt: Sequence[int], generated: Sequence[int], *, model: str) -> bytes:
    """Return the chat request that does the same, where the server takes ids in the place of the messages."""
    request = {**body, **_rest(body, len(generated)), "model": model}
    for name in ("max_tokens", "max_completion_tokens"):
        if body.get(name) is not None:
            request[name] = _tokens_left(body, len(prompt), len(generated), None)
    request["kv_transfer_params"] = {"prompt_token_ids": [*prompt, *generated]}
    return msgspec.json.encode(request)


def _rest(body: Mapping[str, Any], generated: int) -> dict[str, Any]:
    rest: dict[str, Any] = {"stream": True, "stream_options": {"include_usage": True}, "return_token_ids": True}
    if body.get("min_tokens"):
        rest["min_tokens"] = max(0, body["min_tokens"] - generated)
    return rest


def _tokens_left(body: Mapping[str, Any], prompt: int, generated: int, context: int | None) -> int:
    """Return how many tokens may still be generated: `/v1/completions` generates 16 by default."""
    limit = body.get("max_completion_tokens") or body.get("max_tokens")
    limits: list[int] = [] if limit is None else [limit - generated]
    if context is not None:
        limits.append(context - prompt - generated)
    if not limits:
        raise CannotContinue("context_unknown")
    if min(limits) < 1:
        raise CannotContinue("no_room")
    return min(limits)
