"""Logs, metrics, traces and recordings."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Annotated, Literal

from pydantic import Field

from responses_gateway.settings.section import OFF, HeaderKey, Section, only

_COLLECTOR = re.compile(r"https?://[^/@\s]+(/[^@\s]*)?")
_Collector = Annotated[
    str | None,
    only(_COLLECTOR.fullmatch, "expected a URL like http://collector:4318; keys belong in OTEL_EXPORTER_OTLP_HEADERS"),
]


class OperationSettings(Section):
    """Logs, metrics, traces and recordings."""

    title = "Operation"

    log_level: Literal["debug", "info", "warning", "error"] = "info"
    """Minimum severity of log records."""
    log_format: Literal["auto", "text", "json"] = "auto"
    """One line of text or one JSON object per record. `auto`: text, shortened for people if standard error is a terminal."""
    access_log: bool = True
    """Log one line per request."""
    log_backend_errors: bool = False
    """Include a backend's message about its own failures (5xx) in logs and traces, up to 200 characters. It may repeat the
    prompt."""
    metrics: Annotated[Literal["open", "key", "off"], OFF] = "open"
    """Serve Prometheus metrics at `/metrics`: to everybody (`open`), or, if clients have keys, only with one of them (`key`).
    `/health` and `/ready` stay open."""
    gen_ai_metrics: Annotated[Literal["off", "1.44", "latest"], OFF] = "off"
    """Also serve metrics of requests to backends and calls of hosted tools under OpenTelemetry's names (`gen_ai_…`): those of
    semantic conventions `1.44`, or the `latest` ones. See [docs/observability.md](observability.md#metrics)."""
    admin_key: HeaderKey = Field(default=None, min_length=16)
    """Key for `/admin/` and for the window at `/ui/`, at least 16 characters. Without it there is no `/admin/`, and the window
    can be used only on this machine."""
    otel_endpoint: _Collector = None
    """Send traces to the OpenTelemetry collector at this URL, for example `http://collector:4318` (OTLP over HTTP). Requires
    the extra `otel`. The variables `OTEL_EXPORTER_OTLP_TRACES_ENDPOINT` and `OTEL_EXPORTER_OTLP_ENDPOINT` do the same. See
    [docs/observability.md](observability.md#traces)."""
    invariant_sampling: float = Field(default=0.002, ge=0, le=1)
    """Fraction of streams that are checked against the rules of their API while they are sent; a metric counts violations."""
    ui: Annotated[Literal["auto", "open", "off"], OFF] = "auto"
    """Serve the window, a page at `/ui/` that shows every request live. It needs the `admin_key`; without one it can be used on
    this machine, and from others on `operations_port`, without contents. `open` is for demonstrations (`--simulator`): every
    request is recorded and, without `admin_key` and `api_keys`, visible to everybody who can reach the port. See
    [docs/window.md](window.md)."""
    record: Path | None = None
    """Folder in which each exchange is saved as a file, for `responses-gateway replay`. Keys are removed, the conversation is
    not. Beyond 1 GiB the oldest are deleted."""
