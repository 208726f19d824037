"""What an operator watches."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Literal

from pydantic import ByteSize, Field, SecretStr, field_validator

from proxy.settings.section import Section


class OperationSettings(Section):
    """What an operator watches."""

    title = "Operation"

    log_level: Literal["debug", "info", "warning", "error"] = Field(
        default="info", description="Least severity that is logged."
    )
    log_format: Literal["text", "json"] = Field(default="text", description="One line of text, or one JSON object, per record.")
    access_log: bool = Field(default=True, description="Log one line per request.")
    log_backend_errors: bool = Field(
        default=False,
        description="Log (and trace) what a backend says about its own failures (5xx), up to 200 characters. It may repeat the "
        "prompt, so it is left out unless asked for; the client is told in any case.",
    )
    metrics: bool = Field(default=True, description="Serve Prometheus metrics at `/metrics`.")
    admin_key: SecretStr | None = Field(
        default=None,
        min_length=16,
        description="Key for `/admin/backends`, where backends are listed, drained, added and removed while the gateway runs. "
        "Without it there are no such paths. At least 16 characters.",
    )
    otel_endpoint: str | None = Field(
        default=None,
        description="Send traces to the OpenTelemetry collector at this URL, for example `http://collector:4318` (OTLP over "
        "HTTP; `/v1/traces` is added). Needs `pip install 'responses-proxy[otel]'`. Where that is installed, the standard "
        "variables `OTEL_EXPORTER_OTLP_TRACES_ENDPOINT` and `OTEL_EXPORTER_OTLP_ENDPOINT` do the same. See "
        "docs/observability.md.",
    )
    invariant_sampling: float = Field(
        default=0.002,
        ge=0,
        le=1,
        description="Fraction of streams that are checked against the laws of a Responses stream while they are sent; "
        "violations are counted in a metric.",
    )
    record: Path | None = Field(
        default=None,
        description="Folder in which each exchange is kept as one file, for `responses-proxy replay` and for bug reports: "
        "request, bytes of the backend, events sent. Keys are left out, the conversation is not.",
    )
    record_limit: ByteSize = Field(
        default=ByteSize(1024**3), gt=0, description="Most bytes that all files in `record` may have; the oldest are deleted."
    )
    uvloop: bool = Field(default=True, description="Run on uvloop where it is installed.")

    @field_validator("otel_endpoint")
    @classmethod
    def _check_collector(cls, value: str | None) -> str | None:
        if value is not None and not re.fullmatch(r"https?://[^/@\s]+(/[^@\s]*)?", value):
            raise ValueError("a URL like http://collector:4318 is expected; keys belong in OTEL_EXPORTER_OTLP_HEADERS")
        return value
