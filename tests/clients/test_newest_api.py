"""docs/translation.md names all that the newest `openai` package has, not only the one that is installed here."""

from __future__ import annotations

import importlib.metadata
import os
import re
import subprocess
import sys

import pytest

from tests.clients.client_programs import ROOT

NEWEST = ROOT / ".cache" / "clients" / "newest-openai"


def test_the_walk_over_its_types_holds_for_the_newest_package() -> None:
    found = [path.name for path in NEWEST.glob("openai-*.dist-info")]
    if not found:
        pytest.skip("the newest openai is not here: scripts/install-clients")
    version = re.sub(r"openai-(.*)\.dist-info", r"\1", found[0])
    if version == importlib.metadata.version("openai"):
        pytest.skip(f"{version} is the newest openai")
    walk = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "tests/request/test_api_today.py"]
    paths = os.pathsep.join(filter(None, [str(NEWEST), os.environ.get("PYTHONPATH")]))
    ended = subprocess.run(walk, cwd=ROOT, env={**os.environ, "PYTHONPATH": paths}, capture_output=True, text=True, check=False)
    assert ended.returncode == 0, f"openai {version}:\n{ended.stdout}{ended.stderr}"
