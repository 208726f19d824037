"""Finding out what a backend can do: some twenty small requests, one after another, each bounded in tokens and time."""

from __future__ import annotations

import asyncio
import json
import time
from typing import Any, Literal

from proxy.backend.transport.client import Backend
from proxy.probing.profile import Profile, Server
from proxy.probing.questions import (
    ASSISTANT,
    PATTERNED_WEATHER,
    USER,
    WEATHER,
    WEATHER_QUESTION,
    Questions,
    accepted,
    refusal_of,
)

#: The endpoint that only one make of server has, with the field that proves it.
_IDENTITIES: tuple[tuple[Server, str, str], ...] = (
    ("ollama", "api/version", "version"),
    ("sglang", "get_server_info", "version"),
    ("llamacpp", "props", "default_generation_settings"),
    ("vllm", "version", "version"),
)
#: The gauge of running requests, by the names that servers have for it.
_RUNNING = ("vllm:num_requests_running", "sglang:num_running_reqs", "llamacpp:requests_processing")
#: How long a server may go on after its client has left, in seconds; a healthy one stops within a tenth.
_STOPS_WITHIN = 2.0
#: A prompt longer than this is not sent just to see it refused, in tokens.
_LONGEST_OVERFLOW = 262_144
_SYSTEM = {"role": "system", "content": "Be brief."}
#: Conversations that some chat templates refuse.
_CONVERSATIONS: dict[str, list[dict[str, Any]]] = {
    "two_system": [_SYSTEM, {"role": "system", "content": "Be kind."}, USER],
    "late_system": [USER, ASSISTANT, _SYSTEM, USER],
    "developer": [{"role": "developer", "content": "Be brief."}, USER],
    "two_user": [USER, USER],
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
        self._questions = Questions(backend, profile, patience)
        self._context: int | None = None

    async def run(self, model: str | None) -> None:
        await self._identify()
        await self._questions.list_models(model, self._context)
        if not await self._plain():
            return
        await self._questions.find_limit()
        await self._reasoning()
        await self._calls()
        await self._parallel()
        await self._structured()
        await self._patterns()
        await self._templates()
        await self._tokenize()
        await self._errors()
        await self._disconnect()

    # ---- what kind of server --------------------------------------------------------------------------------------

    async def _identify(self) -> None:
        for server, path, proof in _IDENTITIES:
            status, value = await self._questions.get(path, below=self._questions.backend.root)
            if status == 200 and isinstance(value, dict) and proof in value:
                self.profile.server = server
                version = value.get("version") or value.get("build_info")
                self.profile.version = version if isinstance(version, str) else None
                self._context = _context_of(value)
                return

    # ---- its streams ----------------------------------------------------------------------------------------------

    async def _plain(self) -> bool:
        """A first answer. False if there is none, and no use in asking on."""
        answer = await self._questions.ask("answer", "Say hello in five words.", limit=1024)
        if answer.status in (400, 422):  # it may know the older field alone
            self._questions.limit_field = "max_tokens"
            answer = await self._questions.ask("answer", "Say hello in five words.", limit=1024)
        if answer.status in (401, 403) and answer.error is not None:
            raise answer.error
        profile = self.profile
        if answer.status != 200:
            profile.refusal = refusal_of(answer)
            return False
        profile.streams = answer.streamed
        profile.finish_reason = answer.finish_reason is not None
        profile.done_marker = answer.done
        return True

    async def _reasoning(self) -> None:
        await self._questions.ask(
            "reasoning", "Think step by step: what is 17 times 23? Then answer with the number.", limit=2048
        )

    async def _calls(self) -> None:
        question = WEATHER_QUESTION
        answer = await self._questions.ask("calls", question, limit=2048, tools=[WEATHER], tool_choice="auto")
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
            await self._questions.ask(
                "calls", question, limit=2048, tools=[WEATHER], tool_choice="none", skip_special_tokens=False
            )

    async def _forced(self, question: str) -> bool:
        """Whether there is a call if the model has no choice."""
        return bool((await self._questions.ask("forced", question, limit=2048, tools=[WEATHER], tool_choice="required")).calls)

    async def _parallel(self) -> None:
        if self.profile.calls != "parsed":
            return
        question = "What is the weather in Rome, and what in Lima? Call the tool for both cities at once."
        answer = await self._questions.ask("parallel", question, limit=2048, tools=[WEATHER], parallel_tool_calls=True)
        if answer.calls:
            self.profile.parallel_calls = len(answer.calls) > 1
        if len(answer.calls) > 1:
            self.profile.interleaved_calls = answer.interleaved

    async def _structured(self) -> None:
        names = ["zipcode", "population_in_thousands"]
        properties = {"zipcode": {"type": "string"}, "population_in_thousands": {"type": "integer"}}
        schema = {"type": "object", "properties": properties, "required": names, "additionalProperties": False}
        form = {"type": "json_schema", "json_schema": {"name": "place", "schema": schema, "strict": True}}
        answer = await self._questions.ask(
            "structured", "Tell me about Paris in one sentence.", limit=1024, response_format=form
        )
        if answer.ok and answer.finish_reason == "stop" and answer.text.strip():
            text = answer.text.rpartition("</think>")[2]
            self.profile.structured_output = _is_object(text) and set(json.loads(text)) == set(names)
        elif answer.status in (400, 422):
            self.profile.structured_output = False

    async def _patterns(self) -> None:
        """What the pattern of an argument is matched with: a text that no model would write tells who wrote it."""
        if self.profile.calls != "parsed":
            return
        answer = await self._questions.ask("patterns", WEATHER_QUESTION, limit=1024, tools=[PATTERNED_WEATHER])
        for call in answer.calls.values():
            readings: dict[str, Literal["json", "text"]] = {"zq7\nzq7": "json", r"zq7\nzq7": "text"}
            city = json.loads(call.arguments).get("city") if _is_object(call.arguments) else None
            self.profile.pattern_reading = readings.get(str(city))

    # ---- its tolerance --------------------------------------------------------------------------------------------

    async def _templates(self) -> None:
        if accepted(await self._questions.short([USER])) is not True:
            return  # then the others would prove nothing
        for name, messages in _CONVERSATIONS.items():
            taken = accepted(await self._questions.short(messages))
            if taken is not None:
                self.profile.tolerates[name] = taken
        if self.profile.reasoning_field is not None:
            thought = {**ASSISTANT, self.profile.reasoning_field: "They greet me."}
            self.profile.reasoning_history = accepted(await self._questions.short([USER, thought, USER]))

    async def _tokenize(self) -> None:
        self.profile.tokenize = "none"
        for name, question in (("messages", [USER]), ("prompt", "Say hello.")):
            data = json.dumps({"model": self.profile.model, name: question}).encode()
            status, value = await self._questions.get("tokenize", below=self._questions.backend.root, data=data)
            if status == 200 and isinstance(value, dict) and ("count" in value or (name == "prompt" and "tokens" in value)):
                self.profile.tokenize = "messages" if name == "messages" else "prompt"
                return

    async def _errors(self) -> None:
        profile = self.profile
        wrong = await self._questions.short([USER], model="no-such-model-9f2c")
        profile.unknown_model = {True: "served", False: "refused", None: None}[accepted(wrong)]
        if wrong.error_shape is None:
            wrong = await self._questions.short([USER], temperature=-1)
        profile.error_shape = wrong.error_shape
        length = profile.max_length
        if length is None or length > _LONGEST_OVERFLOW:
            return
        long = await self._questions.short([{"role": "user", "content": "x " * (length + 16)}])
        if long.status == 200:
            profile.overflow = "accepted"
        elif long.error is not None:
            profile.overflow = "recognised" if long.error.code == "context_length_exceeded" else "unclear"

    async def _disconnect(self) -> None:
        """Leave in the middle of a long answer, and see in the server's metrics whether it goes on."""
        before = await self._running()
        if before is None:
            return
        question = "Count from 1 to 2000, one number a line."
        extras: dict[str, Any] = (
            {"ignore_eos": True} if self.profile.server in ("vllm", "sglang") else {}
        )  # some models are soon done
        answer = await self._questions.ask("disconnect", question, limit=4096, cut_after=3, **extras)
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
        status, text = await self._questions.get("metrics", below=self._questions.backend.root)
        if status != 200 or not isinstance(text, str):
            return None
        values = [line.rpartition(" ")[2] for line in text.splitlines() if line.startswith(_RUNNING)]
        try:
            return sum(map(float, values)) if values else None
        except ValueError:
            return None


def _context_of(identity: dict[str, Any]) -> int | None:
    """SGLang and llama.cpp tell the context there."""
    settings = identity.get("default_generation_settings")
    value = identity.get("context_length") or (settings.get("n_ctx") if isinstance(settings, dict) else None)
    return value if isinstance(value, int) else None


def _is_object(text: str) -> bool:
    try:
        return isinstance(json.loads(text), dict)
    except ValueError:
        return False
