"""Compaction: a history becomes one encrypted item that stands for it.

A request whose input ends with a `compaction_trigger` is answered with such an item. With `context_management` and a
`compact_threshold` a context of more tokens than that is replaced by a summary before it is answered: the response has the
`compaction` item first and the answer after it, and what continues the response begins at that item."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import msgspec

from responses_gateway.backend.tokenizer.tokenizers import ModelTokenizer
from responses_gateway.request import ChatRequest
from responses_gateway.request.input.call_matching import open_items
from responses_gateway.request.input.items import text_item
from responses_gateway.server.generation.preparation.context import Caller, Context, Item, caller_within
from responses_gateway.server.generation.preparation.encrypted_content import Encryption, is_compaction, is_instruction
from responses_gateway.server.generation.request_log.request_log import RequestLog
from responses_gateway.stream.items.text_items import summary_id
from responses_gateway.stream.translator import Translator
from responses_gateway.wire.chat import texts_in
from responses_gateway.wire.errors import ApiError
from responses_gateway.wire.requests import ResponsesRequest

# Bytes of a token where tokens cannot be counted: a high estimate for code, because late is better than early.
_BYTES_PER_TOKEN = 4
# A question up to this length is kept word for word, in characters.
_LONGEST_QUESTION = 16_000
_LAST_WORDS = "\n\nThe last message of the user, word for word:\n\n"

# What a request says about its answer, and not about the summary.
_ABOUT_THE_ANSWER: dict[str, None] = dict.fromkeys((
    "background", "context_management", "conversation", "include", "max_output_tokens", "max_tool_calls", "moderation",
    "previous_response_id", "text", "tool_choice", "top_logprobs",
))  # fmt: skip


class Summary(NamedTuple):
    """The answer to a request that ends with a `compaction_trigger`: its translator, which has one `compaction` item, and the
    items that this one stands for."""

    translator: Translator
    summarised: Sequence[Item]

    @property
    def output(self) -> list[Item]:
        """The items that take the place of those: the compaction, and what is open."""
        compaction = [msgspec.json.decode(item) for item in self.translator.response.output]
        return [*compaction, *(self.summarised[place] for place in sorted(open_items(self.summarised)))]


# Is called with the id of the item when the model begins to write it.
Begun = Callable[[str], None]
# Has the backend answer a request that ends with a `compaction_trigger`. Raises `ApiError`.
Summarise = Callable[[ResponsesRequest, Caller, Context, Begun], Awaitable[Summary]]
# Translates a request; raises `ApiError`.
Translate = Callable[[ResponsesRequest, Context], ChatRequest]


class SummarySink:
    """The sink of a summary, of whose events the client of the answer gets one thing: that it is being made."""

    live = False
    slow = False
    unsent = 0

    def __init__(self, translator: Translator, begun: Begun) -> None:
        self._translator = translator
        self._begun: Begun | None = begun

    def write(self, _events: bytes) -> None:
        """Tell once that the model has begun."""
        begun = self._begun
        if begun is not None and self._translator.writer.next_index:
            self._begun = None
            begun(summary_id(self._translator.response_id))


def with_trigger(request: ResponsesRequest) -> ResponsesRequest:
    """Return the request that asks for a summary of what this one contains."""
    content = request.input or []
    items = [text_item(content)] if isinstance(content, str) else content
    return request.model_copy(update={"input": [*items, {"type": "compaction_trigger"}]})


async def is_due(
    threshold: int, context: Context, chat: Mapping[str, Any], encryption: Encryption, tokenizer: ModelTokenizer | None
) -> bool:
    """Tell whether the context has more tokens than the threshold, and has to be compacted before the answer. `chat` is the
    body of the chat request."""
    if context.request.only_warms or len(context.items) < 2 or await _context_tokens(context, chat, tokenizer) <= threshold:
        return False
    items = encryption.since_compaction(context.items, context.compactions_in_inputs)
    messages = [item for item in items if not is_instruction(item) and not is_compaction(item)]
    return len(messages) >= 2  # a single message would not get shorter


@dataclass(slots=True)
class AutomaticCompaction:
    """A compaction that is due. `run` it before the answer is asked for, with this `body` then."""

    context: Context
    caller: Caller
    encryption: Encryption
    summarise: Summarise
    translate: Translate
    body: dict[str, Any] | None = None

    async def run(self, log: RequestLog, begun: Begun) -> tuple[str, dict[str, Any]]:
        """Return the JSON of the compaction item, and the body of the chat request that continues from it. `log` is that of
        the answer, whose client is charged. Raise `ApiError`."""
        request = self.context.request
        items = self.context.items
        results = self.context.results
        question = request.model_copy(update={**_ABOUT_THE_ANSWER, "input": [{"type": "compaction_trigger"}], "store": False})
        since = self.encryption.since_compaction
        left = since(items, self.context.compactions_in_inputs)
        session = self.context.session
        context = Context(question, left, results=results, session=session, compactions_in_inputs=range(len(left)))
        try:
            summary = await self.summarise(question, caller_within(self.caller), context, begun)
        except ApiError as error:
            error.message = f"The context could not be compacted: {error.message}"
            raise
        log.charge(summary.translator)
        item: Item = msgspec.json.decode(summary.translator.response.output[0])
        item["encrypted_content"] = self._with_question(item["encrypted_content"], items)
        answer = request.model_copy(update={"input": []})
        self.body = self.translate(answer, Context(answer, since([*items, item]), results=results)).body
        return msgspec.json.encode(item).decode(), self.body

    def _with_question(self, content: str, items: Sequence[Item]) -> str:
        """Add to the summary what the user said last, since the answer is to that and not to a retelling of it."""
        decryption = self.encryption.decrypt("compaction", self.caller.tenant, content, "input")
        question = self._last_question(items)
        if decryption is None or not 0 < len(question) <= _LONGEST_QUESTION:
            return content
        text = decryption[1] + _LAST_WORDS + question
        return self.encryption.encrypt("compaction", self.caller.tenant, self.context.request.model, text)

    def _last_question(self, items: Sequence[Item]) -> str:
        """Return the text of the last user message, which may be left of an earlier summary alone."""
        for item in reversed(items):
            if item.get("type") in (None, "message") and item.get("role") == "user":
                return "\n".join(texts_in(item.get("content")))
            content = item.get("encrypted_content") if is_compaction(item) else None
            if isinstance(content, str):
                decryption = self.encryption.decrypt("compaction", self.caller.tenant, content, "input")
                _, sign, question = ("" if decryption is None else decryption[1]).rpartition(_LAST_WORDS)
                if sign:
                    return question
        return ""


async def _context_tokens(context: Context, chat: Mapping[str, Any], tokenizer: ModelTokenizer | None) -> int:
    """Return the length of the context: as the tokenizer counts; else as the previous response counted, plus an estimate of the
    input; else an estimate of all."""
    if tokenizer is not None:
        try:
            return await asyncio.to_thread(tokenizer.count_input, chat)
        except ApiError:  # pictures, or no template
            pass
    if context.history_tokens is not None and context.history and not is_compaction(context.history[-1]):
        return context.history_tokens + _estimated_tokens(context.input)
    return _estimated_tokens([chat["messages"], chat.get("tools", [])])


def _estimated_tokens(value: Any) -> int:
    return len(msgspec.json.encode(value)) // _BYTES_PER_TOKEN
