"""The usual `process_*` metrics, for several workers as one.

The library leaves them out when processes share their metrics in files, and no platform knows the workers of one gateway: so
they are measured here, for workers only. A single process uses the library's own collector."""

from __future__ import annotations

import time

from prometheus_client import CollectorRegistry, Counter, Gauge, ProcessCollector

# Seconds between two samples: open files are counted by listing them.
_INTERVAL = 1.0
# Gauge -> its help text, and how those of several workers become one.
_GAUGES = {
    "process_resident_memory_bytes": ("Resident memory of all workers; shared memory counts for each of them.", "livesum"),
    "process_virtual_memory_bytes": ("Virtual memory of all workers.", "livesum"),
    "process_open_fds": ("Open files of the worker that has most.", "livemax"),
    "process_max_fds": ("Files that a worker may have open.", "livemin"),
    "process_start_time_seconds": ("When the youngest worker started, in seconds since 1970.", "livemax"),
}


class ProcessMetrics:
    """The metrics of one worker. The processor time of workers that died still counts, as in any counter."""

    def __init__(self, registry: CollectorRegistry) -> None:
        self._collector = ProcessCollector(registry=None)
        self._cpu = Counter("process_cpu_seconds", "Processor time of all workers.", registry=registry)
        self._gauges = {
            name: Gauge(name, text, registry=registry, multiprocess_mode=together)  # type: ignore[arg-type]
            for name, (text, together) in _GAUGES.items()
        }
        self._cpu_seconds = 0.0
        self._sampled_at = float("-inf")
        self.sample()  # none of them is ever 0

    def sample(self) -> None:
        """Take the present values, at most once a second."""
        now = time.monotonic()
        if now - self._sampled_at < _INTERVAL:
            return
        self._sampled_at = now
        for family in self._collector.collect():
            for sample in family.samples:
                if sample.name == "process_cpu_seconds_total":
                    self._cpu.inc(max(0.0, sample.value - self._cpu_seconds))
                    self._cpu_seconds = sample.value
                elif sample.name in self._gauges:
                    self._gauges[sample.name].set(sample.value)
