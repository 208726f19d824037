"""docs/deployment.md, docs/kubernetes.md and docs/sizing.md: what they name exists, and their values are accepted."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
import yaml

from responses_gateway.server.setup.store import default_path
from responses_gateway.settings.load import load
from tests.deploy.checking_programs import CHART, DEPLOY, ROOT, run, tool

DOCUMENTS = {
    name: (ROOT / "docs" / name).read_text(encoding="utf-8") for name in ("deployment.md", "kubernetes.md", "sizing.md")
}


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


def values_of_the_page() -> tuple[dict[str, Any], dict[str, Any]]:
    """Return the values of docs/kubernetes.md, and the same as changed for llm-d."""
    plain, changed = map(
        yaml.safe_load, re.findall(r"^```yaml\n(.*?)^```", DOCUMENTS["kubernetes.md"], re.DOTALL | re.MULTILINE)
    )
    settings = {name: value for name, value in plain["settings"].items() if name != "pools"}  # which the page says to replace
    policy = {**plain["networkPolicy"], **changed["networkPolicy"]}
    return plain, {**plain, "settings": {**settings, **changed["settings"]}, "networkPolicy": policy}


@pytest.mark.parametrize("behind_llm_d", [False, True])
def test_the_values_of_the_page_make_a_gateway_that_starts(behind_llm_d: bool, tmp_path: Path) -> None:
    """Render the page's values, and load the settings of the ConfigMap with the variables of the page's Secret."""
    values = values_of_the_page()[behind_llm_d]
    command = (tool("helm", "install-deploy-tools"), "template", "responses-gateway", str(CHART), "--namespace", "gateway")
    done = run(*command, "--values", "-", text=yaml.safe_dump(values))
    assert done.returncode == 0, done.stderr
    found = {
        one["kind"]: one for one in yaml.safe_load_all(done.stdout) if one and "-dashboards" not in one["metadata"]["name"]
    }
    assert {"HorizontalPodAutoscaler", "PodDisruptionBudget", "NetworkPolicy", "ServiceMonitor"} <= found.keys()
    assert ("Role" in found) is not behind_llm_d
    file = tmp_path / "gateway.yaml"
    file.write_text(found["ConfigMap"]["data"]["gateway.yaml"], encoding="utf-8")
    (secrets,) = re.findall(r"^```env\n(.*?)^```", DOCUMENTS["kubernetes.md"], re.DOTALL | re.MULTILINE)
    settings = load({}, file, dict(line.split("=", 1) for line in secrets.splitlines()))
    assert settings.events.startswith("valkey://")
    assert set(settings.api_keys) == {"alice", "bob"}
    assert (settings.backends["llm-d"].router if behind_llm_d else settings.pools["chat"].kubernetes == "models/vllm") is True


def test_the_names_that_kubectl_is_given_are_those_of_the_chart() -> None:
    values = yaml.safe_dump(values_of_the_page()[0])
    command = (tool("helm", "install-deploy-tools"), "template", "responses-gateway", str(CHART), "--values", "-")
    found = [one for one in yaml.safe_load_all(run(*command, text=values).stdout) if one]
    named = set(re.findall(r"\b(deployment|service)/([\w-]+)", DOCUMENTS["kubernetes.md"]))
    assert named == {
        (one["kind"].lower(), one["metadata"]["name"]) for one in found if one["kind"] in ("Deployment", "Service")
    }
    (pod,) = [one["spec"]["template"]["spec"] for one in found if one["kind"] == "Deployment"]
    assert pod["containers"][0]["envFrom"] == [{"secretRef": {"name": "responses-gateway"}}]
    assert "secret generic responses-gateway " in DOCUMENTS["kubernetes.md"]


def test_the_metric_to_scale_by_is_the_same_everywhere() -> None:
    values = yaml.safe_load((CHART / "values.yaml").read_text(encoding="utf-8"))
    in_flight = values["autoscaling"]["inFlight"]
    assert in_flight["metric"] in DOCUMENTS["kubernetes.md"]
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
