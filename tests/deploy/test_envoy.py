"""The values in the Envoy configuration that matter too seldom to be seen in tests/deploy/test_proxies.py."""

from __future__ import annotations

from typing import Any

import yaml

from tests.deploy.checking_programs import DEPLOY

CONFIG: dict[str, Any] = yaml.safe_load((DEPLOY / "envoy/envoy.yaml").read_text(encoding="utf-8"))["static_resources"]
MANAGER: dict[str, Any] = CONFIG["listeners"][0]["filter_chains"][0]["filters"][0]["typed_config"]
ROUTES: list[dict[str, Any]] = MANAGER["route_config"]["virtual_hosts"][0]["routes"]


def test_a_stream_may_last() -> None:
    route = ROUTES[-1]["route"]
    assert route["timeout"] == "0s"
    assert MANAGER["request_timeout"] == "0s"
    assert int(route["idle_timeout"].removesuffix("s")) >= 3600
    assert int(MANAGER["stream_idle_timeout"].removesuffix("s")) >= 3600


def test_a_connection_is_for_one_request() -> None:
    """Keep none, because a gateway that restarts may close it just when a request is sent on it."""
    (options,) = CONFIG["clusters"][0]["typed_extension_protocol_options"].values()
    assert options["common_http_protocol_options"] == {"max_requests_per_connection": 1}
    assert "http_protocol_options" in options["explicit_http_config"]


def test_every_route_leads_to_a_cluster_that_is_asked_whether_it_is_ready() -> None:
    clusters = {cluster["name"]: cluster for cluster in CONFIG["clusters"]}
    assert {route["route"]["cluster"] for route in ROUTES if "route" in route} == set(clusters)
    assert clusters["gateways"]["health_checks"][0]["http_health_check"] == {"path": "/ready"}
