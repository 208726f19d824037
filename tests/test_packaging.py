"""Files that must agree with each other: dependencies and locks, the image and the settings, the reference and its source."""

from __future__ import annotations

import json
import os
import re
import runpy
import subprocess
import sys
import tomllib
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from threading import Thread
from typing import Any

import pytest
import yaml
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from responses_gateway.cli import COMMANDS
from responses_gateway.conformance.rules import SHAPES, STATUSES
from responses_gateway.parsers import REPAIRS
from responses_gateway.request import Policy
from responses_gateway.server.generation.parser_choice.choice import ParserChoice
from responses_gateway.settings import ENV_PREFIX, Settings, variable
from responses_gateway.settings.load import load

ROOT = Path(__file__).parents[1]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
RUNTIME: list[str] = PROJECT["project"]["dependencies"]
DEVELOPMENT: list[str] = PROJECT["dependency-groups"]["dev"]
# The extras of the image: see `make lock`.
EXTRAS = ("postgres", "redis", "grammars", "otel", "mcp", "web", "pdf")
IMAGE: list[str] = [line for extra in EXTRAS for line in PROJECT["project"]["optional-dependencies"][extra]]
LOCKS = {
    "requirements.lock": RUNTIME,
    "requirements-image.lock": RUNTIME + IMAGE,
    "requirements-dev.lock": RUNTIME + DEVELOPMENT,
}


def text(name: str) -> str:
    return (ROOT / name).read_text(encoding="utf-8")


def pins(lock: str) -> dict[str, str]:
    """Canonical name -> version."""
    found = re.findall(r"^([A-Za-z0-9._-]+)==([^\s;]+)", text(lock), re.MULTILINE)
    return {str(canonicalize_name(name)): version for name, version in found}


# Locks


@pytest.mark.parametrize(("lock", "wanted"), LOCKS.items())
def test_a_lock_pins_every_dependency_within_its_bounds(lock: str, wanted: list[str]) -> None:
    pinned = pins(lock)
    requirements = [Requirement(line) for line in wanted]
    assert [str(each) for each in requirements if pinned.get(canonicalize_name(each.name), "") not in each.specifier] == []


def test_the_runtime_lock_has_nothing_of_development() -> None:
    runtime = {canonicalize_name(Requirement(line).name) for line in RUNTIME}
    development = {canonicalize_name(Requirement(line).name) for line in DEVELOPMENT} - runtime
    assert development & pins("requirements.lock").keys() == set()


@pytest.mark.parametrize("lock", ["requirements-image.lock", "requirements-dev.lock"])
def test_the_locks_pin_the_same_versions(lock: str) -> None:
    assert pins("requirements.lock").items() <= pins(lock).items()


@pytest.mark.parametrize("lock", LOCKS)
def test_a_lock_has_hashes_and_no_addresses(lock: str) -> None:
    lines = [line.strip() for line in text(lock).splitlines() if line.strip() and not line.startswith("#")]
    assert "://" not in text(lock)
    assert [line for line in lines if not re.match(r"[\w.-]+==\S+ (;.* )?\\$|--hash=sha256:[0-9a-f]{64}( \\)?$", line)] == []


def test_every_dependency_has_an_upper_bound() -> None:
    requirements = [Requirement(line) for line in RUNTIME + DEVELOPMENT]
    assert [each.name for each in requirements if not any("<" in bound.operator for bound in each.specifier)] == []


# Image and compose file


def test_the_image_listens_where_it_says() -> None:
    dockerfile = text("Dockerfile")
    port = Settings().port
    assert f"EXPOSE {port}\n" in dockerfile
    assert f"'RESPONSES_GATEWAY_PORT', '{port}'" in dockerfile  # the health check
    assert f"{variable('host')}=0.0.0.0" in dockerfile


def test_the_image_has_the_lock_and_no_more_and_is_not_root() -> None:
    dockerfile = text("Dockerfile")
    assert "--require-hashes --no-deps --only-binary :all: -r /build/requirements-image.lock" in dockerfile
    assert "requirements-dev" not in dockerfile
    final = dockerfile.rpartition("\nFROM ")[2]
    assert re.search(r"^USER 10001$", final, re.MULTILINE)
    assert "pip" not in final


def test_the_build_context_holds_what_the_image_copies() -> None:
    copied = re.findall(r"^COPY (?!--from)(\S+)", text("Dockerfile"), re.MULTILINE)
    sent = [line[1:] for line in text(".dockerignore").splitlines() if line.startswith("!")]
    assert sorted(copied) == sorted(sent)
    assert all((ROOT / name).exists() for name in copied)


def test_the_image_runs_a_python_that_we_support() -> None:
    found = re.search(r"^ARG PYTHON=(\S+)$", text("Dockerfile"), re.MULTILINE)
    assert found
    assert Requirement(f"python{PROJECT['project']['requires-python']}").specifier.contains(found[1])


@pytest.mark.parametrize(("status", "healthy"), [(200, True), (503, False), (None, False)])
def test_the_health_check_of_the_image_asks_the_gateway(status: int | None, healthy: bool) -> None:
    command = re.search(r"^HEALTHCHECK .*? CMD (\[.*?\])$", text("Dockerfile").replace("\\\n", ""), re.MULTILINE)
    assert command
    _, *arguments = json.loads(command[1])
    with gateway_with_health(status) as port:
        environ = {**os.environ, "RESPONSES_GATEWAY_PORT": str(port)}
        done = subprocess.run([sys.executable, *arguments], env=environ, capture_output=True, check=False)
    assert (done.returncode == 0) is healthy


@contextmanager
def gateway_with_health(status: int | None) -> Iterator[int]:
    """Serve /health with this status (everything else is 404) and yield the port; for None, the port of no server."""

    class Answer(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.send_response(status or 0 if self.path == "/health" else 404)
            self.end_headers()

        def log_message(self, format: str, *args: object) -> None:
            pass

    with HTTPServer(("127.0.0.1", 0), Answer) as server:
        if status is not None:
            server.timeout = 30
            answering = Thread(target=server.handle_request)
            answering.start()
            yield server.server_port
            answering.join()
    if status is None:
        yield server.server_port


def services() -> dict[str, dict[str, Any]]:
    found: dict[str, dict[str, Any]] = yaml.safe_load(text("docker-compose.yml"))["services"]
    return found


def test_the_environment_of_the_compose_file_is_accepted() -> None:
    environment = {
        name: re.sub(r"\$\{\w+:-([^}]*)\}", r"\1", value) for name, value in services()["gateway"]["environment"].items()
    }
    assert all(name.startswith(ENV_PREFIX) for name in environment)
    settings = load({}, None, environment)
    assert settings.backend == []  # nothing stands in for a backend that was not named
    assert settings.backend_api_key is None


def test_the_compose_file_publishes_the_port_of_the_gateway_to_this_machine_alone() -> None:
    port = Settings().port
    assert services()["gateway"]["ports"] == [f"${{ADDRESS:-127.0.0.1}}:${{PORT:-{port}}}:{port}"]


def test_the_compose_file_leaves_time_to_drain() -> None:
    grace = services()["gateway"]["stop_grace_period"]
    assert int(grace.removesuffix("s")) > Settings().drain_timeout


def test_the_demo_profile_adds_a_simulated_backend() -> None:
    simulator = services()["simulator"]
    assert simulator["profiles"] == ["demo"]
    assert simulator["command"][0] in COMMANDS
    assert "profiles" not in services()["gateway"]


# Documents


def test_the_configuration_reference_is_up_to_date() -> None:
    render = runpy.run_path(str(ROOT / "scripts" / "generate_docs.py"))["render"]
    assert text("docs/configuration.md") == render(), "run `make docs`"


def test_the_tables_of_the_translation_are_up_to_date() -> None:
    page = runpy.run_path(str(ROOT / "scripts" / "generate_docs.py"))
    assert text("docs/translation.md") == page["translation"](), "run `make docs`"
    foreign = {"response.reasoning"}  # another name of one that is there
    ours = {event for event in SHAPES if event.rpartition(".")[0] not in foreign or event in STATUSES}
    assert set(page["_WHEN"]) == ours


def test_the_names_of_parsers_are_up_to_date_and_every_counter_is_explained() -> None:
    document = text("docs/parsers.md")
    assert document == runpy.run_path(str(ROOT / "scripts" / "generate_docs.py"))["with_names"](document), "run `make docs`"
    kinds = {*REPAIRS, "call_rescued", "reasoning_rescued", "logprobs_dropped"}
    explained = re.findall(r"`(\w+)`", document.partition("## The counters")[2].partition("## Names")[0])
    assert kinds - set(explained) == set()


def test_the_models_in_the_documents_are_settings(tmp_path: Path) -> None:
    blocks = re.findall(r"```yaml\n(.*?)```", text("docs/parsers.md") + text("docs/configuration.md"), re.DOTALL)
    assert len(blocks) == 3
    for block in blocks:
        file = tmp_path / "gateway.yaml"
        file.write_text(block, encoding="utf-8")
        settings = load({}, file, {})
        assert settings.models
        ParserChoice(settings, Policy())  # the names exist


def test_the_codex_configuration_of_the_readme_is_valid_and_points_here() -> None:
    (block,) = re.findall(r"```toml\n(.*?)```", text("README.md"), re.DOTALL)
    config = tomllib.loads(block)
    provider = config["model_providers"][config["model_provider"]]
    assert provider["base_url"] == f"http://127.0.0.1:{Settings().port}/v1"
    assert provider["wire_api"] == "responses"
