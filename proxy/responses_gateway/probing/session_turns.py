"""Three turns of an agent, with a thought and a call: what the template does with the thought, which of its variables keeps it,
what of the cache is lost and why, and what the server may be told of sessions."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple, TypeAlias

from responses_gateway.backend.block_sizes import block_size
from responses_gateway.probing.profile import LostCause, SessionTurns
from responses_gateway.probing.questions import ASSISTANT, CALLING, RESULT, USER, Questions
from responses_gateway.wire.usage import CACHE_BLOCK

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
_SEEN = 64  # tokens by which prompts differ at least if one has the thought
# How often a prompt is asked again to see whether one server reads it.
_REPEATS = 3
_Messages: TypeAlias = list[Mapping[str, Any]]
# A priority that is not 0, which vLLM's API has any server accept.
_HINTS: dict[str, Any] = {"priority": 1, "session_id": "responses-gateway-doctor", "nvext": {"agent_hints": {"priority": 1}}}


class _Read(NamedTuple):
    """The tokens of a prompt, and those of them that were cached; None: the server does not tell."""

    tokens: int
    cached: int | None


def keeping_variables(template: str) -> dict[str, bool]:
    """Return the variables that keep thoughts and that a template reads, by its text."""
    return {name: value for name, value in KEEPING_VARIABLES if name in template}


async def play_turns(questions: Questions, thought_field: str, template: str = "") -> SessionTurns:
    """Play the turns. `thought_field`: the field of a message in which thoughts are sent back; empty if none are. `template`:
    the text of the chat template, where that is known: only its own variables are tried then."""
    session = SessionTurns()
    thinking = {**CALLING, thought_field: _THOUGHT} if thought_field else CALLING
    turns = _turns(thinking)
    # In this order, because a server may keep only the last prompt.
    reads = [await _read(questions, turn) for turn in turns]
    silent, without = [await _read(questions, _with(CALLING, turn)) for turn in turns[1:]]
    begun, working, third = reads
    if begun is None or working is None or third is None or silent is None or without is None:
        return session
    if working.tokens - silent.tokens >= _SEEN:  # else thoughts never reach the prompt
        session.drops_thoughts = third.tokens - without.tokens < _SEEN
    block = await block_size(questions.backend) or CACHE_BLOCK
    earlier = _lost(begun, working, block, 0)
    session.lost = _lost(working, third, block, earlier)
    if session.lost is None:
        session.cause = "unreported"
    elif session.lost:
        only_thoughts = session.drops_thoughts and not earlier and not _lost(begun, third, block, 0)
        session.cause = "template" if only_thoughts else await _cause(questions, turns[-1], block, _turns(thinking))
    if session.drops_thoughts:
        variables = keeping_variables(template) or dict(KEEPING_VARIABLES)
        session.keeps = await _keeping(questions, turns[-1], without.tokens, variables)
    return session


def _turns(thinking: Mapping[str, Any]) -> list[_Messages]:
    """Return the prompts of three turns of a session that no server has read."""
    system: Mapping[str, Any] = {
        "role": "system",
        "content": f"Number {time.time_ns()}: answer questions about the weather, briefly. " * 8,
    }
    start: _Messages = [system, {"role": "user", "content": "What is the weather in Paris?"}]
    question = {"role": "user", "content": "And what should I wear? I am out all day, and come back late. " * 6}
    working = [*start, thinking, RESULT]
    return [start, working, [*working, ASSISTANT, question]]


def _with(calling: Mapping[str, Any], turn: _Messages) -> _Messages:
    """Return a turn with another message in the place of the one that calls."""
    return [calling if message.get("tool_calls") else message for message in turn]


def _lost(earlier: _Read, later: _Read, block: int, more: int | None) -> int | None:
    """Return how many tokens of a prompt were read again with a later one that goes on from it, and `more`; None: not told."""
    if later.cached is None or more is None:
        return None
    lost = (earlier.tokens - later.cached) // block * block
    # What opens an answer has another form in the past, and a model with a sliding window finds one block less again.
    return more + lost if lost > block else more


async def _cause(questions: Questions, messages: _Messages, block: int, anew: Sequence[_Messages]) -> LostCause:
    """Find out why tokens were read again, by the same prompt again and again: one server has it as a whole then, or keeps
    nothing. If another session loses as much, whose last turn was kept, the server has not dropped it."""
    reads = [await _read(questions, messages) for _ in range(_REPEATS)]
    cached = [0 if read is None else read.cached or 0 for read in reads]
    if max(cached) - min(cached) > block:
        return "other_backend"
    _, working, repeated, last = [await _read(questions, turn) for turn in (*anew[:2], *anew[1:])]
    if working is None or repeated is None or last is None:
        return "evicted"
    return "template" if not _lost(working, repeated, block, 0) and _lost(working, last, block, 0) else "evicted"


async def find_hints(questions: Questions) -> dict[str, bool]:
    """Return which fields about sessions the server accepts."""
    hints: dict[str, bool] = {}
    for name, value in _HINTS.items():
        answer = await questions.ask_whole([USER], added={}, **{name: value})
        if answer.status:
            hints[name] = answer.status == 200
    return hints


async def _keeping(questions: Questions, messages: _Messages, without: int, variables: Mapping[str, bool]) -> dict[str, bool]:
    """Return the variable with which a prompt has the thought; nothing if none does that."""
    every = await _read(questions, messages, variables)
    if every is None or every.tokens - without < _SEEN:
        return {}
    for name, value in variables.items():
        one = await _read(questions, messages, {name: value})
        if one is not None and one.tokens - without >= _SEEN:
            return {name: value}
    return {}


async def _read(questions: Questions, messages: _Messages, variables: Mapping[str, bool] | None = None) -> _Read | None:
    """Have a prompt read; None if the server does not count."""
    extras: dict[str, Any] = {} if variables is None else {"chat_template_kwargs": variables}
    answer = await questions.ask_whole(messages, **extras)
    usage = answer.usage
    return None if not answer.ok or usage.input is None else _Read(usage.input, usage.cached)
