"""The workflows for GitHub: they run the scripts of this repository, with no more rights than they need."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path
from typing import Any

import pytest
import yaml

from responses_gateway.version import __version__

ROOT = Path(__file__).parents[2]
WORKFLOWS = sorted((ROOT / ".github" / "workflows").glob("*.yml"))
TARGETS = set(re.findall(r"^([a-z-]+):.*## ", (ROOT / "Makefile").read_text(encoding="utf-8"), re.MULTILINE))


def read(path: Path) -> dict[str, Any]:
    content: dict[str, Any] = yaml.load(path.read_text(encoding="utf-8"), yaml.BaseLoader)  # `on` is a text, too
    return content


def commands(workflow: dict[str, Any]) -> str:
    return "\n".join(step["run"] for job in workflow["jobs"].values() for step in job["steps"] if "run" in step)


@pytest.mark.parametrize("path", WORKFLOWS, ids=lambda path: path.name)
def test_what_a_workflow_runs_exists(path: Path) -> None:
    text = commands(read(path))
    scripts = re.findall(r"(?:^|\s)((?:\.ci|scripts)/[\w-]+)", text)
    assert [name for name in scripts if not (ROOT / name).is_file()] == []
    assert set(re.findall(r"\bmake ([a-z-]+)", text)) <= TARGETS


@pytest.mark.parametrize("path", WORKFLOWS, ids=lambda path: path.name)
def test_a_workflow_may_only_read_and_its_jobs_say_what_more_they_need(path: Path) -> None:
    workflow = read(path)
    assert workflow["permissions"] == {"contents": "read"}
    assert all("timeout-minutes" in job or "needs" in job for job in workflow["jobs"].values())


def test_pull_requests_and_releases_pass_the_script_that_runs_locally() -> None:
    assert {path.name for path in WORKFLOWS if ".ci/run" in commands(read(path))} == {"ci.yml", "release.yml"}
    assert set(read(ROOT / ".github" / "workflows" / "ci.yml")["on"]) == {"push", "pull_request"}
    released = read(ROOT / ".github" / "workflows" / "release.yml")["jobs"]
    assert {"packages", "image-and-chart", "release"} <= {name for name, job in released.items() if "needs" in job}


def test_an_image_is_released_for_both_processors_with_its_provenance_and_its_parts() -> None:
    job = read(ROOT / ".github" / "workflows" / "release.yml")["jobs"]["image-and-chart"]
    words = " ".join(step.get("run", "") for step in job["steps"]).split()
    assert words[words.index("--platform") + 1] == "linux/amd64,linux/arm64"
    assert "--provenance mode=max --sbom true" in " ".join(words)
    assert "--build-arg BASE=" in " ".join(words).replace('"', ""), "the base is named by its digest"
    assert {"source", "version"} <= {word.strip('"').partition("=")[0].rpartition(".")[2] for word in words if "image." in word}
    assert any("attest-build-provenance" in step.get("uses", "") for step in job["steps"])
    assert job["permissions"].items() >= {"id-token": "write", "attestations": "write"}.items()


def test_ci_measures_the_coverage_and_a_run_before_a_commit_does_not() -> None:
    """Tracing makes a run longer by a third, and only the code of a pull request has to be covered."""
    assert re.search(r"^export COVERAGE=1\b", (ROOT / ".ci" / "run").read_text(encoding="utf-8"), re.MULTILINE)
    for coverage, measured in (("1", True), ("", False)):
        planned = subprocess.run(
            ["make", "--dry-run", "tests", f"COVERAGE={coverage}"], cwd=ROOT, capture_output=True, text=True, check=True
        )
        assert ("--cov --cov-fail-under=98" in planned.stdout) is measured


def test_all_data_are_tried_on_a_machine_of_their_own() -> None:
    """They take longer than all the rest of CI."""
    assert "make test THOROUGH=1" in commands(read(ROOT / ".github" / "workflows" / "ci.yml"))


def release_notes(*arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run([ROOT / "scripts" / "release-notes", *arguments], capture_output=True, text=True, check=False)


def test_the_release_notes_are_the_section_of_the_version() -> None:
    done = release_notes()
    assert done.returncode == 0, done.stderr
    assert "### Added" in done.stdout
    assert "## [" not in re.sub(r"^### ", "", done.stdout, flags=re.MULTILINE)


def test_a_tag_of_another_version_is_not_released() -> None:
    done = release_notes("v99.0.0")
    assert done.returncode == 1
    assert f"the tag is v99.0.0, the version {__version__}" in done.stderr
