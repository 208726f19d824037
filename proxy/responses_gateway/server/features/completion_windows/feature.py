"""Background responses may wait until backends are idle. What waits is listed by `/admin/waiting`, for those who have the admin
key; it is read from the store: every gateway of a fleet answers the same."""

from __future__ import annotations

import time
from contextlib import AsyncExitStack
from functools import partial
from itertools import groupby
from typing import Any

from aiohttp import web

from responses_gateway.server.features.completion_windows.runner import WINDOW_METRICS, CompletionWindows
from responses_gateway.server.features.feature import Core, Feature, Opened
from responses_gateway.server.http.routes import HttpRoute
from responses_gateway.settings.background import CompletionWindowSettings
from responses_gateway.state.waiting import Due, WaitingTable


async def _open(core: Core, stack: AsyncExitStack) -> Opened | None:
    background = core.background
    if background is None:
        return None
    windows = CompletionWindows(core.responses, background, core.share)
    stack.push_async_callback(windows.close)
    route = HttpRoute("GET", "/admin/waiting", partial(_list_all, windows.table), for_operators=True)
    return Opened(postponements=[windows.postpone], routes=[route])


COMPLETION_WINDOWS = Feature("completion_windows", CompletionWindowSettings, _open, WINDOW_METRICS)


async def _list_all(table: WaitingTable, _request: web.Request) -> web.Response:
    """Answer `GET` with how many wait, by model and window. Raise `ApiError`, `StoreUnavailable`."""
    now = time.time()
    due = sorted(await table.due(), key=_group)
    return web.json_response({"object": "list", "data": [_shown(list(group), now) for _, group in groupby(due, _group)]})


def _group(due: Due) -> tuple[str, str]:
    return due.model, due.window


def _shown(group: list[Due], now: float) -> dict[str, Any]:
    return {
        "model": group[0].model,
        "completion_window": group[0].window,
        "waiting": sum(each.number for each in group),
        "oldest_seconds": max(0, round(now - min(each.accepted_at for each in group))),
        "next_deadline": min(each.deadline for each in group),
    }
