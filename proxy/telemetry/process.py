"""What a process uses, under the names that all programs have for it, where several are shown as one.

The library leaves these out when processes share their metrics: a scrape reads files then, and nobody is there to look.
"""

from __future__ import annotations

import time

from prometheus_client import CollectorRegistry, Counter, Gauge, ProcessCollector

#: Seconds between two looks: the number of open files is found by listing them.
_LOOK = 1.0


class ProcessMetrics:
    """Of one worker; `look` brings them up to date. Processor time of workers that died still counts, like in any counter."""

    def __init__(self, registry: CollectorRegistry) -> None:
        self._collector = ProcessCollector(registry=None)
        self._cpu = Counter("process_cpu_seconds", "Processor time of all workers.", registry=registry)
        self._gauges = {
            "process_resident_memory_bytes": Gauge(
                "process_resident_memory_bytes",
                "Resident memory of all workers; what they share counts for each.",
                registry=registry,
                multiprocess_mode="livesum",
            ),
            "process_virtual_memory_bytes": Gauge(
                "process_virtual_memory_bytes",
                "Virtual memory of all workers.",
                registry=registry,
                multiprocess_mode="livesum",
            ),
            "process_open_fds": Gauge(
                "process_open_fds",
                "Open files of the worker that has most.",
                registry=registry,
                multiprocess_mode="livemax",
            ),
            "process_max_fds": Gauge(
                "process_max_fds",
                "Files that a worker may have open.",
                registry=registry,
                multiprocess_mode="livemin",
            ),
            "process_start_time_seconds": Gauge(
                "process_start_time_seconds",
                "When the youngest worker began, in seconds since 1970.",
                registry=registry,
                multiprocess_mode="livemax",
            ),
        }
        self._spent = 0.0
        self._looked_at = float("-inf")
        self.look()  # none of them is ever 0

    def look(self) -> None:
        """Take the numbers of now, about once a second however often it is called."""
        now = time.monotonic()
        if now - self._looked_at < _LOOK:
            return
        self._looked_at = now
        for family in self._collector.collect():
            for sample in family.samples:
                if sample.name == "process_cpu_seconds_total":
                    self._cpu.inc(max(0.0, sample.value - self._spent))
                    self._spent = sample.value
                elif sample.name in self._gauges:
                    self._gauges[sample.name].set(sample.value)
