"""PromQL queries of the gateway's metrics, with the variables of the dashboards."""

from __future__ import annotations

from collections.abc import Sequence

PREFIX = "responses_gateway_"
# Filters by the variables of a dashboard. `MODELS` is for metrics with the label `model`.
GATEWAYS = 'job=~"$job", instance=~"$instance"'
MODELS = GATEWAYS + ', model=~"$model"'


def rate(metric: str, *by: str, select: str = GATEWAYS, over: str = "$__rate_interval") -> str:
    """Return a query for the rate of a counter, per second."""
    return f"sum{_by(by)}(rate({PREFIX}{metric}{{{select}}}[{over}]))"


def quantile(share: float, metric: str, *by: str, select: str = MODELS, over: str = "$__rate_interval") -> str:
    """Return a query for a quantile of a histogram."""
    return f"histogram_quantile({share}, {rate(f'{metric}_bucket', 'le', *by, select=select, over=over)})"


def percentiles(metric: str) -> dict[str, str]:
    """Return queries for the median, the 95th and the 99th percentile, with their legends."""
    return {quantile(share, metric): name for share, name in ((0.5, "p50"), (0.95, "p95"), (0.99, "p99"))}


def ratio(part: str, whole: str) -> str:
    """Return a query for a share, without a result where the whole is 0."""
    return f"{part} / ({whole} > 0)"


def within(metric: str, select: str = GATEWAYS) -> str:
    """Return a query for the increase of a counter in the selected time range, 0 if there is none."""
    return f"sum(increase({PREFIX}{metric}{{{select}}}[$__range])) or vector(0)"


def ended(outcomes: str, *by: str, select: str = MODELS, over: str = "$__rate_interval") -> str:
    """Return a query for the rate of requests with these outcomes."""
    return rate("requests_total", *by, select=f'{select}, outcome=~"{outcomes}"', over=over)


def _by(labels: Sequence[str]) -> str:
    return f" by ({', '.join(labels)}) " if labels else ""
