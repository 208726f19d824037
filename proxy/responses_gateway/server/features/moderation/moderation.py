"""What becomes of one request that is to be moderated."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from responses_gateway.request.parameters.moderation import Modes
from responses_gateway.server.features.moderation.guard import OVERLAP, SAFE, Guard, GuardFailed, InputTooLong, Judgement, Side
from responses_gateway.wire.chat import has_media, texts_in
from responses_gateway.wire.deltas import Usage
from responses_gateway.wire.errors import ApiError, invalid_request, server_error

_QUESTION = 2_000  # characters of the user's last words that the guard gets with an answer
# What stands in the place of a result, in the API's words.
_NOT_JUDGED = {"type": "error", "code": "not_judged", "message": "There was nothing to judge."}
_FAILED = {"type": "error", "code": "moderation_failed", "message": "The guard model could not judge this."}


class Moderation:
    """The judgements of one response. `refused`: what the model would be asked next was flagged and is to be held back."""

    def __init__(self, guard: Guard, modes: Modes, chat: Mapping[str, Any], headers: Mapping[str, str]) -> None:
        """`chat` is the body of the chat request, `headers` go to the guard with its questions."""
        self.modes = modes
        self.refused = False
        self._guard = guard
        self._headers = headers
        self._given: Sequence[Mapping[str, Any]] = chat["messages"]
        self._judged: Sequence[Mapping[str, Any]] = ()  # what the model was asked last
        self._question = _last_question(chat["messages"])[-_QUESTION:]
        self._results: dict[str, dict[str, Any]] = {"input": _NOT_JUDGED, "output": _NOT_JUDGED}
        self._judgements: dict[Side, Judgement] = {"input": SAFE, "output": SAFE}
        self._judging_input: asyncio.Task[None] | None = None
        if modes.input == "block" and has_media(chat["messages"]):
            message = "The guard model of this gateway reads text alone: images, sound and files cannot be judged."
            raise invalid_request(message, "moderation.policy.input.mode", "unsupported_value")

    async def admit(self) -> None:
        """Judge the input, if what is flagged is to be held back: nothing is generated before. Raise `ApiError`."""
        if self.modes.input == "block":
            await self.admit_turn(self._given)

    async def admit_turn(self, messages: Sequence[Mapping[str, Any]]) -> None:
        """Judge what the model is to be asked, as far as it is new and not the model's own: results of hosted tools, after the
        first turn. Where it is only reported, do not wait for that. Raise `ApiError`."""
        if messages is self._judged:
            return
        known = {id(message) for message in self._judged}
        new = [each for each in messages if id(each) not in known and (not known or each.get("role") != "assistant")]
        self._judged = messages
        texts = list(_texts(new))
        if self.modes.input == "score":
            self._judging_input = asyncio.create_task(self._score_input(texts, self._judging_input))
            return
        try:
            self._note("input", await self._guard.judge_input(texts, self._headers))
        except InputTooLong:
            message = "The input is too long to be judged by the guard model."
            raise invalid_request(message, "moderation.policy.input.mode", "unsupported_value") from None
        except GuardFailed:
            self._results["input"] = _FAILED
            raise unjudged("input") from None
        self.refused = self._judgements["input"].flagged

    async def input_judged(self) -> None:
        """Wait until the input is judged."""
        if self._judging_input is not None:
            await asyncio.wait({self._judging_input})

    async def judge_answer(self, text: str, start: int) -> bool:
        """Judge a text after `start`; tell whether it is flagged. Raise `ApiError` if that is not known but has to be."""
        if len(text) == start:
            return False
        try:
            judgement = await self._guard.judge_answer(self._question, text[max(0, start - OVERLAP) :], self._headers)
        except GuardFailed:
            self._results["output"] = _FAILED
            if self.modes.output == "block":
                raise unjudged("output") from None
            return False
        self._note("output", judgement)
        return judgement.flagged

    def end(self) -> None:
        """Leave the guard."""
        if self._judging_input is not None:
            self._judging_input.cancel()
            self._judging_input = None  # its error keeps the frames that it went through, and they this

    def at_end(self, _usage: Usage | None) -> Mapping[str, Any]:
        """Return what the end of the response tells: the judgements."""
        return {"moderation": self._results}

    async def _score_input(self, texts: Sequence[str], earlier: asyncio.Task[None] | None) -> None:
        try:
            if earlier is not None:
                await earlier
            self._note("input", await self._guard.judge_input(texts, self._headers))
        except GuardFailed:
            self._results["input"] = _FAILED

    def _note(self, side: Side, judgement: Judgement) -> None:
        self._judgements[side] = self._judgements[side].also(judgement)
        if self._results[side] is not _FAILED:
            self._results[side] = self._judgements[side].result(self._guard.model)


def unjudged(side: Side) -> ApiError:
    """Return the error for what cannot be judged, and must not pass without."""
    error = server_error(f"The {side} could not be judged: the guard model failed.", 503)
    error.code = "moderation_failed"
    return error


def _texts(messages: Sequence[Mapping[str, Any]]) -> Iterator[str]:
    """Yield what the messages of a chat request say, calls included."""
    for message in messages:
        yield "\n".join(texts_in(message.get("content")))
        for call in message.get("tool_calls") or ():
            yield f"{call['function']['name']} {call['function']['arguments']}"


def _last_question(messages: Sequence[Mapping[str, Any]]) -> str:
    """Return the text of the last user message."""
    return next(_texts([message for message in messages if message.get("role") == "user"][-1:]), "")
