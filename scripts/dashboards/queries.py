"""PromQL about our metrics, with the variables that stand at the head of a dashboard."""

from __future__ import annotations

from collections.abc import Sequence

PREFIX = "responses_proxy_"
#: What the variables at the head of a dashboard choose; `{model}` is for metrics that know the model.
GATEWAYS = 'job=~"$job", instance=~"$instance"'
MODELS = GATEWAYS + ', model=~"$model"'


def rate(metric: str, *by: str, select: str = GATEWAYS, over: str = "$__rate_interval") -> str:
    """How fast a counter grows, per second."""
    return f"sum{_by(by)}(rate({PREFIX}{metric}{{{select}}}[{over}]))"


def quantile(share: float, metric: str, *by: str, select: str = MODELS, over: str = "$__rate_interval") -> str:
    """A percentile of a histogram."""
    return f"histogram_quantile({share}, {rate(f'{metric}_bucket', 'le', *by, select=select, over=over)})"


def percentiles(metric: str) -> dict[str, str]:
    """Median, and the slow ones."""
    return {quantile(share, metric): name for share, name in ((0.5, "p50"), (0.95, "p95"), (0.99, "p99"))}


def ratio(part: str, whole: str) -> str:
    """A share of a whole; nothing where the whole is."""
    return f"{part} / ({whole} > 0)"


def within(metric: str, select: str = GATEWAYS) -> str:
    """How often something was counted in the time shown; 0 if never."""
    return f"sum(increase({PREFIX}{metric}{{{select}}}[$__range])) or vector(0)"


def ended(outcomes: str, *by: str, select: str = MODELS, over: str = "$__rate_interval") -> str:
    """Requests per second that ended so."""
    return rate("requests_total", *by, select=f'{select}, outcome=~"{outcomes}"', over=over)


def _by(labels: Sequence[str]) -> str:
    return f" by ({', '.join(labels)}) " if labels else ""
