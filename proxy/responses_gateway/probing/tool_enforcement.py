"""Find out whether a server holds the model to the schemas of tools that are `strict`, by two short answers.

The question asks for arguments that the schema does not permit. A model writes them, unless the server enforces the schema. The
same without `strict` shows that it was the server, and the size of both prompts whether `strict` gets there."""

from __future__ import annotations

import asyncio
from typing import Any

from responses_gateway.backend.member import Member
from responses_gateway.backend.pool import Pool
from responses_gateway.backend.server_types import SERVER_TYPES
from responses_gateway.ended_tasks import end_tasks
from responses_gateway.probing.answer import Answer, Patience, object_in
from responses_gateway.probing.known_models import UNKNOWN, Enforcement, KnownModel, KnownModels
from responses_gateway.probing.profile import Profile
from responses_gateway.probing.questions import Questions
from responses_gateway.telemetry import logs
from responses_gateway.wire.errors import ApiError

# The only city that the schema permits, which no model would write by itself, and the one that is asked for.
_PERMITTED = "zq7"
_REQUESTED = "Paris"
_QUESTION = {
    "role": "user",
    "content": "What is the weather? "
    f'Use the tool get_weather with the arguments {{"city": "{_REQUESTED}"}}, exactly as they stand here.',
}
_CITY = {
    "type": "object",
    "properties": {"city": {"type": "string", "enum": [_PERMITTED]}},
    "required": ["city"],
    "additionalProperties": False,
}
# Tokens for a call, and for one behind a long thought.
_LIMITS = (512, 2048)
# Seconds after a user's request until its backend is asked, because an agent's first requests come together.
PAUSE = 5.0
_PATIENCE = 60.0  # seconds for an answer of a server that is asked beside its work
_MOST_ASKED = 64  # most models that are asked about, because their names come from clients


async def find_enforcement(questions: Questions) -> Enforcement | None:
    """Return what becomes of `strict` in tools; None if the answers do not show it."""
    strict = await _call(questions, strict=True)
    if strict.status in (400, 422):
        return "refused" if (await _call(questions)).ok else None
    city = _city(strict)
    if city is None:
        return None
    if city != _PERMITTED:
        return "ignored"
    plain = await _call(questions)
    if _city(plain) in (None, _PERMITTED):
        return None if _city(plain) is None else "kept"
    if not (strict.prompt_tokens and plain.prompt_tokens):
        return None
    return "enforced" if strict.prompt_tokens == plain.prompt_tokens else "rendered"


async def _call(questions: Questions, **strict: bool) -> Answer:
    """Ask for the call, once more if the model thinks for long."""
    function: dict[str, Any] = {"name": "get_weather", "description": "The weather in a city.", "parameters": _CITY, **strict}
    tools = [{"type": "function", "function": function}]
    for limit in _LIMITS:
        answer = await questions.ask_whole([_QUESTION], limit=limit, tools=tools)
        if answer.finish_reason != "length":
            break
    return answer


def _city(answer: Answer) -> str | None:
    """Return the city of the one call of an answer; None if there is none, empty if its arguments are something else."""
    if not answer.ok or len(answer.calls) != 1:
        return None
    (call,) = answer.calls.values()
    arguments = object_in(call.arguments) or {}
    return str(arguments.get("city", "")) if len(arguments) == 1 else ""


class ToolEnforcement:
    """What is known of the backends that enforce the schemas of tools. Each is asked once for each model, in the background."""

    def __init__(self, pool: Pool, known: KnownModels) -> None:
        self._pool = pool
        self._known = known
        self._asked: dict[tuple[str, str], asyncio.Task[None]] = {}

    def anywhere(self, model: str) -> bool:
        """Tell whether a backend enforces them for a model, by the client's name of it, without another prompt."""
        known = self._known.get(self._pool.own_name(model))
        return known is not None and "enforced" in known.enforcement.values()

    def at(self, backend: str, model: str) -> bool:
        """Tell the same of one backend, by its label in metrics and its name of the model."""
        return self._known.get(model, UNKNOWN).enforcement.get(backend) == "enforced"

    def find_out(self, backend: str, model: str, limit_field: str) -> None:
        """Ask a backend that has answered with tools, unless that was done, or none is to be asked anything. `model` is the
        client's name of it."""
        member = self._pool.members.by_name.get(backend)
        if member is None or not self._known.may_ask:
            return
        name = member.catalogue.own_name(model)
        key = (member.label, name)
        if key not in self._asked and len(self._asked) < _MOST_ASKED and not self._is_known(member, name):
            self._asked[key] = asyncio.create_task(self._ask(member, name, limit_field))

    async def close(self) -> None:
        """Stop asking."""
        await end_tasks(*self._asked.values())

    def _is_known(self, member: Member, model: str) -> bool:
        return member.label in self._known.get(model, UNKNOWN).enforcement

    async def _ask(self, member: Member, model: str, limit_field: str) -> None:
        await asyncio.sleep(PAUSE)
        if self._is_known(member, model):  # another worker was faster
            return
        profile = Profile(str(member.backend.url), model)
        questions = Questions(member.backend, profile, Patience(_PATIENCE, _PATIENCE))
        questions.limit_field = limit_field
        try:
            await questions.list_models(model)
            # Elsewhere the answer is known, and a server with one place would lose the cache of the conversation for it.
            if not SERVER_TYPES[profile.server].strict_matters:
                return
            enforcement = await find_enforcement(questions)
        except ApiError as error:
            logs.logger().debug("it is not known whether schemas are enforced", extra=logs.fields(reason=error.message))
            return
        if enforcement is None:
            return
        fields = logs.fields(backend=member.label, model=model, strict=enforcement)
        logs.logger().info("learned what the server does with strict tools", extra=fields)
        self._known.learn(model, KnownModel(enforcement={member.label: enforcement}))
