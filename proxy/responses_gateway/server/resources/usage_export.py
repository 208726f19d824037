"""`/admin/usage`: what was used, by day, key, team and model, as JSON or CSV, for those who have the admin key."""

from __future__ import annotations

import asyncio
import csv
import io
from collections.abc import Mapping, Sequence
from datetime import UTC, date, datetime
from typing import Any

import msgspec
from aiohttp import web

from responses_gateway.server.generation.request_log.usage import Divide, SumsOf
from responses_gateway.server.http.routes import ASK_ALL
from responses_gateway.state.usage import AMOUNTS, DAY, LABELS, today
from responses_gateway.wire.errors import invalid_request

_DAYS = 30  # days that an export has if `from` is missing
# How a formula begins, or what spreadsheets pass over before one.
_FORMULA = ("=", "+", "-", "@", "\t", "\r", "\n")


async def export_usage(sums_of: SumsOf, divisions: Mapping[str, Divide], request: web.Request) -> web.Response:
    """Answer `GET ?from=DAY&to=DAY&by=day,key,team,model&format=json`: both days included, in UTC. `divisions` are by labels
    that features add, of which a request may have one. Raise `ApiError`, `StoreUnavailable`."""
    last = _day(request, "to", today())
    first = _day(request, "from", last - _DAYS + 1)
    if first > last:
        raise invalid_request("'from' must not be after 'to'.", "from", "invalid_value")
    by = _labels(request.query.get("by", "day,key"), (*LABELS, *divisions))
    form = _format(request)
    about = {"object": "usage", "from": _date(first), "to": _date(last), "by": by}
    sums = await sums_of(first, last, [label for label in by if label in LABELS])
    for label in divisions.keys() & by:
        sums = await divisions[label](request.app[ASK_ALL], sums, first, last, by)
    # In a thread, so that no stream waits for the rows of a hundred thousand sessions.
    if form == "csv":
        headers = {"Content-Disposition": 'attachment; filename="usage.csv"'}
        text = await asyncio.to_thread(lambda: _csv([*by, *AMOUNTS], _rows(by, sums)))
        return web.Response(text=text, content_type="text/csv", charset="utf-8", headers=headers)
    return web.Response(body=await asyncio.to_thread(_json, about, by, sums), content_type="application/json")


def _rows(by: Sequence[str], sums: Mapping[tuple[Any, ...], Sequence[int]]) -> list[dict[str, Any]]:
    return [
        {**dict(zip(by, _shown(by, labels), strict=True)), **dict(zip(AMOUNTS, amounts, strict=True))}
        for labels, amounts in sorted(sums.items())
    ]


def _json(about: Mapping[str, Any], by: Sequence[str], sums: Mapping[tuple[Any, ...], Sequence[int]]) -> bytes:
    """Return the answer as JSON, written row by row, because other threads get their turn only in between."""
    encode = msgspec.json.Encoder().encode
    rows = [msgspec.Raw(encode(row)) for row in _rows(by, sums)]
    return encode({**about, "data": rows})


def _day(request: web.Request, name: str, default: int) -> int:
    """Return the number of the day in a parameter. Raise `ApiError` 400."""
    day = request.query.get(name)
    if day is None:
        return default
    try:
        return (date.fromisoformat(day) - date(1970, 1, 1)).days
    except ValueError:
        raise invalid_request(f"'{name}' must be a day such as {_date(default)}.", name, "invalid_value") from None


def _labels(names: str, known: Sequence[str]) -> list[str]:
    """Return what the sums are divided by. Raise `ApiError` 400."""
    labels = [label.strip() for label in names.split(",")]
    if not set(labels) <= set(known) or len(set(labels)) != len(labels):
        raise invalid_request(f"'by' must be some of {', '.join(known)}, separated by commas.", "by", "invalid_value")
    return labels


def _format(request: web.Request) -> str:
    format_asked = request.query.get("format") or ("csv" if "text/csv" in request.headers.get("Accept", "") else "json")
    if format_asked not in ("csv", "json"):
        raise invalid_request("'format' must be json or csv.", "format", "invalid_value")
    return format_asked


def _shown(by: Sequence[str], labels: Sequence[Any]) -> list[Any]:
    return [_date(value) if label == "day" else value for label, value in zip(by, labels, strict=True)]


def _date(day: int) -> str:
    try:
        return datetime.fromtimestamp(day * DAY, UTC).date().isoformat()
    except (ValueError, OverflowError, OSError):
        raise invalid_request("This day is not in any year.", "from", "invalid_value") from None


def _csv(columns: Sequence[str], rows: Sequence[Mapping[str, Any]]) -> str:
    text = io.StringIO()
    writer = csv.DictWriter(text, columns)
    writer.writeheader()
    writer.writerows({name: _cell(value) for name, value in row.items()} for row in rows)
    return text.getvalue()


def _cell(value: Any) -> Any:
    """Return the value of a cell: text that a spreadsheet would run as a formula is made text by an apostrophe, because anybody
    may name a model so."""
    return f"'{value}" if isinstance(value, str) and value.startswith(_FORMULA) else value
