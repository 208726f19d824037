"""Draw what each turn of an agent costs as its conversation grows, as SVG."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple
from xml.sax.saxutils import escape

_WIDTH = 720
_HEIGHT = 340
_LEFT = 60
_TOP = 30
_RIGHT = 110
_BOTTOM = 50
_COLOURS = ("#888a85", "#3465a4", "#c17d11", "#4e9a06")


class Scale(NamedTuple):
    """Where values stand in the picture: turns from left to right, milliseconds from the bottom up."""

    turns: int
    most: float

    def x(self, turn: float) -> float:
        return _LEFT + (_WIDTH - _LEFT - _RIGHT) * turn / max(1, self.turns - 1)

    def y(self, milliseconds: float) -> float:
        return _TOP + (_HEIGHT - _TOP - _BOTTOM) * (1 - milliseconds / self.most)


def picture(costs: Mapping[str, Sequence[float]], title: str) -> str:
    """Return the picture of the CPU time of each turn, in milliseconds, a line for each target."""
    scale = Scale(max(map(len, costs.values())), max(max(cost) for cost in costs.values()) * 1.1)
    parts = [
        f'<rect width="{_WIDTH}" height="{_HEIGHT}" fill="#fff"/>',
        f'<text x="{_LEFT}" y="18">{escape(title)}</text>',
        *_grid(scale),
    ]
    for colour, (name, cost) in zip(_COLOURS, costs.items(), strict=False):
        points = " ".join(f"{scale.x(turn):.1f},{scale.y(value):.1f}" for turn, value in enumerate(cost))
        parts.append(f'<polyline points="{points}" fill="none" stroke="{colour}" stroke-width="1.5"/>')
        y = scale.y(cost[-1]) + 4
        parts.append(f'<text x="{_WIDTH - _RIGHT + 8}" y="{y:.1f}" fill="{colour}">{name}</text>')
    head = f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {_WIDTH} {_HEIGHT}" font-family="sans-serif" font-size="12">'
    return "\n".join([head, *parts, "</svg>\n"])


def _grid(scale: Scale) -> list[str]:
    lines: list[str] = []
    for step in range(5):
        value = scale.most * step / 4
        y = scale.y(value)
        lines.append(f'<line x1="{_LEFT}" y1="{y:.1f}" x2="{_WIDTH - _RIGHT}" y2="{y:.1f}" stroke="#ddd"/>')
        lines.append(f'<text x="{_LEFT - 8}" y="{y + 4:.1f}" text-anchor="end">{value:.1f}</text>')
    for turn in range(0, scale.turns, 6):
        x = scale.x(turn)
        lines.append(f'<text x="{x:.1f}" y="{_HEIGHT - _BOTTOM + 18}" text-anchor="middle">{turn + 1}</text>')
    lines.append(f'<text x="{_LEFT}" y="{_HEIGHT - 12}">turn</text>')
    return lines
