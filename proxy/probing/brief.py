"""Finding out what the gateway has to know before it serves: the few questions whose answers decide about settings.

A server that is as the defaults expect it gets five small requests: the list of its models, an answer of 8 tokens, a call of a
tool, and two prompts for one token each. `proxy/probing/full.py` asks all there is to ask.
"""

from __future__ import annotations

from proxy.backend.transport.client import Backend
from proxy.probing.answer import Answer
from proxy.probing.profile import Profile
from proxy.probing.questions import ASSISTANT, USER, WEATHER, WEATHER_QUESTION, Questions, accepted, refusal_of

#: Tokens that a model may think and call with; then once more, where it was still thinking and nothing could be told.
_ROOM, _MORE_ROOM = 512, 2048
#: These serve one model (under several names, or with adapters): what holds for the first holds for all.
_OF_ONE_MODEL = ("vllm", "sglang", "llamacpp")


class NoAnswer(Exception):
    """The server listed its models and did not answer a question: asking again costs it something."""


async def probe_briefly(backend: Backend, *, patience: float = 60) -> Profile:
    """What decides about settings, of the first model that is listed. What was not asked stays None.

    `patience` is the longest time for one answer, in seconds. `refusal` says why nothing could be found out. Raises `ApiError`
    if nobody is there (502, 504), if the key is wrong (401, 403) or if no model is listed; `NoAnswer` if the server is there,
    and too busy or too broken to answer.
    """
    profile = Profile(str(backend.url))
    listing = Questions(backend, profile, patience)
    await listing.list_models(None)
    if profile.server == "ollama":
        # It may hold many models and loads each as it is asked for. It parses by itself, and knows one name for the limit.
        profile.max_tokens_field = "max_tokens"
        return profile
    if len(profile.models) > 1 and profile.server not in _OF_ONE_MODEL:
        profile.refusal = f"it lists {len(profile.models)} models, and one need not be like another"
        return profile
    await _examine(Questions(backend, profile, patience, token_ids=profile.server == "vllm"), profile)
    return profile


async def _examine(questions: Questions, profile: Profile) -> None:
    answer = await questions.find_limit()
    _require_answer(answer)
    if answer.status != 200:
        profile.refusal = refusal_of(answer)
        return
    await _call_and_thought(questions, profile)
    if accepted(await questions.short([USER, USER])) is False and accepted(await questions.short([USER])) is True:
        profile.tolerates["two_user"] = False  # the template wants turns that alternate
    if profile.reasoning_field is not None:
        thought = {**ASSISTANT, profile.reasoning_field: "They greet me."}
        profile.reasoning_history = accepted(await questions.short([USER, thought, USER]))


async def _call_and_thought(questions: Questions, profile: Profile) -> None:
    """One answer that shows both: where reasoning comes, and calls."""
    for room in (_ROOM, _MORE_ROOM):
        answer = await questions.ask("calls", WEATHER_QUESTION, limit=room, tools=[WEATHER], tool_choice="auto")
        if 400 <= answer.status < 500 and answer.status != 429:
            profile.calls = "refused"
            profile.calls_refusal = answer.error.message if answer.error is not None else None
            # With `none` vLLM shows the tools to the model all the same: is there markup in the text?
            answer = await questions.ask(
                "calls", WEATHER_QUESTION, limit=room, tools=[WEATHER], tool_choice="none", skip_special_tokens=False
            )
        _require_answer(answer)
        if answer.calls or answer.legacy_call:
            profile.calls = "parsed" if answer.calls else "legacy"
        elif profile.calls is None and answer.ok:
            profile.calls = "none"
        if answer.finish_reason != "length" or profile.reasoning_field is not None or "</think>" in answer.text:
            return


def _require_answer(answer: Answer) -> None:
    if answer.status in (401, 403) and answer.error is not None:
        raise answer.error
    if answer.status in (0, 429) or answer.status >= 500 or answer.problem is not None:
        raise NoAnswer(refusal_of(answer))
