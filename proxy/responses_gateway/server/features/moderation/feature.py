"""A guard model judges what requests ask to be moderated."""

from __future__ import annotations

from contextlib import AsyncExitStack
from functools import partial

from responses_gateway.server.features.feature import Core, Feature, Opened
from responses_gateway.server.features.moderation.guard import MODERATION_METRICS, Guard
from responses_gateway.server.features.moderation.guarded_answer import moderate
from responses_gateway.settings.moderation import ModerationSettings


async def _open(core: Core, _stack: AsyncExitStack) -> Opened | None:
    if core.settings.moderation_model is None:
        return None
    return Opened(steps=[partial(moderate, Guard(core.responses.pool, core.settings, core.metrics))])


MODERATION = Feature("moderation", ModerationSettings, _open, MODERATION_METRICS)
