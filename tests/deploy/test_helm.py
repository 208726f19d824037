"""The Helm chart: linted and rendered by Helm, and what it renders held against the schemas of Kubernetes."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
import textwrap
from concurrent.futures import ThreadPoolExecutor
from itertools import product
from pathlib import Path
from typing import Any

import jsonschema
import pytest
import yaml

from responses_gateway.settings import Settings
from responses_gateway.settings.load import load
from responses_gateway.version import __version__
from tests.deploy.checking_programs import CHART, DEPLOY, run, tool

BACKEND = "http://vllm:8000"
# Values that turn on everything that can stand together.
EVERYTHING: dict[str, Any] = {
    "settings": {"backend": BACKEND, "store": "postgresql://responses@db/responses", "drain_timeout": 120},
    "secrets": {"RESPONSES_GATEWAY_BACKEND_API_KEY": "sk-1", "RESPONSES_GATEWAY_SEAL_KEY": "x" * 32, "PGPASSWORD": "p"},
    "imagePullSecrets": [{"name": "registry"}],
    "autoscaling": {"enabled": True, "inFlight": {"enabled": True}},
    "service": {"type": "LoadBalancer", "port": 8080, "annotations": {"a": "b"}},
    "ingress": {"enabled": True, "className": "nginx", "tlsSecretName": "tls", "annotations": {"a": "b"}},
    "networkPolicy": {
        "enabled": True,
        "ingressFrom": [{"namespaceSelector": {}}],
        "egressTo": [{"ipBlock": {"cidr": "10.0.0.0/8"}}],
    },
    "serviceMonitor": {"enabled": True, "labels": {"release": "prometheus"}},
    "prometheusRule": {"enabled": True},
    "dashboards": {"enabled": True},
    "podAnnotations": {"a": "b"},
    "podLabels": {"c": "d"},
    "nodeSelector": {"kubernetes.io/os": "linux"},
    "tolerations": [{"key": "k", "operator": "Exists"}],
    "affinity": {"nodeAffinity": {}},
    "extraEnv": [{"name": "A", "value": "b"}],
    "extraVolumes": [{"name": "more", "emptyDir": {}}],
    "extraVolumeMounts": [{"name": "more", "mountPath": "/more"}],
}
SQLITE: dict[str, Any] = {
    "settings": {"backend": BACKEND, "store": "auto"},
    "replicaCount": 1,
    "persistence": {"enabled": True, "storageClassName": "fast"},
}
DETAILS: dict[str, Any] = {"settings": {"backend": BACKEND, "backends": {"gpu": {"url": BACKEND, "aliases": {"a": "b"}}}}}
OPERATORS: dict[str, Any] = {
    "settings": {"backend": BACKEND, "operations_port": 9001},
    "serviceMonitor": {"enabled": True},
    "networkPolicy": {"enabled": True},
}
POOLS: dict[str, Any] = {
    "settings": {
        "pools": {
            "chat": {"kubernetes": "models/vllm"}, "code": {"kubernetes": "vllm-code", "port": 8000},
            "more": {"kubernetes": "models/more"}, "dns": {"dns": "vllm.other:8000"},
            "elsewhere": {"kubernetes": "far/vllm", "api": "https://10.0.0.1:6443", "credentials": "/far"},
        }
    },
    "networkPolicy": {"enabled": True, "egressTo": [{"namespaceSelector": {}}]},
}  # fmt: skip
DATABASES: dict[str, Any] = {
    "settings": {"backend": BACKEND},
    "postgresql": {"enabled": True, "persistence": {"storageClassName": "fast"}},
    "valkey": {"enabled": True},
    "networkPolicy": {"enabled": True, "egressTo": [{"namespaceSelector": {}}]},
}
VARIANTS: dict[str, dict[str, Any]] = {
    "least": {"settings": {"backend": BACKEND}},
    "everything": EVERYTHING,
    "sqlite": SQLITE,
    "details": DETAILS,
    "operators": OPERATORS,
    "pools": POOLS,
    "databases": DATABASES,
}


def helm(*arguments: str, values: dict[str, Any]) -> tuple[int, str, str]:
    command = (tool("helm", "install-deploy-tools"), *arguments, "--values", "-")
    done = run(*command, text=yaml.safe_dump(values))
    return done.returncode, done.stdout, done.stderr


def rendered(values: dict[str, Any]) -> str:
    status, manifests, complaints = helm("template", "gate", str(CHART), values=values)
    assert status == 0, complaints
    return manifests


def objects(values: dict[str, Any]) -> dict[str, dict[str, Any]]:
    """Return what is rendered, by its kind."""
    return {found["kind"]: found for found in yaml.safe_load_all(rendered(values)) if found}


def refusal(values: dict[str, Any]) -> str:
    status, _, complaints = helm("template", "gate", str(CHART), values=values)
    assert status != 0
    return complaints


@pytest.mark.parametrize("variant", VARIANTS)
def test_helm_has_nothing_against_the_chart(variant: str) -> None:
    status, said, complaints = helm("lint", str(CHART), "--strict", values=VARIANTS[variant])
    assert status == 0, said + complaints


@pytest.mark.parametrize("kubernetes", ["1.29.1", "1.37.0"])
@pytest.mark.parametrize("variant", VARIANTS)
def test_kubernetes_knows_every_field(variant: str, kubernetes: str, tmp_path: Path) -> None:
    file = tmp_path / "manifests.yaml"
    found = [one for one in yaml.safe_load_all(rendered(VARIANTS[variant])) if one]
    native = [one for one in found if "monitoring.coreos.com" not in one["apiVersion"]]  # the operator's are not in its schemas
    file.write_text(yaml.safe_dump_all(native), encoding="utf-8")
    validate = tool("kubernetes-validate", "install-deploy-tools")
    done = run(validate, "--strict", "--kubernetes-version", kubernetes, str(file))
    assert done.returncode == 0, done.stdout + done.stderr
    assert len(native) == done.stdout.count(" passed ") + done.stderr.count(" passed ")


# The optional parts whose templates look at each other's values: each choice of each with each of the others.
CHOICES: dict[str, dict[str, dict[str, Any]]] = {
    "backends": {"fixed": {"settings": {"backend": BACKEND}}, "pools": {"settings": POOLS["settings"]}},
    "disruption": {"on": {}, "off": {"podDisruptionBudget": {"enabled": False}}},
    "scaling": {"off": {}, "on": {"autoscaling": {"enabled": True, "inFlight": {"enabled": True}}}},
    "policy": {
        "off": {},
        "narrow": {
            "networkPolicy": {
                "enabled": True,
                "egressTo": [{"namespaceSelector": {}}],
                "apiServer": [{"ipBlock": {"cidr": "10.0.0.1/32"}}],
            }
        },
        "databases": {name: part for name, part in DATABASES.items() if name != "settings"},
    },
    "account": {
        "ours": {},
        "theirs": {"serviceAccount": {"create": False, "name": "mine", "createRoles": False}},
        "annotated": {"serviceAccount": {"annotations": {"a": "b"}}},
    },
}


@pytest.fixture(scope="module")
def combinations() -> dict[tuple[str, ...], list[dict[str, Any]]]:
    """Return what each combination of the choices renders. Two at a time: Helm spends most of its time on starting."""
    chosen = list(product(*CHOICES.values()))
    values = [
        {name: value for part, one in zip(CHOICES.values(), names, strict=True) for name, value in part[one].items()}
        for names in chosen
    ]
    with ThreadPoolExecutor(2) as threads:
        manifests = list(threads.map(rendered, values))
    read = [[one for one in yaml.load_all(text, yaml.CSafeLoader) if one] for text in manifests]
    return dict(zip(chosen, read, strict=True))


def test_kubernetes_knows_every_field_of_every_combination(
    combinations: dict[tuple[str, ...], list[dict[str, Any]]], tmp_path: Path
) -> None:
    """Check each different manifest once; secrets differ only in the generated key."""
    different = {json.dumps(one, sort_keys=True) for found in combinations.values() for one in found if one["kind"] != "Secret"}
    file = tmp_path / "manifests.yaml"
    file.write_text("---\n".join(f"{text}\n" for text in sorted(different)), encoding="utf-8")
    validate = tool("kubernetes-validate", "install-deploy-tools")
    for kubernetes in ("1.29.1", "1.37.0"):
        done = run(validate, "--strict", "--kubernetes-version", kubernetes, str(file))
        assert done.returncode == 0, done.stdout + done.stderr
        assert len(different) == done.stdout.count(" passed ") + done.stderr.count(" passed ")


def test_each_combination_has_what_it_asks_for_and_nothing_refers_to_what_is_not_there(
    combinations: dict[tuple[str, ...], list[dict[str, Any]]],
) -> None:
    for names, found in combinations.items():
        backends, disruption, scaling, policy, account = names
        kinds = {one["kind"] for one in found}
        assert ("PodDisruptionBudget" in kinds) == (disruption == "on"), names
        assert ("HorizontalPodAutoscaler" in kinds) == (scaling == "on"), names
        assert ("NetworkPolicy" in kinds) == (policy != "off"), names
        assert [one["kind"] for one in found].count("StatefulSet") == (2 if policy == "databases" else 0), names
        assert ("Role" in kinds) == ("RoleBinding" in kinds) == (backends == "pools" and account != "theirs"), names
        (pod,) = [one["spec"]["template"]["spec"] for one in found if one["kind"] == "Deployment"]
        accounts = {one["metadata"]["name"] for one in found if one["kind"] == "ServiceAccount"}
        given = {"mine"} if account == "theirs" else set()
        used = {pod["serviceAccountName"]} if "serviceAccountName" in pod else set()
        assert used <= accounts | given, names
        assert pod["automountServiceAccountToken"] is (backends == "pools"), names
        bound = {subject["name"] for one in found if one["kind"] == "RoleBinding" for subject in one["subjects"]}
        assert bound <= used, names
        names_of_objects = [(one["kind"], one["metadata"].get("namespace"), one["metadata"]["name"]) for one in found]
        assert len(names_of_objects) == len(set(names_of_objects)), names


def test_everything_is_there_when_asked_for() -> None:
    assert objects(VARIANTS["least"]).keys() == {"Deployment", "Service", "ConfigMap", "Secret", "PodDisruptionBudget"}
    more = {"HorizontalPodAutoscaler", "Ingress", "NetworkPolicy", "ServiceMonitor", "PrometheusRule"}
    assert objects(EVERYTHING).keys() == objects(VARIANTS["least"]).keys() | more
    assert "PersistentVolumeClaim" in objects(SQLITE)


def test_the_chart_and_the_gateway_have_one_version() -> None:
    chart = yaml.safe_load((CHART / "Chart.yaml").read_text(encoding="utf-8"))
    assert (chart["version"], chart["appVersion"]) == (__version__, __version__)


def test_the_gateway_reads_its_settings(tmp_path: Path) -> None:
    """Read the very file of the ConfigMap, with numbers that Helm may write as floats."""
    numbers = {"drain_timeout": 90, "max_body_bytes": 104857600, "invariant_sampling": 0.5, "relay": False, "metrics": False}
    config = objects({"settings": {"backend": BACKEND, **numbers}})["ConfigMap"]["data"]["gateway.yaml"]
    file = tmp_path / "gateway.yaml"
    file.write_text(config, encoding="utf-8")
    settings = load({}, file, {})
    assert (settings.backend, settings.drain_timeout, settings.max_body_bytes) == ([f"{BACKEND}/v1"], 90, 104857600)
    assert (settings.invariant_sampling, settings.relay, settings.metrics, settings.store) == (0.5, False, "off", "none")


def test_the_notes_name_the_backends_and_pools(tmp_path: Path) -> None:
    """Render the notes as a manifest: only an installation would print them, which needs a cluster."""
    chart = Path(shutil.copytree(CHART, tmp_path / "chart"))
    notes = (chart / "templates" / "NOTES.txt").read_text(encoding="utf-8").splitlines()
    head = "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: notes}\ndata:\n  notes: |\n"
    (chart / "templates" / "notes.yaml").write_text(head + "".join(f"    {line}\n" for line in notes), encoding="utf-8")
    status, said, complaints = helm("template", "gate", str(chart), "--show-only", "templates/notes.yaml", values=POOLS)
    assert status == 0, complaints
    assert "in front of chat, code, dns, elsewhere, more." in said


def test_the_secret_holds_settings() -> None:
    secret = objects(EVERYTHING)["Secret"]["stringData"]
    settings = load({}, None, {**secret, "RESPONSES_GATEWAY_BACKEND": BACKEND})
    assert settings.backend_api_key is not None
    assert settings.backend_api_key.get_secret_value() == "sk-1"
    assert settings.seal_key is not None


def test_a_key_to_seal_with_is_made_and_long_enough() -> None:
    first, second = (objects(VARIANTS["least"])["Secret"]["stringData"]["RESPONSES_GATEWAY_SEAL_KEY"] for _ in range(2))
    assert first != second
    assert load({}, None, {"RESPONSES_GATEWAY_BACKEND": BACKEND, "RESPONSES_GATEWAY_SEAL_KEY": first}).seal_key is not None


def test_a_secret_of_ones_own_takes_the_place_of_ours() -> None:
    found = objects({**VARIANTS["least"], "secrets": {"existingSecret": "mine"}})
    assert "Secret" not in found
    assert container(found)["envFrom"] == [{"secretRef": {"name": "mine"}}]


def container(found: dict[str, dict[str, Any]]) -> dict[str, Any]:
    (only,) = found["Deployment"]["spec"]["template"]["spec"]["containers"]
    assert isinstance(only, dict)
    return only


@pytest.mark.parametrize(("drain", "least"), [(None, Settings().drain_timeout), (120, 120), (0.5, 0.5)])
@pytest.mark.parametrize("delay", [0, 15])
def test_running_responses_have_time_to_end(delay: int, drain: float | None, least: float) -> None:
    settings = {"backend": BACKEND, "drain_delay": delay, **({} if drain is None else {"drain_timeout": drain})}
    found = objects({"settings": settings, "preStopSeconds": 7})
    assert container(found)["lifecycle"]["preStop"]["exec"]["command"] == ["sleep", "7"]
    assert found["Deployment"]["spec"]["template"]["spec"]["terminationGracePeriodSeconds"] >= least + delay + 7 + 10


def test_the_pod_keeps_to_the_restricted_standard() -> None:
    found = objects(VARIANTS["least"])
    pod = found["Deployment"]["spec"]["template"]["spec"]
    one = container(found)
    assert pod["securityContext"]["runAsNonRoot"] is True
    assert pod["securityContext"]["seccompProfile"] == {"type": "RuntimeDefault"}
    assert pod["automountServiceAccountToken"] is False
    assert one["securityContext"] == {
        "allowPrivilegeEscalation": False,
        "readOnlyRootFilesystem": True,
        "capabilities": {"drop": ["ALL"]},
    }
    user = re.search(r"^USER (\d+)$", (DEPLOY.parent / "Dockerfile").read_text(encoding="utf-8"), re.MULTILINE)
    assert user
    assert pod["securityContext"]["runAsUser"] == pod["securityContext"]["fsGroup"] == int(user[1])


def test_probes_ask_what_there_is() -> None:
    one = container(objects(VARIANTS["least"]))
    paths = {name: one[f"{name}Probe"]["httpGet"]["path"] for name in ("startup", "liveness", "readiness")}
    assert paths == {"startup": "/health", "liveness": "/health", "readiness": "/ready"}
    assert one["ports"] == [{"name": "http", "containerPort": Settings().port}]


def test_probes_and_prometheus_speak_https_where_the_gateway_does() -> None:
    found = objects({"settings": {"backend": BACKEND, "tls_cert": "/tls/tls.crt"}, "serviceMonitor": {"enabled": True}})
    assert {container(found)[f"{name}Probe"]["httpGet"]["scheme"] for name in ("startup", "liveness", "readiness")} == {"HTTPS"}
    assert found["ServiceMonitor"]["spec"]["endpoints"][0]["scheme"] == "https"


def test_prometheus_and_the_policy_know_the_port_of_operators() -> None:
    found = objects(OPERATORS)
    assert {port["name"]: port["containerPort"] for port in container(found)["ports"]} == {"http": 9000, "operations": 9001}
    (endpoint,) = found["ServiceMonitor"]["spec"]["endpoints"]
    assert endpoint["targetPort"] == "operations"
    assert "port" not in endpoint
    (ingress,) = found["NetworkPolicy"]["spec"]["ingress"]
    assert [port["port"] for port in ingress["ports"]] == ["http", "operations"]
    assert [port["targetPort"] for port in found["Service"]["spec"]["ports"]] == ["http"]


def test_the_pods_may_follow_the_services_that_the_pools_name_and_nothing_else() -> None:
    found = [one for one in yaml.safe_load_all(rendered(POOLS)) if one]
    roles = [one for one in found if one["kind"] == "Role"]
    assert {one["metadata"]["namespace"] for one in roles} == {"default", "models"}
    rule = {"apiGroups": ["discovery.k8s.io"], "resources": ["endpointslices"], "verbs": ["list", "watch"]}
    assert [one["rules"] for one in roles] == [[rule]] * 2
    account = {"kind": "ServiceAccount", "name": "gate-responses-gateway", "namespace": "default"}
    assert [one["subjects"] for one in found if one["kind"] == "RoleBinding"] == [[account]] * 2
    (pod,) = [one["spec"]["template"]["spec"] for one in found if one["kind"] == "Deployment"]
    assert (pod["serviceAccountName"], pod["automountServiceAccountToken"]) == ("gate-responses-gateway", True)
    (policy,) = [one["spec"]["egress"] for one in found if one["kind"] == "NetworkPolicy"]
    assert [port["port"] for peer in policy[1:2] for port in peer["ports"]] == [443, 6443]
    assert not {"Role", "ServiceAccount"} & objects(VARIANTS["least"]).keys()


def test_databases_of_the_release_are_those_that_the_gateway_uses(tmp_path: Path) -> None:
    found = [one for one in yaml.safe_load_all(rendered(DATABASES)) if one]
    by_name = {(one["kind"], one["metadata"]["name"]): one for one in found}
    file = tmp_path / "gateway.yaml"
    file.write_text(by_name["ConfigMap", "gate-responses-gateway"]["data"]["gateway.yaml"], encoding="utf-8")
    assert load({}, file, {}).store == "postgresql://responses@gate-postgresql/responses"
    env = {each["name"]: each for each in container({"Deployment": by_name["Deployment", "gate-responses-gateway"]})["env"]}
    assert env["RESPONSES_GATEWAY_EVENTS"]["value"] == "valkey://:$(VALKEY_PASSWORD)@gate-valkey-primary:6379/0"
    for name in ("PGPASSWORD", "VALKEY_PASSWORD"):
        place = env[name]["valueFrom"]["secretKeyRef"]
        assert place["key"] in by_name["Secret", place["name"]]["stringData"]
    assert list(env).index("VALKEY_PASSWORD") < list(env).index("RESPONSES_GATEWAY_EVENTS")  # else it is not expanded
    for service, program in (("gate-postgresql", "postgresql"), ("gate-valkey-primary", "valkey")):
        pods = by_name["StatefulSet", f"gate-{program}"]["spec"]["template"]["metadata"]["labels"]
        assert by_name["Service", service]["spec"]["selector"] == pods
    peers = [
        peer for rule in by_name["NetworkPolicy", "gate-responses-gateway"]["spec"]["egress"] for peer in rule.get("to", ())
    ]
    reached = {peer["podSelector"]["matchLabels"]["app.kubernetes.io/name"] for peer in peers if "podSelector" in peer}
    assert reached == {"postgresql", "valkey"}
    store = {"settings": {"backend": BACKEND, "store": "postgresql://r@db/r"}, "postgresql": {"enabled": True}}
    assert "settings.store and postgresql.enabled contradict each other" in refusal(store)


def test_roles_and_account_may_be_those_of_the_operator() -> None:
    found = objects({**POOLS, "serviceAccount": {"create": False, "name": "mine", "createRoles": False}})
    assert not {"Role", "RoleBinding", "ServiceAccount"} & found.keys()
    assert found["Deployment"]["spec"]["template"]["spec"]["serviceAccountName"] == "mine"


def test_pods_roll_when_settings_change() -> None:
    def checksum(store: str) -> str:
        found = objects({"settings": {"backend": BACKEND, "store": store}})
        return str(found["Deployment"]["spec"]["template"]["metadata"]["annotations"]["checksum/settings"])

    assert checksum("none") == checksum("none") != checksum("postgresql://responses@db/responses")


def test_it_scales_by_streams_and_by_cpu() -> None:
    spec = objects(EVERYTHING)["HorizontalPodAutoscaler"]["spec"]
    streams, cpu = spec["metrics"]
    assert streams["pods"]["metric"]["name"] == "responses_gateway_requests_in_flight"
    assert cpu["resource"]["name"] == "cpu"
    assert "replicas" not in objects(EVERYTHING)["Deployment"]["spec"]  # or each upgrade would undo the scaling


def test_rules_and_dashboards_are_those_of_the_folders() -> None:
    """Docker Compose and Kubernetes have the same."""
    found = list(yaml.safe_load_all(rendered(EVERYTHING)))
    (boards,) = [one for one in found if one and one["metadata"]["name"].endswith("-dashboards")]
    files = {file.name: file for file in (DEPLOY / "grafana").glob("*.json")}
    assert set(boards.get("data") or {}) == set(files)
    for name, file in files.items():
        assert json.loads(boards["data"][name]) == json.loads(file.read_text(encoding="utf-8"))
    (rule,) = [one for one in found if one and one["kind"] == "PrometheusRule"]
    groups = [group for file in sorted((DEPLOY / "prometheus").glob("*.yml")) for group in groups_of(file)]
    assert rule["spec"]["groups"] == groups


def groups_of(file: Path) -> list[Any]:
    return list(yaml.safe_load(file.read_text(encoding="utf-8")).get("groups", []))


def test_the_links_of_the_alerts_lead_to_the_documentation_of_the_operator() -> None:
    pages = "https://docs.example.com/gateway/"
    values = {"settings": {"backend": BACKEND}, "prometheusRule": {"enabled": True, "runbookBaseUrl": pages}}
    groups = objects(values)["PrometheusRule"]["spec"]["groups"]
    links = [rule["annotations"]["runbook_url"] for group in groups for rule in group["rules"] if "alert" in rule]
    assert links
    assert [link for link in links if not link.startswith(f"{pages}docs/observability.md#")] == []


def test_the_alerts_of_a_release_link_to_its_pages(tmp_path: Path) -> None:
    pages = f"https://git.example/owner/name/blob/v{__version__}/docs/observability.md#"
    helm = tool("helm", "install-deploy-tools")
    environment = {**os.environ, "REPOSITORY_URL": "https://git.example/owner/name"}
    environment["PATH"] = f"{Path(helm).parent}:{environment['PATH']}"
    subprocess.run([DEPLOY.parent / "scripts" / "release-links", tmp_path], env=environment, check=True, capture_output=True)
    chart = tmp_path / f"responses-gateway-{__version__}.tgz"
    values = tmp_path / "values.yaml"
    values.write_text(json.dumps({"settings": {"backend": BACKEND}, "prometheusRule": {"enabled": True}}))
    rendered = run(helm, "template", "name", str(chart), "--values", str(values)).stdout
    rule = next(made for made in yaml.safe_load_all(rendered) if made["kind"] == "PrometheusRule")
    alone = groups_of(tmp_path / "alerts.yml")
    for groups in (alone, rule["spec"]["groups"]):
        links = [each["annotations"]["runbook_url"] for group in groups for each in group["rules"] if "alert" in each]
        assert links
        assert [link for link in links if not link.startswith(pages)] == []


@pytest.mark.parametrize(
    ("values", "said"),
    [
        ({}, "there is no backend: give the URL of your Chat Completions server"),
        ({"settings": {"backend": []}}, "there is no backend"),
        ({"settings": {"backend": "vllm:8000"}}, "must be a URL that begins with http://"),
        ({"settings": {"backend": ["http://a", "vllm:8000"]}}, "must be a URL that begins with http://"),
        ({"settings": {"backend": BACKEND, "drain_time": 3}}, "drain_time"),
        ({"settings": {"backend": BACKEND, "workers": "many"}}, "workers"),
        ({"settings": {"backend": BACKEND, "on_disconnect": "wait"}}, "on_disconnect"),
        ({"settings": {"backend": BACKEND, "store": "auto"}}, "which replicas do not share"),
        (
            {"settings": {"backend": BACKEND, "store": "memory"}, "autoscaling": {"enabled": True}},
            "which replicas do not share",
        ),
        ({"settings": {"backend": BACKEND}, "persistence": {"enabled": True}}, "persistence is for one replica"),
        ({"settings": {"backend": BACKEND, "backend_api_key": "sk-1"}}, "it is secrets.RESPONSES_GATEWAY_BACKEND_API_KEY"),
        ({"settings": {"backend": BACKEND, "admin_key": "x" * 16}}, "it is secrets.RESPONSES_GATEWAY_ADMIN_KEY"),
        ({"settings": {"backend": BACKEND, "port": 8080}}, "the chart sets it"),
        ({"settings": {"backends": {"gpu": {}}}}, "backends"),
        ({"settings": {"backend": BACKEND}, "replicas": 3}, "replicas"),
    ],
)
def test_what_cannot_work_is_refused(values: dict[str, Any], said: str) -> None:
    assert said in refusal(values)


def test_the_schema_of_the_settings_is_that_of_the_gateway() -> None:
    done = run(sys.executable, "scripts/chart_schema.py")
    assert done.returncode == 0, "run `make docs`"


@pytest.mark.parametrize(
    "settings",
    [
        {"backend": [BACKEND, "http://other:8000"], "api_keys": {"alice": {"hash": "sha256:" + "0" * 64}}},
        {"backend": BACKEND, "api_keys": {"bob": "sha256:" + "1" * 64, "eve": ["sha256:" + "2" * 64, "sha256:" + "3" * 64]}},
        {"backend": BACKEND, "store_max_bytes": "10GB", "cors_origins": "https://a.example", "custom_tool_grammar": False},
        {"backend": BACKEND, "mcp_servers": {"docs": {"url": "https://mcp.example.com", "allowed_tools": ["search"]}}},
    ],
)
def test_what_a_settings_file_may_say_the_chart_takes(settings: dict[str, Any]) -> None:
    assert "ConfigMap" in objects({"settings": settings})


def _settings_in_docs() -> list[dict[str, Any]]:
    """Return the blocks of settings that docs/ show, each hash whole."""
    known = set(Settings.model_fields)
    blocks = []
    for page in sorted((DEPLOY.parent / "docs").glob("*.md")):
        for text in re.findall(r"^ *```yaml\n(.*?)^ *```", page.read_text(encoding="utf-8"), re.DOTALL | re.MULTILINE):
            block = yaml.safe_load(re.sub(r"sha256:[0-9a-f]*…", "sha256:" + "0" * 64, textwrap.dedent(text)))
            if isinstance(block, dict) and set(block) <= known:
                blocks.append(block)
    return blocks


def test_the_chart_takes_every_block_of_settings_that_the_docs_show() -> None:
    schema = json.loads((CHART / "values.schema.json").read_text(encoding="utf-8"))
    secret = {"backend_api_key", "seal_key", "admin_key", "host", "port"}
    blocks = [{name: value for name, value in block.items() if name not in secret} for block in _settings_in_docs()]
    assert len(blocks) > 5
    checked = {"definitions": schema["definitions"], **schema["properties"]["settings"]}
    complaints = [
        (block, error.message) for block in blocks for error in jsonschema.Draft7Validator(checked).iter_errors(block)
    ]
    assert complaints == []
