"""How many tokens the prompt of a chat request has: the backend counts, or else the gateway's own tokenizer; the ids of a text,
and the text of ids."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from contextlib import AbstractAsyncContextManager
from typing import Any, TypeAlias, TypeVar

import aiohttp
import msgspec

from responses_gateway.backend.pool import OnFailure, Pool
from responses_gateway.backend.served_models import Route
from responses_gateway.backend.tokenizer.tokenizers import ModelTokenizer
from responses_gateway.bounded_body import read_at_most
from responses_gateway.wire.errors import ApiError, in_client_terms, read_error, server_error
from responses_gateway.wire.json_text import decode_as

# Fields of a chat request that vLLM's `/tokenize` has as well.
_FIELDS = (
    "model", "messages", "tools", "add_generation_prompt", "continue_final_message", "chat_template", "chat_template_kwargs",
    "mm_processor_kwargs",
)  # fmt: skip
_HEADERS = (("Content-Type", "application/json"),)
# Answers of servers without such an endpoint, or with one that takes no messages.
_NO_ENDPOINT = frozenset({404, 405, 422, 501})

# Seconds for which the only backend is not asked again that has no such endpoint: it may be replaced by one that has it.
_ABSENT = 60.0
# Bytes that are read of an answer, which has about seven for each token, and of a refusal.
_LARGEST = 64 * 1024 * 1024
_LARGEST_REFUSAL = 64 * 1024

# Characters of a text for each token, about: a little less than in English, because code and other languages have fewer.
_CHARACTERS = 3.5
_PICTURE = 1500  # tokens of a picture, about

_T = TypeVar("_T")
# The status and the body of an answer.
_Answer: TypeAlias = tuple[int, bytes]


class PromptTokens:
    """Counts prompts without asking for an answer."""

    def __init__(self, pool: Pool, tokenizer: ModelTokenizer | None) -> None:
        self._pool = pool
        self._tokenizer = tokenizer
        self._absent_until = 0.0  # on the clock of the event loop

    async def count(
        self, chat: Mapping[str, Any], headers: Mapping[str, str], within: float, messages: Sequence[bytes] | None = None
    ) -> int | None:
        """Return the number of tokens; None if nobody can count them. `within` is in seconds, and `messages` are the JSON of
        each message, where that is known. Raise `ApiError` if the backend refuses the request or fails."""
        tokens = None
        if asyncio.get_running_loop().time() >= self._absent_until:
            question = _question(chat)
            if messages is not None:
                question["messages"] = msgspec.Raw(b"[%b]" % b",".join(messages))
            tokens = await self._ask_backend(chat, question, headers, within)
        if tokens is None and self._tokenizer is not None:
            tokens = await asyncio.to_thread(self._tokenizer.count_input, chat)
        return tokens

    async def ids_of(self, model: str, text: str, headers: Mapping[str, str], within: float) -> list[int]:
        """Return the ids of a text's tokens, as vLLM's `/tokenize` tells them; none where it does not. `within` is in seconds.
        Raise `ApiError` if no backend can be reached."""
        question = {"model": model, "prompt": text, "add_special_tokens": False}
        return await self._ids(question, headers, within) or []

    async def rendered(self, chat: Mapping[str, Any], headers: Mapping[str, str], within: float) -> list[int] | None:
        """Return the ids of a chat request's prompt as the backend renders it `within` so many seconds; None if it does not."""
        try:
            return await self._ids(_question(chat), headers, within)
        except ApiError:
            return None

    async def _ids(self, question: Mapping[str, Any], headers: Mapping[str, str], within: float) -> list[int] | None:
        try:
            async with asyncio.timeout(within):
                answer = await self._post("tokenize", question, Route(question["model"]), headers)
        except (TimeoutError, aiohttp.ClientError):
            return None
        return _told(answer, "tokens", list[int])

    async def _ask_backend(
        self, chat: Mapping[str, Any], question: Mapping[str, Any], headers: Mapping[str, str], within: float
    ) -> int | None:
        """Return the backend's own count; None if it cannot say. Raise `ApiError` if it refuses the request or fails."""
        route = Route(chat["model"])
        try:
            async with asyncio.timeout(within):
                answer = await self._post("tokenize", question, route, headers)
                status, data = answer
                if status == 200:
                    count = _told(answer, "count", int)
                    return await self._count_rendered(chat, route, headers) if count is None else count
        except TimeoutError:
            raise server_error("The backend did not count the tokens in time.", 504) from None
        except aiohttp.ClientError:
            raise server_error("The connection to the backend broke in the middle of the answer.") from None
        known = status not in _NO_ENDPOINT or read_error(status, data).code == "model_not_found"
        if known and (status != 400 or self._tokenizer is None):
            raise in_client_terms(read_error(status, data))
        if status in _NO_ENDPOINT and self._pool.members.only is not None:  # of several, another one may have it
            self._absent_until = asyncio.get_running_loop().time() + _ABSENT
        return None

    async def _count_rendered(self, chat: Mapping[str, Any], route: Route, headers: Mapping[str, str]) -> int | None:
        """Return the count of a llama.cpp, whose `/tokenize` ignores messages: it renders the prompt first. None if it has no
        such endpoint."""
        try:
            prompt = _told(await self._post("apply-template", chat, route, headers), "prompt", str)
            if prompt is None:
                return None
            text = {"model": chat["model"], "content": prompt, "add_special": True, "parse_special": True}
            tokens = _told(await self._post("tokenize", text, route, headers), "tokens", list[msgspec.Raw])
        except ApiError:  # the gateway may have a tokenizer of its own
            return None
        return len(tokens) if tokens else None

    async def _post(self, path: str, body: Mapping[str, Any], route: Route, headers: Mapping[str, str]) -> _Answer:
        sent = [*_HEADERS, *headers.items()]
        data = msgspec.json.encode(body)
        return await _read(self._pool.request("POST", path, route, below_root=True, body=data, headers=sent))


async def text_of(
    pool: Pool, ids: Sequence[int], route: Route, headers: Mapping[str, str], within: float, on_failure: OnFailure
) -> str | None:
    """Return the text of ids, special tokens included, as vLLM's `/detokenize` tells it; None where it does not within so many
    seconds. `on_failure` is called for each request that fails."""
    body = msgspec.json.encode({"model": route.model, "tokens": list(ids)})
    sent = [*_HEADERS, *headers.items()]
    asking = pool.request("POST", "detokenize", route, below_root=True, body=body, headers=sent, on_failure=on_failure)
    try:
        async with asyncio.timeout(within):
            return _told(await _read(asking), "prompt", str)
    except (ApiError, OSError, aiohttp.ClientError):
        return None


async def _read(asking: AbstractAsyncContextManager[tuple[str, aiohttp.ClientResponse]]) -> _Answer:
    async with asking as (_, answer):
        return answer.status, await read_at_most(answer.content, _LARGEST if answer.status == 200 else _LARGEST_REFUSAL)


def _question(chat: Mapping[str, Any]) -> dict[str, Any]:
    question: dict[str, Any] = {"add_generation_prompt": True}
    question |= {name: chat[name] for name in _FIELDS if chat.get(name) is not None}
    if chat.get("reasoning_effort") is not None:  # a variable of the template: this endpoint has no field for it
        variables = {"reasoning_effort": chat["reasoning_effort"], **question.get("chat_template_kwargs", {})}
        question["chat_template_kwargs"] = variables
    return question


def _told(answer: _Answer, name: str, kind: type[_T]) -> _T | None:
    """Return a member of the JSON object that a server answered with; None if it refused, or there is none of this kind. Other
    members, maybe millions of ids, are passed over."""
    status, data = answer
    if status != 200:
        return None
    try:
        return decode_as(decode_as(data, dict[str, msgspec.Raw])[name], kind)
    except (KeyError, msgspec.MsgspecError):
        return None


def certainly_fits(data: bytes, messages: int, room: float) -> bool:
    """Tell whether `estimated_tokens` of an encoded chat request with so many messages certainly gives no more than `room`,
    which pictures may exceed."""
    return int(len(data) / _CHARACTERS) + 4 * messages <= room and b'"content":[' not in data


def estimated_tokens(chat: Mapping[str, Any]) -> int:
    """Return about how many tokens the prompt of a chat request has, where nobody counts them."""
    characters = 0
    pictures = 0
    for message in chat["messages"]:
        content = message.get("content") or ""
        if isinstance(content, str):
            characters += len(content)
        else:
            for part in content:
                text = part.get("text") if part.get("type") == "text" else None
                characters += len(text or "")
                pictures += text is None
        for name in ("reasoning", "reasoning_content"):
            if name in message:
                characters += len(message[name] or "")
        if "tool_calls" in message:
            characters += len(msgspec.json.encode(message["tool_calls"]))
    if "tools" in chat:
        characters += len(msgspec.json.encode(chat["tools"]))
    return int(characters / _CHARACTERS) + _PICTURE * pictures + 4 * len(chat["messages"])
