"""Find out what a chat server can do, by small requests sent one after another, each bounded in tokens and time.

`probe` asks everything, in some twenty requests. `probe_briefly` asks only what decides about settings. A server that behaves
as the defaults expect gets five requests: the list of its models, an answer of 8 tokens, a tool call, and two of one token."""

from __future__ import annotations

import asyncio
import time
from typing import Any, Literal

from responses_gateway.backend.server_types import SERVER_TYPES
from responses_gateway.backend.transport.client import Backend
from responses_gateway.probing.answer import MARKER_TOKENS, Answer, Patience, object_in
from responses_gateway.probing.needed_parsers import reads_any_call, tool_parser_for
from responses_gateway.probing.profile import Profile, Swallowed
from responses_gateway.probing.questions import (
    ASKS_FOR_WEATHER,
    ASSISTANT,
    CALLING,
    PATTERNED_WEATHER,
    RESULT,
    USER,
    WEATHER,
    WEATHER_QUESTION,
    Questions,
    Tell,
    accepted,
    refusal_of,
    unheard,
)
from responses_gateway.probing.session_turns import find_hints, play_turns
from responses_gateway.probing.tool_enforcement import find_enforcement
from responses_gateway.wire.added_fields import ALWAYS_ADDED, AddedField

# The gauge of running requests, by the names that servers give it.
_RUNNING_GAUGES = ("vllm:num_requests_running", "sglang:num_running_reqs", "llamacpp:requests_processing")
_PATIENCE = 60.0  # seconds in which something of an answer has to come, where nobody says anything else
# How long generation may continue after the client has disconnected, in seconds; a healthy server stops within 0.1.
STOP_DEADLINE = 2.0
# How many times as long as the time in which nothing may come a whole answer may take, so that an endless one ends: with the
# default ten minutes, in which a server of 3 tokens per second has said all that is asked.
WHOLE_ANSWER = 5
_LONGEST_OVERFLOW = 262_144  # the longest prompt that is sent just to see it refused, in tokens
_THINKING_LIMIT = 2048  # tokens for an answer in which the model may think first
_FORCED_LIMIT = 64  # tokens within which a forced call has begun
_BRIEF_THINKING_LIMIT = 512  # in the brief probe, less is tried first
# How servers that work answer what they do not support: vLLM's frontend in Rust tools without a parser, llama-cpp-python a JSON
# schema.
_UNSUPPORTED = (500, 501)
# The fields in which servers take earlier reasoning.
_HISTORY_FIELDS: tuple[Literal["reasoning", "reasoning_content"], ...] = ("reasoning", "reasoning_content")
# Enough tokens to be noticed.
_LONG_THOUGHT = "They want to know what the weather is like in Paris, so I look it up."
_SYSTEM = {"role": "system", "content": "Be brief."}
# Conversations that some chat templates refuse.
_CONVERSATIONS: dict[str, list[dict[str, Any]]] = {
    "two_system": [_SYSTEM, {"role": "system", "content": "Be kind."}, USER],
    "late_system": [USER, ASSISTANT, _SYSTEM, USER],
    "developer": [{"role": "developer", "content": "Be brief."}, USER],
    "two_user": [USER, USER],
}
# Turns that some templates refuse: of the assistant first, of the user twice, of the user behind a result. The same without the
# second one, and in the order that such templates want.
_FREE_TURNS: list[dict[str, Any]] = [ASSISTANT, USER, USER, CALLING, RESULT, USER]
_SINGLE_USERS: list[dict[str, Any]] = [ASSISTANT, USER, CALLING, RESULT, USER]
_ALTERNATING: list[dict[str, Any]] = [USER, ASSISTANT, USER, CALLING, RESULT, ASSISTANT, USER]
# How Messages requests without `thinking` turn it off.
_SWITCHES: dict[str, Any] = {"reasoning_effort": "none", "chat_template_kwargs": {"enable_thinking": False}}


class NoAnswer(Exception):
    """The server listed its models, but is too busy or too broken to answer a chat request."""


async def probe(
    url: str, *, model: str | None = None, api_key: str | None = None, answer_timeout: float = _PATIENCE, tell: Tell = unheard
) -> Profile:
    """Find out everything about the server at `url` (which ends in `/v1`), with `model` or the first that it lists.

    `answer_timeout` is how long nothing may come, in seconds; a whole answer may take several times as long. `tell` gets a line
    for each question, before it is asked: a server without a GPU takes minutes for all of them. Raises `ApiError` if the server
    cannot be reached (502, 504), the key is wrong (401, 403) or there is no model to ask."""
    backend = Backend(url, api_key=api_key, connect_timeout=min(answer_timeout, 10))
    try:
        prober = _Prober(backend, Patience(answer_timeout, answer_timeout * WHOLE_ANSWER), tell)
        await prober.ask_everything(model)
        return prober.finished_profile()
    finally:
        await backend.close()


async def probe_briefly(backend: Backend) -> Profile:
    """Find out what decides about settings, with the first model that is listed; the rest of the profile stays None.

    If nothing could be found out, `refusal` says why. Raises `ApiError` if the server cannot be reached (502, 504), the key is
    wrong (401, 403) or no model is listed; `NoAnswer` if the server is there but does not answer."""
    prober = _Prober(backend, Patience(_PATIENCE, _PATIENCE))
    await prober.ask_briefly()
    return prober.finished_profile()


class _Prober:
    def __init__(self, backend: Backend, patience: Patience, tell: Tell = unheard) -> None:
        self._profile = Profile(str(backend.url))
        self._questions = Questions(backend, self._profile, patience, tell)
        self._context: int | None = None
        self._started = time.monotonic()

    def finished_profile(self) -> Profile:
        """Return the profile, with the time that it took."""
        self._profile.times.seconds = round(time.monotonic() - self._started, 3)
        return self._profile

    async def ask_everything(self, model: str | None) -> None:
        await self._identify()
        await self._questions.list_models(model, self._context)
        if not await self._first_answer():
            return
        await self._questions.find_limit_field()
        server_type = SERVER_TYPES[self._profile.server]
        if server_type.own_limit or self._profile.server == "unknown":
            await self._questions.find_own_limit()
        question = "Think step by step: what is 17 times 23? Then answer with the number."
        await self._questions.ask("reasoning", question, limit=_THINKING_LIMIT)
        await self._calls()
        await self._place_for_tools()
        await self._parallel_calls()
        await self._named_tool_choice()
        await self._structured_output()
        await self._patterns()
        if self._profile.calls == "parsed":
            self._profile.enforcement = await find_enforcement(self._questions)
        if accepted(await self._questions.ask_whole([USER])) is True:  # otherwise refusals would prove nothing
            await self._templates()
            await self._turns()
            await self._reasoning_history()
            await self._added_fields()
            await self._session()
        await self._tokenize()
        await self._errors()
        await self._disconnect()
        if self._profile.times.slow:
            await self._questions.find_reading_speed()

    async def ask_briefly(self) -> None:
        profile = self._profile
        await self._questions.list_models()
        if profile.server == "unknown":
            await self._identify()
        server_type = SERVER_TYPES[profile.server]
        if profile.server == "ollama" or (server_type.on_demand and len(profile.models) > 1):
            # No model is loaded just to be examined: what holds for all of them has to do.
            profile.max_tokens_field = server_type.max_tokens_field
            return
        if len(profile.models) > 1 and not server_type.one_model:
            profile.refusal = f"it lists {len(profile.models)} models, which may differ"
            return
        self._questions.wants_token_ids = server_type.token_ids
        answer = await self._questions.find_limit_field()
        _require_answer(answer)
        if answer.status != 200:
            profile.refusal = refusal_of(answer)
            return
        await self._calls_briefly()
        await self._turns()
        await self._reasoning_history()

    # ---- which server -----------------------------------------------------------------------------------------------

    async def _identify(self) -> None:
        for server, server_type in SERVER_TYPES.items():
            if server_type.identity is None:
                continue
            path, proof = server_type.identity
            status, value = await self._questions.get(path)
            paths = value.get("paths") if isinstance(value, dict) else None
            if status == 200 and isinstance(value, dict) and (proof in value or (isinstance(paths, dict) and proof in paths)):
                self._profile.server = server
                version = value.get("version") or value.get("build_info")
                self._profile.version = version if isinstance(version, str) else None
                self._context = _context_length(value)
                return

    # ---- streams ----------------------------------------------------------------------------------------------------

    async def _first_answer(self) -> bool:
        """Ask for a first answer. Return False if it is refused, so that there is no use in going on."""
        answer = await self._questions.ask("answer", "Say hello in five words.", limit=1024)
        if answer.status in (400, 422):  # it may know only the older field
            self._questions.limit_field = "max_tokens"
            answer = await self._questions.ask("answer", "Say hello in five words.", limit=1024)
        if answer.status in (401, 403) and answer.error is not None:
            raise answer.error
        profile = self._profile
        if answer.status != 200:
            profile.refusal = refusal_of(answer)
            return False
        profile.streams = answer.streamed
        if not answer.out_of_time:
            profile.finish_reason = answer.finish_reason is not None
            profile.done_marker = answer.done
        return True

    # ---- calls ------------------------------------------------------------------------------------------------------

    async def _calls(self) -> None:
        profile = self._profile
        answer = await self._ask_for_call("calls", _THINKING_LIMIT, tool_choice="auto")
        self._note_calls(answer)
        if profile.calls == "none":
            await self._look_for_swallowed_call(answer, _THINKING_LIMIT)
        if profile.calls == "none":
            forced = await self._ask_for_call("forced", _THINKING_LIMIT, tool_choice="required")
            profile.calls = "forced" if forced.calls else "none"
        elif answer.status not in (0, 200):
            await self._tools_refused(answer, _THINKING_LIMIT)

    async def _calls_briefly(self) -> None:
        """Find out with one answer how both reasoning and calls come; with two if the first was too short to tell."""
        for limit in (_BRIEF_THINKING_LIMIT, _THINKING_LIMIT):
            answer = await self._ask_for_call("calls", limit, tool_choice="auto")
            if (400 <= answer.status < 500 and answer.status != 429) or answer.status in _UNSUPPORTED:
                answer = await self._tools_refused(answer, limit)
            _require_answer(answer)
            self._note_calls(answer)
            if self._profile.calls == "none":
                await self._look_for_swallowed_call(answer, limit)
            if answer.finish_reason != "length" or self._profile.reasoning_field is not None or "</think>" in answer.text:
                return

    async def _ask_for_call(self, name: str, limit: int, **extras: Any) -> Answer:
        return await self._questions.ask(name, WEATHER_QUESTION, limit=limit, tools=[WEATHER], **extras)

    async def _tools_refused(self, refusal: Answer, limit: int) -> Answer:
        """Note that tools are refused, and look for markup in the text."""
        self._profile.calls = "refused"
        self._profile.calls_refusal = refusal.error.message if refusal.error is not None else None
        # With `none` vLLM still shows the tools to the model, so that the text may have a call as markup.
        answer = await self._ask_for_call("calls", limit, tool_choice="none", skip_special_tokens=False)
        if answer.ok:
            self._profile.problems.pop("calls", None)
        return answer

    async def _look_for_swallowed_call(self, answer: Answer, limit: int) -> None:
        """Find out whether the server left out a call that its parser did not understand: tokens were used and not shown.

        Without a parser at work (`tool_choice` "none") the same answer shows what the model wrote, if the server still shows it
        the tools then; the ids of the tokens, or an answer that is not streamed, show it in any case."""
        profile = self._profile
        if not answer.ok or answer.unseen_tokens <= MARKER_TOKENS or tool_parser_for(profile.model, answer.text) is not None:
            return
        before = profile.texts.get("calls")
        unparsed = await self._ask_for_call("calls", limit, tool_choice="none", skip_special_tokens=False)
        if tool_parser_for(profile.model, unparsed.text) is not None:
            self._note_swallowed(answer, unparsed.text)
            return
        profile.texts.pop("calls", None)  # that answer says nothing about one with tools
        if before is not None:
            profile.texts["calls"] = before
        written = await self._questions.text_of(answer.silent_ids)
        if not reads_any_call(written):
            written = (await self._questions.ask_whole([ASKS_FOR_WEATHER], limit=limit, tools=[WEATHER])).text
        if reads_any_call(written):
            self._note_swallowed(answer, written)

    def _note_swallowed(self, answer: Answer, written: str) -> None:
        self._profile.calls = "swallowed"
        self._profile.swallowed = Swallowed(written, answer.unseen_tokens)

    async def _named_tool_choice(self) -> None:
        """Find out how a call of one function can be enforced, with a question that needs none."""
        profile = self._profile
        if profile.calls not in ("parsed", "forced"):
            return
        name = "get_weather"
        choices: dict[Literal["object", "required"], Any] = {
            "object": {"type": "function", "function": {"name": name}},
            "required": "required",
        }
        for kind, choice in choices.items():
            extras: dict[str, Any] = {"tools": [WEATHER], "tool_choice": choice}
            answer = await self._questions.ask_whole([USER], limit=_FORCED_LIMIT, **extras)
            if answer.problem is not None:  # too slow, for example: that the other way works would not show that this one fails
                return
            if any(call.name == name for call in answer.calls.values()):
                profile.named_tool_choice = kind
                return

    def _note_calls(self, answer: Answer) -> None:
        profile = self._profile
        if answer.calls or answer.legacy_call:
            profile.calls = "parsed" if answer.calls else "legacy"
            if answer.ok and not answer.cut:
                profile.call_arguments_valid = all(object_in(call.arguments) is not None for call in answer.calls.values())
        elif profile.calls is None and answer.ok and not answer.cut:
            profile.calls = "none"

    async def _place_for_tools(self) -> None:
        """Find out by the size of the prompt whether the chat template shows the model its tools, if it makes no call."""
        if self._profile.calls not in ("none", "forced"):
            return
        without = (await self._questions.ask_whole([USER])).prompt_tokens
        with_tools = (await self._questions.ask_whole([USER], tools=[WEATHER])).prompt_tokens
        if without and with_tools:
            self._profile.shows_tools = with_tools > without

    async def _parallel_calls(self) -> None:
        if self._profile.calls != "parsed":
            return
        question = "What is the weather in Rome, and what in Lima? Call the tool for both cities at once."
        extras: dict[str, Any] = {"tools": [WEATHER], "parallel_tool_calls": True}
        answer = await self._questions.ask("parallel", question, limit=_THINKING_LIMIT, **extras)
        if len(answer.calls) > 1 or (answer.calls and not answer.cut):
            self._profile.parallel_calls = len(answer.calls) > 1
        if len(answer.calls) > 1:
            self._profile.interleaved_calls = answer.interleaved

    async def _patterns(self) -> None:
        """Find out what an argument's `pattern` is matched with: a text that no model would write shows that it was forced."""
        if self._profile.calls != "parsed":
            return
        answer = await self._questions.ask("patterns", WEATHER_QUESTION, limit=1024, tools=[PATTERNED_WEATHER])
        for call in answer.calls.values():
            readings: dict[str, Literal["json", "text"]] = {"zq7\nzq7": "json", r"zq7\nzq7": "text"}
            city = (object_in(call.arguments) or {}).get("city")
            self._profile.pattern_reading = readings.get(str(city))

    # ---- what is accepted -------------------------------------------------------------------------------------------

    async def _structured_output(self) -> None:
        names = ["zipcode", "population_in_thousands"]
        properties = {"zipcode": {"type": "string"}, "population_in_thousands": {"type": "integer"}}
        schema = {"type": "object", "properties": properties, "required": names, "additionalProperties": False}
        form = {"type": "json_schema", "json_schema": {"name": "place", "schema": schema, "strict": True}}
        question = "Tell me about Paris in one sentence."
        answer = await self._questions.ask("structured", question, limit=1024, response_format=form)
        if answer.ok and answer.finish_reason == "stop" and answer.text.strip():
            place = object_in(answer.text.rpartition("</think>")[2])
            self._profile.structured_output = place is not None and set(place) == set(names)
        elif answer.status in (400, 422, *_UNSUPPORTED):
            self._profile.structured_output = False
            self._profile.problems.pop("structured", None)

    async def _templates(self) -> None:
        for name, messages in _CONVERSATIONS.items():
            tolerated = accepted(await self._questions.ask_whole(messages))
            if tolerated is not None:
                self._profile.tolerates[name] = tolerated

    async def _turns(self) -> None:
        """Find out whether the template wants turns to alternate. A refusal counts only if one message is accepted, and for all
        but rows of the user's only if the same is accepted in another order."""
        questions = self._questions
        if (
            accepted(await questions.ask_whole(_FREE_TURNS)) is not False
            or accepted(await questions.ask_whole([USER])) is not True
        ):
            return
        if accepted(await questions.ask_whole([USER, USER])) is False:
            self._profile.tolerates["two_user"] = False
        refused = accepted(await questions.ask_whole(_SINGLE_USERS)) is False
        if refused and accepted(await questions.ask_whole(_ALTERNATING)) is True:
            self._profile.tolerates["turns"] = False

    async def _added_fields(self) -> None:
        """Send all that requests may have from the gateway, so that the server names what it refuses."""
        thought = {**ASSISTANT, self._profile.history_field or self._profile.reasoning_field or "reasoning": "They greet me."}
        added = {**ALWAYS_ADDED, **dict.fromkeys(_SWITCHES, AddedField())}
        await self._questions.ask_whole([USER, thought, USER], added=added, **_SWITCHES)
        self._questions.note_refused_fields()

    async def _reasoning_history(self) -> None:
        if self._profile.reasoning_field is not None:
            thought = {**ASSISTANT, self._profile.reasoning_field: "They greet me."}
            self._profile.reasoning_history = accepted(await self._questions.ask_whole([USER, thought, USER]))
        if self._profile.reasoning_history and SERVER_TYPES[self._profile.server].reasoning_field is None:
            await self._find_history_field()

    async def _session(self) -> None:
        """Play some turns of an agent, with thoughts if the server takes them back."""
        profile = self._profile
        field = profile.history_field or profile.reasoning_field or "" if profile.reasoning_history else ""
        profile.session = await play_turns(self._questions, field, await self._template())
        profile.session.hints = await find_hints(self._questions)

    async def _template(self) -> str:
        """Return the text of the chat template, where the server shows it."""
        if self._profile.server != "llamacpp":
            return ""
        _, properties = await self._questions.get("props")
        template = properties.get("chat_template") if isinstance(properties, dict) else None
        return template if isinstance(template, str) else ""

    async def _find_history_field(self) -> None:
        """Find out by the size of the prompt in which field earlier reasoning gets there: a bridge, LiteLLM for one, may send
        it in one field and pass on only another one to the server behind."""
        sizes: dict[str, int] = {}
        for name in _HISTORY_FIELDS:
            answer = await self._questions.ask_whole([USER, {**CALLING, name: _LONG_THOUGHT}, RESULT])
            sizes[name] = answer.prompt_tokens
        longest = max(_HISTORY_FIELDS, key=sizes.__getitem__)
        if sizes[longest] > sizes.get(self._profile.reasoning_field or "", 0) > 0:
            self._profile.history_field = longest

    async def _tokenize(self) -> None:
        self._profile.tokenize = "none"
        for name, question in (("messages", [USER]), ("prompt", "Say hello.")):
            status, value = await self._questions.post("tokenize", model=self._profile.model, **{name: question})
            if status == 200 and isinstance(value, dict) and ("count" in value or (name == "prompt" and "tokens" in value)):
                self._profile.tokenize = "messages" if name == "messages" else "prompt"
                return

    async def _errors(self) -> None:
        profile = self._profile
        wrong = await self._questions.ask_whole([USER], model="no-such-model-9f2c")
        profile.unknown_model = {True: "served", False: "refused", None: None}[accepted(wrong)]
        if wrong.error_shape is None:
            wrong = await self._questions.ask_whole([USER], temperature=-1)
        profile.error_shape = wrong.error_shape
        length = profile.max_length
        if length is None or length > _LONGEST_OVERFLOW:
            return
        long = await self._questions.ask_whole([{"role": "user", "content": "x " * (length + 16)}])
        if long.status == 200:
            profile.overflow = "accepted"
        elif long.error is not None:
            profile.overflow = "recognised" if long.error.code == "context_length_exceeded" else "unclear"

    # ---- disconnecting ----------------------------------------------------------------------------------------------

    async def _disconnect(self) -> None:
        """Disconnect in the middle of a long answer, and see in the server's metrics whether generation continues."""
        before = await self._running_requests()
        if before is None:
            return
        # Some models would soon be done.
        extras: dict[str, Any] = {"ignore_eos": True} if self._profile.server in ("vllm", "sglang") else {}
        question = "Count from 1 to 2000, one number a line."
        answer = await self._questions.ask("disconnect", question, limit=4096, cut_after=3, **extras)
        if not answer.cut or answer.finish_reason is not None:
            return  # it ended too soon to disconnect in the middle
        deadline = time.monotonic() + STOP_DEADLINE
        while (running := await self._running_requests()) is not None and running > before:
            if time.monotonic() > deadline:
                self._profile.stops = False
                return
            await asyncio.sleep(0.05)
        self._profile.stops = True if running is not None else None

    async def _running_requests(self) -> float | None:
        status, text = await self._questions.get("metrics")
        if status != 200 or not isinstance(text, str):
            return None
        values = [line.rpartition(" ")[2] for line in text.splitlines() if line.startswith(_RUNNING_GAUGES)]
        try:
            return sum(map(float, values)) if values else None
        except ValueError:
            return None


def _require_answer(answer: Answer) -> None:
    if answer.status in (401, 403) and answer.error is not None:
        raise answer.error
    if answer.out_of_time:
        raise NoAnswer("an answer took too long")
    if answer.status in (0, 429) or answer.status >= 500 or answer.problem is not None:
        raise NoAnswer(refusal_of(answer))


def _context_length(identity: dict[str, Any]) -> int | None:
    """Read the context length from where SGLang and llama.cpp report it."""
    settings = identity.get("default_generation_settings")
    value = identity.get("context_length") or (settings.get("n_ctx") if isinstance(settings, dict) else None)
    return value if isinstance(value, int) else None
