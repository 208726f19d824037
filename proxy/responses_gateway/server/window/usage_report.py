"""Usage in the window: what each key and each model used over some days, summed over all workers."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

from responses_gateway.server.generation.request_log.usage import Sums, SumsOf, TokenUsage, summed
from responses_gateway.server.http.routes import AskAll
from responses_gateway.state.usage import AMOUNTS, DAY, today

# What workers ask each other: their `usage_rows`.
USAGE = "usage"
# Days that a report may cover.
PERIODS = (7, 30, 90)
_MOST_ROWS = 500  # combinations of a key, a team and a model in one report, those that used most


async def usage_report(sums_of: SumsOf, days: int) -> dict[str, Any]:
    """Return the usage of the last `days` days, with today: by day, and by key, team and model. Raise `StoreUnavailable`."""
    last = today()
    first = last - days + 1
    by_day = await sums_of(first, last, ["day"])
    by_key = await sums_of(first, last, ["key", "team", "model"])
    largest = sorted(by_key.items(), key=lambda row: row[1][1] + row[1][3], reverse=True)
    return {
        "days": [{"day": _date(day), **_amounts(by_day.get((day,), [0] * len(AMOUNTS)))} for day in range(first, last + 1)],
        "rows": [
            {"key": key, "team": team, "model": model, **_amounts(amounts)}
            for (key, team, model), amounts in largest[:_MOST_ROWS]
        ],
        "more_rows": max(0, len(largest) - _MOST_ROWS),
    }


async def usage_rows(usage: TokenUsage, first: int, last: int, by: list[str]) -> list[tuple[Any, list[int]]]:
    """Return what this worker has counted and cannot store, each sum with its labels, as JSON can have them."""
    return list((await usage.unstored(first, last, by)).items())


async def usage_sums(usage: TokenUsage, ask_all: AskAll, first: int, last: int, by: list[str]) -> Sums:
    """Return the sums of all workers from day `first` to day `last`, by the labels `by`. Raise `StoreUnavailable`."""
    counted = await ask_all(USAGE, first, last, by)  # stores what it can, so it comes first
    parts = [{tuple(labels): used for labels, used in rows} for rows in counted]
    return summed([*parts, await usage.stored(first, last, by)])


def _amounts(amounts: list[int]) -> dict[str, int]:
    return dict(zip(AMOUNTS, amounts, strict=True))


def _date(day: int) -> str:
    return datetime.fromtimestamp(day * DAY, UTC).date().isoformat()
