"""The Dockerfile: what a linter says, and how large the image's Python packages are."""

from __future__ import annotations

import asyncio
import importlib.metadata
import json
import os
import re
import sys
from pathlib import Path

import pytest

from tests.deploy.checking_programs import ROOT, run, tool
from tests.server.gateway_process import program
from tests.server.process.test_sockets import certificate
from tests.server.running_gateway import run as run_async

# Bytes that the packages and our code may have; the image of Python below them has about 130 MB.
LARGEST = 180 * 1024 * 1024


def test_the_linter_has_nothing_against_the_dockerfile() -> None:
    done = run(tool("hadolint", "install-deploy-tools"), "--failure-threshold", "info", "Dockerfile")
    assert done.returncode == 0, done.stdout


@pytest.mark.parametrize("tls", [False, True])
def test_the_health_check_asks_the_gateway(tls: bool, tmp_path: Path) -> None:
    text = (ROOT / "Dockerfile").read_text(encoding="utf-8").replace("\\\n", "")  # a line goes on, as Docker reads it
    (check,) = re.findall(r"^HEALTHCHECK .* CMD (\[.*\])$", text, re.MULTILINE)
    _, *arguments = json.loads(check)
    variables: dict[str, str] = {}
    if tls:
        cert, key = certificate(tmp_path)
        variables = {"RESPONSES_GATEWAY_TLS_CERT": str(cert), "RESPONSES_GATEWAY_TLS_KEY": str(key)}

    async def status(port: int) -> int:
        environment = {**os.environ, **variables, "RESPONSES_GATEWAY_PORT": str(port)}
        asked = await asyncio.create_subprocess_exec(
            sys.executable, *arguments, env=environment, stderr=asyncio.subprocess.DEVNULL
        )
        return await asked.wait()

    async def test() -> None:
        async with program("--simulator", "--store", "none", **variables) as running:
            assert await status(running.port) == 0
        assert await status(running.port) == 1

    run_async(test())


def test_the_packages_of_the_image_are_small() -> None:
    """Measured where they are installed: pip puts the same files into the image."""
    lock = (ROOT / "requirements-image.lock").read_text(encoding="utf-8")
    names = re.findall(r"^([A-Za-z0-9._-]+)==(?!.*sys_platform == 'win32')", lock, re.MULTILINE)
    assert "psycopg" in names  # a store that replicas share
    total = sum(size_of(name) for name in names) + sum(
        file.stat().st_size for file in (ROOT / "proxy" / "responses_gateway").rglob("*.py")
    )
    assert 20 * 1024 * 1024 < total < LARGEST


def size_of(package: str) -> int:
    """Bytes of an installed distribution, twice those of its Python code: it is compiled. 0 for one of another platform."""
    try:
        files = importlib.metadata.files(package) or []
    except importlib.metadata.PackageNotFoundError:
        return 0
    paths = [Path(str(file.locate())) for file in files]
    return sum(
        path.stat().st_size * (2 if path.suffix == ".py" else 1) for path in paths if path.exists() and path.suffix != ".pyc"
    )
