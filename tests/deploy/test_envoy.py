"""The Envoy configuration: every field is one of Envoy's messages, and those that matter have the values that they must have.

No Envoy is to be had from a package registry, so what it does with them is not seen here.
"""

from __future__ import annotations

from typing import Any

import pytest
import yaml

from tests.deploy.checking_programs import DEPLOY, installed_python, run

CONFIG: dict[str, Any] = yaml.safe_load((DEPLOY / "envoy/envoy.yaml").read_text(encoding="utf-8"))["static_resources"]
MANAGER: dict[str, Any] = CONFIG["listeners"][0]["filter_chains"][0]["filters"][0]["typed_config"]
ROUTES: list[dict[str, Any]] = MANAGER["route_config"]["virtual_hosts"][0]["routes"]


# Reads a configuration into Envoy's own messages; a field that they do not have is an error.
PARSE = """
import importlib, pkgutil, re, sys, yaml
from envoy.config.bootstrap.v3.bootstrap_pb2 import Bootstrap
from google.protobuf.json_format import ParseDict
text = sys.stdin.read()
for name in set(re.findall(r"type.googleapis.com/(envoy[.][\\w.]+)[.]\\w+", text)):
    package = importlib.import_module(name)
    for module in pkgutil.iter_modules(package.__path__):
        importlib.import_module(f"{name}.{module.name}")
ParseDict(yaml.safe_load(text), Bootstrap())
"""


@pytest.mark.parametrize(("wrong", "complaint"), [("", ""), ("max_requests_per_connection", "no field named")])
def test_every_field_is_known_to_envoy(wrong: str, complaint: str) -> None:
    text = (DEPLOY / "envoy/envoy.yaml").read_text(encoding="utf-8")
    assert wrong in text
    done = run(installed_python(), "-c", PARSE, text=text.replace(wrong, f"{wrong}s") if wrong else text)
    assert (done.returncode == 0) is not bool(wrong), done.stderr
    assert complaint in done.stderr


def test_a_stream_may_last() -> None:
    route = ROUTES[-1]["route"]
    assert route["timeout"] == "0s"
    assert MANAGER["request_timeout"] == "0s"
    assert int(route["idle_timeout"].removesuffix("s")) >= 3600
    assert int(MANAGER["stream_idle_timeout"].removesuffix("s")) >= 3600


def test_websockets_are_upgraded() -> None:
    assert MANAGER["upgrade_configs"] == [{"upgrade_type": "websocket"}]


def test_only_what_was_not_sent_is_sent_again() -> None:
    assert set(ROUTES[-1]["route"]["retry_policy"]["retry_on"].split(",")) <= {"connect-failure", "refused-stream"}


def test_a_connection_is_for_one_request() -> None:
    """Keep none, because a gateway that restarts may close it just when a request is sent on it."""
    (options,) = CONFIG["clusters"][0]["typed_extension_protocol_options"].values()
    assert options["common_http_protocol_options"] == {"max_requests_per_connection": 1}
    assert "http_protocol_options" in options["explicit_http_config"]


def test_every_route_leads_to_a_cluster_that_is_asked_whether_it_is_ready() -> None:
    clusters = {cluster["name"]: cluster for cluster in CONFIG["clusters"]}
    assert {route["route"]["cluster"] for route in ROUTES if "route" in route} == set(clusters)
    assert clusters["gateways"]["health_checks"][0]["http_health_check"] == {"path": "/ready"}


def test_operators_pages_are_not_for_everybody() -> None:
    refused = [route["match"] for route in ROUTES if "direct_response" in route]
    assert {"path": "/metrics"} in refused
    assert {"prefix": "/ui"} in refused


def test_every_extension_has_its_type() -> None:
    assert [holder for holder in typed(CONFIG) if not holder["@type"].startswith("type.googleapis.com/envoy.")] == []
    assert len(list(typed(CONFIG))) == 4


def typed(node: Any) -> list[dict[str, Any]]:
    """Yield every object that names its type, wherever it stands."""
    if isinstance(node, list):
        return [found for each in node for found in typed(each)]
    if not isinstance(node, dict):
        return []
    return [*([node] if "@type" in node else []), *(found for each in node.values() for found in typed(each))]
