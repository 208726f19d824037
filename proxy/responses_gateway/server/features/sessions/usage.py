"""Usage by session: a part of the usage that the gateway counts, for the last days."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Sequence
from typing import Any

from responses_gateway.server.features.sessions.agent_requests import AgentRequest
from responses_gateway.server.generation.request_log.facts import Account
from responses_gateway.server.generation.request_log.usage import Sums, TokenUsage, summed
from responses_gateway.server.http.routes import AskAll
from responses_gateway.state.usage import LABELS, add_amounts

# The label that is added to those of usage, and what workers ask each other.
SESSION = "session"
QUESTION = "session_usage"
# Sessions that are counted until they are stored, those of one day apart from those of another; and those of a key and a day
# that are told apart.
MOST_SESSIONS = 10_000
# Sessions that are given up at a time, because to find the key that has most of them takes long.
GIVEN_UP = 1000


class SessionUsage(TokenUsage):
    """Counts what sessions use."""

    labels = (*LABELS, SESSION)
    days_kept = 30

    def add_request(self, account: Account, session: str, request: AgentRequest, day: int, times: int = 1) -> None:
        """Count a request of a session that a backend has answered; -1 `times` takes that back. Of too many sessions, the
        oldest ones of the key that has most are dropped: what they used belongs to none then."""
        row = (day, account.key or "", account.team or "", self._metrics.model(request.model), session)
        used = (1, request.input_tokens, request.cached_tokens or 0, request.output_tokens, request.reasoning_tokens)
        add_amounts(self.counted, row, [times * amount for amount in used])
        if len(self.counted) > MOST_SESSIONS:
            ((key, _),) = Counter(key for _, key, *_ in self.counted).most_common(1)
            for oldest in [row for row in self.counted if row[1] == key][:GIVEN_UP]:
                del self.counted[oldest]
        self.ended.set()

    async def rows(self, first: int, last: int, by: Sequence[str]) -> list[tuple[Any, list[int]]]:
        """Return the sums that `unstored` has, each with its labels, as JSON can have them."""
        return list((await self.unstored(first, last, by)).items())

    async def divide(self, ask_all: AskAll, sums: Sums, first: int, last: int, by: Sequence[str]) -> Sums:
        """Divide the sums of all processes by session, too. Raise `StoreUnavailable`."""
        answers = await ask_all(QUESTION, first, last, by)
        stored = await self.stored(first, last, by)
        return await asyncio.to_thread(_divided, answers, stored, sums, by)  # as in `unstored`


def _divided(answers: Sequence[Sequence[tuple[Any, list[int]]]], stored: Sums, sums: Sums, by: Sequence[str]) -> Sums:
    """Return the sums of sessions, of which workers have told their `rows`, and for each combination of the other labels what
    belongs to none, or to one that is known no more: its session is empty."""
    parts = [{tuple(labels): used for labels, used in rows} for rows in answers]
    by_session = summed([*parts, stored])
    place = list(by).index(SESSION)
    left: dict[Any, list[int]] = {(*labels[:place], "", *labels[place:]): [*used] for labels, used in sums.items()}
    for labels, amounts in by_session.items():
        rest = left.get((*labels[:place], "", *labels[place + 1 :]))
        if rest is not None:
            rest[:] = [one - part for one, part in zip(rest, amounts, strict=True)]
    return {**by_session, **{labels: amounts for labels, amounts in left.items() if amounts[0] > 0}}
