"""Compaction: a history becomes one encrypted item that stands for it.

A request whose input ends with a `compaction_trigger` is answered with such an item. With `context_management` and a
`compact_threshold` a context of more tokens than that is replaced by a summary before it is answered: the response has the
`compaction` item first and the answer after it, and what continues the response begins at that item."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import msgspec

from proxy.backend.tokenizer.tokenizers import ModelTokenizer
from proxy.request import ChatRequest
from proxy.server.generation.context import Context, Item
from proxy.server.generation.encrypted_content import Encryption, is_compaction, is_instruction
from proxy.server.generation.request_log import RequestLog
from proxy.stream.translator import Translator
from proxy.wire.errors import ApiError
from proxy.wire.requests import ResponsesRequest

# Bytes of a token where they cannot be counted: a high estimate for code, so rather late than early.
_BYTES_PER_TOKEN = 4
# A question up to this length is kept word for word, in characters.
_LONGEST_QUESTION = 16_000
_LAST_WORDS = "\n\nThe last message of the user, word for word:\n\n"

# What a request says about its answer, and not about the summary.
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

# Has the backend answer a request that ends with a `compaction_trigger`. Raises `ApiError`.
Summarise = Callable[[ResponsesRequest, Context], Awaitable[Translator]]
# Translates a request; raises `ApiError`.
Translate = Callable[[ResponsesRequest, Context], ChatRequest]


def with_trigger(request: ResponsesRequest) -> ResponsesRequest:
    """Return the request that asks for a summary of what this one contains."""
    given = request.input or []
    items = [{"type": "message", "role": "user", "content": given}] if isinstance(given, str) else given
    return request.model_copy(update={"input": [*items, {"type": "compaction_trigger"}]})


async def is_due(
    threshold: int,
    request: ResponsesRequest,
    context: Context,
    chat_request: ChatRequest,
    encryption: Encryption,
    tokenizer: ModelTokenizer | None,
) -> bool:
    """Tell whether the context has more tokens than the threshold, and has to be compacted before the answer."""
    if request.generate is False:
        return False
    items = encryption.since_compaction([*context.history, *context.input])
    said = [item for item in items if not is_instruction(item) and not is_compaction(item)]
    # A single message would not get shorter.
    return len(said) >= 2 and await _context_tokens(context, chat_request, tokenizer) > threshold


@dataclass(frozen=True, slots=True)
class AutomaticCompaction:
    """A compaction that is due. `run` it before the answer is asked for."""

    request: ResponsesRequest
    said: Sequence[Item]  # up to the answer
    encryption: Encryption
    tenant: str
    summarise: Summarise
    translate: Translate
    results: Mapping[str, bytes]  # of hosted calls, as a context has them

    async def run(self, log: RequestLog) -> tuple[str, dict[str, Any]]:
        """Return the JSON of the compaction item, and the body of the chat request that continues from it. `log` is that of
        the answer, whose client is charged. Raise `ApiError`."""
        request = self.request
        question = request.model_copy(update={**_ABOUT_THE_ANSWER, "input": [{"type": "compaction_trigger"}], "store": False})
        try:
            summary = await self.summarise(question, Context(question, self.said, results=self.results))
        except ApiError as error:
            error.message = f"The context could not be compacted: {error.message}"
            raise
        log.charge(summary)
        item: Item = msgspec.json.decode(summary.response.output[0])
        item["encrypted_content"] = self._with_question(item["encrypted_content"])
        answer = request.model_copy(update={"input": []})
        chat_request = self.translate(answer, Context(answer, [*self.said, item], results=self.results))
        return msgspec.json.encode(item).decode(), chat_request.body

    def _with_question(self, content: str) -> str:
        """Add to the summary what the user said last, since the answer is to that and not to a retelling of it."""
        found = self.encryption.decrypt("compaction", self.tenant, content, "input")
        question = _last_question(self.said)
        if found is None or not 0 < len(question) <= _LONGEST_QUESTION:
            return content
        text = found[1] + _LAST_WORDS + question
        return self.encryption.encrypt("compaction", self.tenant, self.request.model, text)


async def _context_tokens(context: Context, chat_request: ChatRequest, tokenizer: ModelTokenizer | None) -> int:
    """Return the length of the context: as the tokenizer counts; else as the previous response counted, plus an estimate of the
    input; else an estimate of all."""
    if tokenizer is not None:
        try:
            return await asyncio.to_thread(tokenizer.count_input, chat_request.body)
        except ApiError:  # pictures, or no template
            pass
    if context.history_tokens is not None and context.history and not is_compaction(context.history[-1]):
        return context.history_tokens + _estimated_tokens(context.input)
    return _estimated_tokens([chat_request.body["messages"], chat_request.body.get("tools", [])])


def _estimated_tokens(value: Any) -> int:
    return len(msgspec.json.encode(value)) // _BYTES_PER_TOKEN


def _last_question(items: Sequence[Item]) -> str:
    """Return the text of the last user message."""
    for item in reversed(items):
        if item.get("type", "message") == "message" and item.get("role") == "user":
            content = item.get("content")
            parts = content if isinstance(content, list) else [{"text": content}]
            return "\n".join(part["text"] for part in parts if isinstance(part, dict) and isinstance(part.get("text"), str))
    return ""
