"""Traces over OTLP: a span for each response, a child span for each request to a backend and for each call of a hosted tool,
and a span for each stored response that is fetched.

A client's own trace (W3C Trace Context) is passed on to the backend whether the gateway traces or not. `Tracing` needs the
extra `otel`, which is not imported before `Tracing` is created. The SDK sends spans from a thread of its own and a
bounded queue: when the collector is slow or has failed, nothing but spans is lost. Sampling, batching, headers and certificates
follow the standard `OTEL_*` variables, as the SDK reads them.

Attributes are named after the semantic conventions for HTTP and generative AI where these have a name; others begin with
`responses_gateway.`. Spans never contain prompts or answers."""

from __future__ import annotations

import asyncio
import logging
import re
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from threading import Thread
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

from responses_gateway.extras import how_to_install
from responses_gateway.telemetry import logs
from responses_gateway.telemetry.span_attributes import Attribute
from responses_gateway.wire.errors import ApiError
from responses_gateway.wire.hosted import MadeCall, McpSession

if TYPE_CHECKING:
    from opentelemetry.sdk.resources import Resource
    from opentelemetry.trace import Span, SpanContext, Tracer

_TRACES = "/v1/traces"
_TRACE_PARENT = re.compile(r"(?!ff)[0-9a-f]{2}-(?!0{32})[0-9a-f]{32}-(?!0{16})[0-9a-f]{16}-[0-9a-f]{2}")
# What the specification asks every hop to forward, in characters. No more is accepted.
_STATE_LIMIT = 512
_PRINTABLE = re.compile(r"[\x20-\x7e]*")
# Seconds that the last spans and numbers may take to be sent: a collector that hangs must not delay a restart.
_LAST = 2.0
_WARNING_INTERVAL = 60.0  # seconds between two warnings about the collector

# Field of the log line -> attribute of both spans.
_MODEL_ATTRIBUTES = {
    "model": "gen_ai.request.model",
    "response_id": "gen_ai.response.id",
    "input_tokens": "gen_ai.usage.input_tokens",
    "output_tokens": "gen_ai.usage.output_tokens",
    "cached_tokens": "gen_ai.usage.cache_read.input_tokens",
    "reasoning_tokens": "gen_ai.usage.reasoning.output_tokens",
}
_FETCH: dict[str, Attribute] = {"gen_ai.operation.name": "fetch_response", "gen_ai.provider.name": "openai"}
_OUR_ATTRIBUTES = {
    "request_id": "responses_gateway.request_id",
    "outcome": "responses_gateway.outcome",
    "delivery": "responses_gateway.delivery",
    "phase": "responses_gateway.phase",
    "stream": "gen_ai.request.stream",
}


def trace_headers(headers: Mapping[str, str]) -> dict[str, str]:
    """Return the `traceparent` and `tracestate` to forward; nothing without a valid `traceparent`. `headers` are a client's,
    with names in any case and arbitrary values. Rules: https://www.w3.org/TR/trace-context/"""
    parent = headers.get("traceparent", "").strip()
    if not _TRACE_PARENT.fullmatch(parent):
        return {}
    state = ",".join(part.strip() for part in _values(headers, "tracestate"))
    if not state or len(state) > _STATE_LIMIT or not _PRINTABLE.fullmatch(state):
        return {"traceparent": parent}
    return {"traceparent": parent, "tracestate": state}


def _values(headers: Mapping[str, str], name: str) -> Iterable[str]:
    """Return all values of a header: a list may be spread over several lines."""
    getall = getattr(headers, "getall", None)
    return getall(name, ()) if getall is not None else [headers.get(name, "")]


async def ends_in_time(shut_down: Callable[[], object]) -> bool:
    """Have what is left sent to the collector. Return False if that takes too long."""
    last = Thread(target=shut_down, daemon=True)
    last.start()
    await asyncio.to_thread(last.join, _LAST)
    return not last.is_alive()


class TracingMissing(Exception):
    """Traces are configured, but the extra is not installed. The message says what to do."""


def resource(version: str, **more: str) -> Resource:
    """Return what tells collectors who sends: this process, or what the variables say of it."""
    from opentelemetry.sdk.resources import OTELResourceDetector, Resource  # noqa: PLC0415

    ours = {"service.name": "responses-gateway", "service.version": version, **more}
    return Resource.create(ours).merge(OTELResourceDetector().detect())


def at_collector(endpoint: str, path: str) -> str:
    """Return the URL of a path of the collector at `endpoint`, with or without `/v1/traces`."""
    return endpoint.rstrip("/").removesuffix(_TRACES) + path


class Tracing:
    """The connection to a collector. Create it inside the process that serves, and `close` it at the end."""

    def __init__(self, endpoint: str, version: str) -> None:
        """Prepare to send spans to `endpoint`, with or without `/v1/traces`, of this `version`. Raises `TracingMissing`."""
        try:
            # Not at the top: the extra is optional, and its import takes long.
            from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter  # noqa: PLC0415
            from opentelemetry.sdk.trace import TracerProvider  # noqa: PLC0415
            from opentelemetry.sdk.trace.export import BatchSpanProcessor  # noqa: PLC0415
        except ImportError:
            raise TracingMissing(f"otel_endpoint needs an extra: {how_to_install('otel')}") from None
        theirs = logging.getLogger("opentelemetry")
        theirs.propagate = False
        theirs.handlers = [_Warnings(time.monotonic)]
        self._provider = TracerProvider(resource=resource(version), shutdown_on_exit=False)
        self._exporter = OTLPSpanExporter(endpoint=at_collector(endpoint, _TRACES))
        self._provider.add_span_processor(BatchSpanProcessor(self._exporter))
        self._tracer = self._provider.get_tracer("responses_gateway", version)

    def begin(self, name: str, headers: Mapping[str, str], now: float) -> Trace:
        """Start the trace of a request. `headers` are the client's and may contain its trace; `now` is the loop's time."""
        return Trace(self._tracer, name, headers, now)

    @contextmanager
    def fetch(self, headers: Mapping[str, str], response_id: str) -> Iterator[None]:
        """Write the span of a stored response that is fetched within. `headers` are the client's."""
        from opentelemetry.trace import SpanKind  # noqa: PLC0415
        from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator  # noqa: PLC0415

        parent = TraceContextTextMapPropagator().extract(trace_headers(headers))
        span = self._tracer.start_span("fetch_response", parent, SpanKind.SERVER, _FETCH)
        try:
            yield
            span.set_attributes({"gen_ai.response.id": response_id, "http.response.status_code": 200})
        except ApiError as error:
            span.set_attribute("http.response.status_code", error.status)
            _set_status(span, (error.code or error.type) if error.status >= 500 else None, error.message)
            raise
        finally:
            span.end()

    async def close(self) -> None:
        """Send the remaining spans, within two seconds."""
        if not await ends_in_time(self._provider.shutdown):
            self._exporter.shutdown()  # type: ignore[no-untyped-call]


class Trace:
    """The spans of one request. Their attributes are set at the end, so that nothing is done per chunk."""

    def __init__(self, tracer: Tracer, name: str, headers: Mapping[str, str], now: float) -> None:
        from opentelemetry.trace import SpanKind  # noqa: PLC0415
        from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator  # noqa: PLC0415

        self._propagator = TraceContextTextMapPropagator()
        self._tracer = tracer
        self._began_ns = time.time_ns()
        self._began_at = now
        parent = self._propagator.extract(trace_headers(headers))
        self._span = tracer.start_span(name, parent, SpanKind.SERVER, start_time=self._began_ns)
        self._call: Span | None = None
        self._called = now
        self._asked: Mapping[str, Attribute] = {}

    @property
    def context(self) -> SpanContext:
        """What names the span of the request."""
        return self._span.get_span_context()

    def link(self, other: SpanContext, relation: str) -> None:
        """Link the span of the request to that of another one."""
        self._span.add_link(other, {"responses_gateway.relation": relation})

    def asked(self, attributes: Mapping[str, Attribute]) -> None:
        """Tell more of what the client asked for, in the span of the request and in those of its calls of the model."""
        self._asked = {**self._asked, **attributes}
        self._span.set_attributes(attributes)

    def call(self, backend: str, now: float) -> dict[str, str]:
        """Start the span of a request to a backend, which ends the one before. Returns the headers that continue the trace."""
        from opentelemetry.trace import SpanKind, set_span_in_context  # noqa: PLC0415

        if self._call is not None:
            self._call.end(self._at(now))
        self._called = now
        # The provider's name stands for the protocol; the address tells which server it is.
        attributes: dict[str, Attribute] = {
            **self._asked,
            "gen_ai.operation.name": "chat",
            "gen_ai.provider.name": "openai",
            "openai.api.type": "chat_completions",
        }
        address = urlsplit(f"//{backend}")
        attributes["server.address"] = address.hostname or backend
        if address.port is not None:
            attributes["server.port"] = address.port
        within = set_span_in_context(self._span)
        self._call = self._tracer.start_span("chat", within, SpanKind.CLIENT, attributes, start_time=self._at(now))
        carried: dict[str, str] = {}
        self._propagator.inject(carried, set_span_in_context(self._call))
        return carried

    def call_asks(self, attributes: Mapping[str, Attribute]) -> None:
        """Tell what the backend is asked for, in the span that `call` has started."""
        if self._call is not None:
            self._call.set_attributes(attributes)

    def call_broke(self, cause: str) -> None:
        """Tell that the answer of the backend broke off, though the response does not end here."""
        if self._call is not None:
            self._call.set_attribute("gen_ai.response.finish_reasons", ["error"])
            _set_status(self._call, cause, None)

    def event(self, name: str, fields: Mapping[str, str | int], now: float) -> None:
        """Add an event to the span of the request."""
        self._span.add_event(name, {field: _text(value) for field, value in fields.items()}, self._at(now))

    def end_call(self, line: Mapping[str, Any], now: float, first: float | None, visible: float | None) -> None:
        """End the span of the request to a backend; the arguments are those of `end`."""
        call = self._call
        if call is None:
            return
        if "model" in line:
            call.update_name(_text(f"chat {line['model']}"))
        call.set_attributes(_attributes(line, _MODEL_ATTRIBUTES))
        call.set_attribute("gen_ai.request.stream", True)  # requests to a backend always stream
        if "finish_reason" in line:
            call.set_attribute("gen_ai.response.finish_reasons", [line["finish_reason"]])
        for name, at in (("first_token", first), ("first_visible_token", visible)):
            if at is not None and at >= self._called:  # in this call, not in one before
                call.add_event(name, timestamp=self._at(at))
        if first is not None:
            call.set_attribute("gen_ai.response.time_to_first_chunk", first - self._called)
        call.end(self._at(now))
        self._call = None

    def tool_called(self, call: MadeCall, now: float) -> None:
        """Write the span of a call of a hosted tool."""
        from opentelemetry.trace import SpanKind, set_span_in_context  # noqa: PLC0415

        attributes: dict[str, Attribute] = {
            "gen_ai.operation.name": "execute_tool",
            "gen_ai.tool.name": _text(call.target.name),
            "gen_ai.tool.type": "datastore" if call.target.kind == "file_search" else "extension",
            "responses_gateway.tool": call.target.kind,
            "responses_gateway.outcome": call.outcome,
        }
        if call.target.kind == "mcp":
            attributes["mcp.method.name"] = "tools/call"
        if call.id is not None:
            attributes["gen_ai.tool.call.id"] = _text(call.id)
        if call.session is not None:
            attributes |= _session_attributes(call.session)
        if call.outcome != "completed":
            attributes["error.type"] = "tool_error" if call.tool_failed else call.outcome
        span = self._tracer.start_span(
            _text(f"execute_tool {call.target.name}"),
            set_span_in_context(self._span),
            SpanKind.INTERNAL,
            attributes,
            start_time=self._at(call.began),
        )
        span.end(self._at(now if call.seconds is None else call.began + call.seconds))

    def end(
        self, line: Mapping[str, Any], now: float, first: float | None, visible: float | None, service_tier: str | None = None
    ) -> None:
        """End all spans. `line` are the fields of the request's log line. `first` and `visible` are the loop's times of the
        first token of the last call, and of the first one that a user sees. `service_tier` is that of the response."""
        ended = self._at(now)
        failed = line.get("code") or ("server_error" if line.get("outcome") == "failed" else None)
        if self._call is not None:
            _set_status(self._call, failed, line.get("error"))
            if failed is not None and first is not None:  # the stream broke
                line = {**line, "finish_reason": line.get("finish_reason", "error")}
            turns = line.get("usage_by_turn")
            own = {name: line[name] for name in line if not name.endswith("_tokens")} | turns[-1] if turns else line
            self.end_call(own, now, first, visible)
        self._span.set_attributes(_attributes(line, _MODEL_ATTRIBUTES | _OUR_ATTRIBUTES))
        self._span.set_attribute("http.response.status_code", line.get("status", 200))
        if service_tier is not None and "openai.request.service_tier" in self._asked:
            self._span.set_attribute("openai.response.service_tier", _text(service_tier))
        # By convention, a server's span fails when the server does, not when the request is wrong.
        _set_status(self._span, failed if line.get("outcome") == "failed" else None, line.get("error"))
        self._span.end(ended)

    def _at(self, now: float) -> int:
        """Convert the loop's time to nanoseconds since 1970."""
        return self._began_ns + round((now - self._began_at) * 1e9)


def _attributes(line: Mapping[str, Any], names: Mapping[str, str]) -> dict[str, Any]:
    return {attribute: _text(line[field]) for field, attribute in names.items() if field in line}


def _session_attributes(session: McpSession) -> dict[str, Attribute]:
    attributes: dict[str, Attribute] = {"network.transport": session.transport}
    if session.protocol is not None:
        attributes["mcp.protocol.version"] = _text(session.protocol)
    if session.id is not None:
        attributes["mcp.session.id"] = _text(session.id)
    return attributes


def _text(value: Any) -> Any:
    """Replace half surrogate pairs, which JSON allows: the exporter would discard the whole batch of spans."""
    return value.encode("utf-8", "replace").decode() if isinstance(value, str) else value


def _set_status(span: Span, failed: str | None, message: str | None) -> None:
    from opentelemetry.trace import Status, StatusCode  # noqa: PLC0415

    if failed is not None:
        span.set_attribute("error.type", failed)
        span.set_status(Status(StatusCode.ERROR, _text(message)))


class _Warnings(logging.Handler):
    """Logs the SDK's warnings from time to time: it warns about every batch, with a stack trace."""

    def __init__(self, clock: Callable[[], float]) -> None:
        super().__init__(logging.WARNING)
        self._clock = clock
        self._next = 0.0

    def emit(self, record: logging.LogRecord) -> None:
        if self._clock() >= self._next:
            self._next = self._clock() + _WARNING_INTERVAL
            logs.logger().warning("traces not sent", extra=logs.fields(reason=record.getMessage()))
