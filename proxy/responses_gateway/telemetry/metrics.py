"""The metrics of one process: additions in batches, whole histograms at once, one sum for several processes.

prometheus_client takes a lock for each addition, and a request makes a dozen of them: they are collected, and made about once a
second.

This is the only file that uses private parts of prometheus_client. Each use is checked; the public API would be slower."""

from __future__ import annotations

import os
import time
from bisect import bisect_left
from collections import defaultdict
from collections.abc import Callable, Iterable, Sequence
from math import nan
from pathlib import Path
from typing import Any, TypeAlias

import msgspec
import prometheus_client as prometheus
from prometheus_client import exposition, multiprocess, values

from responses_gateway.telemetry import logs
from responses_gateway.telemetry.instruments import DEFECTS, Counter, Gauge, Histogram

CONTENT_TYPE = exposition.CONTENT_TYPE_LATEST
# The library would add a series `_created` to each counter and histogram, which nothing here reads.
prometheus.disable_created_metrics()  # type: ignore[no-untyped-call]

_PREFIX = "responses_gateway_"
# The library reads this variable when it is imported, and whenever a metric is made.
FOLDER_VARIABLE = "PROMETHEUS_MULTIPROC_DIR"
_MODELS = 100
_LONGEST_MODEL = 200  # in characters: it appears in some eighty lines
# Amounts by metric and labels.
Counted: TypeAlias = defaultdict[tuple[Counter | Gauge, tuple[str, ...]], float]
_SAMPLE_INTERVAL = 1.0  # seconds between two samples: open files are counted by listing them
# Gauge -> its help text, and how those of several workers become one.
_GAUGES = {
    "process_resident_memory_bytes": ("Resident memory of all workers; shared memory counts for each of them.", "livesum"),
    "process_virtual_memory_bytes": ("Virtual memory of all workers.", "livesum"),
    "process_open_fds": ("Open files of the worker that has most.", "livemax"),
    "process_max_fds": ("Files that a worker may have open.", "livemin"),
    "process_start_time_seconds": ("When the youngest worker started, in seconds since 1970.", "livemax"),
}


class _Observed(msgspec.Struct):
    """Observations of a histogram that are still to be added: how many of them fell into each bucket, and their sum."""

    counts: list[int]
    total: float = 0.0


class _Observations(dict[tuple[Histogram, tuple[str, ...]], _Observed]):
    """What is still to be added, by metric and labels."""

    def __missing__(self, key: tuple[Histogram, tuple[str, ...]]) -> _Observed:
        observed = _Observed([0] * (len(key[0].buckets) + 1))
        self[key] = observed
        return observed


class Metrics:
    """Counts what the rooms define (`instruments.py`). A metric is shown once it is declared, or counted first."""

    def __init__(self) -> None:
        self.registry = prometheus.CollectorRegistry()
        self.samplers: list[Callable[[], None]] = []  # called at the beginning of each flush
        # What is to be added at the next flush. Whoever counts much at once may add to it without `count`.
        self.counted: Counted = defaultdict(int)
        self._models: set[str] = set()
        # The library's objects, by metric and labels; those without labels are the metrics themselves.
        self._children: dict[tuple[Counter | Gauge | Histogram, tuple[str, ...]], Any] = {}
        self._observed = _Observations()
        self.declare([DEFECTS])
        # Processor time, memory and open files, under the names that all programs use.
        if runtime_folder() is None:
            prometheus.ProcessCollector(registry=self.registry)
        else:
            self.samplers.append(_ProcessMetrics(self.registry).sample)

    # ---- metrics -----------------------------------------------------------------------------------------------------

    def declare(self, metrics: Iterable[Counter | Gauge | Histogram]) -> None:
        """Show metrics before anything is counted. Those that are shown already stay as they are."""
        for metric in metrics:
            self._family(metric)

    def _family(self, metric: Counter | Gauge | Histogram) -> Any:
        """Return the library's object for a metric, whatever its labels."""
        family = self._children.get((metric, ()))
        if family is None:
            family = _new_family(metric, self.registry)
            self._children[metric, ()] = family
        return family

    def child(self, metric: Counter | Gauge | Histogram, *labels: str) -> Any:
        """Return the library's object for these labels from a cache: the library validates and locks at each call."""
        child = self._children.get((metric, labels))
        if child is None:
            family = self._family(metric)
            child = family.labels(*labels) if labels else family
            self._children[metric, labels] = child
        return child

    def remove(self, metric: Counter | Gauge | Histogram, *labels: str) -> None:
        """Show a child no longer."""
        self.counted.pop((metric, labels), None)  # type: ignore[arg-type]  # else the next flush would show it again
        self._observed.pop((metric, labels), None)  # type: ignore[arg-type]
        child = self._children.pop((metric, labels), None)
        if child is None:
            return
        if runtime_folder() is None:
            self._family(metric).remove(*labels)
        elif isinstance(metric, Gauge) and metric.together != "livesum":  # a sum is 0 by now
            child.set(nan)  # nothing can be removed from the files of several processes, but NaN is left out

    def model(self, name: str) -> str:
        """Return the label for a model: its name for the first hundred that backends answered for, `other` for any more and
        for very long names."""
        if name in self._models:
            return name
        if len(self._models) >= _MODELS or len(name) > _LONGEST_MODEL:
            return "other"
        self._models.add(name)
        return name

    # ---- counting ----------------------------------------------------------------------------------------------------

    def count(self, metric: Counter | Gauge, *labels: str, amount: float = 1) -> None:
        """Add to a counter or a gauge at the next `flush`."""
        self.counted[metric, labels] += amount

    def set(self, metric: Gauge, value: float, *labels: str) -> None:
        """Set a gauge, at once."""
        self.child(metric, *labels).set(value)

    def observe(self, metric: Histogram, value: float, *labels: str) -> None:
        """Add an observation at the next `flush`."""
        observed = self._observed[metric, labels]
        observed.counts[bisect_left(metric.buckets, value)] += 1
        observed.total += value

    def observe_each(self, metric: Histogram, values: Iterable[tuple[str, float]]) -> None:
        """Add observations at the next `flush`, each with the metric's only label."""
        for label, value in values:
            observed = self._observed[metric, (label,)]
            observed.counts[bisect_left(metric.buckets, value)] += 1
            observed.total += value

    def observe_many(self, metric: Histogram, counts: Sequence[int], total: float, *labels: str) -> None:
        """Add many observations at the next `flush`: how many of them fell into each bucket (the last is +Inf), and a sum."""
        observed = self._observed[metric, labels]
        observed.counts = [one + more for one, more in zip(observed.counts, counts, strict=True)]
        observed.total += total

    # ---- once a second -----------------------------------------------------------------------------------------------

    def flush(self) -> None:
        """Add what was counted. The event loop calls it about once a second and before a scrape."""
        for sample in self.samplers:
            try:
                sample()
            except Exception as defect:  # it must not stop the others
                self.report(defect)
        counted = self.counted
        self.counted = defaultdict(int)
        for (metric, labels), amount in counted.items():
            self.child(metric, *labels).inc(amount)
        observed = self._observed
        self._observed = _Observations()
        for (histogram, labels), seen in observed.items():
            child = self.child(histogram, *labels)
            for bucket, count in zip(child._buckets, seen.counts, strict=True):
                if count:
                    bucket.inc(count)
            if seen.total:
                child._sum.inc(seen.total)

    def report(self, defect: BaseException, **fields: Any) -> None:
        """Count a defect, and log it with these fields."""
        self.count(DEFECTS)
        logs.logger().error("defect", exc_info=defect, extra=logs.fields(**fields))

    def text(self) -> bytes:
        """Return the text for Prometheus as of the last `flush`, of this process or of all workers. Any thread may call it."""
        folder = runtime_folder()
        return prometheus.generate_latest(self.registry) if folder is None else text_of_all(folder)


class _ProcessMetrics:
    """The usual `process_*` metrics of one of several workers. A single process uses the library's own collector.

    The library leaves them out when processes share their metrics in files, and no platform knows the workers of one gateway.
    The processor time of workers that died still counts, as in any counter.
    """

    def __init__(self, registry: prometheus.CollectorRegistry) -> None:
        self._collector = prometheus.ProcessCollector(registry=None)
        self._cpu = prometheus.Counter("process_cpu_seconds", "Processor time of all workers.", registry=registry)
        self._gauges = {
            name: prometheus.Gauge(name, text, registry=registry, multiprocess_mode=together)  # type: ignore[arg-type]
            for name, (text, together) in _GAUGES.items()
        }
        self._cpu_seconds = 0.0
        self._sampled_at = float("-inf")
        self.sample()  # none of them is ever 0

    def sample(self) -> None:
        """Take the present values, at most once a second."""
        now = time.monotonic()
        if now - self._sampled_at < _SAMPLE_INTERVAL:
            return
        self._sampled_at = now
        for family in self._collector.collect():
            for sample in family.samples:
                if sample.name == "process_cpu_seconds_total":
                    self._cpu.inc(max(0.0, sample.value - self._cpu_seconds))
                    self._cpu_seconds = sample.value
                elif sample.name in self._gauges:
                    self._gauges[sample.name].set(sample.value)


def _new_family(metric: Counter | Gauge | Histogram, registry: prometheus.CollectorRegistry) -> Any:
    name = _PREFIX + metric.name
    match metric:
        case Counter():
            return prometheus.Counter(name, metric.text, metric.labels, registry=registry)
        case Gauge():
            return prometheus.Gauge(name, metric.text, metric.labels, registry=registry, multiprocess_mode=metric.together)
        case Histogram():
            return prometheus.Histogram(name, metric.text, metric.labels, registry=registry, buckets=metric.buckets)


def runtime_folder() -> Path | None:
    """Return the folder in which several processes share their metrics, in a process that does."""
    folder = os.environ.get(FOLDER_VARIABLE)
    return Path(folder) if folder else None


def text_of_all(folder: Path) -> bytes:
    """Return the text for Prometheus of all processes; series that one of them has set to NaN are left out."""
    registry = prometheus.CollectorRegistry()
    multiprocess.MultiProcessCollector(registry, str(folder))  # type: ignore[no-untyped-call]
    text = prometheus.generate_latest(registry)
    return b"".join(line for line in text.splitlines(keepends=True) if not line.endswith(b" NaN\n"))


def name_files(name: str) -> None:
    """Write the metrics that are made from now on to files named `name`. Otherwise the library names them after the process id,
    and only if the variable was set before it was imported."""
    values.ValueClass = values.MultiProcessValue(lambda: name)  # type: ignore[no-untyped-call]
