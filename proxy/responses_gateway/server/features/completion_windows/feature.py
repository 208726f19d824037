"""Background responses may wait until backends are idle."""

from __future__ import annotations

from contextlib import AsyncExitStack

from responses_gateway.server.features.completion_windows.runner import WINDOW_METRICS, CompletionWindows
from responses_gateway.server.features.completion_windows.waiting_list import WaitingResponses
from responses_gateway.server.features.feature import Core, Feature, Opened
from responses_gateway.server.http.routes import HttpRoute
from responses_gateway.settings.background import CompletionWindowSettings


async def _open(core: Core, stack: AsyncExitStack) -> Opened | None:
    background = core.background
    if background is None:
        return None
    windows = CompletionWindows(core.responses, background, core.share)
    stack.push_async_callback(windows.close)
    waiting = WaitingResponses(windows.table)
    route = HttpRoute("GET", "/admin/waiting", waiting.list_all, for_operators=True)
    return Opened(postponements=[windows.postpone], routes=[route])


COMPLETION_WINDOWS = Feature("completion_windows", CompletionWindowSettings, _open, WINDOW_METRICS)
