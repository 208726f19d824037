"""Metrics over OTLP, for the names of OpenTelemetry (`gen_ai.py`). Needs the extra `otel`, as traces do.

The SDK sends from a thread of its own, once a minute; headers, certificates and the interval follow the standard `OTEL_*`
variables."""

from __future__ import annotations

import asyncio
import uuid
from threading import Thread

from responses_gateway.telemetry.gen_ai import Instrument, Record

_TRACES = "/v1/traces"
_METRICS = "/v1/metrics"
# Seconds that the last numbers may take to be sent.
_LAST = 2.0


class OtlpMetrics:
    """A `MetricSink` that sends to a collector. Create it after `Tracing`, in the process that serves, and `close` it."""

    def __init__(self, endpoint: str, version: str) -> None:
        """Prepare to send to the collector that also gets the traces."""
        from opentelemetry.exporter.otlp.proto.http.metric_exporter import OTLPMetricExporter  # noqa: PLC0415
        from opentelemetry.sdk.metrics import MeterProvider  # noqa: PLC0415
        from opentelemetry.sdk.metrics.export import PeriodicExportingMetricReader  # noqa: PLC0415
        from opentelemetry.sdk.resources import OTELResourceDetector, Resource  # noqa: PLC0415

        # Each process is an instance, since sums of two under one name would be mixed up.
        ours = {"service.name": "responses-gateway", "service.version": version, "service.instance.id": str(uuid.uuid4())}
        base = endpoint.rstrip("/").removesuffix(_TRACES)
        reader = PeriodicExportingMetricReader(OTLPMetricExporter(endpoint=base + _METRICS))
        resource = Resource.create(ours).merge(OTELResourceDetector().detect())
        self._provider = MeterProvider([reader], resource, shutdown_on_exit=False)
        self._meter = self._provider.get_meter("responses_gateway", version)

    def declare(self, instrument: Instrument) -> Record:
        """Return what takes the values of an instrument."""
        named = (instrument.name, instrument.unit, instrument.text)
        if instrument.buckets:
            return self._meter.create_histogram(*named, explicit_bucket_boundaries_advisory=instrument.buckets).record
        return self._meter.create_counter(*named).add

    async def close(self) -> None:
        """Send what is left, within two seconds."""
        last = Thread(target=self._provider.shutdown, daemon=True)
        last.start()
        await asyncio.to_thread(last.join, _LAST)
