"""Asks the guard model, through the same pool as every other request, and reads what it says of a text."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Mapping, Sequence
from hashlib import blake2b
from typing import Any, Literal, NamedTuple

from responses_gateway.backend.pool import Pool
from responses_gateway.backend.served_models import Route
from responses_gateway.backend.short_answers import Completion, ask
from responses_gateway.bounded_memory import BoundedDict
from responses_gateway.ended_tasks import all_results
from responses_gateway.settings import Settings
from responses_gateway.settings.moderation import TEXT
from responses_gateway.telemetry import logs
from responses_gateway.telemetry.instruments import Counter, Histogram
from responses_gateway.telemetry.metrics import Metrics
from responses_gateway.wire.errors import ApiError

Side = Literal["input", "output"]

# Characters that one question to the guard has, and those that it shares with the question before it.
PIECE = 8_000
OVERLAP = 500
# Longer inputs are hashed in a thread, in characters, because other streams would wait for them.
_LARGE = 256 * 1024
# Most questions about one input, and how many of them at the same time.
_MOST_PIECES = 128
_AT_ONCE = 4
# Seconds for one answer, because the client waits for it before it gets anything, and a guard answers in a few tokens.
SECONDS_OF_A_JUDGEMENT = 10.0
_TOKENS = 1024  # tokens for an answer, the guard's thoughts included
# How many texts are remembered as safe, because a conversation comes again with each request.
_MOST_REMEMBERED = 20_000
# The categories of Llama Guard.
_KNOWN = tuple(f"S{number}" for number in range(1, 15))
# Most categories that are taken from one answer, and most characters of each.
_MOST = 32
_LONGEST = 64
JUDGEMENTS = Counter(
    "moderation_judgements_total",
    "Answers of the guard model, by what it judged (input, output): safe, flagged, or failed.",
    ("side", "outcome"),
)
JUDGEMENT_SECONDS = Histogram(
    "moderation_seconds",
    "How long the guard model took for an answer.",
    (0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0),
    ("side",),
)
MODERATION_METRICS = (JUDGEMENTS, JUDGEMENT_SECONDS)


class Judgement(NamedTuple):
    """Whether something in a text was flagged, and under which categories, in the guard's words."""

    flagged: bool
    categories: tuple[str, ...] = ()

    def also(self, other: Judgement) -> Judgement:
        """Return the judgement of two texts together."""
        if not other.flagged:
            return self
        return Judgement(True, tuple(dict.fromkeys(self.categories + other.categories)))

    def result(self, model: str) -> dict[str, Any]:
        """Return the `moderation_result` of the API. A guard says yes or no: scores are 1 or 0."""
        names = tuple(dict.fromkeys(_KNOWN + self.categories))
        return {
            "type": "moderation_result",
            "model": model,
            "flagged": self.flagged,
            "categories": {name: name in self.categories for name in names},
            "category_scores": {name: float(name in self.categories) for name in names},
            "category_applied_input_types": {name: ["text"] for name in names},
        }


SAFE = Judgement(False)


def read_judgement(answer: str) -> Judgement | None:
    """Read the answer of a guard: `safe`, or `unsafe` and a line of categories, whatever it thought before. Otherwise None."""
    first, _, rest = answer.rpartition("</think>")[2].strip().partition("\n")
    word = first.strip().lower()
    if word == "safe" and not rest.strip():
        return SAFE
    if word != "unsafe":
        return None
    named = rest.strip().partition("\n")[0].split(",")
    return Judgement(True, tuple(name.strip()[:_LONGEST] for name in named[:_MOST] if name.strip()))


class GuardFailed(Exception):
    """The guard did not answer, or not as it should."""


class InputTooLong(GuardFailed):
    """The input would take too many questions to the guard."""


class Guard:
    """The guard model of the settings; `model` is its name."""

    def __init__(self, pool: Pool, settings: Settings, metrics: Metrics) -> None:
        assert settings.moderation_model is not None
        self.model = settings.moderation_model
        self._pool = pool
        self._prompt = settings.moderation_prompt
        self._tokens_field = settings.max_tokens_field
        self._metrics = metrics
        self._safe: BoundedDict[bytes, None] = BoundedDict(_MOST_REMEMBERED)

    async def judge_input(self, texts: Sequence[str], headers: Mapping[str, str]) -> Judgement:
        """Judge texts, except for those that were found safe before. Raise `GuardFailed`."""
        large = sum(map(len, texts)) >= _LARGE
        unknown, pieces = await asyncio.to_thread(self._unjudged, texts) if large else self._unjudged(texts)
        if len(pieces) > _MOST_PIECES:
            raise InputTooLong

        async def judge(piece: str) -> Judgement:
            return await self._judge("input", [{"role": "user", "content": piece}], piece, headers)

        judgement = SAFE
        for one in await all_results(judge, pieces, _AT_ONCE):
            judgement = judgement.also(one)
        if not judgement.flagged:
            self._safe.update(dict.fromkeys(unknown))
        return judgement

    async def judge_answer(self, question: str, text: str, headers: Mapping[str, str]) -> Judgement:
        """Judge what a model answers to a question. Raise `GuardFailed`."""
        judgement = SAFE
        for piece in _pieces(text):
            messages = [{"role": "user", "content": question or "-"}, {"role": "assistant", "content": piece}]
            judgement = judgement.also(await self._judge("output", messages, piece, headers))
        return judgement

    def _unjudged(self, texts: Sequence[str]) -> tuple[dict[bytes, str], list[str]]:
        """Return the texts that are not known to be safe, and the questions that they take."""
        unknown = {digest: text for text in texts if (digest := _digest(text)) not in self._safe}
        return unknown, _pieces("\n\n".join(unknown.values()))

    async def _judge(self, side: Side, messages: list[dict[str, str]], text: str, headers: Mapping[str, str]) -> Judgement:
        if self._prompt is not None:
            messages = [{"role": "user", "content": self._prompt.replace(TEXT, text)}]
        began = time.monotonic()
        outcome = "failed"
        try:
            judgement = await self._ask(messages, headers)
            outcome = "flagged" if judgement.flagged else "safe"
        except GuardFailed as failed:
            logs.logger().warning("guard model failed", extra=logs.fields(side=side, model=self.model, reason=str(failed)))
            raise
        finally:
            self._metrics.count(JUDGEMENTS, side, outcome)
            self._metrics.observe(JUDGEMENT_SECONDS, time.monotonic() - began, side)
        if judgement.flagged:
            flagged = logs.fields(side=side, model=self.model, categories=",".join(judgement.categories))
            logs.logger().info("flagged", extra=flagged)
        return judgement

    async def _ask(self, messages: list[dict[str, str]], headers: Mapping[str, str]) -> Judgement:
        body: dict[str, Any] = {"model": self.model, "messages": messages, "temperature": 0, self._tokens_field: _TOKENS}
        try:
            async with asyncio.timeout(SECONDS_OF_A_JUDGEMENT):
                answer = await ask(self._pool, body, headers, Route(self.model), Completion)
        except TimeoutError:
            raise GuardFailed("no answer in time") from None
        except ApiError as error:
            raise GuardFailed(error.message) from None
        judgement = read_judgement(answer.text)
        if judgement is None:
            raise GuardFailed("an answer that is neither safe nor unsafe")
        return judgement


def _pieces(text: str) -> list[str]:
    """Cut a text into pieces that overlap, so that nothing is hidden by a cut."""
    sendable = text.encode("utf-8", "replace").decode()
    if not sendable.strip():
        return []
    starts = range(0, max(1, len(sendable) - OVERLAP), PIECE - OVERLAP)
    return [sendable[start : start + PIECE] for start in starts]


def _digest(text: str) -> bytes:
    return blake2b(text.encode("utf-8", "replace"), digest_size=16).digest()
