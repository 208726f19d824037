"""The metrics of the core, in the order of their documentation."""

from __future__ import annotations

from responses_gateway.server.access.fleet import LIMITS_GATEWAYS
from responses_gateway.server.access.middleware import HTTP_DURATION, HTTP_REQUESTS
from responses_gateway.server.access.rate_limits import KEY_REQUESTS
from responses_gateway.server.custom_tools.repair import CUSTOM_TOOL_INPUTS
from responses_gateway.server.generation.request_log.metrics import KEY_TOKENS, REQUEST_METRICS
from responses_gateway.server.http.exchange import BODY_BYTES
from responses_gateway.server.quotas.quota import QUOTA_USED, QUOTA_WARNINGS
from responses_gateway.server.setup.backends import POOL_METRICS
from responses_gateway.server.setup.store import STORE_METRICS
from responses_gateway.telemetry.instruments import ACCESS_REFUSALS, DEFECTS, Gauge

BUILD_INFO = Gauge(
    "build_info", "1, labelled with the version and the commit of the gateway.", ("version", "commit"), together="livemax"
)
WORKERS = Gauge("workers", "Worker processes that serve requests.")
CERTIFICATE_EXPIRY = Gauge(
    "certificate_expiry_timestamp_seconds",
    "When the certificate of `tls_cert` expires, in seconds since 1970.",
    ("file",),
    together="livemin",
)
# What is shown before anything was counted. Features add theirs when they are opened.
METRICS = (
    DEFECTS, BUILD_INFO, WORKERS, *REQUEST_METRICS, HTTP_REQUESTS, HTTP_DURATION, *POOL_METRICS, *STORE_METRICS,
    CUSTOM_TOOL_INPUTS, ACCESS_REFUSALS, BODY_BYTES, LIMITS_GATEWAYS, KEY_REQUESTS, KEY_TOKENS, QUOTA_USED, QUOTA_WARNINGS,
    CERTIFICATE_EXPIRY,
)  # fmt: skip
