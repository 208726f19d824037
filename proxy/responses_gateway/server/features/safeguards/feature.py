"""A model of the pool judges the tool calls of answers to clients that ask for it."""

from __future__ import annotations

from contextlib import AsyncExitStack

from responses_gateway.server.features.feature import Core, Feature, Opened
from responses_gateway.server.features.safeguards.judge import SAFEGUARD_METRICS, Judge
from responses_gateway.settings.moderation import SafeguardSettings


async def _open(core: Core, _stack: AsyncExitStack) -> Opened | None:
    model = core.settings.safeguards_model
    if model is None:
        return None
    judge = Judge(model, core.responses)
    return Opened(steps=[judge.prepare], conclusions=[judge.conclude])


SAFEGUARDS = Feature("safeguards", SafeguardSettings, _open, SAFEGUARD_METRICS)
