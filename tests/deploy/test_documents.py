"""docs/deployment.md and docs/sizing.md: what they name exists."""

from __future__ import annotations

import re

import pytest
import yaml

from responses_gateway.server.setup.store import default_path
from tests.deploy.checking_programs import CHART, DEPLOY, ROOT, run, tool

DOCUMENTS = {name: (ROOT / "docs" / name).read_text(encoding="utf-8") for name in ("deployment.md", "sizing.md")}


@pytest.mark.parametrize("name", DOCUMENTS)
def test_links_lead_somewhere(name: str) -> None:
    links = re.findall(r"\]\(([^)]+)\)", DOCUMENTS[name])
    headings = re.findall(r"^#+ (.+)$", DOCUMENTS[name], re.MULTILINE)
    anchors = {"#" + heading.lower().replace(" ", "-") for heading in headings}
    assert [link for link in links if link.startswith("#") and link not in anchors] == []
    assert [link for link in links if not link.startswith("#") and not (ROOT / "docs" / link.partition("#")[0]).exists()] == []


def test_every_variable_of_the_compose_file_is_explained() -> None:
    used = set(re.findall(r"\$\{(\w+):-", (ROOT / "docker-compose.yml").read_text(encoding="utf-8")))
    section = DOCUMENTS["deployment.md"].partition("## Docker Compose")[2].partition("## Kubernetes")[0]
    assert set(re.findall(r"`([A-Z][A-Z_]+)`", section)) == used


def test_the_values_of_the_chart_are_values() -> None:
    values = re.findall(r"^```yaml\n(.*?)^```", DOCUMENTS["deployment.md"], re.DOTALL | re.MULTILINE)
    assert len(values) == 1
    done = run(tool("helm", "install-deploy-tools"), "template", str(CHART), "--values", "-", text=values[0])
    assert done.returncode == 0, done.stderr


def test_the_metric_to_scale_by_is_the_same_everywhere() -> None:
    values = yaml.safe_load((CHART / "values.yaml").read_text(encoding="utf-8"))
    in_flight = values["autoscaling"]["inFlight"]
    assert in_flight["metric"] in DOCUMENTS["deployment.md"]
    assert f"{in_flight['averageValue']} streams in flight" in DOCUMENTS["sizing.md"]


def test_the_store_to_back_up_is_where_it_is_said_to_be() -> None:
    assert str(default_path({"XDG_STATE_HOME": "/var/lib"})) in DOCUMENTS["deployment.md"]


def test_every_file_of_the_folder_is_named() -> None:
    assert {
        folder for folder in ("nginx", "envoy", "systemd", "helm") if f"deploy/{folder}" not in DOCUMENTS["deployment.md"]
    } == set()
    assert [
        path for path in re.findall(r"(?<![\w/])(deploy/[\w./-]+\w)", DOCUMENTS["deployment.md"]) if not (ROOT / path).exists()
    ] == []
    assert (DEPLOY / "nginx/locations.conf").exists()
