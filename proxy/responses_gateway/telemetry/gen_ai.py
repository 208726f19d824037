"""Metrics under the names of OpenTelemetry's conventions for generative AI: requests to backends, and calls of hosted tools.

The names are changing: `1.44` are those of semantic conventions 1.44, `latest` those that replace them. The
buckets are the ones that the conventions advise. Where the numbers go is a `MetricSink`: Prometheus' registry, or OTLP, which
needs the extra `otel`, as traces do. Its SDK sends from a thread of its own, once a minute; headers, certificates and the
interval follow the standard `OTEL_*` variables."""

from __future__ import annotations

import uuid
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal, NamedTuple, Protocol, TypeAlias

from prometheus_client import CollectorRegistry, Counter, Histogram

from responses_gateway.telemetry.tracing import at_collector, ends_in_time, resource
from responses_gateway.wire.deltas import Usage

_SECONDS = tuple(0.01 * 2**power for power in range(14))
# Between two chunks.
_CHUNK_SECONDS = (0.01, 0.025, 0.05, 0.075, 0.1, 0.15, 0.2, 0.3, 0.4, 0.5, 0.75, 1.0, 2.5)
_TOKENS = tuple(4.0**power for power in range(14))
_CALL = ("gen_ai.operation.name", "gen_ai.provider.name", "gen_ai.request.model")
# The operation, and the protocol by which it is asked for.
_CHAT = {"gen_ai.operation.name": "chat", "gen_ai.provider.name": "openai"}
_COUNTED = {
    "input_tokens": "input",
    "output_tokens": "output",
    "cache_read.input_tokens": "cached",
    "reasoning.output_tokens": "reasoning",
}
# The path of a collector.
_METRICS = "/v1/metrics"


@dataclass(frozen=True, slots=True)
class Instrument:
    """A metric: a histogram if it has `buckets`, else a counter. `unit` is `s` or `{token}`."""

    name: str
    unit: str
    text: str
    attributes: tuple[str, ...]
    buckets: tuple[float, ...]


# Adds a value with its attributes.
Record: TypeAlias = Callable[[float, Mapping[str, str]], None]


class MetricSink(Protocol):
    """Where metrics go."""

    def declare(self, instrument: Instrument) -> Record:
        """Return what takes the values of an instrument."""


class CallTiming(NamedTuple):
    """How many seconds a request took, how many to the first chunk, and how many passed from one chunk to the next: the mean of
    its answer, because nothing is done for each chunk."""

    seconds: float
    first: float | None = None
    chunk: float | None = None


class GenAiMetrics:
    """The metrics of one process."""

    def __init__(self, sinks: Sequence[MetricSink], names: Literal["1.44", "latest"]) -> None:
        latest = names == "latest"
        prefix = "gen_ai.client.inference" if latest else "gen_ai.client.operation"

        def declared(name: str, unit: str, text: str, attributes: tuple[str, ...], *buckets: float) -> list[Record]:
            return [sink.declare(Instrument(name, unit, text, attributes, buckets)) for sink in sinks]

        self._duration = declared(f"{prefix}.duration", "s", "Requests to backends.", (*_CALL, "error.type"), *_SECONDS)
        self._first = declared(f"{prefix}.time_to_first_chunk", "s", "To the first chunk.", _CALL, *_SECONDS)
        self._chunk = declared(f"{prefix}.time_per_output_chunk", "s", "Between two chunks.", _CALL, *_CHUNK_SECONDS)
        self._tokens: dict[str, list[Record]] = {}
        self._usage: list[Record] = []
        self._counters: dict[str, list[Record]] = {}
        if latest:
            for kind in ("input", "output"):
                self._tokens[kind] = declared(
                    f"{prefix}.operation.{kind}_tokens", "{token}", f"Tokens: {kind}.", _CALL, *_TOKENS
                )
            for name, kind in _COUNTED.items():
                self._counters[kind] = declared(f"{prefix}.usage.{name}", "{token}", f"Tokens used: {name}.", _CALL)
        else:
            attributes = (*_CALL, "gen_ai.token.type")
            self._usage = declared("gen_ai.client.token.usage", "{token}", "Tokens, by type.", attributes, *_TOKENS)
        tool = ("gen_ai.operation.name", "gen_ai.tool.name", "error.type")
        self._tool = declared("gen_ai.execute_tool.duration", "s", "Calls of hosted tools.", tool, *_SECONDS)
        mcp = ("mcp.method.name", "network.transport", "error.type")
        self._mcp = declared("mcp.client.operation.duration", "s", "Calls of tools of MCP servers.", mcp, *_SECONDS)

    def called(self, model: str, timing: CallTiming, tokens: Usage | None, error: str | None) -> None:
        """Observe a request; `error` is the code of its failure."""
        labels = {**_CHAT, "gen_ai.request.model": model}
        _record(self._duration, timing.seconds, labels, error)
        if timing.first is not None:
            _record(self._first, timing.first, labels)
        if timing.chunk is not None:
            _record(self._chunk, timing.chunk, labels)
        if tokens is None:
            return
        for kind, number in (("input", tokens.input), ("output", tokens.output)):
            if number is None:
                continue
            _record(self._usage, number, {**labels, "gen_ai.token.type": kind})
            _record(self._tokens.get(kind, ()), number, labels)
        for kind, records in self._counters.items():
            _record(records, getattr(tokens, kind) or 0, labels)

    def tool_called(self, kind: str, seconds: float, error: str | None, transport: str | None) -> None:
        """Observe a call of a hosted tool of a kind, `mcp` for instance, which took so many seconds."""
        _record(self._tool, seconds, {"gen_ai.operation.name": "execute_tool", "gen_ai.tool.name": kind}, error)
        if kind == "mcp":
            network = {} if transport is None else {"network.transport": transport}
            _record(self._mcp, seconds, {"mcp.method.name": "tools/call", **network}, error)


def _record(records: Sequence[Record], value: float, attributes: Mapping[str, str], error: str | None = None) -> None:
    for record in records:
        record(value, attributes if error is None else {**attributes, "error.type": error})


class PrometheusSink:
    """Makes metrics of a registry, as OpenTelemetry's exporter for Prometheus names them."""

    def __init__(self, registry: CollectorRegistry) -> None:
        self._registry = registry

    def declare(self, instrument: Instrument) -> Record:
        """Return what takes the values of an instrument."""
        name = _plain(instrument.name) + ("_seconds" if instrument.unit == "s" else "")
        labels = [_plain(attribute) for attribute in instrument.attributes]
        if instrument.buckets:
            histogram = Histogram(name, instrument.text, labels, buckets=instrument.buckets, registry=self._registry)
            return lambda value, values: histogram.labels(*(values.get(at, "") for at in instrument.attributes)).observe(value)
        counter = Counter(name, instrument.text, labels, registry=self._registry)
        return lambda value, values: counter.labels(*(values.get(at, "") for at in instrument.attributes)).inc(value)


def _plain(name: str) -> str:
    return name.replace(".", "_")


class OtlpMetrics:
    """A `MetricSink` that sends to a collector. Create it after `Tracing`, in the process that serves, and `close` it."""

    def __init__(self, endpoint: str, version: str) -> None:
        """Prepare to send to the collector that also gets the traces."""
        from opentelemetry.exporter.otlp.proto.http.metric_exporter import OTLPMetricExporter  # noqa: PLC0415
        from opentelemetry.sdk.metrics import MeterProvider  # noqa: PLC0415
        from opentelemetry.sdk.metrics.export import PeriodicExportingMetricReader  # noqa: PLC0415

        # Each process is an instance, since sums of two under one name would be mixed up.
        ours = resource(version, **{"service.instance.id": str(uuid.uuid4())})
        reader = PeriodicExportingMetricReader(OTLPMetricExporter(endpoint=at_collector(endpoint, _METRICS)))
        self._provider = MeterProvider([reader], ours, shutdown_on_exit=False)
        self._meter = self._provider.get_meter("responses_gateway", version)

    def declare(self, instrument: Instrument) -> Record:
        """Return what takes the values of an instrument."""
        named = (instrument.name, instrument.unit, instrument.text)
        if instrument.buckets:
            return self._meter.create_histogram(*named, explicit_bucket_boundaries_advisory=instrument.buckets).record
        return self._meter.create_counter(*named).add

    async def close(self) -> None:
        """Send what is left, within two seconds."""
        await ends_in_time(self._provider.shutdown)
