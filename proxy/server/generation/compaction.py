"""Compaction without being asked each time: `context_management` with a `compact_threshold`.

A context of more tokens than that is replaced by a summary before it is answered. The response then has the sealed
`compaction` item first and the answer behind it; what continues the response begins at that item.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from typing import Any

import msgspec

from proxy.request import ChatPlan, Policy
from proxy.server.generation.context import Footing, own_items
from proxy.server.generation.encrypted_content import is_compaction, is_instruction
from proxy.server.generation.gateway import Gateway
from proxy.server.generation.prepare import translated
from proxy.server.generation.request_log import Books
from proxy.server.generation.summarising import summarise
from proxy.wire.errors import ApiError
from proxy.wire.requests import ResponsesRequest

#: Bytes of a token where nobody can count: on the long side for code, so rather late than early.
_TOKEN = 4
#: A question up to this length is kept word for word, in characters.
_QUESTION = 16_000
_LAST_WORDS = "\n\nThe last message of the user, word for word:\n\n"

#: What a request says about its answer, and not about the summary.
_ABOUT_THE_ANSWER: dict[str, None] = dict.fromkeys(
    (
        "background",
        "context_management",
        "conversation",
        "include",
        "max_output_tokens",
        "max_tool_calls",
        "previous_response_id",
        "text",
        "tool_choice",
        "top_logprobs",
    )
)

Item = dict[str, Any]


async def compaction_due(
    gateway: Gateway,
    tenant: str,
    request: ResponsesRequest,
    footing: Footing,
    policy: Policy,
    plan: ChatPlan,
    headers: Mapping[str, str],
    request_id: str,
) -> AutomaticCompaction | None:
    """The compaction that has to come before the answer, if one has to. `plan` is that of the request as it came, `headers`
    are the client's."""
    threshold = plan.compact_threshold
    if threshold is None or request.generate is False:
        return None
    context = [*footing.history, *own_items(request, footing)]
    said = [item for item in gateway.seal.since_compaction(context) if not is_instruction(item) and not is_compaction(item)]
    if len(said) < 2 or await _tokens(gateway, request, footing, plan) <= threshold:
        return None  # a single message would not get shorter
    return AutomaticCompaction(gateway, tenant, request, context, policy, headers, request_id)


class AutomaticCompaction:
    """One that is due. `run` it before the answer is asked for."""

    def __init__(
        self,
        gateway: Gateway,
        tenant: str,
        request: ResponsesRequest,
        context: Sequence[Item],
        policy: Policy,
        headers: Mapping[str, str],
        request_id: str,
    ) -> None:
        """`context`: all that was said, the input of the request included."""
        self._gateway = gateway
        self._tenant = tenant
        self._request = request
        self._context = context
        self._policy = policy
        self._headers = headers
        self._request_id = request_id

    async def run(self, books: Books) -> tuple[str, bytes]:
        """The JSON of the compaction item, and the chat request that goes on from it. `books` are those of the answer. Raises
        `ApiError`."""
        gateway, tenant, request = self._gateway, self._tenant, self._request
        question = request.model_copy(update={**_ABOUT_THE_ANSWER, "input": [{"type": "compaction_trigger"}], "store": False})
        footing = Footing(history=self._context)
        try:
            summary = await summarise(gateway, tenant, question, footing, self._headers, self._request_id)
        except ApiError as error:
            error.message = f"The context could not be compacted: {error.message}"
            raise
        books.charge(summary)
        item: Item = msgspec.json.decode(summary.output[0])
        item["encrypted_content"] = self._with_question(item["encrypted_content"])
        answer = request.model_copy(update={"input": []})
        plan = translated(gateway, tenant, answer, Footing(history=[*self._context, item]), self._policy)
        return msgspec.json.encode(item).decode(), msgspec.json.encode(plan.body)

    def _with_question(self, sealed: str) -> str:
        """The sealed summary with what the user said last: the answer is to that, not to a retelling of it."""
        seal, model = self._gateway.seal, self._request.model
        found = seal.open("compaction", self._tenant, sealed, "input")
        question = _last_question(self._context)
        if found is None or not 0 < len(question) <= _QUESTION:
            return sealed
        return seal.close("compaction", self._tenant, model, found[1] + _LAST_WORDS + question)


async def _tokens(gateway: Gateway, request: ResponsesRequest, footing: Footing, plan: ChatPlan) -> int:
    """How long the context is: as the tokenizer counts; else as the previous response counted, and the input by its length;
    else all by its length."""
    if gateway.tokenizer is not None:
        try:
            return await asyncio.to_thread(gateway.tokenizer.count_input, plan.body)
        except ApiError:  # pictures, no template
            pass
    if footing.tokens is not None and footing.history and not is_compaction(footing.history[-1]):
        return footing.tokens + _estimate(own_items(request, footing))
    return _estimate([plan.body["messages"], plan.body.get("tools", [])])


def _estimate(value: Any) -> int:
    return len(msgspec.json.encode(value)) // _TOKEN


def _last_question(context: Sequence[Item]) -> str:
    """The text of the last user message."""
    for item in reversed(context):
        if item.get("type", "message") == "message" and item.get("role") == "user":
            content = item.get("content")
            parts = content if isinstance(content, list) else [{"text": content}]
            return "\n".join(part["text"] for part in parts if isinstance(part, dict) and isinstance(part.get("text"), str))
    return ""
