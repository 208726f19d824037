"""`/v1/decisions`: one token of the backend for each question about an input, all of them after the same beginning."""

from __future__ import annotations

import asyncio
import json
import secrets
from collections.abc import Mapping, Sequence
from contextlib import AsyncExitStack
from typing import NamedTuple

import msgspec
from aiohttp import web

from responses_gateway.backend.prompt_tokens import PromptTokens
from responses_gateway.backend.served_models import Route
from responses_gateway.backend.short_answers import ask
from responses_gateway.bounded_memory import BoundedDict
from responses_gateway.ended_tasks import all_results
from responses_gateway.request.decisions import (
    ALTERNATIVES,
    FEWER_ALTERNATIVES,
    LABEL_LINES,
    Decisions,
    Inexact,
    LabelIds,
    Question,
    answer_of,
    groups_of,
    ids_of,
    names_of,
    read_decisions,
    read_label_ids,
    weights_of,
)
from responses_gateway.request.fields import Object
from responses_gateway.server.access.api_keys import Needs, check_model, needs, tenant_of
from responses_gateway.server.access.clients import RESERVATION
from responses_gateway.server.features.feature import Core, Feature, Opened
from responses_gateway.server.generation.generation import shutting_down
from responses_gateway.server.generation.in_flight import State
from responses_gateway.server.generation.preparation.context import Caller
from responses_gateway.server.generation.request_log.request_log import account_of
from responses_gateway.server.generation.responses import Responses
from responses_gateway.server.generation.upstream.chat_call import backend_headers
from responses_gateway.server.http.exchange import EXCHANGE, in_thread, read_json_body
from responses_gateway.server.http.routes import HttpRoute
from responses_gateway.stream.writer.responses import usage_json
from responses_gateway.wire.chat import ChatUsage, Logprobs, TokenLogprob
from responses_gateway.wire.deltas import Usage
from responses_gateway.wire.errors import ApiError, server_error
from responses_gateway.wire.json_text import json_text
from responses_gateway.wire.requests import ResponsesRequest, parse_request, read_object
from responses_gateway.wire.usage import counts_of

# Questions that are asked at the same time, after the first one, because by then the backend has read the input.
_AT_ONCE = 8
# Fields of a chat request that are another's for a single token.
_ABOUT_THE_ANSWER = frozenset({"stream", "stream_options", "max_tokens", "max_completion_tokens"})
# For how long the ids of labels are remembered, in seconds, and of how many models anything is.
_REMEMBERED = 600.0
MOST_MODELS = 100


class _Choice(msgspec.Struct):
    logprobs: Logprobs | None = None


class _Completion(msgspec.Struct):
    choices: list[_Choice]
    usage: ChatUsage | None = None


class _Prompt(NamedTuple):
    """A chat request, as JSON around the question; where it goes, and with which headers."""

    head: bytes
    tail: bytes
    route: Route
    headers: Mapping[str, str]
    timeout: float


class DecisionsResource:
    """Serves the path."""

    def __init__(self, responses: Responses) -> None:
        self._responses = responses
        self._labels = Labels(responses)
        self._fewer: BoundedDict[str, None] = BoundedDict(MOST_MODELS)  # models whose servers refuse so many alternatives

    @needs(Needs.KEY | Needs.RESERVATION)
    async def create(self, request: web.Request) -> web.Response:
        """Answer `POST`."""
        if self._responses.in_flight.state >= State.DRAINING:
            raise shutting_down()
        body = await read_json_body(request)
        decisions = await in_thread(request, lambda: read_decisions(read_object(body)))
        check_model(request[EXCHANGE].allows, decisions.model)
        prompt = await self._prompt(request, decisions)
        reservation = request.get(RESERVATION)
        spent: list[ChatUsage] = []
        try:
            answers = await self._ask_all(prompt, decisions.questions, spent)
            if reservation is not None and reservation.settles:
                await reservation.settle(_tokens(_sum(spent)))
        finally:
            used = _sum(spent)
            if reservation is not None:
                reservation.end(_tokens(used))
            if spent:  # all questions that were answered count as one request
                self._responses.reports.usage.add(account_of(reservation), decisions.model, used)
        return web.json_response({"model": decisions.model, "answers": answers, "usage": json.loads(usage_json(used))})

    async def _prompt(self, request: web.Request, decisions: Decisions) -> _Prompt:
        """Translate the input as that of a response, with a mark in the place of the question."""
        responses = self._responses
        in_force = responses.live.current
        mark = secrets.token_hex(16)
        responses_request = await in_thread(request, lambda: _as_request(decisions, mark))
        caller = Caller(tenant_of(request), request[EXCHANGE].request_id, request.headers)
        body = (await responses.preparation.translate(responses_request, caller, in_force)).body
        chat = {name: value for name, value in body.items() if name not in _ABOUT_THE_ANSWER}
        chat |= {in_force.settings.max_tokens_field: 1, "logprobs": True, "stream": False}
        head, _, tail = msgspec.json.encode(chat).partition(mark.encode())
        headers = backend_headers(in_force.settings, request.headers, request[EXCHANGE].request_id)
        route = Route(decisions.model, f"key:{decisions.cache_key}" if decisions.cache_key else f"decisions:{mark}")
        return _Prompt(head, tail, route, headers, in_force.settings.idle_timeout)

    async def _ask_all(self, prompt: _Prompt, questions: list[Question], spent: list[ChatUsage]) -> list[Object]:
        """Ask the first question alone, so that the backend has read the input when the others come. `spent` gets what each
        of them takes."""
        ids = await self._labels.ids(prompt)
        labels = [question.labels(ids) for question in questions]
        first = await self._answer(prompt, questions[0], labels[0], spent)

        async def ask_one(place: int) -> Object:
            return await self._answer(prompt, questions[place], labels[place], spent)

        return [first, *await all_results(ask_one, range(1, len(questions)), _AT_ONCE)]

    async def _answer(self, prompt: _Prompt, question: Question, labels: Sequence[str], spent: list[ChatUsage]) -> Object:
        """Ask for the tokens of the labels, if their ids are known and the server tells those, else for its likeliest tokens.
        Raise `ApiError` if these leave open what the answer is."""
        text = question.prompt(labels)
        ids = await self._labels.ids(prompt)
        names = names_of(labels, ids)
        if all(label in ids for label in labels):
            try:
                weights: list[float] = []
                for group in groups_of(labels):
                    weights += await self._ask(prompt, text, group, ids_of(group, ids), names, spent)
                return answer_of(question, weights)
            except Inexact:
                self._labels.forget(prompt)
        try:
            return answer_of(question, await self._ask(prompt, text, labels, [], names, spent))
        except Inexact:
            raise question.open_labels() from None

    async def _ask(
        self,
        prompt: _Prompt,
        question: str,
        labels: Sequence[str],
        ids: Sequence[int],
        names: Mapping[str, str],
        spent: list[ChatUsage],
    ) -> list[float]:
        """Return the probabilities of labels, whose tokens may have other `names`. Raise `ApiError`, `Inexact`."""
        escaped = json_text(question)[1:-1].encode("utf-8", "replace")
        fewer = prompt.route.model in self._fewer
        fields: Object = {"top_logprobs": FEWER_ALTERNATIVES if fewer else ALTERNATIVES}
        if ids:
            fields["logprob_token_ids"] = ids
        body = b"".join((msgspec.json.encode(fields)[:-1], b",", prompt.head[1:], escaped, prompt.tail))
        try:
            async with asyncio.timeout(prompt.timeout):
                completion = await ask(self._responses.pool, body, prompt.headers, prompt.route, _Completion)
        except TimeoutError:
            raise server_error("The backend did not answer a question in time.", 504) from None
        except ApiError as refusal:
            if ids and refusal.status == 400 and "logprob_token_ids" in refusal.message:
                raise Inexact from None
            if not fewer and refusal.status == 400 and "top_logprobs" in refusal.message:
                self._fewer[prompt.route.model] = None
                return await self._ask(prompt, question, labels, ids, names, spent)
            raise
        spent.append(completion.usage or ChatUsage())
        return weights_of(labels, _first_token(completion), by_ids=bool(ids), names=names)


class Labels:
    """The ids of labels, for each model of vLLM servers, as these tell them."""

    def __init__(self, responses: Responses) -> None:
        self._pool = responses.pool
        self._tokens = PromptTokens(responses.pool, None)
        self._known: BoundedDict[str, tuple[float, LabelIds]] = BoundedDict(MOST_MODELS)  # until when, on the loop's clock

    async def ids(self, prompt: _Prompt) -> LabelIds:
        """Return the ids for the model of a prompt; none if they are not known, or are of no use. Raise `ApiError` if no
        backend can be reached."""
        model = prompt.route.model
        until, ids = self._known.get(model, (0.0, {}))
        if asyncio.get_running_loop().time() >= until:
            await self._pool.watch.identified()  # because a single backend need not be known before
            if not self._pool.models.all_vllm(model):
                return {}
            ids = read_label_ids(await self._tokens.ids_of(model, LABEL_LINES, prompt.headers, prompt.timeout))
            self._remember(model, ids)
        return ids

    def forget(self, prompt: _Prompt) -> None:
        """Use none for a while: the server does not tell what it is asked for."""
        self._remember(prompt.route.model, {})

    def _remember(self, model: str, ids: LabelIds) -> None:
        self._known[model] = (asyncio.get_running_loop().time() + _REMEMBERED, ids)


def _as_request(decisions: Decisions, mark: str) -> ResponsesRequest:
    """Return the Responses request that has the input, and a question at its end."""
    items = [{"role": "user", "content": decisions.input}] if isinstance(decisions.input, str) else decisions.input
    input_items = [*items, {"role": "user", "content": mark}]
    return parse_request({"model": decisions.model, "input": input_items, "reasoning": {"effort": "none"}, "store": False})


def _first_token(completion: _Completion) -> TokenLogprob | None:
    """Return the first token of the answer; None if there is none. Raise `ApiError` if the server tells no probabilities."""
    logprobs = completion.choices[0].logprobs if completion.choices else None
    if logprobs is None or logprobs.content is None:
        raise ApiError(
            502,
            "The backend tells no log probabilities, from which decisions are made.",
            type="server_error",
            code="logprobs_unavailable",
        )
    return logprobs.content[0] if logprobs.content else None


def _sum(usages: list[ChatUsage]) -> Usage:
    """Return the usage of all questions together. The input counts for each of them, mostly as cached."""
    counts = [known for usage in usages if (known := counts_of(usage)) is not None]
    return Usage(
        sum(known.input or 0 for known in counts),
        sum(known.output or 0 for known in counts),
        sum(known.cached or 0 for known in counts),
        sum(known.cache_write or 0 for known in counts),
    )


def _tokens(used: Usage) -> int:
    return (used.input or 0) + (used.output or 0)


async def _open(core: Core, _stack: AsyncExitStack) -> Opened:
    return Opened(routes=[HttpRoute("POST", "/v1/decisions", DecisionsResource(core.responses).create)])


DECISIONS = Feature("decisions", None, _open)
