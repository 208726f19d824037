"""Traces in OpenTelemetry's protocol: a span for each response, a child for each call of the backend.

Needs the extra `otel`; nothing of it is imported before `Tracing` is made. Spans leave in a thread of the SDK's own, from a
queue with an end: when the collector is slow or gone, spans are lost and nothing else is. Sampling, batching, headers and
certificates follow the standard `OTEL_*` variables, as the SDK reads them.

Names of attributes: the semantic conventions for HTTP and for generative AI where they have one, ours begin with
`responses_proxy.`. No prompt and no answer is ever in a span.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable, Mapping
from threading import Thread
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

from proxy.telemetry import logs
from proxy.telemetry.trace_context import trace_headers

if TYPE_CHECKING:
    from opentelemetry.trace import Span, Tracer

_PATH = "/v1/traces"
#: Longest time that the last spans may take to leave, in seconds: a collector that hangs must not hold up a restart.
_GOODBYE = 2.0
#: Seconds between two complaints about the collector.
_QUIET = 60.0

#: Field of the log line -> attribute, of the backend's span and of the whole.
_MODEL_ATTRIBUTES = {
    "model": "gen_ai.request.model",
    "response_id": "gen_ai.response.id",
    "input_tokens": "gen_ai.usage.input_tokens",
    "output_tokens": "gen_ai.usage.output_tokens",
    "cached_tokens": "gen_ai.usage.cache_read.input_tokens",
    "reasoning_tokens": "gen_ai.usage.reasoning.output_tokens",
}
_OUR_ATTRIBUTES = {
    "request_id": "responses_proxy.request_id",
    "outcome": "responses_proxy.outcome",
    "delivery": "responses_proxy.delivery",
    "phase": "responses_proxy.phase",
    "stream": "gen_ai.request.stream",
}


class TracingMissing(Exception):
    """Traces are wanted, and the extra that makes them is not installed. The message says what to do."""


class Tracing:
    """The way to one collector. Make it inside the process that serves; `close` it at the end."""

    def __init__(self, endpoint: str, version: str) -> None:
        """`endpoint` is the collector's URL, with or without `/v1/traces`; `version` is ours. Raises `TracingMissing`."""
        try:
            # Here and not above: who has no use for traces need not have them installed, nor wait for the import.
            from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter  # noqa: PLC0415
            from opentelemetry.sdk.resources import OTELResourceDetector, Resource  # noqa: PLC0415
            from opentelemetry.sdk.trace import TracerProvider  # noqa: PLC0415
            from opentelemetry.sdk.trace.export import BatchSpanProcessor  # noqa: PLC0415
        except ImportError:
            raise TracingMissing("otel_endpoint needs an extra: pip install 'responses-proxy[otel]'") from None
        _tell_complaints()
        ours = Resource.create({"service.name": "responses-proxy", "service.version": version})
        self._provider = TracerProvider(resource=ours.merge(OTELResourceDetector().detect()), shutdown_on_exit=False)
        self._exporter = OTLPSpanExporter(endpoint=_traces_url(endpoint))
        self._provider.add_span_processor(BatchSpanProcessor(self._exporter))
        self._tracer = self._provider.get_tracer("responses_proxy", version)

    def begin(self, name: str, headers: Mapping[str, str], now: float) -> Trace:
        """A request has come. `headers` are the client's, its trace among them perhaps; `now` is the loop's time."""
        return Trace(self._tracer, name, headers, now)

    async def close(self) -> None:
        """Send what is left, within two seconds."""
        last = Thread(target=self._provider.shutdown, daemon=True)
        last.start()
        await asyncio.to_thread(last.join, _GOODBYE)
        if last.is_alive():
            self._exporter.shutdown()  # type: ignore[no-untyped-call]


class Trace:
    """The spans of one request. All that they will say is told at the end, so that nothing is done per chunk."""

    def __init__(self, tracer: Tracer, name: str, headers: Mapping[str, str], now: float) -> None:
        from opentelemetry.trace import SpanKind  # noqa: PLC0415
        from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator  # noqa: PLC0415

        self._propagator = TraceContextTextMapPropagator()
        self._tracer = tracer
        self._began = time.time_ns(), now
        parent = self._propagator.extract(trace_headers(headers))
        self._span = tracer.start_span(name, parent, SpanKind.SERVER, start_time=self._began[0])
        self._call: Span | None = None
        self._called = now

    def call(self, backend: str, now: float) -> dict[str, str]:
        """The backend is about to be asked (again: the call before has ended then). Returns the headers that carry it on."""
        from opentelemetry.trace import SpanKind, set_span_in_context  # noqa: PLC0415

        if self._call is not None:
            self._call.end(self._at(now))
        self._called = now
        # The protocol is OpenAI's, and that is what the name stands for; which server it is says the address.
        attributes: dict[str, str | int] = {"gen_ai.operation.name": "chat", "gen_ai.provider.name": "openai"}
        address = urlsplit(f"//{backend}")
        attributes["server.address"] = address.hostname or backend
        if address.port is not None:
            attributes["server.port"] = address.port
        within = set_span_in_context(self._span)
        self._call = self._tracer.start_span("chat", within, SpanKind.CLIENT, attributes, start_time=self._at(now))
        carried: dict[str, str] = {}
        self._propagator.inject(carried, set_span_in_context(self._call))
        return carried

    def end(self, line: Mapping[str, Any], now: float, first: float | None, visible: float | None) -> None:
        """The request is over; `line` are the fields of its log line. The first token, and the first that a reader sees, came
        at these times of the loop."""
        ended = self._at(now)
        failed = line.get("code") or ("server_error" if line.get("outcome") == "failed" else None)
        if self._call is not None:
            if "model" in line:
                self._call.update_name(_text(f"chat {line['model']}"))
            self._call.set_attributes(_attributes(line, _MODEL_ATTRIBUTES))
            self._call.set_attribute("gen_ai.request.stream", True)  # the backend is always asked to
            if "finish_reason" in line:
                self._call.set_attribute("gen_ai.response.finish_reasons", [line["finish_reason"]])
            self._tell_moments(self._call, first, visible)
            _judge(self._call, failed, line.get("error"))
            self._call.end(ended)
        self._span.set_attributes(_attributes(line, _MODEL_ATTRIBUTES | _OUR_ATTRIBUTES))
        self._span.set_attribute("http.response.status_code", line.get("status", 200))
        # By the convention a server's span has failed when the server has: a wrong request is the client's matter.
        _judge(self._span, failed if line.get("outcome") == "failed" else None, line.get("error"))
        self._span.end(ended)

    def _tell_moments(self, call: Span, first: float | None, visible: float | None) -> None:
        for name, at in (("first_token", first), ("first_visible_token", visible)):
            if at is not None:
                call.add_event(name, timestamp=self._at(at))
        if first is not None:
            call.set_attribute("gen_ai.response.time_to_first_chunk", first - self._called)

    def _at(self, now: float) -> int:
        """The loop's time as nanoseconds of the epoch."""
        began, then = self._began
        return began + round((now - then) * 1e9)


def _attributes(line: Mapping[str, Any], names: Mapping[str, str]) -> dict[str, Any]:
    return {attribute: _text(line[field]) for field, attribute in names.items() if field in line}


def _text(value: Any) -> Any:
    """Half a surrogate pair, which JSON allows, would make the exporter throw away the whole batch, others' spans with it."""
    return value.encode("utf-8", "replace").decode() if isinstance(value, str) else value


def _judge(span: Span, failed: str | None, message: str | None) -> None:
    from opentelemetry.trace import Status, StatusCode  # noqa: PLC0415

    if failed is not None:
        span.set_attribute("error.type", failed)
        span.set_status(Status(StatusCode.ERROR, _text(message)))


def _traces_url(endpoint: str) -> str:
    base = endpoint.rstrip("/")
    return base if base.endswith(_PATH) else base + _PATH


def _tell_complaints() -> None:
    """What the SDK has to say goes to our log, now and then: it complains about every batch, with a stack trace."""
    theirs = logging.getLogger("opentelemetry")
    theirs.propagate = False
    theirs.handlers = [_Complaints(time.monotonic)]


class _Complaints(logging.Handler):
    def __init__(self, clock: Callable[[], float]) -> None:
        super().__init__(logging.WARNING)
        self._clock = clock
        self._next = 0.0

    def emit(self, record: logging.LogRecord) -> None:
        if self._clock() >= self._next:
            self._next = self._clock() + _QUIET
            logs.logger().warning("traces", extra=logs.fields(reason=record.getMessage()))
