"""An OpenTelemetry collector: takes spans over OTLP/HTTP and keeps them."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

from aiohttp import web
from opentelemetry.proto.collector.metrics.v1.metrics_service_pb2 import ExportMetricsServiceRequest
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest

from responses_gateway.simulator import serving


@dataclass
class Seen:
    """A span as it came: ids as hex, times in nanoseconds."""

    name: str
    kind: int  # 2: server, 3: client
    trace_id: str
    span_id: str
    parent_id: str
    attributes: dict[str, Any]
    events: dict[str, int]
    failed: bool
    began: int
    ended: int
    resource: dict[str, Any]
    links: dict[str, dict[str, Any]] = field(default_factory=dict)  # attributes by the span that each leads to


@dataclass
class Collector:
    url: str = ""
    spans: list[Seen] = field(default_factory=list)
    requests: int = 0
    numbers: dict[str, list[dict[str, Any]]] = field(default_factory=dict)  # by metric: attributes, `sum`, `count`, `unit`

    def one(self, kind: int) -> Seen:
        (found,) = [span for span in self.spans if span.kind == kind]
        return found

    async def take(self, request: web.Request) -> web.Response:
        self.requests += 1
        for group in ExportTraceServiceRequest.FromString(await request.read()).resource_spans:
            resource = _values(group.resource.attributes)
            for span in (span for scope in group.scope_spans for span in scope.spans):
                self.spans.append(
                    Seen(
                        name=span.name,
                        kind=span.kind,
                        trace_id=span.trace_id.hex(),
                        span_id=span.span_id.hex(),
                        parent_id=span.parent_span_id.hex(),
                        attributes=_values(span.attributes),
                        events={event.name: event.time_unix_nano for event in span.events},
                        failed=span.status.code == 2,
                        began=span.start_time_unix_nano,
                        ended=span.end_time_unix_nano,
                        resource=resource,
                        links={link.span_id.hex(): _values(link.attributes) for link in span.links},
                    )
                )
        return web.Response()

    async def take_metrics(self, request: web.Request) -> web.Response:
        for group in ExportMetricsServiceRequest.FromString(await request.read()).resource_metrics:
            for metric in (metric for scope in group.scope_metrics for metric in scope.metrics):
                points = metric.histogram.data_points if metric.HasField("histogram") else metric.sum.data_points
                self.numbers[metric.name] = [
                    {
                        **_values(point.attributes),
                        "sum": point.sum if metric.HasField("histogram") else point.as_int or point.as_double,
                        "count": getattr(point, "count", None),
                        "unit": metric.unit,
                    }
                    for point in points
                ]
        return web.Response()


def _values(attributes: Any) -> dict[str, Any]:
    return {each.key: _value(each.value) for each in attributes}


def _value(value: Any) -> Any:
    kind = value.WhichOneof("value")
    return [_value(each) for each in value.array_value.values] if kind == "array_value" else getattr(value, kind)


@asynccontextmanager
async def collector() -> AsyncIterator[Collector]:
    """Serve a collector on a loopback port."""
    running = Collector()
    app = web.Application()
    app.router.add_post("/v1/traces", running.take)
    app.router.add_post("/v1/metrics", running.take_metrics)
    async with serving(app) as url:
        running.url = url
        yield running
