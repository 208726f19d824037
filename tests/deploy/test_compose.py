"""docker-compose.yml, as Docker Compose itself reads it, and what its services mount."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
import yaml

from responses_gateway.settings import ENV_PREFIX, Settings, variable
from responses_gateway.simulator import SimulatorOptions
from tests.deploy.checking_programs import DEPLOY, ROOT, compose_command, run, tool

FILE: dict[str, Any] = yaml.safe_load((ROOT / "docker-compose.yml").read_text(encoding="utf-8"))
SERVICES: dict[str, Any] = FILE["services"]


def resolved(*profiles: str, **environ: str) -> dict[str, Any]:
    """Return what Compose makes of the file."""
    flags = [part for profile in profiles for part in ("--profile", profile)]
    done = run(*compose_command(), *flags, "config", **environ)
    assert done.returncode == 0, done.stderr
    services: dict[str, Any] = yaml.safe_load(done.stdout)["services"]
    return services


def enabled(*profiles: str) -> set[str]:
    """Return the services that `up` starts."""
    wanted = {name: service.get("profiles", []) for name, service in SERVICES.items()}
    return {name for name, needed in wanted.items() if not needed or set(needed) & set(profiles)}


def test_the_gateway_alone_needs_only_a_backend() -> None:
    gateway = resolved(BACKEND="http://gpu-server:8000", BACKEND_API_KEY="sk-1")["gateway"]
    assert gateway["environment"]["RESPONSES_GATEWAY_BACKEND"] == "http://gpu-server:8000"
    assert gateway["environment"]["RESPONSES_GATEWAY_BACKEND_API_KEY"] == "sk-1"
    assert enabled() == {"gateway"}


@pytest.mark.parametrize(
    ("profile", "added"),
    [
        ("demo", {"simulator"}),
        ("gpu", {"vllm"}),
        ("observe", {"prometheus", "grafana"}),
        ("search", {"searxng"}),
        ("scale", {"balancer", "replica", "postgres", "valkey"}),
    ],
)
def test_a_profile_adds_its_services(profile: str, added: set[str]) -> None:
    assert enabled(profile) == {"gateway"} | added
    assert resolved(profile).keys() >= added


def test_the_number_of_replicas_is_a_variable() -> None:
    replica = resolved("scale", REPLICAS="5")["replica"]
    assert replica["deploy"]["replicas"] == 5
    assert replica["environment"]["RESPONSES_GATEWAY_STORE"].startswith("postgresql://")


def test_every_variable_of_a_gateway_is_a_setting() -> None:
    known = {variable(name) for name in Settings.model_fields}
    given = {name for service in SERVICES.values() for name in service.get("environment", {}) if name.startswith(ENV_PREFIX)}
    assert given - known == set()


def test_images_are_of_one_version() -> None:
    images = {service["image"] for service in SERVICES.values() if "build" not in service}
    assert [image for image in images if not re.search(r":v?\d+\.\d+(\.\d+)?(-[0-9a-f]+)?$", image)] == []


def test_no_two_services_build_the_same_image() -> None:
    """Compose builds at the same time, and the second one to leave the name of the first fails."""
    built = [service["image"] for service in SERVICES.values() if "build" in service]
    assert sorted(built) == sorted(set(built))


def test_the_vllm_is_the_one_that_we_test_with() -> None:
    version = re.search(r"^VLLM := (\S+)$", (ROOT / "Makefile").read_text(encoding="utf-8"), re.MULTILINE)
    assert version
    assert SERVICES["vllm"]["image"].endswith(f":v{version[1]}")


def test_a_container_has_no_more_rights_than_it_needs() -> None:
    contained = {name for name, service in SERVICES.items() if service.get("read_only") and service.get("cap_drop") == ["ALL"]}
    assert set(SERVICES) - contained == {"vllm", "postgres"}
    assert all(service.get("security_opt") for name, service in SERVICES.items() if name != "vllm")


def test_a_gateway_can_record_and_be_administered() -> None:
    services = resolved("scale", ADMIN_KEY="a key of sixteen characters")
    for name in ("gateway", "replica"):
        assert services[name]["tmpfs"] == ["/tmp"]
        assert services[name]["environment"]["RESPONSES_GATEWAY_ADMIN_KEY"] == "a key of sixteen characters"


def test_ports_are_open_to_this_machine_alone() -> None:
    ports = [port for service in SERVICES.values() for port in service.get("ports", [])]
    assert [port for port in ports if not port.startswith(("127.0.0.1:", "${ADDRESS:-127.0.0.1}:"))] == []


def test_the_gateway_alone_is_opened_by_a_variable() -> None:
    services = resolved("scale", "observe", ADDRESS="0.0.0.0")
    opened = {name for name, service in services.items() for port in service.get("ports", []) if "0.0.0.0" in str(port)}
    assert opened == {"gateway", "balancer"}


def test_no_log_grows_without_end() -> None:
    assert {name for name, service in SERVICES.items() if "max-size" not in service["logging"]["options"]} == set()


def test_running_responses_have_time_to_end() -> None:
    grace = int(SERVICES["gateway"]["stop_grace_period"].removesuffix("s"))
    assert grace == int(SERVICES["replica"]["stop_grace_period"].removesuffix("s"))
    assert grace >= Settings().drain_timeout + 5


def test_what_is_mounted_exists() -> None:
    mounts = [volume.split(":")[0] for service in SERVICES.values() for volume in service.get("volumes", [])]
    assert [mount for mount in mounts if mount.startswith(".") and not (ROOT / mount).exists()] == []
    assert {mount for mount in mounts if not mount.startswith(".")} == set(FILE["volumes"])


def test_the_gateway_searches_with_the_searxng_beside_it() -> None:
    services = resolved("search", WEB_SEARCH_URL="http://searxng:8080")
    assert services["gateway"]["environment"]["RESPONSES_GATEWAY_WEB_SEARCH_URL"] == "http://searxng:8080"
    assert "ports" not in services["searxng"]
    settings = yaml.safe_load((DEPLOY / "searxng/settings.yml").read_text(encoding="utf-8"))
    assert "json" in settings["search"]["formats"]  # SearXNG refuses other formats with 403


def test_the_simulator_of_the_demo_takes_any_model() -> None:
    assert not SimulatorOptions().strict_models


# Prometheus and Grafana


def test_prometheus_reads_its_configuration(tmp_path: Path) -> None:
    """Check it with every rule of the folder, under the paths of the container."""
    promtool = tool("promtool", "install-servers")
    config = (DEPLOY / "prometheus/config/prometheus.yml").read_text(encoding="utf-8")
    rules = "/etc/prometheus/rules/"
    assert rules in config
    file = tmp_path / "prometheus.yml"
    file.write_text(config.replace(rules, f"{DEPLOY}/prometheus/"), encoding="utf-8")
    done = run(promtool, "check", "config", str(file))
    assert done.returncode == 0, done.stdout + done.stderr


def test_prometheus_asks_every_gateway() -> None:
    config = yaml.safe_load((DEPLOY / "prometheus/config/prometheus.yml").read_text(encoding="utf-8"))
    jobs = {job["job_name"]: job["dns_sd_configs"][0] for job in config["scrape_configs"]}
    gateways = {name for name, service in SERVICES.items() if "RESPONSES_GATEWAY_BACKEND" in service.get("environment", {})}
    assert set(jobs["responses-gateway"]["names"]) == gateways
    assert jobs["responses-gateway"]["port"] == Settings().port


def test_grafana_finds_what_is_provisioned() -> None:
    folder = DEPLOY / "grafana/provisioning"
    (source,) = yaml.safe_load((folder / "datasources/prometheus.yml").read_text(encoding="utf-8"))["datasources"]
    assert source["url"] == "http://prometheus:9090"
    (provider,) = yaml.safe_load((folder / "dashboards/responses-gateway.yml").read_text(encoding="utf-8"))["providers"]
    mounts = dict(volume.split(":")[:2] for volume in SERVICES["grafana"]["volumes"])
    assert provider["options"]["path"] == mounts["./deploy/grafana"]
    assert mounts["./deploy/grafana/provisioning"] == "/etc/grafana/provisioning"
