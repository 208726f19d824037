"""The programs that judge the files of deploy/, and what they are run on. A test whose program is absent is skipped."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

import pytest

from tests.waiting import PATIENCE

ROOT = Path(__file__).parents[2]
DEPLOY = ROOT / "deploy"
CHART = DEPLOY / "helm" / "responses-gateway"
_INSTALLED = ROOT / ".cache" / "deploy-tools" / "bin"


def tool(name: str, script: str) -> str:
    """Return the path of a program; skips the test where there is none. `script` is what installs it."""
    found = shutil.which(name, path=f"{_INSTALLED}:{os.environ.get('PATH', '')}:/usr/sbin")
    if found is None:
        pytest.skip(f"no {name} here: scripts/{script} installs it")
    return found


def installed_python() -> str:
    """Return a Python with the packages of scripts/install-deploy-tools; skips the test where there is none."""
    python = _INSTALLED.parent / "venv" / "bin" / "python"
    if not python.exists():
        pytest.skip("no packages to check with: scripts/install-deploy-tools installs them")
    return str(python)


def compose_command() -> list[str]:
    """Docker Compose, as a plugin of Docker or as a program of its own; skips the test where there is neither."""
    if shutil.which("docker") and run("docker", "compose", "version").returncode == 0:
        return ["docker", "compose"]
    return [tool("docker-compose", "install-servers")]


def run(*command: str, text: str | None = None, **environ: str) -> subprocess.CompletedProcess[str]:
    """Run a program from the checkout to its end. Helm and kubectl find no cluster."""
    env = {**os.environ, "KUBECONFIG": os.devnull, **environ}
    return subprocess.run(command, cwd=ROOT, env=env, input=text, capture_output=True, text=True, timeout=PATIENCE, check=False)
