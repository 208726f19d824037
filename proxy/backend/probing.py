"""Finding out what a backend can do: some twenty small requests, one after another, each bounded in tokens and time."""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import Mapping
from typing import Any, Literal

import aiohttp
from yarl import URL

from proxy.backend.client import Backend
from proxy.backend.observation import REASONING_FIELDS, Answer, ask
from proxy.backend.profile import Model, Profile, Server
from proxy.wire.chat_errors import read_error
from proxy.wire.errors import ApiError

#: The endpoint that only one make of server has, with the field that proves it.
_IDENTITIES: tuple[tuple[Server, str, str], ...] = (
    ("ollama", "api/version", "version"),
    ("sglang", "get_server_info", "version"),
    ("llamacpp", "props", "default_generation_settings"),
    ("vllm", "version", "version"),
)
_OWNERS: dict[str, Server] = {"vllm": "vllm", "sglang": "sglang", "llamacpp": "llamacpp", "library": "ollama"}
#: The gauge of running requests, by the names that servers have for it.
_RUNNING = ("vllm:num_requests_running", "sglang:num_running_reqs", "llamacpp:requests_processing")
#: How long a server may go on after its client has left, in seconds; a healthy one stops within a tenth.
_STOPS_WITHIN = 2.0
#: A prompt longer than this is not sent just to see it refused, in tokens.
_LONGEST_OVERFLOW = 262_144
_BODY_LIMIT = 4 * 1024 * 1024

_CITY = {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"], "additionalProperties": False}
_WEATHER = {
    "type": "function",
    "function": {"name": "get_weather", "description": "The weather in a city.", "parameters": _CITY},
}
_USER = {"role": "user", "content": "Say hello."}
_SYSTEM = {"role": "system", "content": "Be brief."}
_ASSISTANT = {"role": "assistant", "content": "Hello."}
#: Conversations that some chat templates refuse.
_CONVERSATIONS: dict[str, list[dict[str, Any]]] = {
    "two_system": [_SYSTEM, {"role": "system", "content": "Be kind."}, _USER],
    "late_system": [_USER, _ASSISTANT, _SYSTEM, _USER],
    "developer": [{"role": "developer", "content": "Be brief."}, _USER],
    "two_user": [_USER, _USER],
}


async def probe(url: str, *, model: str | None = None, api_key: str | None = None, patience: float = 60) -> Profile:
    """Examine the server at `url` (which ends in `/v1`), with `model` or the first that it lists.

    `patience` is the longest time for one answer, in seconds. Raises `ApiError` if there is nobody (502, 504), if the key
    is wrong (401, 403), or if there is no model to ask.
    """
    backend = Backend(url, api_key=api_key, connect_timeout=min(patience, 10))
    began = time.monotonic()
    try:
        probing = _Probing(backend, Profile(url), patience)
        await probing.run(model)
        probing.profile.seconds = round(time.monotonic() - began, 3)
        return probing.profile
    finally:
        await backend.close()


class _Probing:
    """The questions, in the order in which they are asked."""

    def __init__(self, backend: Backend, profile: Profile, patience: float) -> None:
        self.profile = profile
        self._backend = backend
        self._patience = patience
        self._limit_field = "max_completion_tokens"

    async def run(self, model: str | None) -> None:
        await self._identify()
        await self._list_models(model)
        if not await self._plain():
            return
        await self._max_tokens()
        await self._reasoning()
        await self._calls()
        await self._parallel()
        await self._structured()
        await self._templates()
        await self._tokenize()
        await self._errors()
        await self._disconnect()

    # ---- what kind of server --------------------------------------------------------------------------------------

    async def _identify(self) -> None:
        for server, path, proof in _IDENTITIES:
            status, value = await self._get(path, below=self._backend.root)
            if status == 200 and isinstance(value, dict) and proof in value:
                self.profile.server = server
                version = value.get("version") or value.get("build_info")
                self.profile.version = version if isinstance(version, str) else None
                self._context = _context_of(value)
                return
        self._context = None

    async def _list_models(self, wanted: str | None) -> None:
        status, value = await self._get("models")
        if status in (401, 403):
            raise read_error(status, json.dumps(value).encode())
        entries = value.get("data") if status == 200 and isinstance(value, dict) else None
        profile = self.profile
        for entry in entries if isinstance(entries, list) else ():
            if isinstance(entry, dict) and isinstance(entry.get("id"), str):
                profile.models.append(Model(entry["id"], _max_length(entry) or self._context))
                if profile.server == "unknown":
                    profile.server = _OWNERS.get(str(entry.get("owned_by")), "unknown")
        if wanted is None and not profile.models:
            raise ApiError(status if status >= 400 else 404, f"/models lists no model (HTTP {status}): name one with --model")
        profile.model = wanted or profile.models[0].id
        if profile.max_length is None and self._context is not None:
            profile.models.append(Model(profile.model, self._context))

    # ---- its streams ----------------------------------------------------------------------------------------------

    async def _plain(self) -> bool:
        """A first answer. False if there is none, and no use in asking on."""
        answer = await self._ask("answer", "Say hello in five words.", limit=1024)
        if answer.status in (400, 422):  # it may know the older field alone
            self._limit_field = "max_tokens"
            answer = await self._ask("answer", "Say hello in five words.", limit=1024)
        if answer.status in (401, 403) and answer.error is not None:
            raise answer.error
        profile = self.profile
        if answer.status != 200:
            profile.refusal = _refusal_of(answer)
            return False
        profile.streams = answer.streamed
        profile.finish_reason = answer.finish_reason is not None
        profile.done_marker = answer.done
        return True

    async def _max_tokens(self) -> None:
        """The fields that may limit an answer: the first that does."""
        fields: list[Literal["max_completion_tokens", "max_tokens"]] = ["max_completion_tokens", "max_tokens"]
        for name in fields[fields.index("max_tokens") if self._limit_field == "max_tokens" else 0 :]:
            self._limit_field = name
            answer = await self._ask("limit", "Count from 1 to 300, with commas.", limit=8, cut_after=100)
            if answer.finish_reason == "length":
                self.profile.max_tokens_field = name
                return
        self._limit_field = "max_completion_tokens"
        self.profile.max_tokens_field = "none" if answer.ok else None

    async def _reasoning(self) -> None:
        await self._ask("reasoning", "Think step by step: what is 17 times 23? Then answer with the number.", limit=2048)

    async def _calls(self) -> None:
        question = "What is the weather in Paris? Use the tool."
        answer = await self._ask("calls", question, limit=2048, tools=[_WEATHER], tool_choice="auto")
        profile = self.profile
        if answer.calls or answer.legacy_call:
            profile.calls = "parsed" if answer.calls else "legacy"
            profile.call_arguments_valid = all(_is_object(call.arguments) for call in answer.calls.values())
        elif answer.status == 200:
            profile.calls = ("forced" if await self._forced(question) else "none") if answer.ok else None
        elif answer.status > 0:
            profile.calls = "refused"
            profile.calls_refusal = answer.error.message if answer.error is not None else None
            # With `none` vLLM shows the tools to the model all the same: is there markup in the text?
            await self._ask("calls", question, limit=2048, tools=[_WEATHER], tool_choice="none", skip_special_tokens=False)

    async def _forced(self, question: str) -> bool:
        """Whether there is a call if the model has no choice."""
        return bool((await self._ask("forced", question, limit=2048, tools=[_WEATHER], tool_choice="required")).calls)

    async def _parallel(self) -> None:
        if self.profile.calls != "parsed":
            return
        question = "What is the weather in Rome, and what in Lima? Call the tool for both cities at once."
        answer = await self._ask("parallel", question, limit=2048, tools=[_WEATHER], parallel_tool_calls=True)
        if answer.calls:
            self.profile.parallel_calls = len(answer.calls) > 1
        if len(answer.calls) > 1:
            self.profile.interleaved_calls = answer.interleaved

    async def _structured(self) -> None:
        names = ["zipcode", "population_in_thousands"]
        properties = {"zipcode": {"type": "string"}, "population_in_thousands": {"type": "integer"}}
        schema = {"type": "object", "properties": properties, "required": names, "additionalProperties": False}
        form = {"type": "json_schema", "json_schema": {"name": "place", "schema": schema, "strict": True}}
        answer = await self._ask("structured", "Tell me about Paris in one sentence.", limit=1024, response_format=form)
        if answer.ok and answer.finish_reason == "stop" and answer.text.strip():
            text = answer.text.rpartition("</think>")[2]
            self.profile.structured_output = _is_object(text) and set(json.loads(text)) == set(names)
        elif answer.status in (400, 422):
            self.profile.structured_output = False

    async def _ask(self, name: str, question: str, *, limit: int, cut_after: int | None = None, **extras: Any) -> Answer:
        """Ask with a stream, and note what every stream tells."""
        body = {
            "model": self.profile.model,
            "messages": [{"role": "user", "content": question}],
            "stream": True,
            "stream_options": {"include_usage": True},
            "return_token_ids": True,
            self._limit_field: limit,
            **extras,
        }
        answer = await ask(self._backend, body, {}, patience=self._patience, cut_after=cut_after)
        self._learn(name, answer)
        return answer

    def _learn(self, name: str, answer: Answer) -> None:
        profile = self.profile
        if answer.problem is not None:
            profile.problems[name] = answer.problem
        elif answer.status >= 500 and answer.error is not None:
            profile.problems[name] = f"HTTP {answer.status}: {answer.error.message}"
        if answer.status != 200:
            return
        if answer.text.strip() and name != "disconnect":  # what is written beyond its end may be anything
            profile.texts[name] = answer.text[:4000]
        found = next((field for field in REASONING_FIELDS if answer.reasoning.get(field, "").strip()), None)
        profile.reasoning_field = profile.reasoning_field or found
        profile.token_ids = bool(profile.token_ids) or answer.token_ids
        if answer.ok and not answer.cut:
            self._learn_usage(answer)
            if found and answer.finish_reason == "stop" and not answer.text.strip() and not answer.calls:
                profile.thoughts_alone = True

    def _learn_usage(self, answer: Answer) -> None:
        profile = self.profile
        every = answer.chunks > 2 and answer.chunks_with_usage >= answer.chunks - 1
        profile.usage = "none" if answer.usage is None else "every" if every else "last"
        usage = answer.usage or {}
        details = usage.get("completion_tokens_details") or {}
        profile.reports_reasoning_tokens |= details.get("reasoning_tokens") is not None
        profile.reports_cached_tokens |= (usage.get("prompt_tokens_details") or {}).get("cached_tokens") is not None

    # ---- its tolerance --------------------------------------------------------------------------------------------

    async def _templates(self) -> None:
        if _accepted(await self._short([_USER])) is not True:
            return  # then the others would prove nothing
        for name, messages in _CONVERSATIONS.items():
            accepted = _accepted(await self._short(messages))
            if accepted is not None:
                self.profile.tolerates[name] = accepted
        if self.profile.reasoning_field is not None:
            thought = {**_ASSISTANT, self.profile.reasoning_field: "They greet me."}
            self.profile.reasoning_history = _accepted(await self._short([_USER, thought, _USER]))

    async def _tokenize(self) -> None:
        self.profile.tokenize = "none"
        for name, question in (("messages", [_USER]), ("prompt", "Say hello.")):
            data = json.dumps({"model": self.profile.model, name: question}).encode()
            status, value = await self._get("tokenize", below=self._backend.root, data=data)
            if status == 200 and isinstance(value, dict) and ("count" in value or (name == "prompt" and "tokens" in value)):
                self.profile.tokenize = "messages" if name == "messages" else "prompt"
                return

    async def _errors(self) -> None:
        profile = self.profile
        wrong = await self._short([_USER], model="no-such-model-9f2c")
        profile.unknown_model = {True: "served", False: "refused", None: None}[_accepted(wrong)]
        if wrong.error_shape is None:
            wrong = await self._short([_USER], temperature=-1)
        profile.error_shape = wrong.error_shape
        length = profile.max_length
        if length is None or length > _LONGEST_OVERFLOW:
            return
        long = await self._short([{"role": "user", "content": "x " * (length + 16)}])
        if long.status == 200:
            profile.overflow = "accepted"
        elif long.error is not None:
            profile.overflow = "recognised" if long.error.code == "context_length_exceeded" else "unclear"

    async def _short(self, messages: list[dict[str, Any]], **extras: Any) -> Answer:
        """One token, not streamed: is it accepted?"""
        body = {"model": self.profile.model, "messages": messages, self._limit_field: 1, **extras}
        return await ask(self._backend, body, {}, patience=self._patience)

    async def _disconnect(self) -> None:
        """Leave in the middle of a long answer, and see in the server's metrics whether it goes on."""
        before = await self._running()
        if before is None:
            return
        question = "Count from 1 to 2000, one number a line."
        extras: dict[str, Any] = (
            {"ignore_eos": True} if self.profile.server in ("vllm", "sglang") else {}
        )  # some models are soon done
        answer = await self._ask("disconnect", question, limit=4096, cut_after=3, **extras)
        if not answer.cut or answer.finish_reason is not None:
            return  # too fast to leave in the middle
        end = time.monotonic() + _STOPS_WITHIN
        while (running := await self._running()) is not None and running > before:
            if time.monotonic() > end:
                self.profile.stops = False
                return
            await asyncio.sleep(0.05)
        self.profile.stops = True if running is not None else None

    async def _running(self) -> float | None:
        status, text = await self._get("metrics", below=self._backend.root)
        if status != 200 or not isinstance(text, str):
            return None
        values = [line.rpartition(" ")[2] for line in text.splitlines() if line.startswith(_RUNNING)]
        try:
            return sum(map(float, values)) if values else None
        except ValueError:
            return None

    async def _get(self, path: str, *, below: URL | None = None, data: bytes | None = None) -> tuple[int, Any]:
        """Status and value (JSON, else text) of an endpoint; with `data` it is a POST. Raises `ApiError` if nobody is there."""
        headers: Mapping[str, str] = {"Content-Type": "application/json"} if data is not None else {}
        try:
            async with asyncio.timeout(self._patience):
                method = "GET" if data is None else "POST"
                async with await self._backend.request(method, path, below=below, body=data, headers=headers.items()) as answer:
                    body = await answer.content.read(_BODY_LIMIT)
        except TimeoutError:
            raise ApiError(504, f"/{path} did not answer within {self._patience:g} seconds.") from None
        except aiohttp.ClientError:
            return 0, None
        try:
            return answer.status, json.loads(body)
        except (ValueError, RecursionError):
            return answer.status, body.decode("utf-8", "replace")


def _context_of(identity: dict[str, Any]) -> int | None:
    """SGLang and llama.cpp tell the context there."""
    settings = identity.get("default_generation_settings")
    value = identity.get("context_length") or (settings.get("n_ctx") if isinstance(settings, dict) else None)
    return value if isinstance(value, int) else None


def _max_length(entry: dict[str, Any]) -> int | None:
    value = entry.get("max_model_len")
    return value if isinstance(value, int) else None


def _accepted(answer: Answer) -> bool | None:
    """Whether a conversation passed the chat template (llama.cpp answers 500 where it does not)."""
    return answer.status == 200 if answer.status in (200, 400, 404, 422, 500) else None


def _refusal_of(answer: Answer) -> str:
    message = answer.error.message if answer.error is not None else answer.problem or "no answer"
    return f"HTTP {answer.status}: {message}" if answer.status else message


def _is_object(text: str) -> bool:
    try:
        return isinstance(json.loads(text), dict)
    except ValueError:
        return False
