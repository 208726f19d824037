"""Draws the dashboards as they look with traffic: docs/images/dashboard-*.svg.

    python -m tests.telemetry.draw_dashboards              three minutes of traffic

A gateway in front of the simulator answers for the time given, a real Prometheus watches it and answers the queries of
deploy/grafana, and what comes back is drawn where the panels are. Grafana draws them in its own way.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import math
import random
import re
import tempfile
import time
from collections.abc import Sequence
from html import escape
from pathlib import Path
from typing import Any

import aiohttp

from responses_gateway.simulator.state import SimulatorOptions
from tests.server.running_gateway import Served, simulated
from tests.telemetry.prometheus import Prometheus, prometheus

ROOT = Path(__file__).parents[2]
# Dashboard -> the rows of its grid that are drawn.
PICTURES = {"overview": 37, "models": 35}
_MODELS = {
    "qwen3-coder-30b": "scenario: long tps: 45",
    "gpt-oss-120b": "scenario: reasoning tps: 60",
    "llama-3.3-70b": "scenario: long tps: 25",
}
_CELL, _LINE, _MARGIN = 50, 30, 8
_COLOURS = ["#73bf69", "#f2cc0c", "#8ab8ff", "#ff780a", "#f2495c", "#b877d9"]
_STEPS = 90

Series = tuple[str, list[tuple[float, float]]]


# ---- traffic --------------------------------------------------------------------------------------------------------


async def _traffic(served: Served, seconds: float) -> None:
    """Send requests at a rate that rises and falls."""
    chance = random.Random(1)
    began = time.monotonic()
    async with aiohttp.ClientSession() as session, asyncio.TaskGroup() as tasks:
        while (passed := time.monotonic() - began) < seconds:
            tasks.create_task(_ask(session, served.url, chance))
            await asyncio.sleep(chance.expovariate(2.5 + 1.5 * math.sin(passed / seconds * 9)))


async def _ask(session: aiohttp.ClientSession, url: str, chance: random.Random) -> None:
    model, script = chance.choice(list(_MODELS.items()))
    tokens = int(chance.lognormvariate(4.2, 0.5))
    delay = f"delay={chance.lognormvariate(-1.4, 0.5):.3f}"
    fault = chance.choices([delay, "status=503", "drop=text"], [0.97, 0.02, 0.01])[0]
    text = f"{script} tokens: {tokens} fault: {fault} {'context ' * chance.randrange(200)}"
    body = {"model": model, "input": text, "stream": True}
    async with session.post(f"{url}/v1/responses", json=body) as answer:
        if chance.random() < 0.02:
            return
        async for _ in answer.content.iter_any():
            pass


# ---- the answers of Prometheus --------------------------------------------------------------------------------------


async def _series(server: Prometheus, target: dict[str, Any], start: float, end: float) -> list[Series]:
    step = (end - start) / _STEPS
    expression = re.sub(r"\$(job|instance|model)\b", ".*", target["expr"])
    for name in ("$__rate_interval", "$__range", "$__interval"):
        expression = expression.replace(name, f"{int(end - start)}s" if name == "$__range" else "15s")
    found = await server.ask("query_range", query=expression, start=str(start), end=str(end), step=f"{step:.2f}")
    return [(_legend(target, one["metric"]), _points(one["values"])) for one in found["result"]]


def _legend(target: dict[str, Any], labels: dict[str, str]) -> str:
    return re.sub(r"\{\{(\w+)\}\}", lambda name: labels.get(name[1], ""), target.get("legendFormat") or "")


def _points(values: Sequence[Sequence[Any]]) -> list[tuple[float, float]]:
    return [(float(at), float(value)) for at, value in values if math.isfinite(float(value))]


# ---- drawing --------------------------------------------------------------------------------------------------------


def _text(
    x: float, y: float, text: str, *, size: int = 12, colour: str = "#ccccdc", anchor: str = "start", weight: int = 400
) -> str:
    place = f'x="{x:.1f}" y="{y:.1f}" font-size="{size}" font-weight="{weight}"'
    return f'<text {place} fill="{colour}" text-anchor="{anchor}">{escape(text)}</text>'


def _box(x: float, y: float, width: float, height: float, fill: str, more: str = "") -> str:
    return f'<rect x="{x:.1f}" y="{y:.1f}" width="{width:.1f}" height="{height:.1f}" fill="{fill}" {more}/>'


def shown(value: float, unit: str) -> str:
    """Return a value in the unit of its panel."""
    if unit == "percentunit":
        return f"{value:.1%}"
    if unit == "s":
        return f"{value * 1000:.0f} ms" if value < 1 else f"{value:.1f} s"
    if unit == "bytes":
        return f"{value / 2**20:.0f} MiB"
    suffix = {"reqps": " req/s", "short": ""}.get(unit, f" {unit.removeprefix('suffix:').strip()}")
    return f"{value:.3g}{suffix}" if value % 1 else f"{value:.0f}{suffix}"


def picture(page: dict[str, Any], rows: int, answers: dict[int, list[Series]], span: tuple[float, float]) -> str:
    """Return the upper rows of a dashboard as SVG. `answers`: what was found for each panel, by its id."""
    drawn = [panel for panel in page["panels"] if panel["gridPos"]["y"] + panel["gridPos"]["h"] <= rows]
    width = 24 * _CELL
    height = 48 + max(panel["gridPos"]["y"] + panel["gridPos"]["h"] for panel in drawn) * _LINE
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" width="{width}" height="{height}"'
        ' font-family="Inter, Helvetica, Arial, sans-serif">',
        _box(0, 0, width, height, "#111217"),
        _text(14, 31, page["title"], size=18, weight=600),
    ]
    for panel in drawn:
        place = panel["gridPos"]
        x, y = place["x"] * _CELL, 48 + place["y"] * _LINE
        if panel["type"] == "row":
            parts.append(_text(x + 14, y + 20, f"▾ {panel['title']}", size=14))
            continue
        inner = (x + 3, y + 3, place["w"] * _CELL - 6, place["h"] * _LINE - 6)
        parts.append(_box(*inner, "#181b1f", 'stroke="#2a2d33"'))
        parts.append(_text(inner[0] + 10, inner[1] + 19, panel["title"], weight=600))
        draw = {"stat": _stat, "heatmap": _heatmap}.get(panel["type"], _lines)
        parts += draw(inner, answers[panel["id"]], _unit(panel), span)
    return "\n".join([*parts, "</svg>", ""])


def _unit(panel: dict[str, Any]) -> str:
    return str(panel.get("fieldConfig", {}).get("defaults", {}).get("unit", "short"))


Place = tuple[float, float, float, float]


def _stat(place: Place, series: list[Series], unit: str, span: tuple[float, float]) -> list[str]:
    x, y, width, height = place
    last = shown(series[0][1][-1][1], unit) if series and series[0][1] else "no data"
    return [_text(x + width / 2, y + height / 2 + 20, last, size=26, colour=_COLOURS[0], anchor="middle", weight=600)]


def _lines(place: Place, series: list[Series], unit: str, span: tuple[float, float]) -> list[str]:
    x, y, width, height = place
    left, top, right, bottom = x + 66, y + 34, x + width - 14, y + height - 40
    most = max((value for _, points in series for _, value in points), default=0) or 1
    parts = []
    for part in (0, 0.5, 1):
        level = bottom - part * (bottom - top)
        parts.append(f'<path d="M{left:.1f} {level:.1f}H{right:.1f}" stroke="#2a2d33"/>')
        parts.append(_text(left - 6, level + 4, shown(most * part, unit), size=10, colour="#8e8e96", anchor="end"))
    at = x + 12.0
    for number, (name, points) in enumerate(sorted(series)[:6]):
        colour = _COLOURS[number % len(_COLOURS)]
        way = " ".join(
            f"{_across(when, span, left, right):.1f},{bottom - value / most * (bottom - top):.1f}" for when, value in points
        )
        parts.append(f'<polyline points="{way}" fill="none" stroke="{colour}" stroke-width="1.6"/>')
        label = name if len(name) < 26 else f"{name[:24]}…"
        parts += [_box(at, y + height - 17, 12, 3, colour), _text(at + 16, y + height - 12, label, size=10)]
        at += 28 + 5.6 * len(label)
    return parts if series else [*parts, _text(x + width / 2, y + height / 2, "no data", colour="#8e8e96", anchor="middle")]


def _heatmap(place: Place, series: list[Series], unit: str, span: tuple[float, float]) -> list[str]:
    x, y, width, height = place
    left, top, right, bottom = x + 66, y + 30, x + width - 14, y + height - 14
    # The buckets of a histogram are cumulative: each cell is the difference to the bucket below.
    buckets = sorted(((float(name), dict(points)) for name, points in series), key=lambda bucket: bucket[0])
    cells = []
    below: dict[float, float] = {}
    for _, counts in buckets:
        cells.append({when: max(0.0, count - below.get(when, 0)) for when, count in counts.items()})
        below = counts
    filled = [number for number, row in enumerate(cells) if any(value > 0.01 for value in row.values())]
    rows = range(min(filled, default=0), max(filled, default=0) + 1)
    most = max((value for row in cells for value in row.values()), default=0) or 1
    tall = (bottom - top) / max(1, len(rows))
    wide = (right - left) / _STEPS
    parts = []
    for line, number in enumerate(rows):
        level = bottom - (line + 1) * tall
        bound = buckets[number][0] if buckets else 0
        parts.append(
            _text(left - 6, level + tall / 2 + 4, "more" if math.isinf(bound) else shown(bound, "s"), size=10, anchor="end")
        )
        for when, value in cells[number].items() if cells else ():
            if value > 0:
                strength = f'fill-opacity="{0.15 + 0.85 * value / most:.2f}"'
                parts.append(
                    _box(max(left, _across(when, span, left, right) - wide), level, wide, tall - 1, "#ff780a", strength)
                )
    return parts


def _across(when: float, span: tuple[float, float], left: float, right: float) -> float:
    return left + (when - span[0]) / (span[1] - span[0]) * (right - left)


# ---- the run --------------------------------------------------------------------------------------------------------


async def _draw(seconds: float, folder: Path) -> None:
    async with (
        simulated(SimulatorOptions(models=tuple(_MODELS)), invariant_sampling=1.0, store="memory", adapt=False) as served,
        prometheus(folder, [served.url.removeprefix("http://")], []) as server,
    ):
        began = time.time()
        await _traffic(served, seconds)
        span = (began + 15, time.time())
        for name, rows in PICTURES.items():
            page = json.loads((ROOT / "deploy" / "grafana" / f"{name}.json").read_text(encoding="utf-8"))
            answers = {
                panel["id"]: [one for target in panel["targets"] for one in await _series(server, target, *span)]
                for panel in page["panels"]
                if panel.get("targets")
            }
            target = ROOT / "docs" / "images" / f"dashboard-{name}.svg"
            target.write_text(picture(page, rows, answers, span), encoding="utf-8")
            print(f"written: {target.relative_to(ROOT)}")


if __name__ == "__main__":
    options = argparse.ArgumentParser(prog="python -m tests.telemetry.draw_dashboards", description=__doc__.partition("\n")[0])
    options.add_argument("--seconds", type=float, default=180)
    with tempfile.TemporaryDirectory(prefix="dashboards-") as data:
        asyncio.run(_draw(options.parse_args().seconds, Path(data)))
