"""Find out whether a server shows tools to its model and heeds `tool_choice`: one that ignores either says nothing about it."""

from __future__ import annotations

from typing import Any, NamedTuple

from responses_gateway.backend.transport.client import Backend
from responses_gateway.probing.answer import Patience
from responses_gateway.probing.prober import WHOLE_ANSWER
from responses_gateway.probing.profile import Profile
from responses_gateway.probing.questions import ASKS_FOR_WEATHER, USER, WEATHER, Questions, Tell

# Tokens within which a forced call has come, and the model may think before.
_FORCED_LIMIT = 512
_CITY = {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]}
_OTHER = {"type": "function", "function": {"name": "get_time", "description": "The time in a city.", "parameters": _CITY}}


class ToolChecks(NamedTuple):
    """What a server does with tools: the tokens of a prompt without and with them (0: nobody counted them), and the values of
    `tool_choice` that it ignores."""

    tokens_without: int
    tokens_with: int
    ignored_choices: tuple[str, ...]

    @property
    def ignores_tools(self) -> bool:
        """Whether the model gets no tools, since a prompt with them is not longer than one without."""
        return 0 < self.tokens_with <= self.tokens_without


async def check_tools(profile: Profile, *, api_key: str | None, answer_timeout: float, tell: Tell) -> ToolChecks:
    """Ask a server that was examined before. `answer_timeout` is how long nothing may come, in seconds."""
    backend = Backend(profile.url, api_key=api_key, connect_timeout=min(answer_timeout, 10))
    questions = Questions(backend, profile, Patience(answer_timeout, answer_timeout * WHOLE_ANSWER), tell)
    if profile.max_tokens_field == "max_tokens":
        questions.limit_field = "max_tokens"
    try:
        without = (await questions.ask_whole([USER])).prompt_tokens
        with_tools = (await questions.ask_whole([USER], tools=[WEATHER, _OTHER])).prompt_tokens
        ignored = [name for name in _CHOICES if await _is_ignored(questions, name)]
    finally:
        await backend.close()
    return ToolChecks(without, with_tools, tuple(ignored))


# What is asked with each value, and the names of the functions of which one has to be called; none may be.
_CHOICES: dict[str, tuple[dict[str, Any], Any, tuple[str, ...]]] = {
    "required": (USER, "required", ("get_weather", "get_time")),
    "a named function": (USER, {"type": "function", "function": {"name": "get_time"}}, ("get_time",)),
    "none": (ASKS_FOR_WEATHER, "none", ()),
}


async def _is_ignored(questions: Questions, name: str) -> bool:
    """Tell whether a value has no effect; one that is refused is not ignored."""
    message, choice, wanted = _CHOICES[name]
    answer = await questions.ask_whole([message], limit=_FORCED_LIMIT, tools=[WEATHER, _OTHER], tool_choice=choice)
    if not answer.ok:
        return False
    called = {call.name for call in answer.calls.values()}
    return not called & set(wanted) if wanted else bool(called)
