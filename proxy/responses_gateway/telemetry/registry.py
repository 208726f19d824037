"""prometheus_client as the gateway uses it: additions in batches, whole histograms at once, one sum for several processes.

The library takes a lock for each addition, and a request makes a dozen of them: they are collected, and made about once a
second.

This is the only file that uses private parts of prometheus_client. Each use is checked; otherwise the public API does the same,
slower."""

from __future__ import annotations

import functools
import logging
import os
from bisect import bisect_left
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from importlib.metadata import version
from math import nan
from pathlib import Path
from typing import Any, Literal, TypeVar

import msgspec
from prometheus_client import (
    CollectorRegistry,
    Counter,
    Gauge,
    Histogram,
    disable_created_metrics,
    generate_latest,
    values,
)
from prometheus_client.multiprocess import MultiProcessCollector

from responses_gateway.telemetry import logs
from responses_gateway.telemetry.gen_ai import GenAiMetrics

# The library would add a series `_created` to each counter and histogram, which nothing here reads.
disable_created_metrics()  # type: ignore[no-untyped-call]

_TESTED = "0.22 to 0.26"
_PREFIX = "responses_gateway_"
# The library reads this variable when it is imported, and whenever a metric is made.
FOLDER_VARIABLE = "PROMETHEUS_MULTIPROC_DIR"
_MODELS = 100
_LONGEST_MODEL = 200  # in characters: it appears in some eighty lines
# So many tasks at most are deferred: they keep finished responses in memory, and streams wait while they run.
_MOST_DEFERRED = 8

_M = TypeVar("_M", Counter, Gauge, Histogram)
_C = TypeVar("_C", Counter, Gauge)


class _Observed(msgspec.Struct):
    """Observations of a histogram that are still to be added: how many of them fell into each bucket, and their sum."""

    counts: list[int]
    total: float = 0.0


class Registry:
    """The metrics of one process. `labels`: the names of each metric's labels."""

    def __init__(self) -> None:
        self.registry = CollectorRegistry()
        self.labels: dict[Counter | Gauge | Histogram, tuple[str, ...]] = {}
        self._bounds: dict[Histogram, Sequence[float]] = {}
        self._sums: set[Counter | Gauge | Histogram] = set()  # gauges that several processes add up
        self._models: set[str] = set()
        self._children: dict[tuple[Any, tuple[str, ...]], Any] = {}
        self._counted: defaultdict[tuple[Any, tuple[str, ...]], float] = defaultdict(int)  # to be added, by metric and labels
        self._observed: dict[tuple[Histogram, tuple[str, ...]], _Observed] = {}
        self._deferred: list[Callable[[], None]] = []
        self.samplers: list[Callable[[], None]] = []  # called at each flush
        self.gen_ai: GenAiMetrics | None = None  # where the settings turn it on
        self.defects = self.counter("defects_total", "Failures of the gateway itself.")

    def counter(self, name: str, text: str, *labels: str) -> Counter:
        """Declare a counter."""
        return self._declared(Counter(_PREFIX + name, text, labels, registry=self.registry), labels)

    def gauge(
        self, name: str, text: str, *labels: str, together: Literal["livesum", "livemin", "livemax"] = "livesum"
    ) -> Gauge:
        """Declare a gauge. `together`: the value of several processes, of those that are alive."""
        gauge = Gauge(_PREFIX + name, text, labels, registry=self.registry, multiprocess_mode=together)
        if together == "livesum":
            self._sums.add(gauge)
        return self._declared(gauge, labels)

    def histogram(self, name: str, text: str, buckets: Sequence[float], *labels: str) -> Histogram:
        """Declare a histogram; `buckets` are the upper bounds."""
        histogram = Histogram(_PREFIX + name, text, labels, buckets=buckets, registry=self.registry)
        self._bounds[histogram] = buckets
        return self._declared(histogram, labels)

    def _declared(self, metric: _M, labels: tuple[str, ...]) -> _M:
        self.labels[metric] = labels
        return metric

    def child(self, metric: _M, *labels: str) -> _M:
        """Return `metric.labels(*labels)` from a cache: the library validates and locks at each call. Without labels it is the
        metric itself."""
        if not labels:
            return metric
        key = (metric, labels)
        child = self._children.get(key)
        if child is None:
            child = metric.labels(*labels)
            self._children[key] = child
        return child

    def remove(self, metric: Counter | Gauge | Histogram, *labels: str) -> None:
        """Show a child no longer."""
        self._counted.pop((metric, labels), None)  # else the next flush would show it again
        self._observed.pop((metric, labels), None)  # type: ignore[arg-type]
        child = self._children.pop((metric, labels), None)
        if child is None:
            return
        if runtime_folder() is None:
            metric.remove(*labels)
        elif isinstance(metric, Gauge) and metric not in self._sums:  # a sum is 0 by now
            child.set(nan)  # nothing can be removed from the files of several processes, but NaN is left out

    def count(self, metric: _C, *labels: str, amount: float = 1) -> None:
        """Add to a counter at the next `flush`."""
        self._counted[metric, labels] += amount

    def count_all(self, metric: Counter, counts: Mapping[str, int]) -> None:
        """Add counts by the value of the metric's only label, at the next `flush`."""
        for label, count in counts.items():
            self.count(metric, label, amount=count)

    def observe(self, metric: Histogram, value: float, *labels: str) -> None:
        """Add an observation at the next `flush`."""
        observed = self._observed_of(metric, labels)
        observed.counts[bisect_left(self._bounds[metric], value)] += 1
        observed.total += value

    def observe_many(self, metric: Histogram, counts: Sequence[int], total: float, *labels: str) -> None:
        """Add many observations at the next `flush`: how many of them fell into each bucket (the last is +Inf), and their
        sum."""
        observed = self._observed_of(metric, labels)
        if total or any(counts):
            observed.counts = [one + more for one, more in zip(observed.counts, counts, strict=True)]
            observed.total += total

    def _observed_of(self, metric: Histogram, labels: tuple[str, ...]) -> _Observed:
        key = (metric, labels)
        observed = self._observed.get(key)
        if observed is None:
            observed = _Observed([0] * (len(self._bounds[metric]) + 1))
            self._observed[key] = observed
        return observed

    def _add_observed(self, metric: Histogram, counts: Sequence[int], total: float, *labels: str) -> None:
        child = self.child(metric, *labels)
        buckets = getattr(child, "_buckets", ())
        if not hasattr(child, "_sum") or len(buckets) != len(counts):
            warn_once()
            _observe_each(child, self._bounds[metric], counts, total)
            return
        for bucket, count in zip(buckets, counts, strict=True):
            if count:
                bucket.inc(count)
        if total:
            child._sum.inc(total)

    def defer(self, task: Callable[[], None]) -> None:
        """Run a task at the next `flush`, or together with a few others: several at once cost less."""
        self._deferred.append(task)
        if len(self._deferred) >= _MOST_DEFERRED:
            self._run_deferred()

    def flush(self) -> None:
        """Run deferred tasks and add what was counted. The event loop calls it about once a second and before a scrape."""
        self._run_deferred()
        counted = self._counted
        self._counted = defaultdict(int)
        for (metric, labels), amount in counted.items():
            self.child(metric, *labels).inc(amount)
        observed = self._observed
        self._observed = {}
        for (histogram, labels), seen in observed.items():
            self._add_observed(histogram, seen.counts, seen.total, *labels)
        for sample in self.samplers:
            sample()

    def _run_deferred(self) -> None:
        tasks = self._deferred
        self._deferred = []
        for task in tasks:
            try:
                task()
            except Exception:  # a defect in one task must not stop the others
                self.defects.inc()
                logs.logger().exception("defect")

    def model(self, name: str) -> str:
        """Return the label for a model: its name for the first hundred that backends answered for, `other` for any more and
        for very long names."""
        if name in self._models:
            return name
        if len(self._models) >= _MODELS or len(name) > _LONGEST_MODEL:
            return "other"
        self._models.add(name)
        return name

    def text(self) -> bytes:
        """Return the text for Prometheus as of the last `flush`, of this process or of all workers. Any thread may call it."""
        folder = runtime_folder()
        return generate_latest(self.registry) if folder is None else text_of_all(folder)


def runtime_folder() -> Path | None:
    """Return the folder in which several processes share their metrics, in a process that does."""
    folder = os.environ.get(FOLDER_VARIABLE)
    return Path(folder) if folder else None


def text_of_all(folder: Path) -> bytes:
    """Return the text for Prometheus of all processes; series that one of them has set to NaN are left out."""
    registry = CollectorRegistry()
    MultiProcessCollector(registry, str(folder))  # type: ignore[no-untyped-call]
    text = generate_latest(registry)
    return b"".join(line for line in text.splitlines(keepends=True) if not line.endswith(b" NaN\n"))


def names_own_files() -> bool:
    """Tell whether `name_files` has an effect in this version of the library."""
    names = ("ValueClass", "MultiProcessValue", "MutexValue")
    return all(hasattr(values, name) for name in names)


def name_files(name: str) -> None:
    """Write the metrics that are made from now on to files named `name`. Otherwise the library names them after the process id,
    and only if the variable was set before it was imported."""
    if names_own_files():
        values.ValueClass = values.MultiProcessValue(lambda: name)  # type: ignore[no-untyped-call]
    else:
        warn_once()


def _observe_each(histogram: Histogram, bounds: Sequence[float], counts: Sequence[int], total: float) -> None:
    """Observe each value by itself: as many per bucket as `counts` says, in such places that their sum is `total`."""
    lower = [0.0, *bounds]
    upper = [*bounds, max(total, *bounds)]
    least = sum(count * bound for count, bound in zip(counts, lower, strict=True))
    most = sum(count * bound for count, bound in zip(counts, upper, strict=True))
    part = (total - least) / (most - least) if most > least else 1.0
    for count, low, high in zip(counts, lower, upper, strict=True):
        for _ in range(count):
            histogram.observe(low + part * (high - low))


@functools.cache
def warn_once() -> None:
    found = version("prometheus_client")
    message = "prometheus_client %s differs from %s, which the gateway was tested with: metrics use its slower public API"
    logging.getLogger("responses_gateway").warning(message, found, _TESTED)
