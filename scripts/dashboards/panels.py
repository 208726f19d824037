"""A dashboard as data: rows of panels, each with what it shows, what it says about it, and in which unit."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

REQUESTS, SECONDS, SHARE, NUMBER, BYTES = "reqps", "s", "percentunit", "short", "bytes"
TOKENS, PER_SECOND = "suffix: tok/s", "suffix: /s"

Kind = Literal["timeseries", "stat", "heatmap", "bargauge", "table"]


@dataclass(frozen=True)
class Panel:
    """One picture. `queries` maps an expression to the name of its lines; `warn` and `bad` are thresholds of the value."""

    title: str
    says: str
    unit: str
    queries: Mapping[str, str]
    kind: Kind = "timeseries"
    width: int = 8
    height: int = 8
    stacked: bool = False
    warn: float | None = None
    bad: float | None = None
    low_is_bad: bool = False
    decimals: int | None = None


@dataclass(frozen=True)
class Row:
    """Panels under a heading, side by side as far as they fit (24 wide)."""

    title: str
    panels: Sequence[Panel]


@dataclass(frozen=True)
class Dashboard:
    """A page. `models`: it has a variable for the model."""

    uid: str
    title: str
    says: str
    rows: Sequence[Row]
    models: bool = True
