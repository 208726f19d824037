"""A dashboard as data: rows of panels, each with a title, a description, a unit and queries."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

# Units, as Grafana names them.
REQUESTS = "reqps"
SECONDS = "s"
SHARE = "percentunit"
NUMBER = "short"
BYTES = "bytes"
TOKENS = "suffix: tok/s"
PER_SECOND = "suffix: /s"

Kind = Literal["timeseries", "stat", "heatmap", "bargauge", "table"]


@dataclass(frozen=True)
class Panel:
    """A panel. `queries` maps each expression to the legend of its series; `warn` and `bad` are thresholds of the value."""

    title: str
    description: str
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
    """Panels under a heading, side by side up to a total width of 24."""

    title: str
    panels: Sequence[Panel]


@dataclass(frozen=True)
class Dashboard:
    """A page. `models`: whether it has a variable for the model."""

    uid: str
    title: str
    description: str
    rows: Sequence[Row]
    models: bool = True
