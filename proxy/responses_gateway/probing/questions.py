"""The requests that probing sends to a chat server, and what each answer adds to the profile."""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Literal, TypeAlias

import aiohttp
from yarl import URL

from responses_gateway import parsers
from responses_gateway.backend.policies.alike import checkpoint_of
from responses_gateway.backend.server_types import server_by_header, server_of
from responses_gateway.backend.transport.client import Backend
from responses_gateway.bounded_body import read_at_most
from responses_gateway.parsers.thought_tokens import ends_open, prompt_end_of
from responses_gateway.probing.answer import MARKER_TOKENS, REASONING_FIELDS, Answer, Patience, ask
from responses_gateway.probing.known_models import KnownModel
from responses_gateway.probing.profile import Model, Profile
from responses_gateway.wire.added_fields import UNSEEN_FIELDS, AddedFields
from responses_gateway.wire.errors import ApiError, read_error
from responses_gateway.wire.json_text import with_whole_characters

_BODY_LIMIT = 4 * 1024 * 1024  # bytes of an answer that are read
_TEXT_LIMIT = 4000  # characters of an answer that are kept to look for markup in
# Seconds that an answer must take to show the speed, because shorter ones show the load of the moment, or a proxy that buffers.
_MEASURED_SECONDS = 1.0
# Words of the prompt that shows how fast a server reads, because with fewer the rest of the request would count.
_WORDS_TO_READ = 1000
# The largest limit of its own that a server is examined for, in tokens, because `transformers serve` ends answers at 1024.
_LONGEST_OWN_LIMIT = 1100

# What the questions are for, as people read it while they wait.
_TITLES = {
    "answer": "a short answer", "limit": "an answer with a limit", "calls": "a tool call", "parallel": "parallel tool calls",
    "patterns": "a pattern in a tool's schema", "structured": "an answer with a JSON schema",
    "disconnect": "an answer that the doctor cuts off",
}  # fmt: skip
_CITY = {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"], "additionalProperties": False}
WEATHER = {
    "type": "function",
    "function": {"name": "get_weather", "description": "The weather in a city.", "parameters": _CITY},
}
_PATTERNED_CITY = {**_CITY, "properties": {"city": {"type": "string", "pattern": r"^zq7\\nzq7$"}}}
PATTERNED_WEATHER = {
    "type": "function",
    "function": {"name": "get_weather", "description": "The weather in a city.", "parameters": _PATTERNED_CITY, "strict": True},
}
WEATHER_QUESTION = "What is the weather in Paris? Use the tool."
ASKS_FOR_WEATHER = {"role": "user", "content": WEATHER_QUESTION}
USER = {"role": "user", "content": "Say hello."}
ASSISTANT = {"role": "assistant", "content": "Hello."}
# A turn with a call: chat templates leave out the reasoning of turns that are over. Mistral's take ids of nine characters.
_CALL = {"id": "callparis", "type": "function", "function": {"name": "get_weather", "arguments": '{"city": "Paris"}'}}
CALLING = {"role": "assistant", "content": "", "tool_calls": [_CALL]}
RESULT = {"role": "tool", "tool_call_id": "callparis", "content": "18 degrees"}


Tell: TypeAlias = Callable[[str], None]


def unheard(_question: str) -> None:
    """Tell nobody what is asked."""


class Questions:
    """Sends requests to one server and notes in `profile` what every answer reveals.

    `patience`: how long an answer is waited for. `limit_field`: the field that limits an answer.
    `wants_token_ids`: whether streams ask for token ids. `tell` gets a line for each question, before it is asked."""

    def __init__(self, backend: Backend, profile: Profile, patience: Patience, tell: Tell = unheard) -> None:
        self.backend = backend
        self.profile = profile
        self.limit_field = "max_completion_tokens"
        self.wants_token_ids = True
        self._patience = patience
        self._generated = 0
        self._generating = 0.0
        self._tell = tell
        self._software = ""  # the `Server` header of the last answer of an endpoint

    async def list_models(self, model: str | None = None, context: int | None = None) -> None:
        """List the models and choose `model` or the first. `context` is a context length (tokens) known from elsewhere. Raises
        `ApiError` if the server cannot be reached (502, 504), the key is wrong (401, 403) or no model is listed."""
        status, value = await self.get("models", self.backend.url)
        if status in (401, 403):
            raise read_error(status, json.dumps(value).encode())
        entries = value.get("data") if status == 200 and isinstance(value, dict) else None
        profile = self.profile
        checkpoints: dict[str, dict[str, str | int]] = {}
        for entry in entries if isinstance(entries, list) else ():
            if isinstance(entry, dict) and isinstance(entry.get("id"), str):
                length = entry.get("max_model_len")
                profile.models.append(Model(entry["id"], (length if isinstance(length, int) else None) or context))
                if checkpoint_of(entry) is not None:
                    checkpoints[entry["id"]] = {name: entry[name] for name in ("root", "max_model_len")}
                if profile.server == "unknown":
                    profile.server = server_of(entry.get("owned_by"))
        if profile.server == "unknown":
            profile.server = server_by_header(self._software)
        if model is None and not profile.models:
            raise ApiError(status if status >= 400 else 404, f"/models lists no model (HTTP {status}).", code="no_model")
        profile.model = model or profile.models[0].id
        profile.checkpoint = checkpoints.get(profile.model)
        if profile.max_length is None and context is not None:
            profile.models.append(Model(profile.model, context))

    async def get(self, path: str, below: URL | None = None) -> tuple[int, Any]:
        """Return status and body (parsed JSON, else text) of an endpoint, below the root if nothing else is said. Raises
        `ApiError` if the server cannot be reached."""
        return await self._request("GET", path, below or self.backend.root, None)

    async def post(self, path: str, **body: Any) -> tuple[int, Any]:
        """Do the same with a body for one below the root."""
        return await self._request("POST", path, self.backend.root, json.dumps(body).encode())

    async def _request(self, method: str, path: str, below: URL, data: bytes | None) -> tuple[int, Any]:
        headers = () if data is None else (("Content-Type", "application/json"),)
        try:
            async with asyncio.timeout(self._patience.silence):
                async with await self.backend.request(method, path, below=below, body=data, headers=headers) as answer:
                    self._software = answer.headers.get("Server", "")
                    body = await read_at_most(answer.content, _BODY_LIMIT)
        except TimeoutError:
            raise ApiError(504, f"/{path} did not answer within {self._patience.silence:g} seconds.") from None
        except aiohttp.ClientError:
            return 0, None
        try:
            return answer.status, json.loads(with_whole_characters(body))
        except (ValueError, RecursionError):
            return answer.status, body.decode("utf-8", "replace")

    async def ask(self, name: str, question: str, *, limit: int, cut_after: int | None = None, **extras: Any) -> Answer:
        """Ask for a stream, and note in the profile what every stream reveals."""
        self._tell(_TITLES.get(name, name))
        answer = await self._stream(question, cut_after, **{self.limit_field: limit}, **extras)
        self._note(name, answer)
        return answer

    async def _stream(self, question: str, cut_after: int | None, **fields: Any) -> Answer:
        body = {
            "model": self.profile.model,
            "messages": [{"role": "user", "content": question}],
            "stream": True,
            "stream_options": {"include_usage": True},
            **fields,
        }
        if self.wants_token_ids:
            body["return_token_ids"] = True
        return await ask(self.backend, body, patience=self._patience, cut_after=cut_after)

    def _note(self, name: str, answer: Answer) -> None:
        profile = self.profile
        self.note_refused_fields()
        if answer.problem is not None:
            profile.problems[name] = answer.problem
        elif answer.status >= 500 and answer.error is not None:
            profile.problems[name] = f"HTTP {answer.status}: {answer.error.message}"
        if answer.status != 200:
            return
        if answer.out_of_time:
            profile.times.unfinished.append(name)
        self._note_speed(answer)
        if answer.text.strip() and name != "disconnect":  # that one ignores the end token
            profile.texts[name] = answer.text[:_TEXT_LIMIT]
        field = next((field for field in REASONING_FIELDS if answer.reasoning.get(field, "").strip()), None)
        profile.reasoning_field = profile.reasoning_field or field
        if field:
            profile.thoughts[name] = answer.reasoning[field][:_TEXT_LIMIT]
        profile.token_ids = bool(profile.token_ids) or answer.token_ids
        if answer.ok and not answer.cut:
            self._note_usage(answer)
            alone = field and answer.finish_reason == "stop" and not answer.text.strip() and not answer.calls
            if alone and answer.unseen_tokens <= MARKER_TOKENS:
                profile.thoughts_alone = True

    def _note_speed(self, answer: Answer) -> None:
        tokens, seconds = answer.generation
        if seconds < _MEASURED_SECONDS:
            return
        self._generated += tokens
        self._generating += seconds
        self.profile.times.tokens_per_second = round(self._generated / self._generating, 2)

    async def find_reading_speed(self) -> None:
        """Measure how fast the server reads a prompt that it cannot have in its cache."""
        context = self.profile.max_length
        words = _WORDS_TO_READ if context is None else min(_WORDS_TO_READ, context // 4)
        started = time.monotonic()
        answer = await self.ask_whole([{"role": "user", "content": f"{time.time_ns()} {'word ' * words}"}])
        seconds = time.monotonic() - started
        if answer.ok and answer.prompt_tokens and answer.prompt_tokens >= words:
            self.profile.times.prompt_tokens_per_second = round(answer.prompt_tokens / seconds, 2)

    def note_refused_fields(self) -> None:
        """Note which fields of the gateway's own the server has refused so far."""
        self.profile.refused_fields = sorted(self.backend.learned.get(self.profile.model, ()))

    def _note_usage(self, answer: Answer) -> None:
        profile = self.profile
        every = answer.arrival.chunks > 2 and answer.chunks_with_usage >= answer.arrival.chunks - 1
        profile.usage = "every" if every else "last" if answer.chunks_with_usage else "none"

    async def ask_whole(
        self, messages: Sequence[Mapping[str, Any]], *, limit: int = 1, added: AddedFields = UNSEEN_FIELDS, **extras: Any
    ) -> Answer:
        """Ask for an answer that is not streamed; nothing of it is noted. One token is enough to see whether these messages are
        accepted. `added` are the fields that may be left out."""
        body = {"model": self.profile.model, "messages": messages, self.limit_field: limit, **extras}
        fields = f" with {', '.join(extras)}" if extras else ""
        self._tell(f"messages of {', '.join(message['role'] for message in messages)}{fields}")
        return await ask(self.backend, body, patience=self._patience, added=added)

    async def find_own_limit(self) -> None:
        """Find out whether the server ends a long answer for which no limit was asked. The model may end it before."""
        self._tell("an answer without a limit")
        answer = await self._stream("Count from 1 to 2000, one number a line.", _LONGEST_OWN_LIMIT)
        used = answer.usage.output
        if not answer.ok or answer.finish_reason != "length" or used is None:
            return
        context = self.profile.max_length
        if context is None or used + answer.prompt_tokens < context:
            self.profile.own_limit = used

    async def text_of(self, token_ids: list[int]) -> str:
        """Return the text of token ids, as the server's `/detokenize` tells it; empty if it has no such endpoint."""
        if not token_ids:
            return ""
        status, value = await self.post("detokenize", model=self.profile.model, tokens=token_ids)
        text = value.get("prompt") if status == 200 and isinstance(value, dict) else None
        return text if isinstance(text, str) else ""

    async def find_limit_field(self) -> Answer:
        """Find the field that limits an answer, and return the last answer."""
        fields: list[Literal["max_completion_tokens", "max_tokens"]] = ["max_completion_tokens", "max_tokens"]
        for name in fields[fields.index("max_tokens") if self.limit_field == "max_tokens" else 0 :]:
            self.limit_field = name
            answer = await self.ask("limit", "Count from 1 to 300, with commas.", limit=8, cut_after=100)
            if answer.ok and answer.finish_reason == "length":
                self.profile.max_tokens_field = name
                return answer
            if answer.status not in (200, 400, 422):
                break  # refused, but not because of the field's name
            if answer.out_of_time:
                break
        self.limit_field = "max_completion_tokens"
        self.profile.max_tokens_field = "none" if answer.ok and not answer.out_of_time else None
        return answer


def accepted(answer: Answer) -> bool | None:
    """Tell whether the chat template accepted the messages (llama.cpp answers 500 if not); None if that is unknown."""
    return answer.status == 200 if answer.status in (200, 400, 404, 422, 500) else None


def refusal_of(answer: Answer) -> str:
    """Say in words why there was no answer."""
    message = answer.error.message if answer.error is not None else answer.problem or "no answer"
    return f"HTTP {answer.status}: {message}" if answer.status else message


async def ask_chat_template(questions: Questions) -> KnownModel:
    """Find out whether the prompt of a plain request ends inside reasoning, and by which tokens that is seen, there and in an
    answer. Nothing is found out where the server does not tell. Raise `ApiError` if it cannot be reached."""
    openings, _ = parsers.reasoning_markers("auto")
    words = "\n".join(parsers.thought_markers()) + "\n\n "
    tokens = await _tokens(questions, prompt=words, add_special_tokens=False)
    prompt_end = prompt_end_of(tokens, openings)
    prompt = "".join(text for _, text in await _tokens(questions, messages=[USER]))
    return KnownModel(
        opens=ends_open(prompt, openings) if prompt else None,
        prompt_end=prompt_end if prompt_end.openings else None,
        thoughts=parsers.thought_tokens({text: token for token, text in tokens}),
    )


async def _tokens(questions: Questions, **what: Any) -> list[tuple[int, str]]:
    """Return the ids and texts of the tokens of a prompt, or of messages in their template; none where the server refuses."""
    status, answer = await questions.post("tokenize", model=questions.profile.model, return_token_strs=True, **what)
    ids, texts = (answer.get("tokens"), answer.get("token_strs")) if isinstance(answer, dict) else (None, None)
    if status != 200 or not isinstance(ids, list) or not isinstance(texts, list):
        return []
    return [(token, text) for token, text in zip(ids, texts, strict=False) if isinstance(token, int) and isinstance(text, str)]
