"""Three turns of an agent, with a thought and a call: what the template does with the thought, what of the cache is lost with
it, which variable of the template keeps it, and what the server may be told of sessions."""

from __future__ import annotations

import time
from collections.abc import Mapping
from typing import Any

from responses_gateway.probing.profile import SessionTurns
from responses_gateway.probing.questions import ASSISTANT, CALLING, RESULT, Questions

# Variables by which templates keep earlier thoughts: those of Qwen3.6 and Gemma 4, GLM-5, Nemotron 3, DeepSeek V4, Hunyuan Hy3,
# and of some whose family is not known.
KEEPING_VARIABLES: tuple[tuple[str, bool], ...] = (
    ("preserve_thinking", True),
    ("clear_thinking", False),
    ("truncate_history_thinking", False),
    ("drop_thinking", False),
    ("preserved_thinking", True),
    ("keep_all_reasoning", True),
)
# Long enough to be several blocks of a cache, and to be seen in the length of a prompt.
_THOUGHT = "The weather in Paris is asked for. There is a tool for that, and I call it with the name of the city. " * 6
_BLOCK = 16
# Tokens by which prompts differ at least if one has the thought.
_SEEN = 4 * _BLOCK
_HINTS: dict[str, Any] = {
    "priority": 0,
    "session_id": "responses-gateway-doctor",
    "nvext": {"agent_hints": {"priority": 0}},
}


def keeping_variables(template: str) -> dict[str, bool]:
    """Return the variables that keep thoughts and that a template reads, by its text."""
    return {name: value for name, value in KEEPING_VARIABLES if name in template}


async def play_turns(questions: Questions, thought_field: str, template: str = "") -> SessionTurns:
    """Play the turns. `thought_field`: the field of a message in which thoughts are sent back. `template`: the text of the chat
    template, where that is known: only its own variables are tried then."""
    found = SessionTurns()
    system = {"role": "system", "content": f"Number {time.time_ns()}: answer questions about the weather, briefly. " * 8}
    user = {"role": "user", "content": "What is the weather in Paris?"}
    next_user = {"role": "user", "content": "And what should I wear?"}
    thinking = {**CALLING, thought_field: _THOUGHT}
    working: list[dict[str, Any]] = [system, user, thinking, RESULT]
    first = await _tokens(questions, working)
    silent = await _tokens(questions, [system, user, CALLING, RESULT])
    if first is None or silent is None or first[0] - silent[0] < _SEEN:
        return found  # thoughts never reach the prompt
    asked: list[dict[str, Any]] = [*working, ASSISTANT, next_user]
    without = await _tokens(questions, [system, user, CALLING, RESULT, ASSISTANT, next_user])
    await _tokens(questions, working)  # so that it is what the cache has of this session
    third = await _tokens(questions, asked)
    if third is None or without is None:
        return found
    found.drops_thoughts = third[0] - without[0] < _SEEN
    if third[1] is not None:
        found.lost = max(0, first[0] - third[1]) // _BLOCK * _BLOCK
    if found.drops_thoughts:
        found.keeps = await _keeping(questions, asked, without[0], keeping_variables(template) or dict(KEEPING_VARIABLES))
    return found


async def find_hints(questions: Questions) -> dict[str, bool]:
    """Return which fields about sessions the server accepts."""
    user = {"role": "user", "content": "Say hello."}
    hints: dict[str, bool] = {}
    for name, value in _HINTS.items():
        answer = await questions.ask_whole([user], added={}, **{name: value})
        if answer.status:
            hints[name] = answer.status == 200
    return hints


async def _keeping(
    questions: Questions, asked: list[dict[str, Any]], without: int, variables: Mapping[str, bool]
) -> dict[str, bool]:
    """Return the variable with which a prompt has the thought; nothing if none does that."""
    every = await _tokens(questions, asked, variables)
    if every is None or every[0] - without < _SEEN:
        return {}
    for name, value in variables.items():
        one = await _tokens(questions, asked, {name: value})
        if one is not None and one[0] - without >= _SEEN:
            return {name: value}
    return {}


async def _tokens(
    questions: Questions, messages: list[dict[str, Any]], variables: Mapping[str, bool] | None = None
) -> tuple[int, int | None] | None:
    """Return the tokens of a prompt, and those of them that were cached; None if the server does not count."""
    extras: dict[str, Any] = {} if variables is None else {"chat_template_kwargs": variables}
    answer = await questions.ask_whole(messages, **extras)
    usage = answer.usage
    return None if not answer.ok or usage is None or usage.input is None else (usage.input, usage.cached)
